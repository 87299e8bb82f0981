//! Errors of the stub table.

use thiserror::Error;
use uruk_heap::HeapError;

use uruk_base::FunctionId;

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
        /// Stubs requested.
        asked: usize,
        /// Stubs that were handed out, quarantined ones included.
        held: usize,
        /// Stubs the region has room for.
        capacity: usize,
    },
    /// A set names a function twice.
    #[error("{0} is twice in the set")]
    Twice(FunctionId),
    /// A set names a function that was released, or never handed out.
    #[error("{0} is not a function of this table any more")]
    Released(FunctionId),
    /// The gate was to open with code for a function that it does not hold.
    #[error("{0} is not behind the gate")]
    NotGated(FunctionId),
    /// Another gate is closed; only one may be at a time.
    #[error("the gate is closed for another set")]
    GateClosed,
}
