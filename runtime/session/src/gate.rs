//! Keeps other threads out of the locks while the process forks.
//!
//! Every short stay under a lock passes the gate. Closing it waits until no thread is inside. Later
//! threads sleep and retry, without touching a lock, so that the child (where those threads do not
//! exist) finds all locks free.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | `inside` | every entering thread | around the stay | sequentially consistent: the addition before the load of `closed` in `enter` pairs with the store of `closed` before the loads of `inside` in `close` - one of the two sees the other |
//! | `closed` | the forking thread | around the fork | same |

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Sleep between two attempts. A fork takes 0.1 to 10 ms.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    inside: AtomicUsize,
    closed: AtomicBool,
}

/// Guard of a thread that is inside.
#[derive(Debug)]
pub(crate) struct InsideGate<'a>(&'a Gate);

impl Drop for InsideGate<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gate {
    /// Waits until the gate is open and goes inside. Not to be nested.
    #[inline]
    pub(crate) fn enter(&self) -> InsideGate<'_> {
        uruk_base::locks::check();
        loop {
            self.inside.fetch_add(1, Ordering::SeqCst);
            let inside = InsideGate(self);
            if !self.closed.load(Ordering::SeqCst) {
                return inside;
            }
            drop(inside);
            while self.closed.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }

    /// Closes the gate and waits until no thread is inside.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    /// Closes the gate unless a thread is inside; returns whether it is closed.
    pub(crate) fn try_close(&self) -> bool {
        self.closed.store(true, Ordering::SeqCst);
        let empty = self.inside.load(Ordering::SeqCst) == 0;
        if !empty {
            self.open();
        }
        empty
    }

    /// Opens the gate.
    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }
}
