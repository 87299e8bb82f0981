//! The stage of this process's session, and waiting for a stage.
//!
//! The state is one word without a lock. So the child of a fork finds it valid, even if the thread that
//! changes it was in the middle of its work.
//!
//! | field | writer | ordering |
//! |---|---|---|
//! | [`NOW`] | the thread of the session; the thread that forked, in the child | release, acquire |
//! | [`ASKED`] | the first client's thread; the thread that forked, in the child | relaxed: nothing is published by it |
//! | [`BELL`] | the thread that changed one of them, by adding 1 | release, acquire |

use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A stage. `Ready`: the session exists, or will not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Stage {
    Starting,
    Begun,
    Ready,
}

static NOW: AtomicU32 = AtomicU32::new(Stage::Starting as u32);
static ASKED: AtomicBool = AtomicBool::new(false);
/// The word to wait by.
static BELL: AtomicU32 = AtomicU32::new(0);

fn ring() {
    BELL.fetch_add(1, Ordering::Release);
    // SAFETY: a word that lives; wakes only.
    unsafe { libc::syscall(libc::SYS_futex, BELL.as_ptr(), WAKE, i32::MAX) };
}

const WAKE: libc::c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
const WAIT: libc::c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;

/// Waits until the bell rings after `heard`, at most for `most`.
fn wait(heard: u32, most: Option<Duration>) {
    let most = most.map(|most| libc::timespec {
        tv_sec: libc::time_t::try_from(most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().into(),
    });
    let limit = most.as_ref().map_or(null(), |most| most as *const _);
    // SAFETY: a word that lives, and a time that does, or none.
    unsafe { libc::syscall(libc::SYS_futex, BELL.as_ptr(), WAIT, heard, limit) };
}

pub(crate) fn has_reached(stage: Stage) -> bool {
    NOW.load(Ordering::Acquire) >= stage as u32
}

pub(crate) fn reach(stage: Stage) {
    NOW.store(stage as u32, Ordering::Release);
    ring();
}

pub(crate) fn wait_until(stage: Stage) {
    loop {
        let heard = BELL.load(Ordering::Acquire);
        if has_reached(stage) {
            return;
        }
        wait(heard, None);
    }
}

/// Records that a client asks: the session must not wait any longer before it begins.
pub(crate) fn ask() {
    ASKED.store(true, Ordering::Relaxed);
    ring();
}

/// Waits for that long, or until a client asks; returns whether one asks.
pub(crate) fn wait_asked(most: Duration) -> bool {
    let heard = BELL.load(Ordering::Acquire);
    if !ASKED.load(Ordering::Relaxed) {
        wait(heard, Some(most));
    }
    ASKED.load(Ordering::Relaxed)
}

/// Resets the stage in the child of a fork whose session is yet to begin.
pub(crate) fn begin_anew() {
    ASKED.store(false, Ordering::Relaxed);
    NOW.store(Stage::Begun as u32, Ordering::Release);
}
