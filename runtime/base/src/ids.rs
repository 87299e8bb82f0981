//! Names of compiled functions, their versions, and tiers.

use std::fmt;

/// A function whose code can change. It is the index of the function's stub; indexes are small,
/// because tables are indexed by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
#[repr(transparent)]
pub struct FunctionId(pub u32);

impl FunctionId {
    /// The index of the function's stub: unique in its table, not dense.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "f{}", self.0)
    }
}

/// One compiled body of a function; its copies share it. Never reused, and larger than that of
/// every version requested before: "newer" means a larger number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct VersionId(pub u64);

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// The way a version was compiled. In files it is written as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "u8", try_from = "u8"))]
#[repr(u8)]
pub enum Tier {
    /// Code of the native program that a session lives in, compiled before the program ran, from
    /// the same source.
    Native = 0,
    /// Compiled as fast as possible, for the ABI's baseline CPU, with counters.
    Baseline = 1,
    /// Optimized for this machine, without data of the run.
    Optimized = 2,
    /// Optimized with measurements of the lower tiers.
    Guided = 3,
}

impl Tier {
    /// All tiers that code is compiled at, from slow code to fast code.
    pub const ALL: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

    /// Native code, then [`Tier::ALL`].
    pub const WITH_NATIVE: [Tier; 4] =
        [Tier::Native, Tier::Baseline, Tier::Optimized, Tier::Guided];

    /// Number of [ranks](Tier::rank), for arrays of counts.
    pub const RANKS: usize = 5;

    /// The tier's number: 0 for native code; 1, 2 or 3.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Index in arrays of counts: 1, 2 or 3; 0 stands for code of no tier, and native code has the
    /// last index.
    pub const fn rank(self) -> usize {
        match self {
            Tier::Native => Tier::RANKS - 1,
            tier => tier as usize,
        }
    }

    /// The tier of a number; `None` if there is none.
    pub fn from_number(number: u8) -> Option<Tier> {
        let mut all = Tier::WITH_NATIVE.into_iter();
        all.find(|tier| tier.number() == number)
    }

    /// The tier above. Native code is optimized already, so the tier above it is the optimizing
    /// one.
    pub fn above(self) -> Option<Tier> {
        match self {
            Tier::Native | Tier::Baseline => Some(Tier::Optimized),
            Tier::Optimized => Some(Tier::Guided),
            Tier::Guided => None,
        }
    }

    /// The tier below that code is compiled at.
    pub fn below(self) -> Option<Tier> {
        match self {
            Tier::Native | Tier::Baseline => None,
            Tier::Optimized => Some(Tier::Baseline),
            Tier::Guided => Some(Tier::Optimized),
        }
    }

    /// Index in tables by tier, from 0. Native code shares its index with baseline code: a function
    /// begins with one of the two, and no function has both.
    pub const fn index(self) -> usize {
        (self as usize).saturating_sub(1)
    }

    /// The tier's name in a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Native => "native",
            Tier::Baseline => "baseline",
            Tier::Optimized => "optimized",
            Tier::Guided => "guided",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.number())
    }
}

/// Error: no tier has that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tier {0}")]
pub struct NoSuchTier(pub u8);

impl From<Tier> for u8 {
    fn from(tier: Tier) -> u8 {
        tier.number()
    }
}

impl TryFrom<u8> for Tier {
    type Error = NoSuchTier;

    fn try_from(number: u8) -> Result<Tier, NoSuchTier> {
        Tier::from_number(number).ok_or(NoSuchTier(number))
    }
}

#[cfg(test)]
mod tests {
    use super::{NoSuchTier, Tier};

    #[test]
    fn tiers_have_neighbours() {
        assert_eq!(Tier::Baseline.above(), Some(Tier::Optimized));
        assert_eq!(Tier::Guided.above(), None);
        assert_eq!(Tier::Native.above(), Some(Tier::Optimized));
        assert_eq!(Tier::try_from(0), Ok(Tier::Native));
        assert_eq!(Tier::try_from(4), Err(NoSuchTier(4)));
        assert_eq!(Tier::Guided.index(), 2);
        let mut ranks = Tier::WITH_NATIVE.map(Tier::rank);
        ranks.sort_unstable();
        assert_eq!(ranks, [1, 2, 3, 4]);
    }
}
