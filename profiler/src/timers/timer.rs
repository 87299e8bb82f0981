//! One POSIX timer on one thread's CPU clock.

use std::ptr;

use crate::source::SourceError;
use crate::threads;
use crate::timers::handler;

/// A timer of the process that made it. Dropping does not delete it: in the child of a fork the
/// number is unused, or names a timer of the program.
#[derive(Debug)]
pub(super) struct Timer {
    id: libc::timer_t,
    /// Rest of an interval that a pause interrupted, nanoseconds; 0 for none.
    left_ns: u64,
}

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
            return Ok(Timer {
                id: timer,
                left_ns: 0,
            });
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Err(SourceError::Timer { tid, signal, errno })
    }

    /// Arms the timer; an interval of 0 disarms it. An interval that a pause interrupted is
    /// finished first.
    pub(super) fn arm(&mut self, interval_ns: u64) {
        let first_ns = match std::mem::take(&mut self.left_ns) {
            0 => interval_ns,
            left_ns => left_ns.min(interval_ns),
        };
        self.set(first_ns, interval_ns);
    }

    /// Disarms the timer, and keeps the rest of the interval for [`Timer::arm`].
    pub(super) fn break_off(&mut self) {
        let left = self.set(0, 0);
        if left > 0 {
            self.left_ns = left;
        }
    }

    /// Sets the times to the first expiry and between expiries; returns the time that was left to
    /// the next expiry.
    fn set(&self, first_ns: u64, interval_ns: u64) -> u64 {
        let time = |ns: u64| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        };
        let setting = libc::itimerspec {
            it_interval: time(interval_ns),
            it_value: time(first_ns),
        };
        let mut before = libc::itimerspec {
            it_interval: time(0),
            it_value: time(0),
        };
        // SAFETY: our timer, which this process made; valid structures. It fails only for
        // a thread that is gone.
        unsafe { libc::timer_settime(self.id, 0, &setting, &mut before) };
        before.it_value.tv_sec as u64 * 1_000_000_000 + before.it_value.tv_nsec as u64
    }

    pub(super) fn delete(self) {
        // SAFETY: our timer, which this process made.
        unsafe { libc::timer_delete(self.id) };
    }
}
