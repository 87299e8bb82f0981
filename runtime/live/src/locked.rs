//! Locks that no child of a fork finds held.
//!
//! Listeners of the session take them on its threads, under its passes; threads of this package do
//! besides. So each is taken under a pass ([`uruk::uncopied`]): while somebody has one, no process
//! is copied.

use std::sync::{Mutex, PoisonError};

/// A value behind a lock.
#[derive(Debug, Default)]
pub struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    /// Does `work` with the value, alone. It takes no other lock, and waits for nobody.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        uruk::uncopied(|| work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
