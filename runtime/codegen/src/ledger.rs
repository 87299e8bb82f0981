//! Counts the readers of a pool: those that are lent, and those of large modules that wait.

use uruk_base::locks::{Condvar, Mutex, MutexGuard, ranks};

pub(crate) struct Ledger {
    live: Mutex<usize, ranks::LedgerLive>,
    returned: Condvar,
}

impl Ledger {
    /// A ledger of `live` readers.
    pub(crate) fn new(live: usize) -> Ledger {
        Ledger {
            live: Mutex::new(live),
            returned: Condvar::new(),
        }
    }

    /// The locked count of readers, for a caller that makes one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, usize> {
        self.live.lock()
    }

    /// Waits until a reader is dropped or becomes idle.
    pub(crate) fn wait<'l>(&'l self, live: MutexGuard<'l, usize>) -> MutexGuard<'l, usize> {
        self.returned.wait(live)
    }

    /// Notes that a reader was dropped.
    pub(crate) fn write_off(&self) {
        *self.lock() -= 1;
        self.returned.notify_one();
    }

    /// Notes that a counted reader became idle. A thread that found none before is waiting by now,
    /// as it holds the lock until it waits.
    pub(crate) fn tell(&self) {
        drop(self.lock());
        self.returned.notify_one();
    }
}
