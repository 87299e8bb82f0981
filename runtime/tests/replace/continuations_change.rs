//! Replacement, rollback, removal and panics while a thread is in a continuation, above the frame
//! that left its loop.

use std::panic::catch_unwind;
use std::time::Duration;

use crate::spinning::{PATIENCE, Spinning, expected, function, left, look, session, spin, wait};
use uruk::{Error, Jit, Level, ReclaimKind, ReplaceError, Replacement, Tiers};

/// A thread in a continuation.
fn who_left(jit: &Jit, x: i64) -> Spinning {
    let before = left(jit);
    let spinning = Spinning::start(function(jit), x);
    jit.main().osr_loops("spin").expect("compiled");
    wait(|| left(jit) == before + 1);
    spinning.pass();
    spinning
}

#[test]
fn a_rollback_opens_loops_again() {
    let jit = session(Tiers::Auto, 3);
    jit.pause_tiers();
    let first = who_left(&jit, 5);
    let replaced = jit.main().replace(Replacement::ir("new", &spin(11)));
    let replaced = replaced.expect("replaced");
    let second = who_left(&jit, 6);
    replaced.rollback().expect("the latest");
    let third = who_left(&jit, 7);
    for (spinning, x, factor) in [(first, 5, 3), (second, 6, 11), (third, 7, 3)] {
        spinning.pass();
        let (result, passes) = spinning.end();
        assert_eq!(result, expected(factor, x, passes));
    }
}

#[test]
fn who_left_stays_in_what_is_removed() {
    let jit = Jit::builder().build().expect("a session");
    jit.pause_tiers();
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.main().define_address("look", look as *const ()) }.expect("a name");
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker.add_ir("spin", &spin(3)).expect("added");
    let spinning = who_left(&jit, 5);
    // SAFETY: nothing keeps an address of data.
    unsafe { tracker.remove() }.expect("removed");
    for _ in 0..5 {
        jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(1));
        jit.reclaim(ReclaimKind::Evacuate, Duration::from_secs(1));
        spinning.pass();
    }
    // The version that looped, and what it left for.
    assert_ne!(jit.stats().memory.retired, 0);
    let (result, passes) = spinning.end();
    assert_eq!(result, expected(3, 5, passes));
    wait(|| {
        jit.reclaim(ReclaimKind::Sweep, PATIENCE);
        jit.stats().memory.live == 0 && jit.stats().memory.retired == 0
    });
}

#[test]
fn who_left_holds_a_quiet_set_up() {
    let jit = session(Tiers::Auto, 3);
    jit.pause_tiers();
    let spinning = who_left(&jit, 5);
    let quiet = |wait| Replacement::ir("new", &spin(11)).level(Level::Quiescent { wait });
    let refused = jit.main().replace(quiet(Duration::from_millis(200)));
    let Err(Error::Replace(cause)) = refused else {
        panic!("replaced under who left: {refused:?}")
    };
    assert!(
        matches!(*cause, ReplaceError::StillRunning { .. }),
        "{cause}"
    );
    spinning.pass();
    let (result, passes) = spinning.end();
    assert_eq!(result, expected(3, 5, passes));
    jit.main()
        .replace(quiet(PATIENCE))
        .expect("nobody is in it");
    let (result, passes) = who_left(&jit, 6).end();
    assert_eq!(result, expected(11, 6, passes));
}

/// The function's loop calls `step`, which its continuation has inlined.
const CALLING: &str = "
    define i64 @step(i64 %s) { %m = mul i64 %s, 3 ret i64 %m }
    define i64 @spin(ptr %shared, i64 %x) {
    entry: br label %head
    head:
      %i = phi i64 [ 0, %entry ], [ %i1, %head ]
      %s = phi i64 [ %x, %entry ], [ %t, %head ]
      %t = call i64 @step(i64 %s)
      %i1 = add i64 %i, 1
      %passes = getelementptr i64, ptr %shared, i64 1
      store atomic i64 %i1, ptr %passes release, align 8
      %stop = load atomic i64, ptr %shared acquire, align 8
      %over = icmp ne i64 %stop, 0
      br i1 %over, label %done, label %head
    done: ret i64 %t }";

