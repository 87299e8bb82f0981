//! Choices that hold for all versions of a session: tiers, variants, and the function at which the
//! program starts.

use std::sync::atomic::{AtomicUsize, Ordering};

use uruk_base::{FunctionId, Tier, Tiers, Variant};
use uruk_codegen::{Compile, Counters};

/// The choices for all versions of a session.
#[derive(Debug, Default)]
pub(crate) struct VersionChoices {
    tiers: Tiers,
    /// Under [`Tiers::Auto`], whether first code is of tier 2.
    over_native: bool,
    /// Whether tiers 2 and 3 may contract floating-point operations.
    contract: bool,
    /// Whether nothing is inlined across modules.
    apart: bool,
    /// The variant for compiles above tier 1, unless tuning finds a better one.
    variant: Variant,
    /// The function the program starts at: index plus one; 0 for none.
    entry_point: AtomicUsize,
}

impl VersionChoices {
    /// Functions move between tiers by `tiers`, and compiles above tier 1 are of `variant`.
    pub(crate) fn new(tiers: Tiers, variant: Variant) -> VersionChoices {
        VersionChoices {
            tiers,
            variant,
            ..VersionChoices::default()
        }
    }

    /// Sets whether first code is of tier 2, under [`Tiers::Auto`].
    pub(crate) fn over_native(self, over_native: bool) -> VersionChoices {
        VersionChoices {
            over_native,
            ..self
        }
    }

    /// Sets whether floating-point operations may be contracted above tier 1.
    pub(crate) fn contract(self, contract: bool) -> VersionChoices {
        VersionChoices { contract, ..self }
    }

    /// Sets whether nothing is inlined across modules.
    pub(crate) fn apart(self, apart: bool) -> VersionChoices {
        VersionChoices { apart, ..self }
    }

    /// True if functions have native code that runs until there is a better version, and move
    /// between tiers.
    pub(crate) fn has_native(&self) -> bool {
        self.first() == Tier::Optimized && self.is_auto()
    }

    /// True if functions move between tiers.
    pub(crate) fn is_auto(&self) -> bool {
        self.tiers == Tiers::Auto
    }

    /// The variant for code above tier 1, by default.
    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    /// True if nothing is inlined across modules.
    pub(super) fn is_apart(&self) -> bool {
        self.apart
    }

    /// Whether functions have native code, which runs until there is a better version.
    pub(crate) fn is_over_native(&self) -> bool {
        self.over_native
    }

    /// The tier of a function's first version.
    pub(crate) fn first(&self) -> Tier {
        match self.tiers {
            Tiers::Auto if self.over_native => Tier::Optimized,
            Tiers::Auto | Tiers::Churn | Tiers::Leave(_) => Tier::Baseline,
            // Nothing is compiled as native code.
            Tiers::Fixed(tier) => tier.max(Tier::Baseline),
        }
    }

    /// The tier of a version that is never replaced, where others start at `tier`.
    pub(crate) fn only(&self, tier: Tier) -> Tier {
        match self.tiers {
            Tiers::Auto => tier.max(Tier::Optimized),
            Tiers::Fixed(_) | Tiers::Churn | Tiers::Leave(_) => tier,
        }
    }

    /// The settings of a compile at `tier`.
    pub(crate) fn how(&self, tier: Tier) -> Compile {
        let counters = match (self.tiers, tier) {
            (Tiers::Auto | Tiers::Churn | Tiers::Leave(_), Tier::Baseline) => Counters::Entry,
            _ => Counters::None,
        };
        let mut how = Compile::at(tier)
            .counting(counters)
            .contracting(self.contract);
        if tier > Tier::Baseline {
            how = how.varied(self.variant);
        }
        how.leaves = matches!(self.tiers, Tiers::Auto | Tiers::Leave(_));
        how
    }

    /// Under [`Tiers::Leave`], the number of passes after which a loop is left for its
    /// continuation, by function and place of the loop.
    pub(crate) fn leaves_after(&self) -> Option<impl Fn(FunctionId, usize) -> u32 + use<>> {
        let Tiers::Leave(passes) = self.tiers else {
            return None;
        };
        Some(move |id: FunctionId, place: usize| match passes {
            0..=50 => passes,
            seed => {
                let mixed = (u64::from(seed) << 32 | u64::from(id.index())) ^ (place as u64) << 20;
                let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                match mixed >> 32 & 3 {
                    0 => 1,
                    1 => 2,
                    _ => (mixed >> 40) as u32 % 50 + 1,
                }
            }
        })
    }

    /// True if code of tier 1 counts.
    pub(crate) fn counts_at_baseline(&self) -> bool {
        self.how(Tier::Baseline).counters == Counters::Entry
    }

    /// Sets the function at which the program starts: it is called once.
    pub(crate) fn set_entry_point(&self, id: FunctionId) {
        self.entry_point
            .store(id.index() as usize + 1, Ordering::Relaxed);
    }

    pub(crate) fn is_entry_point(&self, id: FunctionId) -> bool {
        self.entry_point.load(Ordering::Relaxed) == id.index() as usize + 1
    }
}
