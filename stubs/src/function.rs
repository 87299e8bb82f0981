//! Maps runs of [`FunctionId`]s to cells.
//!
//! A function's id is the index of its cell: stub `i` is at `stubs + 16 * i`,
//! slot `i` at `slots + 16 * i`. The last cell of each page of 256 is the
//! page's common jump and belongs to no function, so consecutive functions have
//! consecutive *ordinals*: `index = ordinal + ordinal / 255`.

use std::ops::Range;

use uruk_base::FunctionId;

/// Cells of a page (4096 / 16).
pub(crate) const CELLS_PER_PAGE: u32 = 256;
/// Functions of a page: the last cell is the common jump.
pub(crate) const FUNCTIONS_PER_PAGE: u32 = CELLS_PER_PAGE - 1;

/// The function with `ordinal` others before it.
pub(crate) fn at_ordinal(ordinal: u32) -> FunctionId {
    FunctionId(ordinal + ordinal / FUNCTIONS_PER_PAGE)
}

/// The number of functions before this one. `None` for the common cell.
pub(crate) fn ordinal_of(function: FunctionId) -> Option<u32> {
    let (page, cell) = (function.0 / CELLS_PER_PAGE, function.0 % CELLS_PER_PAGE);
    (cell < FUNCTIONS_PER_PAGE).then_some(page * FUNCTIONS_PER_PAGE + cell)
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

    /// The `i`-th function of the run.
    pub fn get(&self, i: usize) -> Option<FunctionId> {
        let i = u32::try_from(i).ok()?;
        let ordinal = self.ordinals.start.checked_add(i)?;
        self.ordinals
            .contains(&ordinal)
            .then(|| at_ordinal(ordinal))
    }
}

impl Iterator for Functions {
    type Item = FunctionId;

    fn next(&mut self) -> Option<FunctionId> {
        self.ordinals.next().map(at_ordinal)
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
            assert_eq!(ordinal_of(at_ordinal(ordinal)), Some(ordinal));
        }
        assert_eq!(ordinal_of(FunctionId(511)), None);
    }
}
