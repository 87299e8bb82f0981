//! What an earlier run found of native code and of tiers, and what follows from it in this one.
//!
//! | native code | what follows |
//! |---|---|
//! | was faster, or as fast | the policy never compiles the function by itself |
//! | was slower | the function is compiled when it is first sampled; the comparison counts as made |
//!
//! Not when it is adopted: of a thousand functions that an earlier run had reason to compile, this
//! one may run three, and its processors are the program's. The policy's price, which waits until
//! a function ran for as long as its compile takes, is what is spared.
//!
//! A function without native code that ended above tier 1 goes there without being priced: to tier 2
//! when it is first sampled, to tier 3 once it was sampled at tier 2 [twice](SAMPLES).
//!
//! What was tried on a function that is not settled is not tried again, but for what may have a small gain:
//! a run of seven seconds gets through a third of what there is for a function of 20 ms.
//!
//! What was found of native code counts for the same bitcode and for native code of the same length: a program
//! that was built anew, by other options, is compared anew. Whether it was found is up to the
//! trial: one that ended because it became too dear says nothing.

use std::sync::Arc;

use uruk_base::{CALLEES, FunctionId, Tier};
use uruk_tiering::tuning::{KnownNative, Progress, Verdict};

use super::Rising;
use super::region::{Phase, Region};
use super::trial::Ended;
use crate::core::Core;

/// Samples at tier 2 after which a function goes to tier 3 that an earlier run ended with there: at 100
/// a second, what has a hundredth of the time is sampled eight times in eight seconds.
const SAMPLES: u32 = 2;

impl Core {
    /// Native code of so many bytes is the first version of a function, and the policy was told.
    pub(crate) fn recall_native(&self, id: FunctionId, bytes: u64) {
        if !self.tuning.on || self.tuning.state().natives.is_empty() {
            return;
        }
        let Some(fingerprint) = self.fingerprint(id) else {
            return;
        };
        let known = {
            let mut state = self.tuning.state();
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

    /// A function was sampled: if it is known to be faster compiled, or at a higher tier, it is.
    pub(crate) fn bring_up_early(&self, id: FunctionId) {
        if !self.tuning.on {
            return;
        }
        if !self.tuning.state().early.contains(&id.index()) {
            return self.rise_as_before(id);
        }
        {
            let mut control = self.tiers.control();
            let controller = &mut control.controller;
            let tier = controller.view(id).and_then(|view| view.version);
            let is_native = tier.is_some_and(|(_, tier)| tier == Tier::Native);
            // A request would be served all the same.
            if controller.is_paused() {
                return;
            }
            if is_native {
                // If too many wait it is left to the policy.
                controller.request(id, Tier::Optimized);
            }
        }
        self.tuning.state().early.remove(&id.index());
    }

    /// Brings a function up to the tier at which an earlier run ended with it, a step at a time and
    /// each once: whoever takes it down from there has a reason.
    fn rise_as_before(&self, id: FunctionId) {
        let known = self.tuning.state().rising.get(&id.index()).copied();
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
            // If too many wait it is left to the policy.
            controller.request(id, next);
            next
        };
        let rising = Rising { asked, ..rising };
        self.tuning.state().rising.insert(id.index(), rising);
    }

    /// The tier that an earlier run ended at with a function without native code.
    fn ended_at(&self, id: FunctionId) -> Rising {
        let mut rising = Rising {
            asked: Tier::Baseline,
            to: Tier::Baseline,
        };
        if self.tuning.state().tiers.is_empty() {
            return rising;
        }
        let native = self.has_native(id);
        let fingerprint = self.fingerprint(id).filter(|_| !native);
        let mut state = self.tuning.state();
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

    /// Keeps for the next run at which tiers functions without native code are.
    pub(super) fn note_tiers(&self) {
        let above: Vec<(u32, Tier)> = {
            let records = self.tiers.versions.lock();
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
            // Continuations are of one run.
            let own = self.function(id).is_some_and(|it| it.origin.is_none());
            let Some(fingerprint) = self.fingerprint(id).filter(|_| own) else {
                continue;
            };
            let mut state = self.tuning.state();
            let before = state.tiers.get(&fingerprint).copied();
            // This run may have been too short for what an earlier one got to.
            let asked = state.rising.get(&index).map(|rising| rising.asked);
            if before.is_none_or(|before| before < tier || asked >= Some(before)) {
                state.tiers.insert(fingerprint, tier);
            }
        }
    }

    /// Keeps for the next run what was tried on functions that are not settled.
    pub(super) fn note_progress(&self) {
        let all: Vec<(u32, Option<Progress>)> = {
            let state = self.tuning.state();
            let regions = state.regions.iter();
            let progress = |region: &Region| match region.phase {
                Phase::Settled => None,
                _ => region.progress(),
            };
            let all = regions.map(|(&index, region)| (index, progress(region)));
            all.collect()
        };
        for (index, progress) in all {
            let id = self.stubs.function(index);
            let Some(fingerprint) = id.and_then(|id| self.fingerprint(id)) else {
                continue;
            };
            let all = &mut self.tuning.state().progress;
            match progress {
                Some(progress) => all.insert(fingerprint, progress),
                None => all.remove(&fingerprint),
            };
        }
    }

    /// How long the native code of a function is, if it has any.
    pub(super) fn native_bytes(&self, id: FunctionId) -> Option<u64> {
        let natives = self.tiers.versions.natives();
        natives.get(&id.index()).map(|it| it.own.end - it.own.start)
    }

    /// Keeps for the next run what the comparison of a function with its native code came to.
    pub(super) fn keep_native(self: &Arc<Self>, id: FunctionId, ended: &Ended, stays: bool) {
        let Some(fingerprint) = self.fingerprint(id) else {
            return;
        };
        let bytes = self.native_bytes(id);
        let found = ended.verdict != Verdict::Undecided || ended.pairs >= self.tuning.rules.pairs;
        let natives = &mut self.tuning.state().natives;
        match bytes.filter(|_| found) {
            Some(bytes) => natives.insert(fingerprint, KnownNative { bytes, stays }),
            None => natives.remove(&fingerprint),
        };
    }
}

impl Region {
    /// What the next run need not try again, if anything; of variants over native code nothing is
    /// kept.
    fn progress(&self) -> Option<Progress> {
        let kept = self.lost.is_none() && !self.tried.is_empty();
        kept.then(|| Progress {
            tried: self.tried.clone(),
            doubtful: self.doubtful.clone(),
            compared: self.compared_before
                || match self.tier {
                    Tier::Guided => self.lowered,
                    _ => self.raised,
                },
            fine: self.fine,
        })
    }

    /// Goes on where an earlier run ended.
    pub(super) fn go_on_from(&mut self, progress: &Progress) {
        self.tried.clone_from(&progress.tried);
        self.doubtful.clone_from(&progress.doubtful);
        // What has a small gain is tried once nothing else is left.
        (self.fine, self.rolled) = (progress.fine, progress.fine);
        // How many there are is known once something was compiled; there is nothing new in one too many.
        self.callees = CALLEES.into();
        self.compared_before = progress.compared;
        (self.lowered, self.raised) = (progress.compared, self.raised || progress.compared);
    }
}
