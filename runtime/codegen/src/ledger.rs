//! How many readers of a pool exist: those that are lent, and those of large modules that wait.

use std::sync::PoisonError;

use uruk_base::locks::{Condvar, Mutex, MutexGuard};

pub(crate) struct Ledger {
    live: Mutex<usize>,
    returned: Condvar,
}

impl Ledger {
    /// With so many readers.
    pub(crate) fn new(live: usize) -> Ledger {
        Ledger {
            live: Mutex::new(live),
            returned: Condvar::new(),
        }
    }

    /// How many there are, for whoever makes one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, usize> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one is no more, or waits for its next use.
    pub(crate) fn wait<'l>(&'l self, live: MutexGuard<'l, usize>) -> MutexGuard<'l, usize> {
        let live = self.returned.wait(live);
        live.unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader is no more.
    pub(crate) fn write_off(&self) {
        *self.lock() -= 1;
        self.returned.notify_one();
    }

    /// A reader that is counted waits for its next use. Whoever looked for one before waits
    /// by now.
    pub(crate) fn tell(&self) {
        drop(self.lock());
        self.returned.notify_one();
    }
}
