//! Distinct words that point into the requested range.
//!
//! An open-addressed table of `offset + 1` (0 is empty) with multiplicative hashing and
//! linear probing. It never allocates while it is filled and never panics: signal
//! handlers fill it. At three quarters full it is *overflowed*: then it may lack addresses, and the
//! requester asks again with a larger one.
//!
//! The range's start is kept negated, and an address only as an offset: words that a handler leaves
//! below the stack pointer must not look like addresses to the next scan.

use std::ops::Range;

/// Distinct addresses within `[low, low + size)`.
#[derive(Clone, Debug)]
pub(crate) struct Hits {
    minus_low: u64,
    size: u64,
    table: Box<[u32]>,
    len: usize,
    last: u32,
    overflowed: bool,
}

impl Hits {
    /// Room of the first table, in entries (a power of two).
    pub(crate) const FIRST: usize = 4096;
    /// Room of the largest table.
    pub(crate) const LARGEST: usize = 1 << 20;

    /// An empty table of `room` entries (a power of two) for words in `range`, which
    /// must be shorter than 4 GiB.
    pub(crate) fn new(range: &Range<u64>, room: usize) -> Self {
        Self {
            minus_low: range.start.wrapping_neg(),
            size: range.end.saturating_sub(range.start).min(u32::MAX as u64),
            table: vec![0; room.next_power_of_two()].into_boxed_slice(),
            len: 0,
            last: 0,
            overflowed: false,
        }
    }

    /// Clears the table for a new `range`.
    pub(crate) fn reset(&mut self, range: &Range<u64>) {
        if self.len > 0 {
            self.table.fill(0);
        }
        self.minus_low = range.start.wrapping_neg();
        self.size = range.end.saturating_sub(range.start).min(u32::MAX as u64);
        (self.len, self.last, self.overflowed) = (0, 0, false);
    }

    /// A table four times as large, or `None` at the limit.
    pub(crate) fn larger(&self) -> Option<Self> {
        let room = self.table.len() * 4;
        let low = self.minus_low.wrapping_neg();
        let range = low..low + self.size;
        (room <= Self::LARGEST).then(|| Self::new(&range, room))
    }

    /// The same with a table four times as large, or `None` at the limit.
    pub(crate) fn grown(&self) -> Option<Self> {
        let mut grown = self.larger()?;
        self.iter().for_each(|address| grown.note(address));
        Some(grown)
    }

    /// Whether no word was kept or dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0 && !self.overflowed
    }

    /// Whether a word was dropped.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// The range: its start negated, and its size.
    #[inline(always)]
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.minus_low, self.size)
    }

    /// Whether `word` is in the range.
    #[inline(always)]
    pub(crate) fn wants(&self, word: u64) -> bool {
        word.wrapping_add(self.minus_low) < self.size
    }

    /// Keeps `word` if it is in the range.
    #[inline]
    pub(crate) fn note(&mut self, word: u64) {
        if self.wants(word) {
            let key = (word.wrapping_add(self.minus_low) as u32).wrapping_add(1);
            if key != self.last {
                self.insert(key);
            }
        }
    }

    fn insert(&mut self, key: u32) {
        self.last = key;
        let mask = self.table.len().wrapping_sub(1);
        let mut at = key.wrapping_mul(0x9e37_79b1) as usize >> 7;
        // The table is never full: a quarter stays empty.
        while let Some(entry) = self.table.get_mut(at & mask) {
            if *entry == key {
                return;
            }
            if *entry == 0 {
                if self.len.wrapping_mul(4) >= mask.wrapping_mul(3) {
                    self.overflowed = true;
                    return;
                }
                *entry = key;
                self.len = self.len.wrapping_add(1);
                return;
            }
            at = at.wrapping_add(1);
        }
    }

    /// The addresses, unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let low = self.minus_low.wrapping_neg();
        let full = self.table.iter().filter(|&&key| key != 0);
        full.map(move |&key| low + u64::from(key) - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Hits;

    #[test]
    fn keeps_what_is_in_range_once() {
        let mut hits = Hits::new(&(0x1000..0x2000), Hits::FIRST);
        for word in [0, 0xfff, 0x1000, 0x1000, 0x1fff, 0x2000, 0x1008, 0x1000] {
            hits.note(word);
        }
        let found: BTreeSet<u64> = hits.iter().collect();
        assert_eq!(found, BTreeSet::from([0x1000, 0x1008, 0x1fff]));
        hits.reset(&(0x2000..0x2001));
        hits.note(0x1000);
        assert_eq!(hits.iter().count(), 0);
        hits.note(0x2000);
        assert_eq!(hits.iter().collect::<Vec<_>>(), [0x2000]);
    }

    #[test]
    fn agrees_with_a_set_until_it_overflows() {
        let range = 0x4000_0000..0x7fff_ffff;
        let mut hits = Hits::new(&range, Hits::FIRST);
        let mut set = BTreeSet::new();
        let mut state = 1u64;
        while !hits.overflowed() {
            assert_eq!(hits.iter().collect::<BTreeSet<_>>(), set);
            for _ in 0..100 {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let word = range.start + (state >> 33) % 0x3000_0000;
                hits.note(word);
                if hits.overflowed() {
                    break;
                }
                set.insert(word);
            }
        }
        assert!(set.len() > Hits::FIRST / 2, "overflowed at {}", set.len());
        let grown = hits.larger().expect("room to grow");
        assert_eq!(grown.iter().count(), 0);
        assert!(!grown.overflowed());
        let kept = hits.grown().expect("room to grow");
        assert!(!kept.overflowed());
        assert_eq!(kept.iter().collect::<BTreeSet<_>>(), set);
    }
}
