//! A child that was made by a system call goes on like one of `fork`. In a process of its own:
//! the allocator, which `fork` would wait for, may be locked by whatever else runs.

use uruk::{Jit, Replacement};

type Answer = extern "C" fn() -> i32;

fn answer(jit: &Jit, name: &str) -> uruk::Func<Answer> {
    // SAFETY: functions of the test's module, which only compute.
    unsafe { jit.function(name) }.expect("typed")
}

fn replace(jit: &Jit, ir: &str) {
    let new = Replacement::ir("new", ir);
    jit.main().replace(new).expect("replaceable");
}

/// Whether a child of `fork` ends with what `work` says.
fn ends_well(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls code of the session and ends.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(if work() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

/// How a child ends that was made by a system call alone.
fn unseen_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child only calls code of the session and ends.
    let pid = unsafe { libc::syscall(libc::SYS_fork) } as libc::pid_t;
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(5);
            libc::_exit(if work() { 0 } else { 1 });
        }
    }
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

#[test]
fn a_child_that_nobody_was_told_of_catches_up() {
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
            late && f.call() == 2 && ends_well(|| f.call() == 2)
        };
        // Made while somebody compiled, it ends with that status, and a message. Made while a
        // thread was in one of the C library's locks, whose end this call does not wait for
        // either, it waits for that for ever, as natively.
        let spoilt = |status: &i32| *status == uruk::EXIT_FAILURE << 8 || *status == libc::SIGALRM;
        let mut ends = std::iter::repeat_with(|| unseen_child(work)).take(200);
        assert_eq!(ends.find(|end| !spoilt(end)), Some(0), "{by_call}");
    }
    assert_eq!((f.call(), late.call()), (1, 5));
}
