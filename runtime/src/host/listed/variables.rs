//! The variable of a listed image that contains an address, as `dladdr` finds a library's.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{HEAD, Node, Reader};

/// Address ranges of variables, in any order.
#[derive(Debug, Default)]
pub(crate) struct VariableRanges(pub(crate) Vec<Range<u64>>);

/// An address of an image's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataPlace {
    /// Base address of the image.
    pub(crate) base: u64,
    /// Start of the exported variable that contains the address.
    pub(crate) variable: Option<u64>,
}

impl VariableRanges {
    /// Start of the variable that contains `address`; one without a size contains its start only.
    fn start(&self, address: u64) -> Option<u64> {
        let holds = |range: &&Range<u64>| range.start == address || range.contains(&address);
        let found = self.0.iter().filter(holds);
        // The innermost, as in glibc.
        found.map(|range| range.start).max()
    }
}

/// The image whose data contains an address. Takes no lock.
pub(crate) fn place_of(address: u64) -> Option<DataPlace> {
    let _reader = Reader::new();
    let mut at = HEAD.load(Ordering::SeqCst);
    // SAFETY: a node is not freed while there are readers.
    while let Some(node) = unsafe { at.as_ref() } {
        if node.holds(address) {
            return Some(DataPlace {
                base: node.base,
                variable: node.variables.start(address),
            });
        }
        at = node.next.load(Ordering::SeqCst);
    }
    None
}

impl Node {
    /// Whether an address is in a segment of the image.
    fn holds(&self, address: u64) -> bool {
        let offset = address.wrapping_sub(self.base);
        let mut segments = self.headers.iter();
        segments.any(|header| {
            header.p_type == libc::PT_LOAD && offset.wrapping_sub(header.p_vaddr) < header.p_memsz
        })
    }
}

#[cfg(test)]
mod tests {
    use super::VariableRanges;

    #[test]
    fn an_address_is_in_the_variable_that_holds_it() {
        let variables = VariableRanges(vec![0x10..0x20, 0x40..0x40, 0x18..0x1c]);
        let starts = [0xf, 0x10, 0x17, 0x18, 0x1c, 0x20, 0x40, 0x41].map(|at| variables.start(at));
        let outer = Some(0x10);
        assert_eq!(
            starts,
            [
                None,
                outer,
                outer,
                Some(0x18),
                outer,
                None,
                Some(0x40),
                None
            ]
        );
    }
}
