//! The threads that a replacement lists as still running the code that it replaced.

use std::sync::atomic::{AtomicI32, Ordering};

use uruk::{Replaced, Replacement};

use crate::replace_quiet::{NEW, SPIN, answer, jit, wait_until, while_spinning};

/// The code that a replacement brought is not what it replaced, and is what the next one replaces.
#[test]
fn who_runs_new_code_is_listed_by_the_next_replacement_only() {
    let jit = jit(SPIN);
    let spin = answer(&jit, "spin");
    let flag = jit.lookup("flag").expect("defined") as *const AtomicI32;
    // SAFETY: 4 aligned bytes of the session, used as atomics only.
    let flag = unsafe { &*flag };
    flag.store(1, Ordering::SeqCst);
    assert_eq!(spin.call(), 1);
    let again = SPIN.replace("= global i32 0", "= external global i32");
    let again = again.replace("ret i32 1", "ret i32 3");
    let first = jit.main().replace(Replacement::ir("again", &again));
    let first = first.expect("at once");
    flag.store(0, Ordering::SeqCst);
    let inside = jit.lookup("inside").expect("defined") as *const AtomicI32;
    // SAFETY: as above.
    unsafe { &*inside }.store(0, Ordering::SeqCst);
    while_spinning(&jit, |_| {
        let second = jit.main().replace(Replacement::ir("new", NEW));
        let second = second.expect("at once");
        let names_spinner = |replaced: &Replaced| {
            let activations = replaced.activations().expect("scanned");
            let mut of_spinner = activations.iter().filter(|held| held.thread == "spinner");
            of_spinner.any(|held| held.functions.iter().any(|name| name == "spin"))
        };
        wait_until("the spinner answers", || names_spinner(&second));
        assert!(!names_spinner(&first));
        let third = jit.main().replace(Replacement::ir("newer", NEW));
        let third = third.expect("at once");
        wait_until("the spinner answers", || names_spinner(&third));
        assert!(!names_spinner(&first));
    });
}
