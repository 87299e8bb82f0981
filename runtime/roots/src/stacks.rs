//! Stacks that the embedder registered: fibers, coroutines, and others without a running thread.
//!
//! A table of fixed capacity without locks, so that registering works on any thread, in
//! a signal handler and in a child of `fork`. `start` is 0 for a free entry and 1 for
//! one being written.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | `start` 0 to 1 | the thread that registers (compare-exchange) | acquire; pairs with the release to 0 |
//! | `end` | the thread that registers, while `start` is 1 | relaxed; ordered by `start` |
//! | `start` to the address, to 0 | the owner of the id | release; pairs with the acquire of `ranges` |
//! | `gone` | the thread that unregisters, before `start` becomes 0 | release; pairs with the acquire of `gone` |
//!
//! A stack on which a scan found a thread may be unregistered before the scan ends. [`Stacks::place`]
//! distinguishes it from stacks that were never registered.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::error::RootsError;

/// A registered stack.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct StackId(usize);

#[derive(Debug, Default)]
struct StackEntry {
    start: AtomicU64,
    end: AtomicU64,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Stacks {
    entries: Box<[StackEntry]>,
    /// Entries from here on were never used.
    used: AtomicUsize,
    /// Stacks that were unregistered so far.
    gone: AtomicU64,
    /// Consecutive scans that could not determine a thread's stack. Relaxed: one scan runs at a time.
    unsure: AtomicU32,
}

/// The table at the beginning of a scan.
#[derive(Debug)]
pub(crate) struct Before {
    ranges: Vec<Range<u64>>,
    gone: u64,
}

/// The stack of a thread that was found away from its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackPlace {
    /// A registered one, or all threads were on their own.
    Known,
    /// It may be one that was unregistered meanwhile.
    Unsure,
    /// An unregistered one, with this stack pointer.
    Unknown(u64),
}

/// Consecutive scans that may leave a stack undetermined. The next one counts it as unknown: else memory
/// would grow without a reason being given.
const MOST_UNSURE: u32 = 100;

