//! Names and units: those of all packages, generations and entries.

pub use uruk_base::{EntryAddress, FunctionId, Nanos, Tier, VersionId};

use crate::sync::{AtomicU64, Ordering};

/// Where version numbers come from: one per session, shared by whoever starts compiles.
#[derive(Debug)]
pub struct VersionIds(AtomicU64);

impl Default for VersionIds {
    fn default() -> VersionIds {
        VersionIds(AtomicU64::new(1))
    }
}

impl VersionIds {
    /// A number nobody had before.
    pub fn next(&self) -> VersionId {
        // Relaxed: only uniqueness and the order of one variable count.
        VersionId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// How often a function was replaced: its body, or a body that its code depended on. What
/// is compiled for an earlier generation is of bodies that are no longer the program's.
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
