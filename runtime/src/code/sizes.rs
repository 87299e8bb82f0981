//! Sizes of the memory of images.

use uruk_heap::{Pool, Sealed};

/// Bytes that an image takes of the heap.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sizes {
    pub(crate) code: usize,
    pub(crate) read_only: usize,
    pub(crate) read_write: usize,
    /// Bytes of read-write memory that begin as zeros.
    pub(crate) zeros: usize,
    /// Bytes of unwind records, in all memory.
    pub(crate) unwind: usize,
}

impl Sizes {
    /// Sizes of an image in `memory`.
    pub(crate) fn of(memory: &[Sealed], zeros: usize, unwind: usize) -> Sizes {
        let mut sizes = Sizes {
            zeros,
            unwind,
            ..Sizes::default()
        };
        for memory in memory {
            *match memory.pool() {
                Pool::Code => &mut sizes.code,
                Pool::ReadOnly => &mut sizes.read_only,
                Pool::ReadWrite => &mut sizes.read_write,
            } += memory.held();
        }
        sizes
    }
}