impl Stacks {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: (0..capacity).map(|_| StackEntry::default()).collect(),
            used: AtomicUsize::new(0),
            gone: AtomicU64::new(0),
            unsure: AtomicU32::new(0),
        }
    }

    /// Takes the state of the table before a scan.
    pub(crate) fn before(&self) -> Before {
        // The count first: then the comparison misses no later removal.
        let gone = self.gone();
        Before {
            ranges: self.ranges(),
            gone,
        }
    }

    /// The kind of stack at `found`, where a thread was away from its own stack during a scan that began
    /// after `before` and has ended.
    pub(crate) fn place(&self, before: &Before, found: Option<u64>) -> StackPlace {
        let holds = |ranges: &[Range<u64>], sp| ranges.iter().any(|range| range.contains(&sp));
        let unknown = found.filter(|&sp| !holds(&before.ranges, sp) && !holds(&self.ranges(), sp));
        let Some(sp) = unknown else {
            self.unsure.store(0, Ordering::Relaxed);
            return StackPlace::Known;
        };
        // After the ranges: a stack missing there is counted.
        let same = self.gone() == before.gone;
        match same || self.unsure.fetch_add(1, Ordering::Relaxed) >= MOST_UNSURE {
            true => StackPlace::Unknown(sp),
            false => StackPlace::Unsure,
        }
    }

    fn gone(&self) -> u64 {
        // Acquire: pairs with the release in `unregister`.
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn register(&self, range: Range<u64>) -> Result<StackId, RootsError> {
        let aligned = range.start.is_multiple_of(8) && range.end.is_multiple_of(8);
        if range.start < 8 || range.start >= range.end || !aligned {
            return Err(RootsError::BadStack {
                start: range.start,
                end: range.end,
            });
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let free = entry
                .start
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
            if free.is_ok() {
                entry.end.store(range.end, Ordering::Relaxed);
                // Release before the address: a thread that sees the address searches this far.
                self.used.fetch_max(index + 1, Ordering::AcqRel);
                // Release: pairs with the acquire in `ranges`.
                entry.start.store(range.start, Ordering::Release);
                return Ok(StackId(index));
            }
        }
        Err(RootsError::ManyStacks {
            capacity: self.entries.len(),
        })
    }

    pub(crate) fn unregister(&self, id: StackId) {
        // Release: a thread that misses the entry sees the count, by the release below.
        self.gone.fetch_add(1, Ordering::Release);
        // Release: pairs with the acquire of the next `register` here, and with that of `ranges`.
        self.entries[id.0].start.store(0, Ordering::Release);
    }

    /// The registered stacks, sorted.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        // Acquire: pairs with the maximum in `register`.
        let used = self.used.load(Ordering::Acquire);
        let mut ranges = Vec::new();
        for entry in &self.entries[..used] {
            // Acquire: pairs with the release in `register`.
            let start = entry.start.load(Ordering::Acquire);
            let end = entry.end.load(Ordering::Relaxed);
            // Read again: an entry that was reused between the two reads is new (its owner is found
            // where it runs) or gone.
            if start > 1 && entry.start.load(Ordering::Acquire) == start {
                ranges.push(start..end);
            }
        }
        ranges.sort_by_key(|range| range.start);
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_UNSURE, StackPlace, Stacks};

    #[test]
    fn entries_are_reused_and_bounded() {
        let stacks = Stacks::new(2);
        let first = stacks.register(0x1000..0x2000).expect("room");
        let second = stacks.register(0x800..0x1000).expect("room");
        assert!(stacks.register(0x4000..0x5000).is_err());
        assert_eq!(stacks.ranges(), [0x800..0x1000, 0x1000..0x2000]);
        stacks.unregister(first);
        assert_eq!(
            stacks.ranges().as_slice(),
            std::slice::from_ref(&(0x800..0x1000))
        );
        let third = stacks.register(0x4000..0x5000).expect("room");
        assert_eq!(stacks.ranges(), [0x800..0x1000, 0x4000..0x5000]);
        stacks.unregister(second);
        stacks.unregister(third);
        assert!(stacks.ranges().is_empty());
    }

    #[test]
    fn a_stack_that_goes_during_a_scan_is_not_unknown() {
        let stacks = Stacks::new(4);
        let held = stacks.register(0x1000..0x2000).expect("room");
        let before = stacks.before();
        assert_eq!(stacks.place(&before, Some(0x1800)), StackPlace::Known);
        assert_eq!(
            stacks.place(&before, Some(0x3000)),
            StackPlace::Unknown(0x3000)
        );
        // Unregistered while the scan is under way.
        stacks.unregister(held);
        assert_eq!(stacks.place(&before, Some(0x1800)), StackPlace::Known);
        // Registered and unregistered meanwhile: undetermined.
        let short = stacks.register(0x3000..0x4000).expect("room");
        assert_eq!(stacks.place(&before, Some(0x3800)), StackPlace::Known);
        stacks.unregister(short);
        for _ in 0..MOST_UNSURE {
            assert_eq!(stacks.place(&before, Some(0x3800)), StackPlace::Unsure);
        }
        assert_eq!(
            stacks.place(&before, Some(0x3800)),
            StackPlace::Unknown(0x3800)
        );
        assert_eq!(stacks.place(&before, None), StackPlace::Known);
        assert_eq!(stacks.place(&before, Some(0x3800)), StackPlace::Unsure);
        let before = stacks.before();
        assert_eq!(
            stacks.place(&before, Some(0x3800)),
            StackPlace::Unknown(0x3800)
        );
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "bad input")]
    fn bad_ranges_are_errors() {
        let stacks = Stacks::new(2);
        for range in [0..8, 0x1001..0x2000, 0x2000..0x2000, 0x2000..0x1000] {
            assert!(stacks.register(range).is_err());
        }
    }
}
