//! Sets that end before they take effect: a member is removed while the set waits for old code to be left,
//! or the set is withdrawn.

use std::time::Duration;

use uruk::{Error, Jit, Level, ReplaceError, Replacement, Rollback};

use crate::old_code::{OldCode, SPIN, Waits, answer};

const NEW: &str = "
define i32 @spin() { ret i32 2 }
define i32 @unused() { ret i32 2 }";

#[test]
fn it_is_named_and_nothing_changes() {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", SPIN).expect("valid IR");
    let tracker = jit.main().create_tracker().expect("a tracker");
    let unused = "define i32 @unused() { ret i32 1 }";
    tracker.add_ir("unused", unused).expect("valid IR");
    let (old, spin) = (OldCode::of(&jit), answer(&jit, "spin"));
    std::thread::scope(|scope| {
        let spinner = scope.spawn(|| spin.call());
        old.wait_until_inside();
        // Longer than a test may take: it does not wait for that.
        let (new, waits) = Waits::new(NEW, Duration::from_secs(3600));
        let main = jit.main();
        let replaced = scope.spawn(move || main.replace(new).map(drop));
        waits.wait_until_it_waits();
        // SAFETY: nothing calls it.
        unsafe { tracker.remove() }.expect("removed");
        let refused = replaced.join().expect("no panic");
        old.leave();
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

/// Whether the error says that it was withdrawn.
fn is_withdrawn<T>(done: Result<T, Error>) -> bool {
    matches!(done, Err(Error::Replace(cause)) if matches!(*cause, ReplaceError::Withdrawn))
}

#[test]
fn a_set_that_is_withdrawn_changes_nothing_at_any_level() {
    let jit = Jit::new().expect("a session");
    let one = "define i32 @unused() { ret i32 1 }";
    jit.add_ir("m", one).expect("valid IR");
    let unused = answer(&jit, "unused");
    let new = "define i32 @unused() { ret i32 2 }";
    let wait = Duration::from_secs(3600);
    for level in [Level::Immediate, Level::Quiescent { wait }] {
        let new = Replacement::ir("new", new).level(level);
        let withdrawn = new.clone().withdraw_when(|| true);
        assert!(is_withdrawn(jit.main().replace(withdrawn)));
        assert_eq!(unused.call(), 1);
        jit.main().replace(new).expect("no thread is in it");
        assert_eq!(unused.call(), 2);
        let withdrawn = Rollback::from(level).withdraw_when(|| true);
        assert!(is_withdrawn(jit.rollback_at(withdrawn)));
        assert_eq!(unused.call(), 2);
        jit.rollback_at(level).expect("no thread is in it");
        assert_eq!(unused.call(), 1);
    }
}
