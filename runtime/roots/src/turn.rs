//! Lets one scan of the process run at a time, over all scanners. A child of `fork` does not inherit it.
//! All scanners of the process share the slots of requests (`slot`): a second requester would take the
//! first one's answers.
//!
//! The word holds the process id of the scanning process, 0 when no scan runs. A child finds its
//! parent's id there and takes the turn over.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// The turn of the process.
pub(crate) static TURN: Turn = Turn(AtomicU32::new(0));

/// A turn.
#[derive(Debug)]
pub(crate) struct Turn(AtomicU32);

/// Evidence of having the turn.
#[derive(Debug)]
pub(crate) struct HasTurn<'a>(&'a Turn);

impl Turn {
    pub(crate) fn take(&self) -> HasTurn<'_> {
        let pid = sys::getpid() as u32;
        loop {
            let holder = self.0.load(Ordering::Relaxed);
            // Acquire: pairs with the release in `drop`.
            if holder != pid
                && self
                    .0
                    .compare_exchange(holder, pid, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return HasTurn(self);
            }
            if holder == pid {
                sys::futex_wait(self.0.as_ptr(), pid, 100_000_000);
            }
        }
    }
}

impl Drop for HasTurn<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `take`.
        self.0.0.store(0, Ordering::Release);
        sys::futex_wake(self.0.0.as_ptr(), 1);
    }
}
