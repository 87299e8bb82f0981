//! Names and units: functions, versions, tiers, generations, entries and times.

use std::fmt;

pub use uruk_settings::Nanos;

use crate::sync::{AtomicU64, Ordering};

/// A function whose code can change. The number is the runtime's (the index of its
/// stub); small, because tables are indexed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "f{}", self.0)
    }
}

/// One compiled body of a function. Never reused, and larger than that of every version
/// requested before: "newer" means a larger number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionId(pub u64);

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

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

/// How a version was compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Tier {
    /// As fast as possible to make, with counters.
    Baseline = 1,
    /// Optimized for this machine.
    Optimized = 2,
    /// Optimized with what the lower tiers measured.
    Guided = 3,
}

impl Tier {
    /// All tiers, from slow code to fast code.
    pub const ALL: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

    /// 1, 2 or 3.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The tier of a number; `None` if there is none.
    pub fn from_number(number: u8) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.number() == number)
    }

    /// The tier above.
    pub fn above(self) -> Option<Tier> {
        Tier::from_number(self.number() + 1)
    }

    /// The tier below.
    pub fn below(self) -> Option<Tier> {
        Tier::from_number(self.number() - 1)
    }

    /// Position in tables by tier.
    pub(crate) fn index(self) -> usize {
        usize::from(self.number() - 1)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.number())
    }
}

/// How often a function was replaced: its body, or a body that its code depended on. What
/// is compiled for an earlier generation is of bodies that are no longer the program's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u32);

/// The address of a version's code, as the slot holds it. Nothing is read through it
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry(pub u64);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tiers_have_neighbours() {
        assert_eq!(Tier::Baseline.above(), Some(Tier::Optimized));
        assert_eq!(Tier::Guided.above(), None);
        assert_eq!(Tier::Baseline.below(), None);
        assert_eq!(Tier::from_number(0), None);
        assert_eq!(Tier::Guided.index(), 2);
    }

    #[test]
    fn version_numbers_grow() {
        let ids = VersionIds::default();
        assert!(ids.next() < ids.next());
    }
}
