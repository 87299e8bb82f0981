//! Names and units: functions, versions, tiers, generations, entries and times.

use std::fmt;
use std::ops::{Add, Sub};

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

/// A time in nanoseconds: a duration, or a moment of whatever monotonic clock the runtime
/// uses. Subtraction stops at zero, so a clock that steps back does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The beginning, or no time.
    pub const ZERO: Nanos = Nanos(0);

    /// Of milliseconds.
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// Of microseconds.
    pub const fn from_us(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// Of a number of nanoseconds that may have a fraction; negative and not-a-number
    /// give zero.
    pub fn from_f64(ns: f64) -> Nanos {
        // The cast saturates and sends not-a-number to zero.
        Nanos(ns as u64)
    }

    /// As a number to calculate with.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// In milliseconds.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add for Nanos {
    type Output = Nanos;

    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;

    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Nanos {
    /// The largest of s, ms, us and ns that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "0ns"),
            ns if ns % 1_000_000_000 == 0 => write!(f, "{}s", ns / 1_000_000_000),
            ns if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            ns if ns % 1_000 == 0 => write!(f, "{}us", ns / 1_000),
            ns => write!(f, "{ns}ns"),
        }
    }
}

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
    fn times_do_not_wrap() {
        assert_eq!(Nanos(3) - Nanos(5), Nanos::ZERO);
        assert_eq!(Nanos(u64::MAX) + Nanos(1), Nanos(u64::MAX));
        assert_eq!(Nanos::from_f64(f64::NAN), Nanos::ZERO);
        assert_eq!(Nanos::from_f64(-1.0), Nanos::ZERO);
        let shown = [0, 999, 25_000, 1_500_000, 2_000_000, 30_000_000_000].map(Nanos);
        let shown = shown.map(|time| time.to_string());
        assert_eq!(shown, ["0ns", "999ns", "25us", "1500us", "2ms", "30s"]);
    }

    #[test]
    fn version_numbers_grow() {
        let ids = VersionIds::default();
        assert!(ids.next() < ids.next());
    }
}
