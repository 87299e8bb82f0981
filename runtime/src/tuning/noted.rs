//! Consequences of a trial: for the region, the learned advice, listeners and queries.

use std::sync::Arc;

use uruk_base::{FunctionId, Nanos, Tier, VersionId};
use uruk_tiering::tuning::{Candidate, Root, Shape, Tested, TrialResult, Verdict};

use super::TuningState;
use crate::events::Event;
use crate::host::clock::nanos;
use crate::tuning::Tuning;
use crate::version::request::Made;

impl Tuning {
    /// Notes the number of single inlining decisions.
    pub(super) fn note_callees(&self, id: FunctionId, callees: u32) {
        let mut state = self.state();
        if let Some(region) = state.regions.get_mut(&id.index()) {
            region.has_callees(callees);
        }
    }

    /// A candidate that cannot be made is not tried again.
    pub(super) fn note_untried(&self, id: FunctionId, candidate: Candidate) {
        let mut state = self.state();
        if let Some(region) = state.regions.get_mut(&id.index()) {
            region.note(candidate);
        }
    }

    /// Takes the result of a trial: for the region, the policy, the learned advice, and listeners.
    pub(super) fn note_trial(
        self: &Arc<Self>,
        root: &Root,
        candidate: Candidate,
        shape: Shape,
        made: &Made,
        ended: &TrialResult,
        cost: Nanos,
    ) {
        if candidate.tier == Tier::Native {
            self.note_native_trial(root, ended, cost);
            let won = ended.prefers_native();
            return self.tell_tuned(root, candidate, made.version, won, ended);
        }
        let won = ended.verdict == Verdict::Faster;
        self.inform_policy(root, candidate, made.version, won);
        if won && root.tier == Tier::Native {
            self.keep_native(root.id, ended, false);
        }
        let fingerprint = self.fingerprint(root.id);
        let tested = Tested {
            version: made.version,
            object: made.object,
            running: self.versions.object_of(root.id, root.version),
        };
        let margin = self.rules.margin;
        let mut state = self.state();
        let charged = state.charge(won, cost, ended);
        let index = root.id.index();
        // The function was replaced meanwhile: the result says nothing about its new body.
        let Some(region) = state.regions.get_mut(&index) else {
            return;
        };
        let told = region.ended(root, candidate, &tested, ended, charged, margin);
        if let Some(change) = candidate.change {
            state.advice.learn(shape, change, told.gain);
        }
        if told.better {
            state.variants.insert(index, candidate.variant);
        }
        if let Some((fingerprint, known)) = fingerprint.zip(told.known) {
            state.known.insert(fingerprint, known);
        }
        drop(state);
        self.tell_tuned(root, candidate, made.version, won, ended);
    }

    /// Tells the policy which version runs after a trial. If native code runs on, the policy is
    /// informed when that runs without a counter again.
    fn inform_policy(&self, root: &Root, candidate: Candidate, tried: VersionId, won: bool) {
        let (winner, tier) = match won {
            true => (tried, candidate.tier),
            false => (root.version, root.tier),
        };
        if tier == Tier::Native {
            return;
        }
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

    fn tell_tuned(
        &self,
        root: &Root,
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

impl TuningState {
    /// Counts a trial, and charges its cost to the account unless it won; returns the charge.
    pub(super) fn charge(&mut self, won: bool, cost: Nanos, ended: &TrialResult) -> Nanos {
        self.trials += 1;
        self.won += u32::from(won);
        let charged = match won {
            true => Nanos::ZERO,
            false => Nanos(cost.0 + ended.lost.0),
        };
        self.account.lost(charged);
        charged
    }
}
