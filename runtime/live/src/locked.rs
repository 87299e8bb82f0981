//! Locks that no child of a fork finds held.
//!
//! Listeners of the session take them on its threads, under its passes; threads of this package do
//! besides. So each is taken under a pass ([`uruk::live::uncopied`]): while somebody has one, no process
//! is copied.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A value behind a lock.
#[derive(Debug, Default)]
pub struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Locked<T> {
        Locked(Mutex::new(value))
    }

    /// Does `work` with the value, alone. It takes no other lock, and waits for nobody.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        uruk::live::uncopied(|| work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A turn that one thread at a time has, for long. A child of a fork does not have those of its
/// parent's threads.
///
/// | field | writer | ordering |
/// |---|---|---|
/// | the process that has it, 0 if none has | the thread that takes it, by compare-exchange, and gives it back | acquire, release |
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicU32);

/// Gives the turn back.
#[derive(Debug)]
pub(crate) struct Taken<'t>(&'t AtomicU32);

impl Turn {
    /// Between two looks whether the turn is free.
    const PAUSE: Duration = Duration::from_millis(2);

    /// Takes the turn, once the thread that has it gives it back.
    pub(crate) fn take(&self) -> Taken<'_> {
        let own = std::process::id();
        loop {
            let found = self.0.load(Ordering::Relaxed);
            let free = found != own;
            let (done, missed) = (Ordering::Acquire, Ordering::Relaxed);
            if free && self.0.compare_exchange(found, own, done, missed).is_ok() {
                return Taken(&self.0);
            }
            std::thread::sleep(Self::PAUSE);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
