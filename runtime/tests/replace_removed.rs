//! A member of a set is removed while the set waits for old code to be left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use uruk::{Error, Jit, Level, ReplaceError, Replacement};

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
}";

const NEW: &str = "
define i32 @spin() { ret i32 2 }
define i32 @unused() { ret i32 2 }";

#[test]
fn it_is_named_and_nothing_changes() {
    type Answer = extern "C" fn() -> i32;
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", OLD).expect("valid IR");
    let tracker = jit.main().create_tracker().expect("a tracker");
    let unused = "define i32 @unused() { ret i32 1 }";
    tracker.add_ir("unused", unused).expect("valid IR");
    let word = |name| {
        let address = jit.lookup(name).expect("defined") as *const AtomicI32;
        // SAFETY: 4 aligned bytes of the session, used as atomics only.
        unsafe { &*address }
    };
    let (flag, inside) = (word("flag"), word("inside"));
    // SAFETY: the function above.
    let spin = unsafe { jit.function::<Answer>("spin") }.expect("typed");
    let waits = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let spinner = scope.spawn(|| spin.call());
        while inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let asked = Arc::clone(&waits);
        // Longer than a test may take: it does not wait for that.
        let level = Level::Quiescent {
            wait: Duration::from_secs(3600),
        };
        let new = Replacement::ir("new", NEW).level(level);
        let new = new.withdraw_when(move || {
            asked.store(true, Ordering::Relaxed);
            false
        });
        let main = jit.main();
        let replaced = scope.spawn(move || main.replace(new).map(drop));
        while !waits.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        // SAFETY: nothing calls it.
        unsafe { tracker.remove() }.expect("removed");
        let refused = replaced.join().expect("no panic");
        flag.store(1, Ordering::SeqCst);
        assert_eq!(spinner.join().expect("no panic"), 1);
        let Err(Error::Replace(cause)) = refused else {
            panic!("{refused:?}")
        };
        assert!(
            matches!(&*cause, ReplaceError::Removed { function } if function == "unused"),
            "{cause}"
        );
    });
    assert_eq!(spin.call(), 1);
}
