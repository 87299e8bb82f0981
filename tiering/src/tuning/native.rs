//! Rules for comparisons with native code, which is reached without a stub.
//!
//! The stub has a cost of its own: a call passes the native entry's jump, the room's and the stub's,
//! and native code that is adopted again avoids all three. So native code is credited with [`WAY`]
//! for each entry, which decides for functions that are short and entered often. Without a result,
//! the better estimate wins: a program must not become slower.

use super::candidate::TrialResult;
use super::trial::{Rules, Verdict};

/// The error rate. One of two codes must run in any case, so a wrong choice between two that are
/// nearly equal costs little. The program should have its native code back within seconds.
const ERROR: f64 = 0.1;

/// Minimal gain of native code for which a trial continues: below that, the better estimate is
/// used.
const MARGIN: f64 = 0.02;

/// The cost of an entry, in nanoseconds, through the stub and past the count: three taken jumps,
/// and an increment in memory.
pub const WAY: f64 = 1.5;

/// The time of a slice with so many entries of native code, without their way.
pub(super) fn without_way(time: f64, entries: f64) -> f64 {
    (time - WAY * entries).max(0.5 * time)
}

/// The stopping rules of a comparison in which native code is the candidate.
pub(super) fn rules(rules: Rules) -> Rules {
    Rules {
        error: rules.error.max(ERROR),
        margin: rules.margin.max(MARGIN),
        ..rules
    }
}

impl TrialResult {
    /// Whether native code must run, if it was the candidate.
    pub fn prefers_native(&self) -> bool {
        match self.verdict {
            Verdict::Faster => true,
            Verdict::Slower => false,
            Verdict::Same | Verdict::Undecided => self.ratio.point >= 1.0,
        }
    }
}
