//! A child that was made by a system call goes on like one of `fork`. In a process of its own:
//! the allocator, which `fork` would wait for, may be locked by whatever else runs.

use std::time::{Duration, Instant};

use uruk::{Jit, Replacement};
use uruk_testing::in_own_process;

type Answer = extern "C" fn() -> i32;

fn answer(jit: &Jit, name: &str) -> uruk::Func<Answer> {
    // SAFETY: functions of the test's module, which only compute.
    unsafe { jit.function(name) }.expect("typed")
}

fn replace(jit: &Jit, ir: &str) {
    let new = Replacement::ir("new", ir);
    jit.main().replace(new).expect("replaceable");
}

/// How a child ends that was made by a system call alone; `None` if it was ended. It allocates,
/// and one of the allocator's locks may have been held at the copy, by the harness or by a
/// thread of the library's that ended just then: then it waits for ever, as natively.
fn unseen_child(work: impl FnOnce() -> bool) -> Option<i32> {
    const LONGEST: Duration = Duration::from_secs(60);
    // SAFETY: the child only calls code of the session and ends.
    let pid = unsafe { libc::syscall(libc::SYS_fork) } as libc::pid_t;
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(if work() { 0 } else { 1 }) };
    }
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: our child, until it is gone.
    unsafe {
        while libc::waitpid(pid, &raw mut status, libc::WNOHANG) == 0 {
            if start.elapsed() > LONGEST {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, &raw mut status, 0);
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Some(status)
}

#[test]
fn a_child_that_nobody_was_told_of_catches_up() {
    if !in_own_process(module_path!(), "a_child_that_nobody_was_told_of_catches_up") {
        return;
    }
    let jit = Jit::builder().jobs(1).build().expect("a session");
    jit.add_ir(
        "m",
        "define i32 @f() { ret i32 1 } define i32 @late() { ret i32 5 }",
    )
    .expect("valid");
    let [f, late] = ["f", "late"].map(|name| answer(&jit, name));
    assert_eq!(f.call(), 1);
    // By a call first, and by the library.
    for by_call in [true, false] {
        let work = || {
            let late = !by_call || late.call() == 5;
            replace(&jit, "define i32 @f() { ret i32 2 }");
            // A child of the child runs what its parent compiled.
            late && f.call() == 2 && unseen_child(|| f.call() == 2) == Some(0)
        };
        // A child that is made while a thread compiles says so and ends with that status.
        let spoilt = |end: &Option<i32>| end.is_none_or(|end| end == uruk::EXIT_FAILURE << 8);
        let mut ends = std::iter::repeat_with(|| unseen_child(work)).take(20);
        assert_eq!(ends.find(|end| !spoilt(end)), Some(Some(0)), "{by_call}");
    }
    assert_eq!((f.call(), late.call()), (1, 5));
}
