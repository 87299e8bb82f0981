//! Atomics and the lock: `std`'s, or loom's when the lock-free parts are model checked.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use uruk_base::locks::{Mutex, MutexGuard};

#[cfg(loom)]
loom::lazy_static! {
    static ref TURNS: loom::sync::atomic::AtomicU64 = loom::sync::atomic::AtomicU64::new(0);
}

/// A point where a model may switch threads. Loom 0.7 remembers only the last access to
/// an atomic: a writer that reads a field before it stores to it hides the reads of
/// others, and the interleavings around them are never tried. A relaxed addition to one
/// counter, before the steps that matter, makes those steps depend on each other; it
/// orders nothing else.
#[cfg(loom)]
pub(crate) fn turn() {
    TURNS.fetch_add(1, Ordering::Relaxed);
}
#[cfg(not(loom))]
pub(crate) fn turn() {}
