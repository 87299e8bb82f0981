//! The bookkeeping of one data pool: a bump pointer and a list of free blocks. Pure:
//! addresses in, addresses out. Code has its own, see `space`.
//!
//! # Invariants
//! - `start <= frozen <= top <= fresh <= end`.
//! - Bytes at and above `fresh` were never handed out, so they are zero; below
//!   it they may hold anything.
//! - Free blocks lie in `frozen..top` and do not touch `top`.
//! - Bytes below `frozen` are the parent's (this is a child of `fork`) and are never
//!   handed out again.
//!
//! `used + retired + wasted + free bytes == top - start` at all times.

use std::ops::Range;

use crate::freelist::{FreeList, align_up};
use crate::layout::page_up;

/// Sizes and addresses are multiples of this: the alignment of a function.
pub(crate) const GRANULE: usize = 16;

/// Bookkeeping of one pool.
#[derive(Debug)]
pub(crate) struct PoolState {
    start: usize,
    end: usize,
    top: usize,
    fresh: usize,
    frozen: usize,
    free: FreeList,
    used: usize,
    retired: usize,
    wasted: usize,
    peak: usize,
}

/// Memory handed out by [`PoolState::allocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) start: usize,
    /// This many bytes from `start` may hold old contents; the rest is zero.
    pub(crate) dirty: usize,
}

/// Bytes of one pool; see the fields of the same names in
/// [`HeapStats`](crate::HeapStats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Bytes in drafts and sealed memory that is not retired.
    pub used: usize,
    /// Bytes retired, not reusable before a reclaim.
    pub retired: usize,
    /// Bytes lost: blocks frozen by a `fork`.
    pub wasted: usize,
    /// Bytes given back and ready for reuse.
    pub free: usize,
    /// Bytes of the pool.
    pub capacity: usize,
    /// Bytes from the first to the last that was ever handed out; in the pool of constants all of
    /// them take memory of the system.
    pub touched: usize,
    /// The highest value of `used + retired` so far.
    pub peak: usize,
}

impl PoolState {
    pub(crate) fn new(range: Range<usize>) -> PoolState {
        PoolState {
            start: range.start,
            end: range.end,
            top: range.start,
            fresh: range.start,
            frozen: range.start,
            free: FreeList::default(),
            used: 0,
            retired: 0,
            wasted: 0,
            peak: 0,
        }
    }

    /// Hands out `len` bytes (a multiple of [`GRANULE`], not zero) at a
    /// multiple of `align` (a power of two, at least [`GRANULE`]).
    pub(crate) fn allocate(&mut self, len: usize, align: usize) -> Option<Grant> {
        let start = match self.free.take(len, align) {
            Some(start) => start,
            None => self.bump(len, align)?,
        };
        let dirty = self.fresh.saturating_sub(start).min(len);
        self.fresh = self.fresh.max(self.top);
        self.used += len;
        self.peak = self.peak.max(self.used + self.retired);
        Some(Grant { start, dirty })
    }

    fn bump(&mut self, len: usize, align: usize) -> Option<usize> {
        let start = align_up(self.top, align)?;
        let end = start.checked_add(len).filter(|&end| end <= self.end)?;
        let gap = start - self.top;
        self.free.insert(self.top, gap);
        self.top = end;
        Some(start)
    }

    /// Takes back memory that no thread can reach any more.
    pub(crate) fn give_back(&mut self, start: usize, len: usize) {
        self.used -= len;
        if start < self.frozen {
            self.wasted += len;
        } else if start + len == self.top {
            self.top = start;
            while let Some(block) = self.free.take_ending_at(self.top) {
                self.top = block;
            }
        } else {
            self.free.insert(start, len);
        }
    }

    /// Counts memory that is no longer wanted but may still be executed.
    pub(crate) fn retire(&mut self, len: usize) {
        self.used -= len;
        self.retired += len;
    }

    /// Undoes [`PoolState::retire`], just before the memory is given back.
    pub(crate) fn unretire(&mut self, len: usize) {
        self.retired -= len;
        self.used += len;
    }

    /// Bytes that are retired.
    pub(crate) fn retired(&self) -> usize {
        self.retired
    }

    /// Freezes the pool in the child of a `fork`: memory handed out so far is the parent's and is
    /// never handed out again, and the page that is partly used is abandoned. Returns the range
    /// that is still unused; it must be replaced by fresh zero pages.
    pub(crate) fn freeze_in_child(&mut self) -> Range<usize> {
        let boundary = page_up(self.top);
        self.wasted += boundary - self.top + self.free.clear();
        self.top = boundary;
        self.frozen = boundary;
        self.fresh = boundary;
        boundary..self.end
    }

    /// Bytes that cannot be handed out.
    pub(crate) fn held(&self) -> usize {
        self.used + self.retired + self.wasted
    }

    pub(crate) fn capacity(&self) -> usize {
        self.end - self.start
    }

    /// Bytes below the highest that was ever handed out since the last `fork`
    /// in a child, or that are frozen.
    pub(crate) fn touched(&self) -> usize {
        self.fresh - self.start
    }

    /// The end of the memory handed out.
    #[cfg(test)]
    pub(crate) fn top(&self) -> usize {
        self.top
    }

    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats {
            used: self.used,
            retired: self.retired,
            wasted: self.wasted,
            free: self.free.bytes(),
            capacity: self.capacity(),
            touched: self.touched(),
            peak: self.peak,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::PAGE;

    fn check(pool: &PoolState) {
        assert!(pool.start <= pool.frozen && pool.frozen <= pool.top);
        assert!(pool.top <= pool.fresh && pool.fresh <= pool.end);
        assert_eq!(
            pool.used + pool.retired + pool.wasted + pool.free.bytes(),
            pool.top - pool.start
        );
    }

    #[test]
    fn data_is_reused_and_falls_back_to_the_bump_pointer() {
        let mut pool = PoolState::new(0x1000..0x10000);
        let a = pool.allocate(0x100, 16).unwrap().start;
        let b = pool.allocate(0x100, 16).unwrap().start;
        let c = pool.allocate(0x100, 16).unwrap().start;
        pool.give_back(a, 0x100);
        check(&pool);
        assert_eq!(
            pool.allocate(0x80, 16),
            Some(Grant {
                start: a,
                dirty: 0x80
            })
        );
        pool.give_back(b, 0x100);
        pool.give_back(c, 0x100);
        check(&pool);
        assert_eq!(pool.top(), a + 0x80);
        let all = pool.allocate(0x10000 - a - 0x80, 16).unwrap();
        assert_eq!(
            all,
            Grant {
                start: a + 0x80,
                dirty: 0x280
            }
        );
        check(&pool);
    }

    #[test]
    fn frozen_memory_is_not_reused() {
        let mut pool = PoolState::new(0x1000..0x10000);
        let a = pool.allocate(0x100, 16).unwrap().start;
        let b = pool.allocate(0x100, 16).unwrap().start;
        pool.give_back(a, 0x100);
        assert_eq!(pool.freeze_in_child(), 0x2000..0x10000);
        check(&pool);
        pool.give_back(b, 0x100);
        check(&pool);
        let fresh = pool.allocate(16, 16).unwrap();
        assert_eq!(
            fresh,
            Grant {
                start: 0x1000 + PAGE,
                dirty: 0
            }
        );
        check(&pool);
    }
}
