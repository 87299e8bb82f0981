//! The withdrawal of a set by its caller.

use std::fmt;
use std::sync::Arc;

/// The caller's function that withdraws a replacement.
#[derive(Clone)]
pub(super) struct Withdrawal(pub(super) Arc<dyn Fn() -> bool + Send + Sync>);

impl Withdrawal {
    pub(super) fn is_given(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Withdrawal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Withdrawal")
    }
}
