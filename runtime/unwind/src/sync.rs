//! Atomics: `std`'s, or loom's when the index is model checked.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

#[cfg(loom)]
loom::lazy_static! {
    static ref TURNS: AtomicUsize = AtomicUsize::new(0);
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
