//! Roots and candidates: a function to be tuned with its measures, and a version to try on it.

use std::time::Duration;

use uruk_base::{Change, FunctionId, Nanos, Tier, Variant, VersionId};

use super::trial::{Interval, Verdict};

/// Minimal time of the program per entry of a root that is timed by its entries. At 100 ns Rust's
/// n-body, entered every 53 to 92 ns, was left at vectors that make it take 23 ms instead of 13.
pub const SHORTEST: Nanos = Nanos(25);

/// Maximal time of the program per unit of a root.
pub(super) const LONGEST: Nanos = Nanos::from_ms(250);

/// The unit by which the program's time is divided when two codes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuningUnit {
    /// Entries of the function.
    Entries,
    /// Units of work that the embedder reports.
    Work,
}

/// A function to be tuned, with its measures since the last check.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// The function.
    pub id: FunctionId,
    /// Its version in the slot.
    pub version: VersionId,
    /// The tier of that version.
    pub tier: Tier,
    /// Time of the program per unit of work.
    pub per_unit: Nanos,
    /// That unit.
    pub unit: TuningUnit,
    /// Time of the program per entry.
    pub per_entry: Nanos,
}

impl Root {
    /// Length of the first slices of a comparison.
    pub fn slice(&self) -> Duration {
        super::turns::slice(self.per_unit)
    }
}

/// A version to try on a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its tier.
    pub tier: Tier,
    /// Its variant.
    pub variant: Variant,
    /// The change of the variant; `None` for code of tier 2 in place of tier 3's, for the reverse,
    /// and for native code.
    pub change: Option<Change>,
}

/// The result of two versions that took turns.
#[derive(Clone, Copy, Debug)]
pub struct TrialResult {
    /// The verdict on the candidate.
    pub verdict: Verdict,
    /// Speed of the candidate relative to the incumbent.
    pub ratio: Interval,
    /// Number of measured pairs of slices.
    pub pairs: u32,
    /// Time lost in the slower version.
    pub lost: Nanos,
}

/// A trial that ended.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// The tier of its candidate.
    pub tier: Tier,
    /// The variant of its candidate.
    pub variant: Variant,
    /// The verdict on its candidate.
    pub verdict: Verdict,
    /// Speed of its candidate relative to the incumbent.
    pub ratio: Interval,
    /// Number of measured pairs of slices.
    pub pairs: u32,
    /// The unit of the measured times.
    pub unit: TuningUnit,
    /// Time charged to the account.
    pub lost: Nanos,
}

/// A part of a time; zero for negative parts.
pub(super) fn part(time: Duration, part: f64) -> Nanos {
    Nanos::from_f64(time.as_nanos() as f64 * part.max(0.0))
}
