//! Handles the ends of compiles, and compares the measurements of versions.

use crate::activity::{Activity, Place, Wish};
use crate::ids::{FunctionId, Nanos, Tier, VersionId};
use crate::policy::{Measured, compare, is_slower};
use crate::stream::Input;

use super::{Controller, Decision, Job, Outcome, Reason};

/// The measurements of the version before, for a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct VersionTrial {
    before: Measured,
    from: Tier,
}

/// Most trials at a time; further versions are published without one.
const TRIALS: usize = 4096;

/// A trial without a sign of slower code ends after this many times `trial_samples`.
const TRIAL_ENDS: u32 = 20;

/// The result is learned if its standard error is at most this by then.
const TRIAL_ERROR: f64 = 0.3;

impl Controller {
    /// Records that a compile from `next` has ended.
    pub fn finished(&mut self, now: Nanos, version: VersionId, outcome: Outcome) {
        let mut jobs = self.outstanding.iter();
        let Some(index) = jobs.position(|job| job.version == version) else {
            return;
        };
        let job = self.outstanding.swap_remove(index);
        let (function, tier) = (job.function, job.tier);
        self.diary
            .note(now, || Input::Finished(function, version, tier, outcome));
        if !matches!(outcome, Outcome::NoMemory | Outcome::Cancelled) {
            self.memory_failures = 0;
        }
        self.account(now, &job, &outcome);
        let Some(activity) = self.functions.get_mut(job.function) else {
            return;
        };
        if job.stale {
            return;
        }
        activity.place = Place::Idle;
        match outcome {
            Outcome::Published { counters, .. } => {
                let before = activity.counters.then(|| activity.per_entry());
                let from = activity.tier();
                activity.run(now, version, job.tier, counters);
                self.polls.note(now);
                self.trials.remove(&job.function);
                let enough = |m: &Measured| m.samples >= self.config.trial_samples;
                if let (Some(before), Some(from)) = (before.filter(enough), from)
                    && counters
                    && from < job.tier
                    && self.trials.len() < TRIALS
                {
                    self.trials
                        .insert(job.function, VersionTrial { before, from });
                }
            }
            Outcome::Failed { .. } => activity.bar(job.tier),
            Outcome::Cancelled | Outcome::Late { .. } => activity.hesitate(1),
            Outcome::NoMemory => {
                if let Wish::Pinned(tier) = activity.wish {
                    self.want(job.function, tier, Reason::Pinned);
                }
            }
        }
        self.enlist(job.function);
    }

    /// Compares a version with the one before, if both have enough measurements.
    pub(super) fn judge(&mut self, function: FunctionId) {
        let Some(&VersionTrial { before, from }) = self.trials.get(&function) else {
            return;
        };
        let least = self.config.trial_samples;
        let Some(activity) = self.functions.get_mut(function) else {
            return;
        };
        let after = activity.per_entry();
        let compared = compare(&before, &after, least);
        let (Some((version, tier)), Some(comparison)) = (activity.version, compared) else {
            return;
        };
        let slower = is_slower(&comparison, self.config.slower);
        if slower {
            activity.bar(tier);
            activity.hesitate(1);
            self.stats.slower += 1;
            self.orders
                .push_back(Decision::Revert { function, version });
        }
        if slower || after.samples >= least.saturating_mul(TRIAL_ENDS) {
            if comparison.error <= TRIAL_ERROR {
                self.speedups.learn(from, tier, &comparison);
            }
            self.trials.remove(&function);
        }
    }

    /// Accounts for the compile itself: counts, its cost, and learning from it.
    fn account(&mut self, now: Nanos, job: &Job, outcome: &Outcome) {
        let stats = &mut self.stats;
        let (count, compile) = match *outcome {
            Outcome::Published { compile, .. } if !job.stale => {
                (&mut stats.promoted[job.tier.index()], compile)
            }
            Outcome::Published { compile, .. } | Outcome::Late { compile } => {
                (&mut stats.late, compile)
            }
            Outcome::Failed { compile } => (&mut stats.failed, compile),
            Outcome::Cancelled => (&mut stats.cancelled, Nanos::ZERO),
            Outcome::NoMemory => {
                // Ten doublings are a hundred seconds with the default.
                let doublings = self.memory_failures.min(10);
                let wait = self.config.memory_backoff.0.saturating_mul(1 << doublings);
                self.hold_until = now + Nanos(wait);
                self.memory_failures += 1;
                (&mut stats.no_memory, Nanos::ZERO)
            }
        };
        *count += 1;
        stats.compile_ns += compile.0;
        let made = matches!(outcome, Outcome::Published { .. } | Outcome::Late { .. });
        if job.stale || !matches!(outcome, Outcome::Published { .. }) {
            stats.wasted_ns += compile.0;
        }
        let facts = self.functions.get(job.function).map(Activity::facts);
        if let (true, false, Some(facts)) = (made, job.stale, facts) {
            self.costs.learn(job.tier, &facts, compile);
        }
    }
}
