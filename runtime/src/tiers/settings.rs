//! Settings of tiers and of tuning.

use crate::version::choices::VersionChoices;
use uruk_base::Tiers;
use uruk_base::Variant;
use uruk_profiler::{Choice, Settings, Sizes};
use uruk_tiering::Config;
use uruk_tiering::tuning::{Budget, Rules};

/// Settings of the tuner.
#[derive(Debug, Clone, Default)]
pub(crate) struct TuneSettings {
    pub(crate) on: bool,
    /// For tests: candidates have the same settings as the current version.
    pub(crate) same: bool,
    pub(crate) rules: Rules,
    /// The embedder's budget, if set.
    pub(crate) budget: Option<Budget>,
    /// The results of an earlier run, as text.
    pub(crate) before: Option<String>,
}

/// Settings of [`TierState`](super::TierState).
#[derive(Debug, Clone, Default)]
pub(crate) struct TierSettings {
    pub(crate) tiers: Tiers,
    /// Under [`Tiers::Auto`], whether first code is of tier 2.
    pub(crate) over_native: bool,
    /// The compiler of tier 1.
    pub(crate) baseline: crate::version::baseline::Baseline,
    /// Whether tiers 2 and 3 may contract floating-point operations.
    pub(crate) contract: bool,
    /// Whether nothing is inlined across modules.
    pub(crate) apart: bool,
    /// Whether functions are compiled ahead of their calls.
    pub(crate) speculate: bool,
    pub(crate) policy: Config,
    pub(crate) tuning: TuneSettings,
    /// The variant for compiles above tier 1, unless tuning finds a better one.
    pub(crate) variant: Variant,
    /// Bytes of code of functions above which cold code is evicted.
    pub(crate) code_budget: Option<u64>,
    pub(crate) sampling: Choice,
    pub(crate) sizes: Sizes,
    pub(crate) rates: Settings,
}

impl TierSettings {
    /// The choices for all versions.
    pub(crate) fn choices(&self) -> VersionChoices {
        VersionChoices::new(self.tiers, self.variant)
            .over_native(self.over_native)
            .contract(self.contract)
            .apart(self.apart)
    }

    /// The source of samples; off where nothing moves between tiers.
    pub(crate) fn samples(&self) -> Choice {
        match self.tiers {
            Tiers::Auto => self.sampling,
            Tiers::Fixed(_) | Tiers::Churn | Tiers::Leave(_) => Choice::Off,
        }
    }

    /// Background compiles at the same time.
    pub(crate) fn background_jobs(&self) -> usize {
        match self.tiers {
            Tiers::Auto => self.policy.jobs as usize,
            Tiers::Fixed(_) | Tiers::Churn | Tiers::Leave(_) => 0,
        }
    }
}
