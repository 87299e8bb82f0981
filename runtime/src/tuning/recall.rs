//! Results of an earlier run about native code and tiers, and their use in this one.
//!
//! | native code | consequence |
//! |---|---|
//! | was faster, or as fast | the policy never compiles the function by itself |
//! | was slower | the function is compiled when it is first sampled; the comparison counts as done |
//!
//! It is not compiled on adoption: of a thousand functions that an earlier run compiled with
//! reason, this one may run three, and its processors are the program's. Only the policy's delay is
//! skipped, which lasts until a function ran for as long as its compile takes.
//!
//! A function without native code that ended above tier 1 is promoted without being priced: to tier
//! 2 when it is first sampled, to tier 3 once it was sampled at tier 2 [twice](SAMPLES).
//!
//! Candidates tried on a function that is not settled are not tried again, except for small gains.
//! A run of seven seconds completes a third of the candidates for a function of 20 ms.
//!
//! Results about native code are valid for the same bitcode and for native code of the same length:
//! a program that was rebuilt with other options is compared again. Only conclusive trials are
//! kept: one that ended because it became too expensive is not.

use std::sync::Arc;

use uruk_base::{FunctionId, Tier};
use uruk_tiering::tuning::{KnownNative, Progress, TrialResult, Verdict};

use super::Rising;
use crate::tuning::Tuning;

/// Samples at tier 2 after which a function is promoted to tier 3, if an earlier run left it there.
/// At 100 a second, a function with a hundredth of the time is sampled eight times in eight
/// seconds.
const SAMPLES: u32 = 2;

impl Tuning {
    /// Applies earlier results when native code of so many bytes becomes the first version of a
    /// function, after the policy was informed.
    pub(crate) fn recall_native(&self, id: FunctionId, bytes: u64) {
        if !self.on || self.state().natives.is_empty() {
            return;
        }
        let Some(fingerprint) = self.fingerprint(id) else {
            return;
        };
        let known = {
            let mut state = self.state();
            let known = state.natives.get(&fingerprint).copied();
            let known = known.filter(|known| known.bytes == bytes);
            if known.is_some_and(|known| !known.stays) {
                state.compared.insert(id.index());
                state.early.insert(id.index());
            }
            known
        };
        if known.is_some_and(|known| known.stays) {
            let mut control = self.tiers.control();
            control.controller.bar(id, Tier::Optimized);
            control.controller.bar(id, Tier::Guided);
        }
    }

    /// Compiles a sampled function, or promotes it, if it is known to be faster compiled, or at a
    /// higher tier.
    pub(crate) fn bring_up_early(&self, id: FunctionId) {
        if !self.on {
            return;
        }
        if !self.state().early.contains(&id.index()) {
            return self.rise_as_before(id);
        }
        {
            let mut control = self.tiers.control();
            let controller = &mut control.controller;
            let tier = controller.view(id).and_then(|view| view.version);
            let is_native = tier.is_some_and(|(_, tier)| tier == Tier::Native);
            // A request would be served despite the pause.
            if controller.is_paused() {
                return;
            }
            if is_native {
                // If too many requests wait, the policy decides.
                controller.request(id, Tier::Optimized);
            }
        }
        self.state().early.remove(&id.index());
    }

    /// Promotes a function to the tier at which an earlier run left it, a step at a time and each
    /// once: a later demotion has a reason.
    fn rise_as_before(&self, id: FunctionId) {
        let known = self.state().rising.get(&id.index()).copied();
        let rising = match known {
            Some(rising) => rising,
            None => self.ended_at(id),
        };
        if rising.asked >= rising.to {
            return;
        }
        let asked = {
            let mut control = self.tiers.control();
            let controller = &mut control.controller;
            let view = controller.view(id).filter(|view| {
                !controller.is_paused() && !view.in_progress && view.pinned.is_none()
            });
            let Some((view, (_, tier))) = view.and_then(|view| Some((view, view.version?))) else {
                return;
            };
            let most = rising.to.min(controller.config().max_tier);
            let open = |next: &Tier| *next > rising.asked && *next <= most;
            let Some(next) = tier.above().filter(open) else {
                return;
            };
            let least = controller.config().guided_samples.min(SAMPLES);
            if next == Tier::Guided && view.samples < least {
                return;
            }
            // If too many requests wait, the policy decides.
            controller.request(id, next);
            next
        };
        let rising = Rising { asked, ..rising };
        self.state().rising.insert(id.index(), rising);
    }

