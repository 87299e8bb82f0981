//! Whether a promotion of a function is worth its compile, and that of a loop that is entered once and
//! runs on (OSR), by the formula of `policy`.

use crate::activity::Wish;
use crate::ids::{FunctionId, Nanos, Tier};
use crate::policy::{self, Facts, Prospect, cost_weight, pressure};
use crate::queue::Heat;

use super::Controller;

/// Processors that an idle program is taken to use.
const IDLE: f64 = 0.01;

/// The expected result of a promotion to the next tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    pub(super) tier: Tier,
    pub(super) score: f64,
    /// The function's place in the queue.
    pub(super) heat: Heat,
    /// Time at which promotion pays off if the current event rate holds.
    pub(super) worth_at: Nanos,
}

impl Controller {
    /// The expected gain from promoting a function; `None` if the policy does not promote it.
    /// `busy` is the number of processors that compiles take.
    pub(super) fn chance(&self, now: Nanos, function: FunctionId, busy: f64) -> Option<Chance> {
        let config = &self.config;
        let activity = self.functions.get(function)?;
        let from = activity.tier()?;
        let mut to = from.above()?;
        if from == Tier::Native && activity.is_barred(to) {
            // Native code was faster than tier 2; guided code may be faster still.
            to = to.above()?;
        }
        if to > config.max_tier || activity.wish != Wish::Free || activity.is_barred(to) {
            return None;
        }
        if to == Tier::Guided {
            // A trial in progress gets to a first verdict.
            let least = match self.trials.contains_key(&function) {
                true => config.guided_samples.max(config.trial_samples),
                false => config.guided_samples,
            };
            let seen = activity.measured().samples >= least;
            if !seen || activity.age(now) < config.guided_after {
                return None;
            }
        }
        let share = self.occupied(now, activity.share(config));
        let speedup = match (from, to) {
            // Over this native code tier 2 gained nothing, as a comparison showed.
            (Tier::Native, Tier::Guided) => self.speedups.expect(Tier::Optimized, to),
            _ => self.speedups.expect(from, to),
        };
        let cost = self.costs.expect(to, &activity.facts());
        // Smith's rule: the function that saves most per time of its compile goes first.
        let (decayed, at) = activity.window();
        let saving = decayed * policy::gain(speedup) / cost.max(1.0);
        let heat = Heat::new(saving, at, config.window);
        let ahead = self.queue.ahead(heat);
        let load = self.load.at(now, config.window) + busy;
        let prospect = Prospect {
            remaining: policy::remaining(activity.spent(), share, config),
            missed: policy::missed(cost + self.opening.as_f64(), share, config),
            speedup,
            cost,
            weight: cost_weight(load, self.leaders.common(function, share), config),
            pressure: pressure(ahead, config),
            reluctance: activity.reluctance(),
        };
        Some(Chance {
            tier: to,
            score: prospect.score(),
            heat,
            worth_at: now + prospect.pays_after(share, config),
        })
    }

    /// Whether a compile of that cost may begin, by the limit on the time of the runtime (`overhead`).
    /// If not, the next poll is due when it may, should the program go on to use processors as now.
    pub(super) fn may_cost(&mut self, now: Nanos, cost: f64) -> bool {
        let limit = self.config.overhead;
        if limit == 0.0 {
            return true;
        }
        let promised = self.outstanding.iter().map(|job| job.cost).sum();
        let missing = self.overhead.missing(limit, cost, promised);
        if missing > 0.0 {
            let load = self.load.at(now, self.config.window).max(IDLE);
            self.polls.expect(now + Nanos::from_f64(missing / load));
        }
        missing <= 0.0
    }

    /// The expected time of a compile, in ns; zero if the function is not tracked.
    pub(super) fn cost(&self, function: FunctionId, tier: Tier) -> f64 {
        let facts = self.facts(function);
        facts.map_or(0.0, |facts| self.costs.expect(tier, &facts))
    }

    /// A share as counters show it, at most that of the whole process.
    fn occupied(&self, now: Nanos, share: f64) -> f64 {
        match self.load_measured {
            true => share.min(self.load.at(now, self.config.window)),
            false => share,
        }
    }

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::{F, controller, first};
    use super::*;

    /// The time in ms after which a function that takes all of one processor is promoted.
    fn promoted_after(opening: Nanos) -> u64 {
        let mut controller = controller(|_| {});
        controller.on_opening(opening);
        first(&mut controller, Nanos::ZERO, F, 100);
        for ms in 1..1000 {
            let now = Nanos::from_ms(ms);
            controller.on_processor_time(now, Nanos::from_ms(1));
            controller.on_counters(now, F, 25_000, 0);
            if controller.next(now).is_some() {
                return ms;
            }
        }
        panic!("never");
    }

    #[test]
    fn code_that_waits_for_its_compiler_comes_later() {
        let ready = promoted_after(Nanos::ZERO);
        let cold = promoted_after(Nanos::from_ms(20));
        assert!(ready <= 2 && (3..=10).contains(&cold), "{ready}, {cold}");
    }

    #[test]
    fn no_function_takes_more_than_the_process() {
        let mut controller = controller(|_| {});
        first(&mut controller, Nanos::ZERO, F, 5_000);
        for ms in 1..=10 {
            let now = Nanos::from_ms(ms);
            // A processor for a tenth of the time; the counters say two, all of the time.
            controller.on_processor_time(now, Nanos::from_us(100));
            controller.on_counters(now, F, 50_000, 0);
            let chance = controller.chance(now, F, 0.0).expect("tier 2 comes next");
            let most = controller.load.at(now, controller.config.window);
            let spent = controller.functions.get(F).expect("known").spent();
            let most = policy::remaining(spent, most, &controller.config);
            let saved = most * policy::gain(controller.config.speedup_optimized);
            assert!(chance.score <= saved / 1e6, "{chance:?}");
        }
    }
}
