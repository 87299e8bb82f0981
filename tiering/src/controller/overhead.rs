//! A limit on the processor time of the runtime itself, as a part of the program's.
//!
//! ```text
//! left = overhead * program + saved - runtime - promised
//! ```
//!
//! | variable | meaning | from |
//! |---|---|---|
//! | `overhead` | the setting; without a limit if 0 | `Config` |
//! | `program`, `runtime` | processor time of the threads of each so far | [`Controller::on_times`](super::Controller::on_times) |
//! | `saved` | time that code saved over the native code in whose place it runs | samples of versions that were compared with it |
//! | `promised` | expected time of compiles in progress, of which `runtime` has only a part | `costs` |
//!
//! A candidate is compiled when its expected cost is left, and the best candidate is waited for: a
//! cheaper one in its place would take what was saved up for it. Candidates at tier 1 do not wait:
//! they run in the place of native code, which is faster, since a function was exchanged or a caller
//! was compiled.
//!
//! # Why
//! The formula of `policy` weighs each function's gain against its own compile. In a native program the
//! gain is a guess of a tenth at first, most guesses are wrong, and dozens of functions are hot: the sum
//! was 40 % of the processor time of a run of a second, 30 % of one of four. A part of what the program
//! has used bounds the sum at every length of run, in the manner of ski rental, and what is gained can
//! be spent again.

use crate::ids::Nanos;

/// The times so far, in ns.
#[derive(Debug, Default)]
pub(super) struct Overhead {
    program: f64,
    runtime: f64,
    saved: f64,
}

impl Overhead {
    /// Sets the times of the program and of the runtime.
    pub(super) fn set(&mut self, program: Nanos, runtime: Nanos) {
        self.program = program.as_f64();
        self.runtime = runtime.as_f64();
    }

    /// Processor time by which the program's is short of what allows a compile of that `cost`, with a
    /// `limit` above zero; zero if it is allowed.
    pub(super) fn missing(&self, limit: f64, cost: f64, promised: f64) -> f64 {
        let paid = self.runtime - self.saved;
        ((cost + promised + paid) / limit - self.program).max(0.0)
    }

    /// Adds `time` in code that is faster than native code by so many hundredths.
    pub(super) fn save(&mut self, time: f64, hundredths: u8) {
        self.saved += time * f64::from(hundredths) / 100.0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::{F, controller, first};
    use super::super::{Controller, Decision, FirstCode, Outcome};
    use super::*;
    use crate::ids::{Tier, VersionId};
    use crate::policy::Facts;

    /// Reports native code of `F`.
    fn native(controller: &mut Controller) -> VersionId {
        let version = controller.ids.next();
        let first = FirstCode {
            version,
            tier: Tier::Native,
            facts: Facts {
                instructions: 100,
                ..Facts::default()
            },
            compile: Nanos::ZERO,
            counters: false,
        };
        controller.on_compiled(Nanos::ZERO, F, &first);
        version
    }

    /// Milliseconds of the program until a hot function is compiled, if the runtime has used `before`.
    fn compiled_after(overhead: f64, before: Nanos) -> u64 {
        let mut controller = controller(|config| config.overhead = overhead);
        let version = native(&mut controller);
        for ms in 1..100_000 {
            let now = Nanos::from_ms(ms);
            controller.on_times(now, before);
            controller.on_processor_time(now, Nanos::from_ms(1));
            controller.on_samples(now, F, version, 1, Nanos::from_ms(1));
            if controller.next(now).is_some() {
                return ms;
            }
        }
        panic!("never");
    }

    #[test]
    fn compiles_wait_until_their_cost_is_a_part_of_the_run() {
        let mut known = controller(|_| {});
        native(&mut known);
        let cost = known.cost(F, Tier::Optimized) / 1e6;
        let free = compiled_after(0.0, Nanos::ZERO);
        let limited = compiled_after(0.04, Nanos::from_ms(30)) as f64;
        let expected = (cost + 30.0) / 0.04;
        assert!(
            (limited - expected).abs() <= 2.0,
            "{limited} for {expected}"
        );
        assert!((free as f64) < limited / 4.0, "{free} and {limited}");
    }

    #[test]
    fn code_of_tier_1_over_native_code_does_not_wait() {
        let mut controller = controller(|config| config.overhead = 0.04);
        first(&mut controller, Nanos::ZERO, F, 100);
        let now = Nanos::from_ms(1);
        controller.on_times(now, Nanos::from_ms(1_000));
        controller.on_counters(now, F, 25_000_000, 0);
        assert!(controller.next(now).is_some());
    }

    #[test]
    fn what_is_gained_is_spent_again() {
        let mut controller = controller(|config| config.overhead = 0.01);
        native(&mut controller);
        let mut now = Nanos::from_ms(1);
        controller.on_times(Nanos::from_ms(10_000), Nanos::ZERO);
        controller.request(F, Tier::Optimized);
        let Some(Decision::Compile { version, .. }) = controller.next(now) else {
            panic!("it was requested");
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
