//! Locks that no child of a fork finds held.
//!
//! Listeners of the session take these locks on its threads, under its passes; threads of this package
//! take them, too. So each is taken under a pass ([`uruk::live::uncopied`]): while a lock is held, no
//! process is forked.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use uruk_base::locks::{Leaf, Ordered};

/// A value behind a lock.
#[derive(Debug, Default)]
pub struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Locked<T> {
        Locked(Mutex::new(value))
    }

    /// Runs `work` with the value, under the lock. `work` must not take another lock or wait.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        uruk::live::uncopied(|| {
            let _order = Ordered::wait::<T, Leaf>();
            work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }
}

/// A lock that one thread at a time holds for long. A child of a fork does not inherit it from its
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
    /// Pause between two attempts to take the turn.
    const PAUSE: Duration = Duration::from_millis(2);

    /// Takes the turn; waits until its holder gives it back.
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
