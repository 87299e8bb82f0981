//! Waiting for a word to change, without a lock.

use std::sync::atomic::AtomicU32;

/// Waits while `word` is `value`, until woken or interrupted.
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    call(word, libc::FUTEX_WAIT, value);
}

/// Wakes at most `count` threads that wait for `word`.
pub(crate) fn wake(word: &AtomicU32, count: u32) {
    // The kernel takes a signed number.
    call(word, libc::FUTEX_WAKE, count.min(i32::MAX as u32));
}

fn call(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: a word that lives for the call, and no timeout.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, forever) };
}
