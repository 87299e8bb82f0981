//! Native code as a candidate: code compiled for a function of a native program must be faster than
//! the program's own, or is replaced by it.
//!
//! Native code counts nothing. For a trial the slot leads to a few instructions before it that
//! count its entries (`version/native.rs`), and no event is sent. So a listener that redirects
//! entries leaves them at the stub: both codes are reached the same way. If native code wins, it is
//! adopted again without the counter, with an event: then entries lead straight to it.
//!
//! The cost of the way through the stub counts as the compiled code's
//! ([`uruk_tiering::tuning::WAY`]).
//!
//! Every function that was compiled for a native program is compared, also those with too few
//! samples to make trials of variants worthwhile: each may cost its way.
//!
//! If it was faster than code of tier 2, the policy may still request guided code, which is
//! compared with it in turn: SQLite gains nothing by clang's `-O3`, and a tenth by a profile.
//! Variants of the slower code are tried against native code, in the order in which they are on
//! other code. A variant that is better than the best one before, but no better than native code,
//! is the base of the next ones. The account pays for that, as for any trial.

use std::sync::Arc;

use tracing::debug;
use uruk_base::{FunctionId, Nanos, Tier, VersionId};
use uruk_tiering::Publication;
use uruk_tiering::tuning::{Root, TrialResult, Verdict};

use crate::host::clock::nanos;
use crate::tuning::Tuning;
use crate::version::request::Made;

impl Tuning {
    /// Replaces running native code by its counted form, for a trial against `candidate`, which was
    /// published over it; returns the resulting root. Entries lead to the stub only since that
    /// publication.
    pub(super) fn count_beside(self: &Arc<Self>, root: Root, candidate: VersionId) -> Option<Root> {
        let native = self.make_native(root.id)?;
        let version = native.version;
        let Publication::Published { retired, .. } = native.publication else {
            return None;
        };
        match retired {
            Some(held) if held == candidate => {
                // If that fails another publication interferes, and no slice is run.
                self.turn_to(root.id, version, candidate);
                Some(Root { version, ..root })
            }
            // Another version was published meanwhile: that stays.
            Some(other) => {
                self.turn_to(root.id, version, other);
                if self.versions.seen(root.id).release_loser(version) {
                    self.retire_version(root.id, version);
                }
                None
            }
            None => None,
        }
    }

    /// Lets native code continue without a counter after a trial that it did not lose, and informs
    /// the policy, unless another version than `version` runs by now.
    pub(super) fn go_on_natively(self: &Arc<Self>, id: FunctionId, version: VersionId) {
        let runs = self.versions.seen(id).published();
        if runs.is_none_or(|runs| runs.id != version || runs.tier != Tier::Native) {
            return;
        }
        let Ok(made) = self.adopt_again(id, false) else {
            return;
        };
        let version = made.version;
        {
            let mut control = self.tiers.control();
            control.watch(id, false, self.counts.now(id));
            let now = nanos(self.events.now());
            let controller = &mut control.controller;
            controller.reverted(now, id, version, Tier::Native, false);
        }
        if let Some(region) = self.state().regions.get_mut(&id.index()) {
            region.runs_natively(version);
        }
    }

    /// Puts native code into the slot, behind a counter of its entries.
    pub(super) fn make_native(self: &Arc<Self>, id: FunctionId) -> Option<Made> {
        let made = self.adopt_again(id, true);
        made.inspect_err(|cause| debug!(%cause, "native code is not compared"))
            .ok()
    }

    /// Takes the result of comparing a root with its native code.
    pub(super) fn note_native_trial(
        self: &Arc<Self>,
        root: &Root,
        ended: &TrialResult,
        cost: Nanos,
    ) {
        let won = ended.prefers_native();
        let mut running = (root.version, root.tier, true);
        if won {
            match self.adopt_again(root.id, false) {
                Ok(made) => running = (made.version, Tier::Native, false),
                Err(cause) => debug!(%cause, "native code stays behind its count"),
            }
        }
        let (version, tier, counts) = running;
        {
            let mut control = self.tiers.control();
            control.watch(root.id, counts, self.counts.now(root.id));
            let now = nanos(self.events.now());
            let controller = &mut control.controller;
            controller.reverted(now, root.id, version, tier, counts);
            // The ratio is that of native code, which was the candidate.
            let thousandths = (1000.0 / ended.ratio.point.max(0.001)) as u32;
            if root.tier == Tier::Optimized && ended.verdict != Verdict::Undecided {
                controller.compared_with_native(thousandths);
            }
            if !won && ended.verdict != Verdict::Undecided {
                controller.faster_than_native(root.id, thousandths);
            }
            if won {
                controller.bar(root.id, Tier::Optimized);
                if root.tier == Tier::Guided {
                    controller.bar(root.id, Tier::Guided);
                }
            }
        }
        self.keep_native(root.id, ended, won);
        let mut state = self.state();
        let charged = state.charge(won, cost, ended);
        if let Some(region) = state.regions.get_mut(&root.id.index()) {
            region.native_ended(root, ended, (version, tier), charged);
        }
    }
}
