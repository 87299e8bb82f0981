//! Free blocks of a pool: best fit by size, merged with their neighbours.
//!
//! Pure bookkeeping over addresses; no memory is touched. Blocks never overlap
//! and never touch each other (touching blocks are one block).

use std::collections::{BTreeMap, BTreeSet};

use crate::pool::GRANULE;

/// Number of blocks of a near size that a request with a large alignment tries before it takes a
/// block that fits at any address.
const ALIGNMENT_TRIES: usize = 16;

/// The blocks by address and by size.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    by_address: BTreeMap<usize, usize>,
    by_size: BTreeSet<(usize, usize)>,
    bytes: usize,
}

impl FreeList {
    /// Bytes in all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a block, merging it with blocks it touches.
    pub(crate) fn insert(&mut self, mut start: usize, mut len: usize) {
        if len == 0 {
            return;
        }
        if let Some((&before, &before_len)) = self.by_address.range(..start).next_back() {
            debug_assert!(before + before_len <= start, "block freed twice");
            if before + before_len == start {
                self.unlink(before, before_len);
                start = before;
                len += before_len;
            }
        }
        if let Some(&after_len) = self.by_address.get(&(start + len)) {
            self.unlink(start + len, after_len);
            len += after_len;
        }
        self.link(start, len);
    }

    /// Takes `len` bytes at a multiple of `align` out of the best fitting block; the rest of the
    /// block stays free.
    pub(crate) fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        let fits = |&&(block_len, block): &&(usize, usize)| {
            let address = align_up(block, align);
            address
                .and_then(|a| a.checked_add(len))
                .is_some_and(|end| end <= block + block_len)
        };
        let near = self.by_size.range((len, 0)..).take(ALIGNMENT_TRIES);
        let sure = len.checked_add(align - GRANULE.min(align))?;
        let &(block_len, block) = near
            .into_iter()
            .find(fits)
            .or_else(|| self.by_size.range((sure, 0)..).find(fits))?;
        let start = align_up(block, align)?;
        self.unlink(block, block_len);
        self.link(block, start - block);
        self.link(start + len, block + block_len - (start + len));
        Some(start)
    }

    /// The block of the lowest address: its start and length.
    pub(crate) fn first(&self) -> Option<(usize, usize)> {
        self.iter().next()
    }

    /// All blocks in address order: start and length.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.by_address.iter().map(|(&start, &len)| (start, len))
    }

    /// Takes the first `len` bytes of the block that starts at `start`.
    pub(crate) fn take_front(&mut self, start: usize, len: usize) {
        let Some(&whole) = self.by_address.get(&start) else {
            return;
        };
        debug_assert!(len <= whole);
        self.unlink(start, whole);
        self.link(start + len, whole - len);
    }

    /// Removes the block that ends at `end`, and returns its start.
    pub(crate) fn take_ending_at(&mut self, end: usize) -> Option<usize> {
        let (&start, &len) = self.by_address.range(..end).next_back()?;
        if start + len != end {
            return None;
        }
        self.unlink(start, len);
        Some(start)
    }

    /// Removes all blocks, and returns their bytes.
    pub(crate) fn clear(&mut self) -> usize {
        self.by_address.clear();
        self.by_size.clear();
        std::mem::take(&mut self.bytes)
    }

    fn link(&mut self, start: usize, len: usize) {
        if len > 0 {
            self.by_address.insert(start, len);
            self.by_size.insert((len, start));
            self.bytes += len;
        }
    }

    fn unlink(&mut self, start: usize, len: usize) {
        self.by_address.remove(&start);
        self.by_size.remove(&(len, start));
        self.bytes -= len;
    }
}

/// `n` rounded up to a multiple of `align` (a power of two).
pub(crate) fn align_up(n: usize, align: usize) -> Option<usize> {
    Some(n.checked_add(align - 1)? & !(align - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uruk_testing::Random;

    #[test]
    fn neighbours_merge_and_best_fit_wins() {
        let mut list = FreeList::default();
        list.insert(0x1000, 0x100);
        list.insert(0x1200, 0x100);
        list.insert(0x4000, 0x80);
        list.insert(0x1100, 0x100);
        assert_eq!(list.by_address.len(), 2);
        assert_eq!(list.bytes(), 0x380);
        assert_eq!(list.take(0x80, 16), Some(0x4000));
        assert_eq!(list.take(0x40, 0x100), Some(0x1000));
        assert_eq!(list.take(0x100, 0x200), Some(0x1200));
        assert_eq!(list.take(0x1000, 16), None);
        assert_eq!(list.take_ending_at(0x1200), Some(0x1040));
        assert_eq!(list.bytes(), 0);
    }

    #[test]
    fn random_blocks_agree_with_a_bitmap() {
        const UNITS: usize = 512;
        let mut list = FreeList::default();
        let mut free = [true; UNITS];
        list.insert(0, UNITS * GRANULE);
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut numbers = Random::new(0x2545_f491_4f6c_dd1d);
        let mut random = |below: usize| numbers.below(below);
        for _ in 0..20_000 {
            if random(2) == 0 {
                let (units, align) = (1 + random(20), GRANULE << random(5));
                if let Some(start) = list.take(units * GRANULE, align) {
                    assert_eq!(start % align, 0);
                    let first = start / GRANULE;
                    assert!(free[first..first + units].iter().all(|&f| f));
                    free[first..first + units].fill(false);
                    held.push((first, units));
                }
            } else if !held.is_empty() {
                let (first, units) = held.swap_remove(random(held.len()));
                free[first..first + units].fill(true);
                list.insert(first * GRANULE, units * GRANULE);
            }
            let count = free.iter().filter(|&&f| f).count();
            assert_eq!(list.bytes(), count * GRANULE);
        }
        for (first, units) in held {
            list.insert(first * GRANULE, units * GRANULE);
        }
        assert_eq!(list.by_address.len(), 1);
    }
}
