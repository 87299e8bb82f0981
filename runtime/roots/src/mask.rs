//! Decides whether a thread would handle a signal that it is sent.
//!
//! The kernel shows the current mask, which some calls change for their duration:
//!
//! | a thread in | shown | a signal |
//! |---|---|---|
//! | `rt_sigtimedwait` (`sigwait`, `sigwaitinfo`) | the awaited signals as not blocked | is the call's result, if it is awaited |
//! | `ppoll`, `pselect6`, `epoll_pwait`, `epoll_pwait2`, `rt_sigsuspend`, `io_uring_enter` with a mask | the call's mask | ends the call with `EINTR` |
//!
//! Threads in these calls are not asked: a thread that sleeps there is read from outside. `/proc` shows
//! the call only of a sleeping thread. A thread that was woken there keeps the call's mask until it gets
//! a processor, which may take milliseconds, and is shown as running. So a mask counts only if it is
//! shown a second time after the thread has run for [`RUN`] of a processor's time, in which it leaves
//! the call, and has not slept since; or [`OFTEN`] times, for a thread that sleeps more often than it is
//! checked.
//!
//! This delays requests to a thread that waits for a processor. So it is done only in a process where a
//! thread was seen in `rt_sigtimedwait`, and in the [`FIRST`] scans, in which one would have been seen.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | [`TAKES`] | the thread that scans, once it sees such a thread | relaxed: a hint, only ever set |
//! | [`SCANS`] | the thread that scans | relaxed: a count |

use crate::sync::{AtomicU32, Ordering};
use crate::sys;
use crate::task::{self, Outside, Unread};

/// 1 once a thread was seen that takes signals by `rt_sigtimedwait`.
static TAKES: AtomicU32 = AtomicU32::new(0);

/// Scans so far, up to [`FIRST`].
static SCANS: AtomicU32 = AtomicU32::new(0);

/// Scans after which masks are trusted in a process where no thread was seen to take signals.
const FIRST: u32 = 16;

/// Counts a scan.
pub(crate) fn scan_begins() {
    if SCANS.load(Ordering::Relaxed) < FIRST {
        SCANS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Records that a thread was seen asleep in this call.
pub(crate) fn note_call(number: i64) {
    if number == libc::SYS_rt_sigtimedwait {
        TAKES.store(1, Ordering::Relaxed);
    }
}

fn is_trusted() -> bool {
    TAKES.load(Ordering::Relaxed) == 0 && SCANS.load(Ordering::Relaxed) >= FIRST
}

/// Processor time within which a thread that was woken leaves its call.
const RUN: u64 = 10_000;

/// Open masks in a row that count, whether the thread has slept between them or not.
const OFTEN: u32 = 5;

/// The mask of a thread, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    /// The signal would be handled.
    Open,
    /// The signal is blocked, or awaited.
    Blocked,
    /// The mask may be that of a call.
    Unsure,
}

/// Open masks that a thread was seen with, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    times: u32,
    last: Option<Sighting>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    /// Processor time that the thread had used.
    ran: u64,
    /// How often it had slept.
    slept: u64,
}

/// Reads the mask of a thread that was `seen` before.
pub(crate) fn look(tid: i32, signal: i32, seen: &mut Seen) -> Result<Mask, Unread> {
    loop {
        if let Some(last) = seen.last
            && !runs(tid, last.ran)
        {
            return Ok(Mask::Unsure);
        }
        let (mask, slept) = shown(tid, signal)?;
        // After the mask was read.
        let ran = sys::processor_ns(tid);
        let same = seen.last.is_some_and(|last| last.slept == slept);
        seen.times += 1;
        if mask != Mask::Open || is_trusted() || same || seen.times >= OFTEN {
            *seen = Seen::default();
            return Ok(mask);
        }
        let Some(ran) = ran else {
            // The clock is forbidden.
            return Ok(mask);
        };
        seen.last = Some(Sighting { ran, slept });
    }
}

