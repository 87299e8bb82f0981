//! Consequences of a trial: for the region, the learned advice, listeners and queries.

use std::sync::Arc;

use uruk_base::{FunctionId, Nanos, Tier, VersionId};
use uruk_tiering::tuning::{Known, Shape, Verdict};

use super::candidate::Candidate;
use super::region::{Lost, Tried};
use super::trial::TrialResult;
use crate::events::Event;
use crate::host::clock::nanos;
use crate::tuning::Tuning;
use crate::tuning::region::Root;
use crate::version::request::Made;

impl Tuning {
    /// Whether the code made for a trial is identical to the current code or to code tried before:
    /// the trial is then unnecessary.
    pub(super) fn is_known_code(
        &self,
        root: Root,
        shape: Shape,
        candidate: Candidate,
        object: Option<u64>,
    ) -> bool {
        let running = self.versions.object_of(root.id, root.version);
        let mut state = self.state();
        let Some(region) = state.regions.get_mut(&root.id.index()) else {
            return false;
        };
        region.objects.extend(running);
        let Some(object) = object.filter(|_| !self.same) else {
            return false;
        };
        // Candidates with a possible small gain are tried twice.
        let known = running == Some(object) || !region.fine && region.objects.contains(&object);
        if known {
            state.equal += 1;
            if let Some(change) = candidate.change {
                state.advice.learn(shape, change, 1.0);
            }
        }
        known
    }

    /// Notes the number of single inlining decisions.
    pub(super) fn note_callees(&self, id: FunctionId, callees: u32) {
        let mut state = self.state();
        if let Some(region) = state.regions.get_mut(&id.index()) {
            region.callees = region.callees.max(callees);
        }
    }

    /// A candidate that cannot be made is not tried again.
    pub(super) fn note_untried(&self, id: FunctionId, candidate: Candidate) {
        let mut state = self.state();
        if let Some(region) = state.regions.get_mut(&id.index()) {
            region.note(
                candidate.tier,
                candidate.variant,
                candidate.change.is_none(),
            );
        }
    }

    /// Records the result of a trial for advice, listeners and queries.
    pub(super) fn note_trial(
        self: &Arc<Self>,
        root: Root,
        candidate: Candidate,
        shape: Shape,
        made: &Made,
        ended: &TrialResult,
        cost: Nanos,
    ) {
        let won = ended.verdict == Verdict::Faster;
        if candidate.tier == Tier::Native {
            let won = super::native::prefers(ended);
            self.note_native_trial(root, ended, cost, won);
            return self.tell_tuned(root, candidate, made.version, won, ended);
        }
        let (winner, tier) = match won {
            true => (made.version, candidate.tier),
            false => (root.version, root.tier),
        };
        // Otherwise the policy is informed when native code runs without a counter again.
        if tier > Tier::Native {
            let mut control = self.tiers.control();
            control.watch(root.id, true, self.counts.now(root.id));
            let now = nanos(self.events.now());
            let controller = &mut control.controller;
            controller.reverted(now, root.id, winner, tier, true);
            if won && tier < root.tier {
                controller.bar(root.id, root.tier);
            }
            // Otherwise the policy would compile it again, and it would be tried again.
            if !won && candidate.change.is_none() && candidate.tier > root.tier {
                controller.bar(root.id, candidate.tier);
            }
        }
        if won && root.tier == Tier::Native {
            self.keep_native(root.id, ended, false);
        }
        let fingerprint = self.fingerprint(root.id);
        let ran = self.versions.object_of(root.id, root.version);
        let mut state = self.state();
        state.trials += 1;
        state.won += u32::from(won);
        let charged = match won {
            true => Nanos::ZERO,
            false => Nanos(cost.0 + ended.lost.0),
        };
        state.account.lost(charged);
        let index = root.id.index();
        let contested = root.tier == Tier::Native;
        let lost = state.regions.get(&index).and_then(|region| region.lost);
        let lost = lost.filter(|_| contested);
        // The candidate's gain over the code that it differs from, which lost to native code.
        let over = |ratio: f64| ratio * lost.map_or(1.0, |lost| lost.by);
        let better = won || contested && over(ended.ratio.low) > 1.0;
        if let Some(change) = candidate.change {
            let ratio = if better { over(ended.ratio.point) } else { 1.0 };
            state.advice.learn(shape, change, ratio);
        }
        if better {
            state.variants.insert(index, candidate.variant);
        }
        let Some(region) = state.regions.get_mut(&index) else {
            return;
        };
        region.note(
            candidate.tier,
            candidate.variant,
            candidate.change.is_none(),
        );
        region.trials.push(Tried {
            tier: candidate.tier,
            variant: candidate.variant,
            verdict: ended.verdict,
            ratio: ended.ratio,
            pairs: ended.pairs,
            unit: root.unit,
            lost: charged,
        });
        region.objects.extend(made.object);
        (region.version, region.tier) = (winner, tier);
        let margin = self.rules.margin;
        // Another variant of another tier is tried for a small gain in any case.
        let alone = candidate.change.is_some() || candidate.variant == region.variant;
        if !better && !region.fine && alone && over(ended.ratio.high) >= 1.0 + margin {
            region.doubtful.push(candidate.variant);
        }
        if better {
            // Variants that differ from this by one change were not tried for large gains.
            region.doubtful.clear();
            (region.fine, region.rolled) = (false, false);
            if candidate.change.is_none() {
                // Nothing was tried on code of this tier.
                region.tried.clear();
                region.lowered = true;
            }
            if !region.tried.contains(&region.variant) {
                region.tried.push(region.variant);
            }
            // Changes refuted for large gains may have a small one over this.
            region.objects.clear();
            region.objects.extend(ran);
            region.objects.extend(made.object);
            region.variant = candidate.variant;
            region.lost = lost.map(|lost| Lost {
                root: Root {
                    tier: candidate.tier,
                    ..lost.root
                },
                by: 1.0 / ended.ratio.point,
            });
        }
        if won && candidate.change.is_none() && tier < root.tier {
            // The counts were taken too early: new counts may make better guided code.
            (region.counted, region.raised) = (false, false);
        }
        if won {
            region.ratio = region.ratio.times(ended.ratio);
            (region.native, region.lost) = (true, None);
        }
        let (variant, ratio) = (region.variant, region.ratio);
        if let Some(fingerprint) = fingerprint.filter(|_| won || !contested) {
            let settled = false;
            let known = Known {
                variant,
                ratio,
                settled,
            };
            state.known.insert(fingerprint, known);
        }
        drop(state);
        self.tell_tuned(root, candidate, made.version, won, ended);
    }

    fn tell_tuned(
        &self,
        root: Root,
        candidate: Candidate,
        tried: VersionId,
        won: bool,
        ended: &TrialResult,
    ) {
        let winner = if won { tried } else { root.version };
        self.events.tell(|| Event::Tuned {
            id: root.id,
            function: self.name_of(root.id),
            candidate: tried.0,
            tier: candidate.tier,
            variant: candidate.variant,
            verdict: ended.verdict,
            ratio: ended.ratio,
            pairs: ended.pairs,
            version: winner.0,
            at: self.events.now(),
        });
    }
}
