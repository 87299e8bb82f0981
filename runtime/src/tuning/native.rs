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
//! A winner is never compiled again by the policy, in this run; its callers' new code still may
//! inline it, and is judged as a whole.

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;
use uruk_base::{FunctionId, Nanos, Tier};
use uruk_tiering::tuning::Verdict;

use super::choose::Root;
use super::trial::Ended;
use super::{Phase, Tried};
use crate::core::Core;
use crate::tiers::nanos;
use crate::version::Made;

/// Entries of the root in a slice, at least: fewer than of other trials, because a program may
/// enter its loop every 20 ms, and is to have its native code back within seconds.
const ENTRIES: u64 = 4;

/// Least and most length of a slice.
const SLICE: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(250));

/// What an entry costs, in nanoseconds, on its way through the stub and past the count: three
/// jumps that are taken, and an increment in memory.
const WAY: f64 = 1.5;

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

/// How long slices are for a root whose units take so long.
pub(super) fn slice(per_unit: Nanos) -> Duration {
    Duration::from_nanos(per_unit.0.saturating_mul(ENTRIES)).clamp(SLICE.0, SLICE.1)
}

impl Core {
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
            if won {
                controller.bar(root.id, Tier::Optimized);
                controller.bar(root.id, Tier::Guided);
            }
        }
        self.keep_native(root.id, ended, won);
        let mut state = self.tuning.state();
        state.trials += 1;
        state.won += u32::from(won);
        if !won {
            state.account.lost(Nanos(cost.0 + ended.lost.0));
        }
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
        });
        (region.version, region.tier) = (version, tier);
        if won {
            region.ratio = region.ratio.times(ended.ratio);
            region.phase = Phase::Left("its native code is faster");
        }
    }
}
