//! Counts how long guests waited for code, once that is switched on.
//!
//! Measured from the trampoline to the address to continue at, wake-up included; a call that a
//! handler leaves by `longjmp`, or in which the thread ends, is not counted. Access, all relaxed:
//! `on` is set by the runtime; `count` and `ns` are added to by guests and read by the runtime.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};
use crate::sys::monotonic_ns;
use crate::table::StubTable;

/// Counters of waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    on: AtomicU64,
    count: AtomicU64,
    ns: AtomicU64,
}

impl Waits {
    /// The time at which a wait begins; zero if waits are not counted.
    pub(crate) fn begin(&self) -> u64 {
        match self.on.load(Ordering::Relaxed) {
            0 => 0,
            _ => monotonic_ns(),
        }
    }

    /// Counts a wait that began at `begun`.
    pub(crate) fn end(&self, begun: u64) {
        if begun != 0 {
            let waited = monotonic_ns().saturating_sub(begun);
            self.count.fetch_add(1, Ordering::Relaxed);
            self.ns.fetch_add(waited, Ordering::Relaxed);
        }
    }
}

impl StubTable {
    /// Switches the count of waits on; it costs two clock readings for a first call.
    pub fn time_waits(&self) {
        self.shared().waits.on.store(1, Ordering::Relaxed);
    }

    /// The number and total time of waits for code, or at a gate, since [`StubTable::time_waits`],
    /// over all threads. Waits in progress are not included.
    pub fn waits(&self) -> (u64, Duration) {
        let waits = &self.shared().waits;
        let ns = waits.ns.load(Ordering::Relaxed);
        (
            waits.count.load(Ordering::Relaxed),
            Duration::from_nanos(ns),
        )
    }
}
