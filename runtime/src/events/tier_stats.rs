//! Numbers of one tier.

use std::time::Duration;

/// Statistics of one tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// Versions that were compiled.
    pub versions: u64,
    /// Functions that run at this tier now.
    pub functions: u64,
    /// Time to compile and link them.
    pub time: Duration,
    /// Bytes of their code.
    pub bytes: u64,
}
