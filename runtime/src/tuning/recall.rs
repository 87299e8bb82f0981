//! What an earlier run found of native code, and what follows from it in this one.
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
//! What was found counts for the same bitcode and for native code of the same length: a program
//! that was built anew, by other options, is compared anew. Whether it was found is up to the
//! trial: one that ended because it became too dear says nothing.

use std::sync::Arc;

use uruk_base::{FunctionId, Tier};
use uruk_tiering::tuning::{KnownNative, Verdict};

use super::trial::Ended;
use crate::core::Core;

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

    /// A function was sampled: if it is known to be faster compiled, it is.
    pub(crate) fn bring_up_early(&self, id: FunctionId) {
        if !self.tuning.on || !self.tuning.state().early.contains(&id.index()) {
            return;
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

    /// Keeps for the next run what the comparison of a function with its native code came to.
    pub(super) fn keep_native(self: &Arc<Self>, id: FunctionId, ended: &Ended, stays: bool) {
        let Some(fingerprint) = self.fingerprint(id) else {
            return;
        };
        let bytes = {
            let natives = self.tiers.versions.natives();
            natives.get(&id.index()).map(|it| it.own.end - it.own.start)
        };
        let found = ended.verdict != Verdict::Undecided || ended.pairs >= self.tuning.rules.pairs;
        let natives = &mut self.tuning.state().natives;
        match bytes.filter(|_| found) {
            Some(bytes) => natives.insert(fingerprint, KnownNative { bytes, stays }),
            None => natives.remove(&fingerprint),
        };
    }
}
