//! What can go wrong when stubs are made.

use thiserror::Error;
use uruk_heap::HeapError;

/// An error of the stub table. The table stays usable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StubError {
    /// The heap refused memory for stub pages or the resolver.
    #[error("no memory for stubs")]
    Heap(#[from] HeapError),
    /// More functions than the stub region has room for.
    #[error("out of stubs: {asked} asked, {held} of {capacity} held")]
    Full {
        /// Stubs asked.
        asked: usize,
        /// Stubs that were handed out, quarantined ones included.
        held: usize,
        /// Stubs the region has room for.
        capacity: usize,
    },
}
