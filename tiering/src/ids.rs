//! Numbers and units: those of all packages, and generations and entries.

pub use uruk_base::{EntryAddress, FunctionId, Nanos, Tier, VersionId};

use crate::sync::{AtomicU64, Ordering};

/// The source of version numbers: one per session, shared by all threads that start compiles.
#[derive(Debug)]
pub struct VersionIds(AtomicU64);

impl Default for VersionIds {
    fn default() -> VersionIds {
        VersionIds(AtomicU64::new(1))
    }
}

impl VersionIds {
    /// A number that was not used before.
    pub fn next(&self) -> VersionId {
        // Relaxed: only uniqueness and the order of one variable matter.
        VersionId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Counts the replacements of a function: of its body, or of a body that its code depended on. Code
/// compiled for an earlier generation is made from bodies that the program no longer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u32);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_grow() {
        let ids = VersionIds::default();
        assert!(ids.next() < ids.next());
    }
}
