//! The primitives of this package, in one place so that a model checker can stand in
//! for them (`--cfg loom`).
//!
//! No `fork` finds the lock held (`uruk_base::locks`). It is not poisoned by a panic, because
//! the state under it is changed only after the last step that can fail.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync as raw;
pub(crate) use raw::MutexGuard;
#[cfg(not(loom))]
use uruk_base::locks as raw;

/// A lock that is not poisoned by panics.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(raw::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(raw::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> raw::MutexGuard<'_, T> {
        #[cfg(not(loom))]
        return self.0.lock();
        #[cfg(loom)]
        (self.0.lock()).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