    /// The tier at which an earlier run left a function without native code.
    fn ended_at(&self, id: FunctionId) -> Rising {
        let mut rising = Rising {
            asked: Tier::Baseline,
            to: Tier::Baseline,
        };
        if self.state().tiers.is_empty() {
            return rising;
        }
        // Under the locks of samples, and of reclaim where that drains them.
        let Some(native) = self.try_has_native(id) else {
            return rising;
        };
        let fingerprint = self.fingerprint(id).filter(|_| !native);
        let mut state = self.state();
        let mut lower = false;
        if let Some(fingerprint) = fingerprint
            && let Some(&tier) = state.tiers.get(&fingerprint)
        {
            rising.to = tier;
            let settled = state.known.get(&fingerprint).is_some_and(|it| it.settled);
            let progress = state.progress.get(&fingerprint);
            let compared = settled || progress.is_some_and(|it| it.compared);
            lower = compared && tier == Tier::Optimized;
        }
        state.rising.insert(id.index(), rising);
        drop(state);
        if lower {
            // Code of tier 3 was slower.
            self.tiers.control().controller.bar(id, Tier::Guided);
        }
        rising
    }

    /// Keeps the tiers of functions without native code for the next run.
    pub(super) fn note_tiers(&self) {
        let above: Vec<(u32, Tier)> = {
            let records = self.versions.lock();
            let views = records.iter().filter_map(|(&index, record)| {
                let view = record.versions.published()?;
                (view.tier > Tier::Baseline).then_some((index, view.tier))
            });
            views.collect()
        };
        for (index, tier) in above {
            let Some(id) = self
                .stubs
                .function(index)
                .filter(|&id| !self.has_native(id))
            else {
                continue;
            };
            // Continuations belong to one run.
            let own = self.function(id).is_some_and(|it| it.origin.is_none());
            let Some(fingerprint) = self.fingerprint(id).filter(|_| own) else {
                continue;
            };
            let mut state = self.state();
            let before = state.tiers.get(&fingerprint).copied();
            // This run may have been too short to reach the tier of an earlier one.
            let asked = state.rising.get(&index).map(|rising| rising.asked);
            if before.is_none_or(|before| before < tier || asked >= Some(before)) {
                state.tiers.insert(fingerprint, tier);
            }
        }
    }

    /// Keeps the progress with functions that are not settled for the next run.
    pub(super) fn note_progress(&self) {
        let all: Vec<(u32, Option<Progress>)> = {
            let state = self.state();
            let regions = state.regions.iter();
            let all = regions.map(|(&index, region)| (index, region.progress()));
            all.collect()
        };
        for (index, progress) in all {
            let id = self.stubs.function(index);
            let Some(fingerprint) = id.and_then(|id| self.fingerprint(id)) else {
                continue;
            };
            let all = &mut self.state().progress;
            match progress {
                Some(progress) => all.insert(fingerprint, progress),
                None => all.remove(&fingerprint),
            };
        }
    }

    /// The length of a function's native code, if it has any.
    pub(super) fn native_bytes(&self, id: FunctionId) -> Option<u64> {
        let natives = self.versions.natives();
        natives.get(&id.index()).map(|it| it.own.end - it.own.start)
    }

    /// Keeps the result of comparing a function with its native code for the next run.
    pub(super) fn keep_native(self: &Arc<Self>, id: FunctionId, ended: &TrialResult, stays: bool) {
        let Some(fingerprint) = self.fingerprint(id) else {
            return;
        };
        let bytes = self.native_bytes(id);
        let found = ended.verdict != Verdict::Undecided || ended.pairs >= self.rules.pairs;
        let natives = &mut self.state().natives;
        match bytes.filter(|_| found) {
            Some(bytes) => natives.insert(fingerprint, KnownNative { bytes, stays }),
            None => natives.remove(&fingerprint),
        };
    }
}
