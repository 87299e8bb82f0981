//! Samples of shared code go to its callers in turns.

use crate::code::sampled::SampleMap;
use crate::tiers::TierState;
use crate::tiers::sampling::{Choice, Sampling, SamplingState};
use std::ops::Range;
use uruk_base::{FunctionId, Tier, VersionId};

impl Sampling {
    /// Notes that a version runs native code at `range` that others run, too: at first, the
    /// function that was added first gets the samples.
    pub(crate) fn add_shared(
        &self,
        sampled: &SampleMap,
        range: Range<u64>,
        whose: Option<FunctionId>,
        id: FunctionId,
        version: VersionId,
    ) {
        let first = self.choice != Choice::Off && self.lock().shared.add(range.clone(), whose, id);
        if first {
            sampled.insert(range, id, version);
        }
    }
}

impl Sampling {
    /// Samples in the native code of a function that is compiled with its callers only; none if it
    /// has no such code, as it was inlined.
    pub(crate) fn native_samples(&self, id: FunctionId) -> Option<u32> {
        self.lock().shared.samples_of(id)
    }
}

impl TierState {
    /// Called for samples in the native code of `id`, of that version. If it runs other code now,
    /// another function gets the samples of its shared pieces.
    pub(in crate::tiers::sampling) fn pass_samples_on(
        &self,
        state: &mut SamplingState,
        id: FunctionId,
        version: VersionId,
    ) {
        if !state.shared.has(id) {
            return;
        }
        let published = |id| self.versions.seen(id).published();
        if published(id).is_none_or(|view| view.id == version) {
            return;
        }
        let native = |id| {
            let view = published(id).filter(|view| view.tier == Tier::Native)?;
            Some(view.id)
        };
        for (code, id, version) in state.shared.pass_on(id, native) {
            self.sampled.insert(code, id, version);
        }
    }
}
