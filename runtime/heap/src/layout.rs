//! Computes the regions of a reservation from its base and size; a pure function.
//!
//! ```text
//! guard | slots | stubs | code A | code B | read-only | read-write | guard
//!  4 K     1/32    1/32    5/32     5/32      4/32      the rest      4 K
//! ```
//!
//! If static data needs more than the rest, the parts before it shrink together, down to an eighth
//! of these shares.
//!
//! # Invariants
//! - All bounds are multiples of [`PAGE`]; no region is empty.
//! - `stubs.start - slots.start` is the size of `slots`: stub `i` and slot `i`
//!   are at one distance for every `i`.
//! - Stubs, code and read-only are adjacent ("the shared part"), so that one
//!   alias mapping covers them and equal neighbours merge into one kernel
//!   mapping.
//! - Two bytes of the reservation are less than 2 GiB - 1 MiB apart: a rel32
//!   with any addend below 1 MiB reaches.

use std::ops::Range;

use crate::config::Place;

/// Size of a page. x86-64 Linux has no other base page.
pub const PAGE: usize = 4096;

/// The largest reservation: `target + addend - place` fits a signed 32-bit field for
/// all addends up to 1 MiB, and then some.
pub const MAX_RESERVATION: usize = HIGHEST_LOW - LOW_BASE;

/// The largest reservation below 2 GiB, which leaves room to choose its place.
pub const MAX_LOW_RESERVATION: usize = 3 << 29;

/// The largest reservation that has the libraries of the process within 2 GiB of all its bytes.
pub const MAX_NEAR_RESERVATION: usize = 5 << 28;

/// The lowest address of a reservation below 2 GiB. The addresses before it stay unmapped, so that
/// large offsets from a null pointer still fault.
pub(crate) const LOW_BASE: usize = 64 << 20;

/// One past the last address that a sign-extended 32-bit field holds.
pub(crate) const HIGHEST_LOW: usize = 1 << 31;

/// The smallest reservation that is tried.
pub const MIN_RESERVATION: usize = 4 << 20;

/// Both parts of a cell: 16 bytes of stub, 16 bytes of slot.
pub(crate) const CELL: usize = 16;

/// The regions of one reservation, as run addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) base: usize,
    pub(crate) size: usize,
    pub(crate) slots: Range<usize>,
    pub(crate) stubs: Range<usize>,
    pub(crate) code: [Range<usize>; 2],
    pub(crate) read_only: Range<usize>,
    pub(crate) read_write: Range<usize>,
}

/// The nearest size that a heap can have.
pub(crate) fn clamp_reservation(asked: usize, place: Place) -> usize {
    let most = match place {
        Place::Random => MAX_RESERVATION,
        Place::Near => MAX_NEAR_RESERVATION,
        Place::Low => MAX_LOW_RESERVATION,
    };
    asked.clamp(MIN_RESERVATION, most) & !(PAGE - 1)
}

/// `n` rounded up to whole pages.
pub(crate) const fn page_up(n: usize) -> usize {
    (n + PAGE - 1) & !(PAGE - 1)
}

impl Layout {
    /// The layout of a reservation; `base` and `size` are multiples of [`PAGE`],
    /// `size` as [`clamp_reservation`] gives it. Read-write memory has `data` bytes at
    /// least, if there is room for so many.
    pub(crate) fn new(base: usize, size: usize, data: usize) -> Layout {
        debug_assert!(base.is_multiple_of(PAGE) && size.is_multiple_of(PAGE));
        let others = size.saturating_sub(data.saturating_add(2 * PAGE));
        let unit = (others / 16).clamp(size / 256, size / 32) & !(PAGE - 1);
        let slots = base + PAGE;
        let stubs = slots + unit;
        let code_a = stubs + unit;
        let code_b = code_a + 5 * unit;
        let read_only = code_b + 5 * unit;
        let read_write = read_only + 4 * unit;
        Layout {
            base,
            size,
            slots: slots..stubs,
            stubs: stubs..code_a,
            code: [code_a..code_b, code_b..read_only],
            read_only: read_only..read_write,
            read_write: read_write..base + size - PAGE,
        }
    }

    /// Stubs, both code spaces and read-only data.
    pub(crate) fn shared(&self) -> Range<usize> {
        self.stubs.start..self.read_only.end
    }

    /// The part of the shared region that is mapped executable.
    pub(crate) fn executable(&self) -> Range<usize> {
        self.stubs.start..self.code[1].end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_tile_the_reservation() {
        for size in [
            MIN_RESERVATION,
            5 << 20,
            (33 << 20) + PAGE,
            MAX_RESERVATION,
            MAX_LOW_RESERVATION,
            clamp_reservation(usize::MAX, Place::Random),
            clamp_reservation(usize::MAX, Place::Near),
            clamp_reservation(0, Place::Low),
        ] {
            for data in [0, size / 2, size / 4 * 3, size, usize::MAX] {
                let l = Layout::new(7 * PAGE, size, data);
                assert!(l.read_write.len() >= data.min(size / 8 * 7));
                let all = [
                    &l.slots,
                    &l.stubs,
                    &l.code[0],
                    &l.code[1],
                    &l.read_only,
                    &l.read_write,
                ];
                assert_eq!(l.slots.start, l.base + PAGE);
                for pair in all.windows(2) {
                    assert_eq!(pair[0].end, pair[1].start);
                    assert!(pair[0].len() >= PAGE && pair[0].len().is_multiple_of(PAGE));
                }
                assert_eq!(l.read_write.end + PAGE, l.base + size);
                assert!(!l.read_write.is_empty());
                assert_eq!(l.slots.len(), l.stubs.len());
                assert!(size + (1 << 20) <= 1 << 31);
            }
        }
    }
}
