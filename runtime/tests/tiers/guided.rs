//! Tier 3 with a profile: what counted most is fast, and what was never seen still works.

use std::time::{Duration, Instant};

use uruk::{Jit, Tier};

/// Longest wait for something that happens in the background.
const PATIENCE: Duration = Duration::from_secs(120);

const APPLY: &str = "
define i64 @triple(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }
define i64 @negate(i64 %x) { %y = sub i64 0, %x ret i64 %y }
define ptr @pointer(i1 %rare) {
  %p = select i1 %rare, ptr @negate, ptr @triple
  ret ptr %p
}
define i64 @apply(ptr %f, i64 %n, i64 %way) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %s = phi i64 [ 1, %entry ], [ %t, %more ]
  switch i64 %way, label %plain [ i64 1, label %first i64 2, label %second ]
first: br label %more
second: br label %more
plain: br label %more
more:
  %add = phi i64 [ 10, %first ], [ 20, %second ], [ 0, %plain ]
  %u = add i64 %s, %add
  %t = call i64 %f(i64 %u)
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %out, label %loop
out:
  ret i64 %t
}";

/// The value that `apply` must return.
fn expected(rare: bool, n: i64, way: i64) -> i64 {
    let add = [0, 10, 20][way as usize];
    (0..n).fold(1, |s: i64, _| {
        let u = s.wrapping_add(add);
        if rare {
            u.wrapping_neg()
        } else {
            u.wrapping_mul(3)
        }
    })
}

#[test]
fn a_guided_version_answers_for_targets_and_ways_it_never_saw() {
    let jit = Jit::new().unwrap();
    jit.add_ir("m", APPLY).unwrap();
    // SAFETY: plain functions of the module above.
    let (apply, pointer) = unsafe {
        (
            jit.function::<extern "C" fn(*const u8, i64, i64) -> i64>("apply")
                .unwrap(),
            jit.function::<extern "C" fn(bool) -> *const u8>("pointer")
                .unwrap(),
        )
    };
    let (triple, negate) = (pointer.call(false), pointer.call(true));
    jit.main().pin("apply", Some(Tier::Guided)).unwrap();
    let start = Instant::now();
    while jit.tier("apply").unwrap() != Some(Tier::Guided) {
        // Through the version that counts, too.
        assert_eq!(apply.call(triple, 1000, 0), expected(false, 1000, 0));
        assert!(start.elapsed() < PATIENCE, "no guided version");
    }
    for n in [1, 7, 1000] {
        for way in 0..3 {
            assert_eq!(apply.call(triple, n, way), expected(false, n, way));
            assert_eq!(apply.call(negate, n, way), expected(true, n, way));
        }
    }
}