/// Waits until the thread has run for [`RUN`] since then; false if it has no processor.
fn runs(tid: i32, since: u64) -> bool {
    let mut before = None;
    loop {
        // The next read of its mask detects a thread that has ended.
        let Some(now) = sys::processor_ns(tid) else {
            return true;
        };
        if now.saturating_sub(since) >= RUN {
            return true;
        }
        // The clock of a thread with a processor goes on between any two readings.
        if before == Some(now) {
            return false;
        }
        before = Some(now);
        std::hint::spin_loop();
    }
}

/// The mask as the kernel shows it, with the call that the thread sleeps in, and how often it has slept.
fn shown(tid: i32, signal: i32) -> Result<(Mask, u64), Unread> {
    let (blocked, slept) = task::blocks(tid, signal)?;
    if blocked {
        return Ok((Mask::Blocked, slept));
    }
    // Read after the mask: a thread in the call now is in it still, or has left it with its own mask.
    let mask = match task::outside(tid)? {
        Outside::InCall { number, words } => {
            note_call(number);
            in_call(number, &words)
        }
        _ => Mask::Open,
    };
    Ok((mask, slept))
}

fn in_call(number: i64, words: &[u64; 8]) -> Mask {
    let mask = match number {
        libc::SYS_rt_sigtimedwait => return Mask::Blocked,
        libc::SYS_rt_sigsuspend => return Mask::Unsure,
        libc::SYS_ppoll => words[3],
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_io_uring_enter => words[4],
        libc::SYS_pselect6 => words[5],
        _ => 0,
    };
    match mask {
        0 => Mask::Open,
        _ => Mask::Unsure,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::{Mask, Seen, Sighting, look, note_call};
    use crate::sys;
    use crate::task::{self, Outside};

    /// The last look at a thread that blocks all signals and has come to sleep in `wait`.
    fn look_at_sleeper(number: i64, wait: impl FnOnce(&libc::sigset_t) + Send + 'static) -> Mask {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: a set that the call fills.
            let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
            // SAFETY: a valid set; the mask of a thread of this test.
            unsafe {
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
            }
            tell.send(sys::gettid()).expect("the test waits");
            wait(&all);
        });
        let tid = told.recv().expect("a thread");
        let sleeps = || {
            let outside = task::outside(tid).expect("a thread that sleeps");
            matches!(outside, Outside::InCall { number: found, .. } if found == number)
        };
        while !sleeps() {
            std::thread::yield_now();
        }
        let seen = look(tid, libc::SIGURG, &mut Seen::default()).expect("a mask");
        // SAFETY: a thread of this process; it takes the signal.
        unsafe { libc::syscall(libc::SYS_tgkill, sys::getpid(), tid, libc::SIGUSR2) };
        thread.join().expect("it ends");
        seen
    }

    extern "C" fn nothing(_: libc::c_int) {}

    #[test]
    fn a_thread_that_waits_for_signals_is_not_open() {
        let seen = look_at_sleeper(libc::SYS_rt_sigtimedwait, |all| {
            // SAFETY: a valid set; the signal's data are not asked for.
            unsafe { libc::sigwaitinfo(all, std::ptr::null_mut()) };
        });
        assert_eq!(seen, Mask::Blocked);
    }

    #[test]
    fn the_mask_of_a_call_is_not_the_thread_s() {
        // SAFETY: a handler that does nothing.
        unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
        let seen = look_at_sleeper(libc::SYS_ppoll, |_| {
            // SAFETY: an empty set, no files, no time.
            unsafe {
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                libc::ppoll(std::ptr::null_mut(), 0, std::ptr::null(), &none);
            }
        });
        assert_eq!(seen, Mask::Unsure);
    }

    #[test]
    fn a_thread_without_a_processor_since_is_not_open() {
        let tid = sys::gettid();
        note_call(libc::SYS_rt_sigtimedwait);
        let at = |ran| Seen {
            times: 1,
            last: Some(Sighting { ran, slept: 0 }),
        };
        let ahead = sys::processor_ns(tid).expect("a clock") + 3_600_000_000_000;
        assert_eq!(look(tid, libc::SIGURG, &mut at(ahead)), Ok(Mask::Unsure));
        assert_eq!(look(tid, libc::SIGURG, &mut at(0)), Ok(Mask::Open));
    }
}
