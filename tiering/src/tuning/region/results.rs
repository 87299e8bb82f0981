//! The consequences of a trial for its root.

use uruk_base::{Nanos, Tier, VersionId};

use super::{Depth, Lost, Region, Step};
use crate::tuning::candidate::{Candidate, Root, TrialResult, Tried};
use crate::tuning::memory::Known;
use crate::tuning::trial::Verdict;

/// Code that was made for a trial.
#[derive(Clone, Copy, Debug)]
pub struct Tested {
    /// Its version.
    pub version: VersionId,
    /// The hash of its object, if LLVM emitted it.
    pub object: Option<u64>,
    /// That of the root's code.
    pub running: Option<u64>,
}

/// The consequences of a trial for others than the region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Consequence {
    /// Whether the candidate runs from now on.
    pub won: bool,
    /// Whether it is the base of the next variants: it won, or is the best of those that lose to
    /// native code.
    pub better: bool,
    /// Gain of the change, for [`Advice::learn`]; 1 if there was none.
    pub gain: f64,
    /// The result to keep for the next run.
    pub known: Option<Known>,
}

impl Region {
    /// Notes a candidate that was tried, or cannot be: it is not proposed again.
    pub fn note(&mut self, candidate: Candidate) {
        if candidate.tier == Tier::Native {
            return self.done.set(Step::Native, true);
        }
        if !self.tried.contains(&candidate.variant) {
            self.tried.push(candidate.variant);
        }
        if candidate.change.is_none() {
            match candidate.tier {
                Tier::Optimized => self.done.set(Step::Plain, true),
                Tier::Guided => self.done.set(Step::Guided, true),
                _ => {}
            }
        }
    }

    fn record(&mut self, root: &Root, candidate: Candidate, ended: &TrialResult, charged: Nanos) {
        self.trials.push(Tried {
            tier: candidate.tier,
            variant: candidate.variant,
            verdict: ended.verdict,
            ratio: ended.ratio,
            pairs: ended.pairs,
            unit: root.unit,
            lost: charged,
        });
    }

    /// Takes the result of comparing a root with its native code. From now on `runs` is in the slot,
    /// at that tier: native code if it won.
    pub fn native_ended(
        &mut self,
        root: &Root,
        ended: &TrialResult,
        runs: (VersionId, Tier),
        charged: Nanos,
    ) {
        let native = Candidate {
            tier: Tier::Native,
            variant: self.variant,
            change: None,
        };
        self.note(native);
        self.record(root, native, ended, charged);
        (self.version, self.tier) = runs;
        if ended.prefers_native() {
            self.ratio = self.ratio.times(ended.ratio);
            // Guided code may still follow, and is compared with it.
            self.done.set(Step::Native, false);
            let by = ended.ratio.point;
            // The closest code is the base of variants.
            if self.lost.is_none_or(|before| by < before.by) {
                self.lost = Some(Lost { root: *root, by });
            }
        }
    }

    /// Takes the result of another trial.
    pub fn ended(
        &mut self,
        root: &Root,
        candidate: Candidate,
        tested: &Tested,
        ended: &TrialResult,
        charged: Nanos,
        margin: f64,
    ) -> Consequence {
        let won = ended.verdict == Verdict::Faster;
        let contested = root.tier == Tier::Native;
        let lost = self.lost.filter(|_| contested);
        // The candidate's gain over the code that it differs from, which lost to native code.
        let over = |ratio: f64| ratio * lost.map_or(1.0, |lost| lost.by);
        let better = won || contested && over(ended.ratio.low) > 1.0;
        self.note(candidate);
        self.record(root, candidate, ended, charged);
        self.objects.extend(tested.object);
        (self.version, self.tier) = match won {
            true => (tested.version, candidate.tier),
            false => (root.version, root.tier),
        };
        // Another variant of another tier is tried for a small gain in any case.
        let alone = candidate.change.is_some() || candidate.variant == self.variant;
        let coarse = self.depth == Depth::Coarse;
        if !better && coarse && alone && over(ended.ratio.high) >= 1.0 + margin {
            self.doubtful.push(candidate.variant);
        }
        if better {
            self.take_as_base(candidate, tested);
            self.lost = lost.map(|lost| Lost {
                root: Root {
                    tier: candidate.tier,
                    ..lost.root
                },
                by: 1.0 / ended.ratio.point,
            });
        }
        if won && candidate.change.is_none() && candidate.tier < root.tier {
            // The counts were taken too early: new counts may make better guided code.
            self.done.set(Step::Profile, false);
            self.done.set(Step::Guided, false);
        }
        if won {
            self.ratio = self.ratio.times(ended.ratio);
            self.done.set(Step::Native, true);
            self.lost = None;
        }
        let known = Known {
            variant: self.variant,
            ratio: self.ratio,
            settled: false,
        };
        Consequence {
            won,
            better,
            gain: if better { over(ended.ratio.point) } else { 1.0 },
            known: (won || !contested).then_some(known),
        }
    }

    /// Makes a candidate the base of the next variants.
    fn take_as_base(&mut self, candidate: Candidate, tested: &Tested) {
        // Variants that differ from this by one change were not tried for large gains.
        self.doubtful.clear();
        self.depth = Depth::Coarse;
        self.done.set(Step::Rolled, false);
        if candidate.change.is_none() {
            // Nothing was tried on code of this tier.
            self.tried.clear();
            self.done.set(Step::Plain, true);
        }
        if !self.tried.contains(&self.variant) {
            self.tried.push(self.variant);
        }
        // Changes refuted for large gains may have a small one over this.
        self.objects.clear();
        self.objects.extend(tested.running);
        self.objects.extend(tested.object);
        self.variant = candidate.variant;
    }
}
