//! Names for functions: [`FunctionId`] and runs of them.
//!
//! A function's id is the index of its cell: stub `i` is at `stubs + 16 * i`,
//! slot `i` at `slots + 16 * i`. The last cell of each page of 256 is the
//! page's common jump and belongs to no function, so consecutive functions have
//! consecutive *ordinals*: `index = ordinal + ordinal / 255`.

use std::fmt;
use std::ops::Range;

/// Cells of a page (4096 / 16).
pub(crate) const CELLS_PER_PAGE: u32 = 256;
/// Functions of a page: the last cell is the common jump.
pub(crate) const FUNCTIONS_PER_PAGE: u32 = CELLS_PER_PAGE - 1;

/// A function of one [`StubTable`](crate::StubTable), for its whole life. To be
/// used with the table that gave it only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FunctionId(u32);

impl FunctionId {
    pub(crate) fn from_index(index: u32) -> FunctionId {
        FunctionId(index)
    }

    pub(crate) fn from_ordinal(ordinal: u32) -> FunctionId {
        FunctionId(ordinal + ordinal / FUNCTIONS_PER_PAGE)
    }

    /// The index of its cell: small, unique in its table, not dense (every
    /// 256th is left out).
    pub fn index(self) -> u32 {
        self.0
    }

    /// How many functions come before it. `None` for the common cell.
    pub(crate) fn ordinal(self) -> Option<u32> {
        let (page, cell) = (self.0 / CELLS_PER_PAGE, self.0 % CELLS_PER_PAGE);
        (cell < FUNCTIONS_PER_PAGE).then_some(page * FUNCTIONS_PER_PAGE + cell)
    }
}

impl fmt::Debug for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FunctionId({})", self.0)
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A run of functions allocated together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Functions {
    ordinals: Range<u32>,
}

impl Functions {
    pub(crate) fn new(ordinals: Range<u32>) -> Functions {
        Functions { ordinals }
    }

    /// The `i`-th of them.
    pub fn get(&self, i: usize) -> Option<FunctionId> {
        let i = u32::try_from(i).ok()?;
        let ordinal = self.ordinals.start.checked_add(i)?;
        self.ordinals
            .contains(&ordinal)
            .then(|| FunctionId::from_ordinal(ordinal))
    }
}

impl Iterator for Functions {
    type Item = FunctionId;

    fn next(&mut self) -> Option<FunctionId> {
        self.ordinals.next().map(FunctionId::from_ordinal)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ordinals.size_hint()
    }
}

impl ExactSizeIterator for Functions {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ordinals_leave_out_the_common_cells() {
        let mut run = Functions::new(253..258);
        assert_eq!(run.len(), 5);
        assert_eq!(run.get(2).map(FunctionId::index), Some(256));
        assert_eq!(run.get(5), None);
        let indexes: Vec<u32> = run.by_ref().map(FunctionId::index).collect();
        assert_eq!(indexes, [253, 254, 256, 257, 258]);
        for ordinal in 0..2000 {
            assert_eq!(FunctionId::from_ordinal(ordinal).ordinal(), Some(ordinal));
        }
        assert_eq!(FunctionId::from_index(511).ordinal(), None);
    }
}
