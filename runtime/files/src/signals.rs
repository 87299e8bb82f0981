//! Keeps signals of failed writes from the program.

use std::io;
use std::mem::MaybeUninit;

/// Holds back `SIGXFSZ` and `SIGPIPE` of the calling thread's writes while it lives.
///
/// The kernel sends both to the thread whose write failed, where the default action ends the
/// process. They are blocked, and what arrived is taken at the end. A signal that was pending
/// before stays pending: it belongs to the program.
#[derive(Debug)]
pub struct WriteSignals {
    /// The mask before.
    mask: libc::sigset_t,
    /// Signals that were pending before.
    pending: libc::sigset_t,
}

const SIGNALS: [libc::c_int; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

impl WriteSignals {
    /// Blocks both signals on the calling thread.
    #[must_use]
    pub fn hold() -> WriteSignals {
        let (mut mask, mut pending) = (empty(), empty());
        // SAFETY: valid sets; the calls change nothing but the mask of this thread.
        unsafe {
            libc::sigpending(&raw mut pending);
            libc::pthread_sigmask(libc::SIG_BLOCK, &both(), &raw mut mask);
        }
        WriteSignals { mask, pending }
    }
}

impl Drop for WriteSignals {
    fn drop(&mut self) {
        // A caller may read the error of the write after this.
        let error = io::Error::last_os_error().raw_os_error();
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        for signal in SIGNALS {
            // SAFETY: valid sets, which live beyond the calls.
            unsafe {
                if libc::sigismember(&raw const self.pending, signal) == 1 {
                    continue;
                }
                let mut one = empty();
                libc::sigaddset(&raw mut one, signal);
                libc::sigtimedwait(&raw const one, std::ptr::null_mut(), &raw const at_once);
            }
        }
        // SAFETY: the mask of before; `errno` is this thread's.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.mask,
                std::ptr::null_mut(),
            );
            *libc::__errno_location() = error.unwrap_or(0);
        }
    }
}

fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes all of it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn both() -> libc::sigset_t {
    let mut set = empty();
    for signal in SIGNALS {
        // SAFETY: a valid set and numbers of signals.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}
