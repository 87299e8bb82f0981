//! A limit on the processor time of the runtime itself, as a part of the program's.
//!
//! ```text
//! left = overhead * program + saved - runtime - promised
//! ```
//!
//! | variable | meaning | from |
//! |---|---|---|
//! | `overhead` | the setting; without a limit if 0 | `Config` |
//! | `program`, `runtime` | processor time of the threads of each so far | [`Controller::on_times`] |
//! | `saved` | time that code saved over the native code in whose place it runs | samples of versions that were compared with it |
//! | `promised` | expected time of compiles in progress, of which `runtime` has only a part | `costs` |
//!
//! A candidate is compiled when its expected cost is left, and the best candidate is waited for: a
//! cheaper one in its place would take what was saved up for it.
//!
//! # Why
//! The formula of `policy` weighs each function's gain against its own compile. In a native program the
//! gain is a guess of a tenth at first, most guesses are wrong, and dozens of functions are hot: the sum
//! was 40 % of the processor time of a run of a second, 30 % of one of four. A part of what the program
//! has used bounds the sum at every length of run, in the manner of ski rental, and what is gained can
//! be spent again.

use crate::costs::Costs;
use crate::ids::{FunctionId, Nanos, Tier};
use crate::stream::Input;

use super::Controller;

/// The times so far, in ns.
#[derive(Debug, Default)]
pub(super) struct Overhead {
    program: f64,
    runtime: f64,
    saved: f64,
}

impl Overhead {
    /// Adds `time` in code that is faster than native code by so many hundredths.
    pub(super) fn save(&mut self, time: f64, hundredths: u8) {
        self.saved += time * f64::from(hundredths) / 100.0;
    }
}

impl Controller {
    /// Records the processor time of the program's threads, and of the runtime's, since the process
    /// began. Compiles in the background wait until the limit of the setting `overhead` allows them.
    pub fn on_times(&mut self, program: Nanos, runtime: Nanos) {
        self.diary
            .note(Nanos::ZERO, || Input::Times(program, runtime));
        self.overhead.program = program.as_f64();
        self.overhead.runtime = runtime.as_f64();
    }

    /// Records a comparison: the running version of a function is so many thousandths as fast as its
    /// native code.
    pub fn faster_than_native(&mut self, function: FunctionId, thousandths: u32) {
        self.diary.note(Nanos::ZERO, || {
            Input::FasterThanNative(function, thousandths)
        });
        if let Some(activity) = self.functions.get_mut(function) {
            let hundredths = thousandths.saturating_sub(1000) / 10;
            activity.gained = u8::try_from(hundredths).unwrap_or(u8::MAX);
        }
    }

    /// Whether a compile of that cost may begin. If not, the next poll is due when it may, should the
    /// program go on to use that much processor time.
    pub(super) fn may_cost(&mut self, now: Nanos, cost: f64) -> bool {
        let limit = self.config.overhead;
        if limit == 0.0 {
            return true;
        }
        let promised: f64 = self.outstanding.iter().map(|job| job.cost).sum();
        let Overhead {
            program,
            runtime,
            saved,
        } = self.overhead;
        let missing = cost + promised + runtime - saved - limit * program;
        if missing > 0.0 {
            let load = self.load.at(now, self.config.window).max(0.01);
            self.polls
                .expect(now + Nanos::from_f64(missing / (limit * load)));
        }
        missing <= 0.0
    }

    /// The expected cost of a compile.
    pub(super) fn cost(&self, function: FunctionId, tier: Tier) -> f64 {
        let costs: &Costs = &self.costs;
        let facts = self.functions.get(function).map(|it| it.facts());
        facts.map_or(0.0, |facts| costs.expect(tier, &facts))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::{F, controller, first};
    use super::super::{Decision, Outcome};
    use super::*;

    /// Milliseconds of the program until a hot function is compiled, if the runtime has used `before`.
    fn compiled_after(overhead: f64, before: Nanos) -> u64 {
        let mut controller = controller(|config| config.overhead = overhead);
        first(&mut controller, Nanos::ZERO, F, 100);
        for ms in 1..100_000 {
            let now = Nanos::from_ms(ms);
            controller.on_times(now, before);
            controller.on_processor_time(now, Nanos::from_ms(1));
            controller.on_counters(now, F, 25_000, 0);
            if controller.next(now).is_some() {
                return ms;
            }
        }
        panic!("never");
    }

    #[test]
    fn compiles_wait_until_their_cost_is_a_part_of_the_run() {
        let mut known = controller(|_| {});
        first(&mut known, Nanos::ZERO, F, 100);
        let cost = known.cost(F, Tier::Optimized) / 1e6;
        let near = |ms: u64, expected: f64| {
            assert!((ms as f64 - expected).abs() <= 2.0, "{ms} for {expected}");
        };
        assert!(compiled_after(0.0, Nanos::ZERO) <= 2);
        near(compiled_after(0.04, Nanos::ZERO), cost / 0.04);
        near(
            compiled_after(0.04, Nanos::from_ms(30)),
            (cost + 30.0) / 0.04,
        );
    }

    #[test]
    fn what_is_gained_is_spent_again() {
        let mut controller = controller(|config| config.overhead = 0.01);
        first(&mut controller, Nanos::ZERO, F, 100);
        let mut now = Nanos::from_ms(1);
        controller.on_times(Nanos::from_ms(10_000), Nanos::ZERO);
        controller.on_counters(now, F, 25_000_000, 0);
        let Some(Decision::Compile { version, .. }) = controller.next(now) else {
            panic!("it is hot, and 100 ms are left");
        };
        let compile = Nanos::from_ms(5);
        let counters = false;
        controller.finished(now, version, Outcome::Published { compile, counters });
        assert!(!controller.may_cost(now, 1e9));
        controller.faster_than_native(F, 1250);
        for _ in 0..40 {
            now = now + Nanos::from_ms(100);
            controller.on_samples(now, F, version, 1, Nanos::from_ms(100));
        }
        // A quarter of four seconds, and the 100 ms.
        assert!(controller.may_cost(now, 1.09e9));
        assert!(!controller.may_cost(now, 1.11e9));
        // Another version has to show its gain.
        controller.reverted(now, F, version, Tier::Native, false);
        controller.on_samples(now, F, version, 1, Nanos::from_ms(10_000));
        assert!(!controller.may_cost(now, 1.11e9));
    }
}
