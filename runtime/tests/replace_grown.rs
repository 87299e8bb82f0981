//! While a set waits for old code to be left, code is published that has a member of it in it: its
//! callers come into old code again and again, unless they wait as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use uruk::{Jit, Level, Replacement, Tier};

type Answer = extern "C" fn() -> i32;

const OLD: &str = "
@flag = global i32 0
@inside = global i32 0
define i32 @spin() {
entry:
  store atomic i32 1, ptr @inside seq_cst, align 4
  br label %loop
loop:
  %f = load atomic i32, ptr @flag seq_cst, align 4
  %go = icmp eq i32 %f, 0
  br i1 %go, label %loop, label %done
done:
  ret i32 1
}
define i32 @inlined() { ret i32 1 }
define i32 @called() noinline { ret i32 1 }
define i32 @pair() {
  %a = call i32 @inlined()
  %b = call i32 @called()
  %d = sub i32 %a, %b
  ret i32 %d
}";

const NEW: &str = "
define i32 @spin() { ret i32 2 }
define i32 @inlined() { ret i32 2 }
define i32 @called() noinline { ret i32 2 }";

#[test]
fn who_calls_it_waits_too() {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", OLD).expect("valid IR");
    jit.pause_tiers();
    let word = |name| {
        let address = jit.lookup(name).expect("defined") as *const AtomicI32;
        // SAFETY: 4 aligned bytes of the session, used as atomics only.
        unsafe { &*address }
    };
    let (flag, inside) = (word("flag"), word("inside"));
    // SAFETY: the functions above.
    let [spin, pair, called] = ["spin", "pair", "called"]
        .map(|name| unsafe { jit.function::<Answer>(name) }.expect("typed"));
    assert_eq!((pair.call(), called.call()), (0, 1));
    let (waits, stop) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let spinner = scope.spawn(|| spin.call());
        while inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let asked = Arc::clone(&waits);
        let wait = Duration::from_secs(120);
        let new = Replacement::ir("new", NEW).level(Level::Quiescent { wait });
        let new = new.withdraw_when(move || {
            asked.store(true, Ordering::Relaxed);
            false
        });
        let main = jit.main();
        let replaced = scope.spawn(move || main.replace(new).map(drop));
        while !waits.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        jit.compile_at("pair", Tier::Optimized).expect("compiled");
        let caller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(pair.call(), 0);
            }
        });
        // Its calls are under way.
        std::thread::sleep(Duration::from_millis(20));
        flag.store(1, Ordering::SeqCst);
        let replaced = replaced.join().expect("no panic");
        stop.store(true, Ordering::Relaxed);
        caller.join().expect("never torn");
        assert_eq!(spinner.join().expect("no panic"), 1);
        replaced.expect("quiet in the end");
    });
    assert_eq!((pair.call(), called.call()), (0, 2));
}
