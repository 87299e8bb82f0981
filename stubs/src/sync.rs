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

/// One turn of a loop that polls for another thread's change. Async-signal-safe.
pub(crate) fn look_again() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

#[cfg(loom)]
loom::lazy_static! {
    static ref TURNS: AtomicU32 = AtomicU32::new(0);
}

/// A point where a model may switch threads. Loom 0.7 remembers only the last access to
/// an atomic: a thread that reads it before it writes it hides the reads of others, and
/// the interleavings around them are never tried. A relaxed addition to one counter,
/// before the steps that matter, makes those steps depend on each other; it orders
/// nothing else.
#[cfg(loom)]
pub(crate) fn turn() {
    TURNS.fetch_add(1, Ordering::Relaxed);
}
#[cfg(not(loom))]
pub(crate) fn turn() {}
