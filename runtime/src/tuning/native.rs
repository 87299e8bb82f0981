//! Native code as a candidate: what was compiled for a function of a native program has to be
//! faster than what the program came with, or goes.
//!
//! Native code counts nothing. For a trial the slot leads to a few instructions in front of it
//! that count its entries (`version/native.rs`), and nobody is told, so that whoever redirects
//! entries leaves them to the stub: both take the same way to their code. Where native code wins,
//! it is adopted once more as it is, and that is told: then entries lead straight to it.
//!
//! The stub is a cost of its own: a call comes through the entry's jump, the room's and the stub's,
//! and native code that is adopted again is spared all three. So native code is credited with
//! [`WAY`] for each entry; it decides for what is short and entered often. And where nothing was
//! found out, the better guess wins: a program is to lose nothing.
//!
//! Every function that was compiled for a native program is compared, also those of which too few
//! samples say that variants of them are worth a trial: each may cost its way.
//!
//! Where it was faster than code of tier 2, the policy may still have guided code made, which is
//! compared with it in turn: SQLite gains nothing by clang's `-O3`, and a tenth by a profile. And it
//! is what variants of that code are tried on, in the order in which they are on other code: a
//! variant that is better than the best one before, but no better than native code, is what the next
//! ones differ from. That is paid for by the account, as any trial.

use std::sync::Arc;

use tracing::debug;
use uruk_base::{FunctionId, Nanos, Tier, VersionId};
use uruk_tiering::Publication;
use uruk_tiering::tuning::{Rules, Verdict};

use super::choose::Root;
use super::region::{Lost, Tried};
use super::trial::Ended;
use crate::core::Core;
use crate::tiers::nanos;
use crate::version::Made;

/// The rate of errors: one of two codes is to run in any case, so to be wrong of two that are nearly
/// equal costs little, and the program is to have its native code back within seconds.
const ERROR: f64 = 0.1;

/// What native code has to gain for more to be found out: below that, the better guess does.
const MARGIN: f64 = 0.02;

/// What an entry costs, in nanoseconds, on its way through the stub and past the count: three
/// jumps that are taken, and an increment in memory.
pub(super) const WAY: f64 = 1.5;

/// The time of a slice in which native code was entered so often, without its way.
pub(super) fn without_way(time: f64, entries: f64) -> f64 {
    (time - WAY * entries).max(0.5 * time)
}

/// Whether native code is to run, by what a comparison came to in which it was the candidate.
pub(super) fn prefers(ended: &Ended) -> bool {
    match ended.verdict {
        Verdict::Faster => true,
        Verdict::Slower => false,
        Verdict::Same | Verdict::Undecided => ended.ratio.point >= 1.0,
    }
}

/// When a comparison with native code ends.
pub(super) fn rules(rules: Rules) -> Rules {
    Rules {
        error: rules.error.max(ERROR),
        margin: rules.margin.max(MARGIN),
        ..rules
    }
}

impl Core {
    /// Has native code, which runs, stand back behind a count of its entries for `candidate`, which
    /// was published over it; the root that it is then. Entries lead to the stub since that was
    /// published, and only since then.
    pub(super) fn count_beside(self: &Arc<Self>, root: Root, candidate: VersionId) -> Option<Root> {
        let native = self.make_native(root.id)?;
        let version = native.version;
        let Publication::Published { retired, .. } = native.publication else {
            return None;
        };
        match retired {
            Some(held) if held == candidate => {
                // If that fails somebody else has a say, and no slice is run.
                self.turn_to(root.id, version, candidate);
                Some(Root { version, ..root })
            }
            // Somebody published meanwhile: that stays.
            Some(other) => {
                self.turn_to(root.id, version, other);
                if self.tiers.versions.seen(root.id).release_loser(version) {
                    self.retire_version(root.id, version);
                }
                None
            }
            None => None,
        }
    }

    /// Has native code run on without a count after a trial that it did not lose, and the policy
    /// know, unless something else than `version` of it runs by now.
    pub(super) fn go_on_natively(self: &Arc<Self>, id: FunctionId, version: VersionId) {
        let runs = self.tiers.versions.seen(id).published();
        if runs.is_none_or(|runs| runs.id != version || runs.tier != Tier::Native) {
            return;
        }
        let Ok(made) = self.adopt_again(id, false) else {
            return;
        };
        let version = made.version;
        {
            let mut control = self.tiers.control();
            control.watch(id, false, self.tiers.counts.now(id));
            let now = nanos(self.events.now());
            let controller = &mut control.controller;
            controller.reverted(now, id, version, Tier::Native, false);
        }
        if let Some(region) = self.tuning.state().regions.get_mut(&id.index()) {
            (region.version, region.tier) = (version, Tier::Native);
        }
    }

    /// Puts native code into the slot, behind a count of its entries.
    pub(super) fn make_native(self: &Arc<Self>, id: FunctionId) -> Option<Made> {
        let made = self.adopt_again(id, true);
        made.inspect_err(|cause| debug!(%cause, "native code is not compared"))
            .ok()
    }

    /// What the comparison of a root with its native code came to.
    pub(super) fn note_native_trial(
        self: &Arc<Self>,
        root: Root,
        ended: &Ended,
        cost: Nanos,
        won: bool,
    ) {
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
            control.watch(root.id, counts, self.tiers.counts.now(root.id));
            let now = nanos(self.events.now());
            let controller = &mut control.controller;
            controller.reverted(now, root.id, version, tier, counts);
            if root.tier == Tier::Optimized && ended.verdict != Verdict::Undecided {
                // Of native code, which was the candidate.
                let thousandths = (1000.0 / ended.ratio.point.max(0.001)) as u32;
                controller.compared_with_native(thousandths);
            }
            if won {
                controller.bar(root.id, Tier::Optimized);
                if root.tier == Tier::Guided {
                    controller.bar(root.id, Tier::Guided);
                }
            }
        }
        self.keep_native(root.id, ended, won);
        let mut state = self.tuning.state();
        state.trials += 1;
        state.won += u32::from(won);
        let lost = match won {
            true => Nanos::ZERO,
            false => Nanos(cost.0 + ended.lost.0),
        };
        state.account.lost(lost);
        let Some(region) = state.regions.get_mut(&root.id.index()) else {
            return;
        };
        region.note(Tier::Native, region.variant, true);
        region.trials.push(Tried {
            tier: Tier::Native,
            variant: region.variant,
            verdict: ended.verdict,
            ratio: ended.ratio,
            pairs: ended.pairs,
            unit: root.unit,
            lost,
        });
        (region.version, region.tier) = (version, tier);
        if won {
            region.ratio = region.ratio.times(ended.ratio);
            // Guided code may come yet, and is compared with it.
            region.native = false;
            let by = ended.ratio.point;
            // What comes closest is what variants differ from.
            if region.lost.is_none_or(|before| by < before.by) {
                region.lost = Some(Lost { root, by });
            }
        }
    }
}