#[test]
fn what_a_continuation_inlined_can_be_replaced() {
    let jit = Jit::builder().build().expect("a session");
    jit.pause_tiers();
    jit.add_ir("spin", CALLING).expect("added");
    let power =
        |factor: i64, x: i64, passes: i64| (0..passes).fold(x, |all, _| all.wrapping_mul(factor));
    let first = who_left(&jit, 5);
    let new = "define i64 @step(i64 %s) { %m = mul i64 %s, 11 ret i64 %m }";
    let replaced = jit.main().replace(Replacement::ir("new", new));
    let replaced = replaced.expect("replaced");
    // The running continuation goes on in the body that it inlined, and the scan names it.
    let activations = replaced.activations().expect("a scan");
    let mut named = activations.iter().flat_map(|it| &it.functions);
    assert!(
        named.any(|it| it.starts_with("spin@loop")),
        "{activations:?}"
    );
    let second = who_left(&jit, 6);
    for (spinning, x, factor) in [(first, 5, 3), (second, 6, 11)] {
        spinning.pass();
        let (result, passes) = spinning.end();
        assert_eq!(result, power(factor, x, passes), "{factor}");
    }
    replaced.rollback().expect("the latest");
    let (result, passes) = who_left(&jit, 7).end();
    assert_eq!(result, power(3, 7, passes));
}

/// The policy offers a withdrawn continuation again, although it is compiled already: the function
/// has no other loop to leave.
#[test]
fn what_is_allowed_again_is_left_again() {
    let jit = Jit::builder()
        .tiers(Tiers::Auto)
        .build()
        .expect("a session");
    // Else the function may be at tier 2 by the time at which another thread calls it.
    jit.pause_tiers();
    jit.add_ir("spin", CALLING).expect("added");
    let spinning = who_left(&jit, 5);
    let forbid = |forbidden| {
        let main = jit.main();
        main.forbid_osr("spin", forbidden).expect("known");
    };
    forbid(true);
    let other = Spinning::start(function(&jit), 6);
    other.pass();
    assert_eq!(left(&jit), 1);
    forbid(false);
    jit.resume_tiers();
    wait(|| left(&jit) == 2);
    spinning.end();
    other.end();
}

extern "C-unwind" fn boom(pass: i64, last: i64) {
    if pass == last {
        std::panic::panic_any(pass);
    }
}

#[test]
fn a_panic_passes_through_both_frames() {
    let jit = Jit::builder()
        .tiers(Tiers::Leave(2))
        .build()
        .expect("a session");
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.main().define_address("boom", boom as *const ()) }.expect("a name");
    jit.add_ir(
        "m",
        "declare void @boom(i64, i64)
         define i64 @loops(i64 %last) {
         entry: br label %head
         head:
           %i = phi i64 [ 0, %entry ], [ %j, %head ]
           call void @boom(i64 %i, i64 %last)
           %j = add i64 %i, 1
           %more = icmp slt i64 %j, 20
           br i1 %more, label %head, label %done
         done: ret i64 %j }",
    )
    .expect("added");
    let address = jit.lookup("loops").expect("known") as usize;
    // SAFETY: the function above, through which a panic may pass.
    let loops = unsafe { std::mem::transmute::<usize, extern "C-unwind" fn(i64) -> i64>(address) };
    std::panic::set_hook(Box::new(|_| {}));
    assert_eq!(loops(77), 20);
    for last in [0, 1, 2, 7, 19] {
        let caught = catch_unwind(|| loops(last)).expect_err("thrown");
        assert_eq!(caught.downcast_ref::<i64>(), Some(&last));
    }
    assert_eq!(left(&jit), 6);
}
