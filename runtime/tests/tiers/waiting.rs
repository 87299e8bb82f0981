//! No caller of a function waits for a better version of it.
//!
//! A thread that waits, for a lock, a compile or another thread, gives its processor away by
//! itself and is counted for it (`ru_nvcsw`); one that others push aside is not. So the
//! test says the same on a busy machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use uruk::{Jit, Tier};
use uruk_testing::in_own_process;

const WORK: &str = "
define i64 @inner(i64 %x) noinline {
  %a = mul i64 %x, 6364136223846793005
  %b = add i64 %a, 1442695040888963407
  ret i64 %b
}
define i64 @work(i64 %x) noinline {
  %a = call i64 @inner(i64 %x)
  %b = call i64 @inner(i64 %a)
  %c = xor i64 %a, %b
  ret i64 %c
}";
const CHANGES: usize = 200;
const CALLERS: usize = 2;
/// The first touch of a page of new code may have to wait for the kernel's own lock.
const SWITCHES: i64 = CHANGES as i64 / 10;

/// How often the calling thread gave its processor away by itself.
fn switches() -> i64 {
    // SAFETY: all bytes zero is a value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: one live place for the result; the calling thread always exists.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nvcsw
}

fn expected(x: i64) -> i64 {
    let inner = |x: i64| {
        x.wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407)
    };
    inner(x) ^ inner(inner(x))
}

#[test]
fn callers_do_not_wait_for_tier_ups() {
    if !in_own_process(module_path!(), "callers_do_not_wait_for_tier_ups") {
        return;
    }
    let jit = Jit::builder().build().unwrap();
    jit.pause_tiers();
    jit.add_ir("m", WORK).unwrap();
    // SAFETY: the type is that of the source above.
    let work = unsafe { jit.function::<extern "C" fn(i64) -> i64>("work") }.unwrap();
    assert_eq!(work.call(3), expected(3));
    // Relaxed: nothing is handed over by it.
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let worst = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                scope.spawn(|| {
                    let (before, mut x) = (switches(), 0);
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(work.call(x), expected(x));
                        x += 1;
                    }
                    calls.fetch_add(x as u64, Ordering::Relaxed);
                    switches() - before
                })
            })
            .collect();
        for change in 0..CHANGES {
            let tier = [Tier::Optimized, Tier::Baseline][change / 2 % 2];
            let name = ["work", "inner"][change % 2];
            jit.compile_at(name, tier).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        let switches = callers.into_iter().map(|caller| caller.join().unwrap());
        switches.max().unwrap()
    });
    let calls = calls.load(Ordering::Relaxed);
    assert!(calls > CHANGES as u64, "{calls} calls");
    assert!(
        worst <= SWITCHES,
        "a caller gave its processor away {worst} times in {CHANGES} tier-ups"
    );
}
