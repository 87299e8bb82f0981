//! OSR of loops that are entered once and run on: whether a continuation is worth its compile.

use crate::ids::{FunctionId, Nanos, Tier};
use crate::policy::{self, Facts, Prospect, cost_weight};

use super::Controller;
use crate::activity::Wish;

impl Controller {
    /// The time that so many passes of a function's loops take at tier 1.
    pub fn time_of(&self, facts: &Facts, passes: u64) -> Nanos {
        let common = self.calibration.common().value;
        let time = policy::event_time(facts, &self.config) * common;
        Nanos::from_f64(time * passes as f64)
    }

    /// Whether a version at tier 2 that starts in the middle of a function (OSR) is worth its
    /// compile. One activation of the function has been `busy` for so long, and occupies `share`
    /// processors. The formula is that of all promotions (`policy`). If it is not worth it yet, the
    /// next poll is due when it will be.
    pub fn is_worth(&mut self, now: Nanos, facts: &Facts, busy: Nanos, share: f64) -> bool {
        let config = &self.config;
        if self.paused || config.max_tier < Tier::Optimized {
            return false;
        }
        let load = self.load.at(now, config.window) + self.outstanding.len() as f64;
        let cost = self.costs.expect(Tier::Optimized, facts);
        let prospect = Prospect {
            missed: policy::missed(cost + self.opening.as_f64(), share, config),
            remaining: policy::remaining(busy.as_f64() * share, share, config),
            speedup: self.speedups.expect(Tier::Baseline, Tier::Optimized),
            cost,
            weight: cost_weight(load, share, config),
            pressure: 1.0,
            reluctance: 0,
        };
        let is_worth = prospect.score() >= 1.0;
        if !is_worth {
            self.polls.expect(now + prospect.pays_after(share, config));
        }
        is_worth
    }

    /// Records that a function is a continuation, of a function with these facts: its only tier is
    /// the one that is requested.
    pub fn continuation(&mut self, function: FunctionId, facts: &Facts) {
        if let Some(activity) = self.functions.make(function) {
            activity.set_facts(facts);
            activity.wish = Wish::Pinned(Tier::Optimized);
        }
    }
}
