//! Waiting for a word to change, without a lock.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Waits while `word` is `value`, until woken or interrupted.
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    call(word, libc::FUTEX_WAIT, value, None);
}

/// Waits like [`wait`], at most for `limit`.
pub(crate) fn wait_for(word: &AtomicU32, value: u32, limit: Duration) {
    call(word, libc::FUTEX_WAIT, value, Some(limit));
}

/// Wakes at most `count` threads that wait for `word`.
pub(crate) fn wake(word: &AtomicU32, count: u32) {
    // The kernel takes a signed number.
    call(word, libc::FUTEX_WAKE, count.min(i32::MAX as u32), None);
}

fn call(word: &AtomicU32, operation: libc::c_int, value: u32, limit: Option<Duration>) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a word and a limit that live for the call; null is no limit.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, limit) };
}
