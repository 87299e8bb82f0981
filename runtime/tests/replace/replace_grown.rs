//! While a set waits for old code to be left, code is published that has a member of it in it: its
//! callers come into old code again and again, unless they wait as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uruk::{Jit, Tier};

use crate::old_code::{OldCode, SPIN, Waits, answer};

const OLD: &str = "
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
    jit.add_ir("m", &format!("{SPIN}{OLD}")).expect("valid IR");
    jit.pause_tiers();
    let old = OldCode::of(&jit);
    let [spin, pair, called] = ["spin", "pair", "called"].map(|name| answer(&jit, name));
    assert_eq!((pair.call(), called.call()), (0, 1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spinner = scope.spawn(|| spin.call());
        old.wait_until_inside();
        let (new, waits) = Waits::new(NEW, Duration::from_secs(120));
        let main = jit.main();
        let replaced = scope.spawn(move || main.replace(new).map(drop));
        waits.wait_until_it_waits();
        jit.compile_at("pair", Tier::Optimized).expect("compiled");
        let caller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(pair.call(), 0);
            }
        });
        // Its calls are under way.
        std::thread::sleep(Duration::from_millis(20));
        old.leave();
        let replaced = replaced.join().expect("no panic");
        stop.store(true, Ordering::Relaxed);
        caller.join().expect("never torn");
        assert_eq!(spinner.join().expect("no panic"), 1);
        replaced.expect("quiet in the end");
    });
    assert_eq!((pair.call(), called.call()), (0, 2));
}
