//! One POSIX timer on one thread's CPU clock.

use std::ptr;

use crate::source::SourceError;
use crate::threads;
use crate::timers::handler;

/// A timer of the process that made it. Not deleted by dropping: in the child of a
/// fork the number is nobody's, or the program's.
#[derive(Debug)]
pub(super) struct Timer(libc::timer_t);

// SAFETY: a number of the process, not of a thread.
unsafe impl Send for Timer {}

impl Timer {
    /// A timer that will signal `tid`, not armed.
    pub(super) fn create(tid: i32, signal: i32) -> Result<Timer, SourceError> {
        // SAFETY: zero bytes are a valid structure.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = tid;
        event.sigev_value.sival_ptr = ptr::without_provenance_mut(handler::mark(tid) as usize);
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: valid structures; the signal has our handler.
        if unsafe { libc::timer_create(threads::cpu_clock(tid), &mut event, &mut timer) } == 0 {
            return Ok(Timer(timer));
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Err(SourceError::Timer { tid, signal, errno })
    }

    /// Arms the timer; an interval of 0 disarms it.
    pub(super) fn arm(&self, interval_ns: u64) {
        let interval = libc::timespec {
            tv_sec: (interval_ns / 1_000_000_000) as i64,
            tv_nsec: (interval_ns % 1_000_000_000) as i64,
        };
        let setting = libc::itimerspec {
            it_interval: interval,
            it_value: interval,
        };
        // SAFETY: our timer, which this process made. It fails only for a thread that
        // is gone.
        unsafe { libc::timer_settime(self.0, 0, &setting, ptr::null_mut()) };
    }

    pub(super) fn delete(self) {
        // SAFETY: our timer, which this process made.
        unsafe { libc::timer_delete(self.0) };
    }
}
