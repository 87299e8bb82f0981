//! The choice of the next candidate of a root.

use uruk_base::{Change, Inlining, Tier, Variant};

use super::{Depth, Region, Step};
use crate::tuning::advice::{Advice, Shape};
use crate::tuning::candidate::{Candidate, Root};
use crate::tuning::drift::Drift;

/// Maximal trials of one root, after which it is settled, even if candidates are left.
const TRIALS: usize = 80;

/// Kinds of code that can be made for a root.
#[derive(Clone, Copy, Debug)]
pub struct Possible {
    /// Native code.
    pub native: bool,
    /// Code of tier 3.
    pub guided: bool,
    /// Code whose floating-point operations are contracted.
    pub contracted: bool,
    /// Code for values of arguments that are nearly constant.
    pub values: bool,
    /// Nothing but the same code once more, for a check of the tuner itself.
    pub same: bool,
}

impl Region {
    /// The next candidate; `None` if no candidate is left, and the root is settled by that, or if the
    /// code that lost to its native code was replaced meanwhile.
    pub fn next(
        &mut self,
        root: &Root,
        shape: Shape,
        possible: Possible,
        advice: &mut Advice,
    ) -> Option<Candidate> {
        // Candidates over native code have the tier of the slower code.
        let contested = root.tier == Tier::Native;
        let tier = match contested {
            true => self.lost?.root.tier,
            false => root.tier,
        };
        let variant = self.variant;
        let other = |tier| {
            Some(Candidate {
                tier,
                variant,
                change: None,
            })
        };
        if possible.native && !self.done.has(Step::Native) && !contested {
            return other(Tier::Native);
        }
        if possible.same && (tier != Tier::Guided || self.done.has(Step::Plain)) {
            return other(root.tier);
        }
        let full = self.trials.len() >= TRIALS;
        loop {
            if possible.guided && !contested && !self.done.has(Step::Guided) {
                return other(Tier::Guided);
            }
            if tier == Tier::Guided && !self.done.has(Step::Plain) {
                return other(Tier::Optimized);
            }
            if full {
                break;
            }
            let allowed = |change| self.allows(tier, shape, possible, change);
            if let Some((change, variant)) = advice.next(shape, variant, &self.tried, allowed) {
                return Some(Candidate {
                    tier,
                    variant,
                    change: Some(change),
                });
            }
            let rolled = self.rolled_apart(tier, shape.loops);
            if let Some(variant) = rolled.filter(|_| !contested) {
                return Some(Candidate {
                    tier: Tier::Optimized,
                    variant,
                    change: None,
                });
            }
            if !self.goes_on_finely() {
                break;
            }
        }
        self.settle();
        self.drift = Drift::default();
        None
    }

    /// Whether a change may have an effect: one without is not worth a trial.
    fn allows(&self, tier: Tier, shape: Shape, possible: Possible, change: Change) -> bool {
        let variant = self.variant;
        match change {
            Change::Contract => possible.contracted,
            Change::Start(_) => shape.loops > 0,
            Change::Values => possible.values || variant.values,
            Change::Order => tier == Tier::Guided || variant.static_order,
            Change::Callee(number) => {
                u32::from(number) < self.callees && variant.inlining != Inlining::None
            }
            _ => true,
        }
    }

    /// Continues with small gains, once all candidates were tried for large ones; returns whether
    /// any are left.
    pub(super) fn goes_on_finely(&mut self) -> bool {
        if self.depth == Depth::Fine || self.doubtful.is_empty() {
            return false;
        }
        self.depth = Depth::Fine;
        self.done.set(Step::Rolled, false);
        for variant in std::mem::take(&mut self.doubtful) {
            // An equal variant means the other tier's code: plain in place of guided, or the
            // reverse.
            if variant == self.variant {
                self.done.set(Step::Plain, false);
                self.done.set(Step::Guided, self.tier == Tier::Guided);
                self.tiers_compared = false;
            }
            self.tried.retain(|&tried| tried != variant);
        }
        true
    }

    /// Proposes once the variant with unchanged loops, by the plain pipeline of tier 2, if the
    /// current code is of tier 3 or of the thorough one: it is tried after all candidates on that.
    /// Two steps at once, as neither needs to gain anything by itself: Rust's fannkuch took 16.2 ms
    /// an iteration at tier 2, 15.7 at tier 3 or thorough, and no less with unchanged loops on top
    /// of those; at tier 2 they took 14.2 to 14.6.
    pub(super) fn rolled_apart(&mut self, tier: Tier, loops: u8) -> Option<Variant> {
        let elsewhere = tier == Tier::Guided || self.variant.thorough;
        if !elsewhere || loops == 0 || self.done.has(Step::Rolled) {
            return None;
        }
        self.done.set(Step::Rolled, true);
        let mut variant = self.variant.with(Change::Rolled);
        variant.thorough = false;
        let tried = tier != Tier::Guided && self.tried.contains(&variant);
        let same = tier == Tier::Guided && variant == self.variant;
        (!tried && !same).then_some(variant)
    }
}
