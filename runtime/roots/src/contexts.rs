//! Stacks a program made with `makecontext`. The program reports where they lie when it makes them, but
//! not when they are freed.
//!
//! A table of the process without locks: entries are added, never removed; a stack made again at the
//! same place is the same entry. Parts that cannot be read are no stack now, and a stack that became
//! other memory costs a scan of that. When the table is full, scans report it and prove nothing.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | `start` 0 to the address | the thread that adds (compare-exchange) | acq-rel; pairs with the acquire in `all` |
//! | `end` | the thread that adds, only upwards | acq-rel; pairs with the acquire in `all`; 0 while it is being added |
//! | `full` | a thread that finds no place | release; pairs with the acquire in `full` |
//!
//! The thread that adds has not run the context yet, so a scan that misses an entry being added misses
//! nothing. A thread that runs the context later is found where it runs, or in the second read of this
//! table.
//! look at this table.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Largest number of stacks.
const PLACES: usize = 4096;

struct Entry {
    start: AtomicU64,
    end: AtomicU64,
}

/// The table.
pub(crate) struct Contexts<const N: usize> {
    entries: [Entry; N],
    full: AtomicBool,
}

/// The table of the process.
pub(crate) static CONTEXTS: Contexts<PLACES> = Contexts::new();

/// Stack pointer of a thread that was found on an unregistered stack; 0 if none was. Relaxed: a hint
/// that outlives the scan which found it.
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);

/// Notes that a thread whose own stack is not in use was found at `sp`. Usable in a
/// signal handler.
pub(crate) fn note_elsewhere(sp: u64) {
    let known = CONTEXTS.entries.iter().any(|entry| {
        let start = entry.start.load(Ordering::Acquire);
        start != 0 && start <= sp && sp <= entry.end.load(Ordering::Acquire)
    });
    if !known {
        ELSEWHERE.store(sp, Ordering::Relaxed);
    }
}

/// The latest hint since the last call.
pub(crate) fn elsewhere() -> Option<u64> {
    Some(ELSEWHERE.swap(0, Ordering::Relaxed)).filter(|&sp| sp != 0)
}

/// Registers that a program is about to run code on `range`, as with `makecontext`. Usable on any
/// thread, also in a signal handler.
pub fn note_context_stack(range: Range<u64>) {
    CONTEXTS.add(range);
}

impl<const N: usize> Contexts<N> {
    const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    start: AtomicU64::new(0),
                    end: AtomicU64::new(0),
                }
            }; N],
            full: AtomicBool::new(false),
        }
    }

    pub(crate) fn add(&self, range: Range<u64>) {
        let (start, end) = (range.start.saturating_add(7) & !7, range.end & !7);
        if start == 0 || start >= end {
            return;
        }
        for entry in &self.entries {
            let held = entry
                .start
                .compare_exchange(0, start, Ordering::AcqRel, Ordering::Acquire);
            if held.is_ok() || held == Err(start) {
                entry.end.fetch_max(end, Ordering::AcqRel);
                return;
            }
        }
        // Release: pairs with the acquire in `full`.
        self.full.store(true, Ordering::Release);
    }

    /// Whether a stack was dropped because the table was full.
    pub(crate) fn full(&self) -> bool {
        // Acquire: pairs with the release in `add`.
        self.full.load(Ordering::Acquire)
    }

    /// The stacks, sorted by start.
    pub(crate) fn all(&self) -> Vec<Range<u64>> {
        let mut all = Vec::new();
        for entry in &self.entries {
            // Acquire: pairs with the exchange in `add`.
            let start = entry.start.load(Ordering::Acquire);
            if start == 0 {
                break;
            }
            let end = entry.end.load(Ordering::Acquire);
            if start < end {
                all.push(start..end);
            }
        }
        all.sort_by_key(|range| range.start);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Contexts;

    #[test]
    fn stacks_are_kept_once_and_overflow_is_said() {
        let contexts = Contexts::<2>::new();
        contexts.add(0x2001..0x3007);
        contexts.add(0x1000..0x1800);
        contexts.add(0x1000..0x2000);
        assert_eq!(contexts.all(), [0x1000..0x2000, 0x2008..0x3000]);
        assert!(!contexts.full());
        contexts.add(0x5000..0x5000);
        assert!(!contexts.full());
        contexts.add(0x5000..0x6000);
        assert!(contexts.full());
    }
}
