//! The place in a body where a continuation starts.

use std::sync::Arc;

use uruk_leaving::Passed;

/// Where a continuation starts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Start {
    /// The number of the head's block.
    pub block: u32,
    /// Fingerprint of the head, computed where the continuation is offered.
    pub fingerprint: u64,
    /// The passed values, if a frame of another body continues here; else the values that live
    /// across the head.
    pub passed: Option<Arc<[Passed]>>,
}
