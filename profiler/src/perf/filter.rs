//! Checks whether a seccomp filter would kill the process for opening an event.
//!
//! Most filters answer a forbidden call with an error, some (those of systemd units by default)
//! with a deadly signal. So in a process that has a filter, another process tries first: a copy of
//! this one. It is made without the C library's `fork`, so that no handler of the program runs. It
//! has no exit signal, so that no `SIGCHLD` comes and no `wait` of the program sees it. It does
//! nothing but the call.

use crate::source::SourceError;

/// `PR_GET_SECCOMP`'s answer for a process with a filter.
const FILTER: i32 = 2;

/// Checks that the system call is not answered with a deadly signal.
pub(super) fn check() -> Result<(), SourceError> {
    // SAFETY: the call takes no pointers.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    if mode != FILTER {
        return Ok(());
    }
    // SAFETY: no flags: a copy of this process with one thread, on copied memory. The
    // child makes system calls only and ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: the kernel reads no attributes through the null pointer, but refuses
        // them; the filter decides before.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            libc::syscall(libc::SYS_perf_event_open, 0, 0, 0, 0, 0);
            libc::syscall(libc::SYS_exit_group, 0);
        }
        unreachable!("exit_group does not return");
    }
    let mut status = 0;
    // SAFETY: a valid out pointer; retried when a signal of the program interrupts it.
    while child > 0 && unsafe { libc::waitpid(child as i32, &mut status, libc::__WALL) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(SourceError::Filtered { status: -1 });
        }
    }
    if child > 0 && libc::WIFEXITED(status) {
        return Ok(());
    }
    Err(SourceError::Filtered { status })
}
