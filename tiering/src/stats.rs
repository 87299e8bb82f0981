//! Counts and learned numbers of the controller, for `--stats` and events.

use std::fmt;

use crate::ids::Tier;
use crate::learn::Estimate;

/// Counts since the controller was made, and compiles in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Candidates waiting now.
    pub queued: usize,
    /// Explicit requests waiting now.
    pub requested: usize,
    /// Compiles in progress.
    pub outstanding: usize,
    /// First codes, by tier.
    pub first: [u64; 3],
    /// Versions published over others, by tier.
    pub promoted: [u64; 3],
    /// Compiles that failed.
    pub failed: u64,
    /// Compiles that were cancelled.
    pub cancelled: u64,
    /// Compiles that were too late to be published.
    pub late: u64,
    /// Compiles that found no memory.
    pub no_memory: u64,
    /// Versions found slower than the one before.
    pub slower: u64,
    /// Bodies replaced.
    pub replaced: u64,
    /// Candidates dropped because the queue was full.
    pub dropped_full: u64,
    /// Candidates dropped because they were idle.
    pub dropped_stale: u64,
    /// Candidates that no longer paid when their turn came.
    pub dropped_unworthy: u64,
    /// Explicit requests refused because too many waited.
    pub refused: u64,
    /// Samples of versions that do not run any more.
    pub stray_samples: u64,
    /// Counts from code that is no longer published.
    pub stray_counts: u64,
    /// Inputs about functions beyond `max_functions`.
    pub untracked: u64,
    /// Time of all compiles but first ones, in ns.
    pub compile_ns: u64,
    /// Time of compiles without use, in ns.
    pub wasted_ns: u64,
}

/// The learned numbers of the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Learned {
    /// Compile time over the prior, by tier.
    pub cost: [Estimate; 3],
    /// Tier 2 against tier 1, tier 3 against tier 2.
    pub speedup: [Estimate; 2],
    /// Time by samples over time by counters.
    pub calibration: Estimate,
}

fn show(f: &mut fmt::Formatter<'_>, name: &str, estimate: &Estimate) -> fmt::Result {
    let Estimate { value, observed } = estimate;
    match observed {
        0 => writeln!(f, "{name} {value:.2} (prior)"),
        _ => writeln!(f, "{name} {value:.2} (from {observed} observations)"),
    }
}

impl fmt::Display for Learned {
    /// One line per number, with its number of observations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (tier, estimate) in Tier::ALL.iter().zip(&self.cost) {
            show(
                f,
                &format!("compile cost, {tier}, over the prior:"),
                estimate,
            )?;
        }
        for (tier, estimate) in Tier::ALL[1..].iter().zip(&self.speedup) {
            show(f, &format!("speedup, {tier} over the one below:"), estimate)?;
        }
        show(
            f,
            "time by samples over time by counters:",
            &self.calibration,
        )
    }
}
