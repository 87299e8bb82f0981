//! Atomics: `std`'s, or loom's when the state machine is model checked.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// One turn of a loop that waits for another thread's next few instructions.
/// Async-signal-safe.
pub(crate) fn spin(turn: u32) {
    #[cfg(loom)]
    {
        let _ = turn;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if turn < 64 {
        std::hint::spin_loop();
    } else {
        crate::sys::sched_yield();
    }
}

/// One turn of a loop that looks for another thread's change. Async-signal-safe.
pub(crate) fn look_again() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
