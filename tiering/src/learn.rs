//! The numbers of the policy that are learned while a program runs, each from a prior.
//!
//! | number | learned from | limits |
//! |---|---|---|
//! | compile cost, a line per tier | every compile that ended well (`costs`) | inline candidates are known only by whether there are calls |
//! | counters against samples | time of all counted versions by samples over that by counters | only while sampling is on |
//! | speedup of tier 2 over tier 1 | functions of which both versions count entries and have enough samples: time per entry before over after | small functions are not counted at tier 2; of these, and of tier 3, it stays the prior |
//! | speedup of tier 2 over native code | trials of the two (`tuning`) | trials are of functions that were hot first |
//! | load | processor time of the process less that of compiles in the background; until it is reported, time by counters and of first compiles | use by other processes is not included |
//!
//! # Why entries, and of which functions
//! Samples alone cannot tell faster code from less work: a function is promoted because it took
//! much of the recent time, which was more than usual. Its share falls afterwards with any new code
//! (regression towards the mean). So a gain estimated from shares is too large for every function,
//! and averages do not help. Time per *entry* does not depend on how often a function is called. An
//! increment at every entry is 0.3 to 1 ns, and negligible beside a body of a microsecond
//! (`trial_entry`); such functions keep it at tier 2. In smaller ones it would cost as much as tier
//! 2 gains, and a version of its own for the trial would cost a compile. The work of an entry may
//! still change from phase to phase: a version is taken back only where the difference is beyond
//! three standard errors (`policy::compare`).
//!
//! All are decaying averages: a new value weighs at least 1/[`LONGEST`].
//!
//! # Why
//! Gains are learned from entries, not from shares. Tier 2 code of functions whose entry takes a
//! microsecond or more counts entries. Time per entry before and after is the gain, and slower code
//! is taken back. Shares fall after any promotion (`tiering`'s `learn`).

use crate::config::Config;
use crate::ids::{Nanos, Tier};
use crate::policy::{Comparison, PRIOR_SAMPLES, share};

/// Observations an average remembers at most.
const LONGEST: f64 = 64.0;
/// Weight of a prior, in observations.
const PRIOR: f64 = 4.0;
/// One observation counts as at most this many times the prior, and at least the prior over it.
const OUTLIER: f64 = 16.0;

/// Least expected speedup of tier 2 over native code: functions differ, and a gain is found only by
/// a trial. With a low value a function has to run for longer before the trial. A lower setting is
/// kept.
const UNKNOWN: f64 = 1.02;

/// A mean that starts from a prior and forgets.
#[derive(Clone, Copy, Debug)]
struct Mean {
    value: f64,
    weight: f64,
    observed: u64,
}

impl Mean {
    fn new(prior: f64) -> Mean {
        Mean {
            value: prior,
            weight: PRIOR,
            observed: 0,
        }
    }

    fn add(&mut self, value: f64) {
        self.weight = (self.weight + 1.0).min(LONGEST);
        self.value += (value - self.value) / self.weight;
        self.observed += 1;
    }
}

/// A learned number and the number of its observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Observations; 0: the number is the prior.
    pub observed: u64,
}

/// The speedup of each tier over the one below, and of tier 2 over native code.
#[derive(Debug)]
pub(crate) struct Speedups {
    steps: [Mean; 2],
    native: Mean,
    /// The least expected speedup over native code, as a logarithm.
    least: f64,
}

impl Speedups {
    pub(crate) fn new(config: &Config) -> Speedups {
        Speedups {
            steps: [
                Mean::new(config.speedup_optimized.ln()),
                Mean::new(config.speedup_guided.ln()),
            ],
            native: Mean::new(config.speedup_native.ln()),
            least: config.speedup_native.min(UNKNOWN).ln(),
        }
    }

    /// The speedup from `from` to the higher tier `to`; across two tiers the product of both.
    pub(crate) fn expect(&self, from: Tier, to: Tier) -> f64 {
        let native = from == Tier::Native && to > Tier::Native;
        let (first, base) = match native {
            true => (Tier::Optimized, self.native.value.max(self.least)),
            false => (from, 0.0),
        };
        let steps = first.index().min(2)..to.index().min(2);
        let logs = self.steps.get(steps).unwrap_or_default();
        (base + logs.iter().map(|mean| mean.value).sum::<f64>()).exp()
    }

    /// Learns the speedup of tier 2 over the native code of one function.
    pub(crate) fn learn_native(&mut self, speedup: f64) {
        let log = speedup.ln();
        if log.is_finite() {
            self.native.add(log.clamp(-OUTLIER.ln(), OUTLIER.ln()));
        }
    }

    /// Learns from a comparison of neighbouring tiers; others say nothing about either step.
    pub(crate) fn learn(&mut self, from: Tier, to: Tier, comparison: &Comparison) {
        if from.above() == Some(to) && from != Tier::Native {
            let log = comparison.speedup.ln();
            self.steps[from.index()].add(log.clamp(-OUTLIER.ln(), OUTLIER.ln()));
        }
    }

    /// The estimate of the step that ends at `to`.
    pub(crate) fn step(&self, to: Tier) -> Option<Estimate> {
        let mean = self.steps.get(to.index().checked_sub(1)?)?;
        Some(Estimate {
            value: mean.value.exp(),
            observed: mean.observed,
        })
    }
}

/// A sum that decays with a time constant, lazily.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decayed {
    value: f64,
    at: Nanos,
}

impl Decayed {
    /// The sum as of `now`.
    pub(crate) fn at(&self, now: Nanos, window: Nanos) -> f64 {
        self.value * (-((now - self.at).as_f64() / window.as_f64())).exp()
    }

    pub(crate) fn add(&mut self, now: Nanos, window: Nanos, amount: f64) {
        self.value = self.at(now, window) + amount;
        self.at = self.at.max(now);
    }
}

/// The factor by which the counters' estimate of time is wrong, over all functions.
#[derive(Debug)]
pub(crate) struct Calibration {
    /// Time one sample stands for; `None` while nothing is sampled.
    period: Option<Nanos>,
    sampled: f64,
    counted: f64,
    samples: u64,
}

impl Calibration {
    pub(crate) fn new() -> Calibration {
        Calibration {
            period: None,
            sampled: 0.0,
            counted: 0.0,
            samples: 0,
        }
    }

    pub(crate) fn set_period(&mut self, period: Option<Nanos>) {
        self.period = period;
    }

    pub(crate) fn period(&self) -> Option<Nanos> {
        self.period
    }

    /// Adds time of a counted version by its counters.
    pub(crate) fn counted(&mut self, time: f64) {
        if let Some(period) = self.period {
            self.counted += time;
            // The memory is as long as `LONGEST` samples: the mean then has an error
            // of an eighth.
            let longest = LONGEST * period.as_f64().max(1.0);
            if self.counted > longest {
                let keep = longest / self.counted;
                self.counted *= keep;
                self.sampled *= keep;
            }
        }
    }

    /// Adds samples of a counted version.
    pub(crate) fn sampled(&mut self, samples: u32, time: f64) {
        self.sampled += time;
        self.samples += u64::from(samples);
    }

    /// Time by samples over time by counters; 1 without samples.
    pub(crate) fn common(&self) -> Estimate {
        let period = self.period.map_or(1.0, |period| period.as_f64().max(1.0));
        let strength = PRIOR_SAMPLES * period;
        let ratio = (strength + self.sampled) / (strength + self.counted);
        Estimate {
            value: ratio.clamp(1.0 / OUTLIER, OUTLIER),
            observed: self.samples,
        }
    }
}

/// The number of processors that the program and its first compiles use.
#[derive(Debug)]
pub(crate) struct Load {
    time: Decayed,
    began: Option<Nanos>,
}

impl Load {
    pub(crate) fn new() -> Load {
        Load {
            time: Decayed::default(),
            began: None,
        }
    }

    pub(crate) fn add(&mut self, now: Nanos, window: Nanos, time: f64) {
        self.began.get_or_insert(now);
        self.time.add(now, window, time);
    }

    pub(crate) fn at(&self, now: Nanos, window: Nanos) -> f64 {
        let Some(began) = self.began else { return 0.0 };
        // In the first millisecond the quotient is not meaningful.
        let age = (now - began).max(Nanos::from_ms(1));
        share(self.time.at(now, window), age.as_f64(), window.as_f64())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn speedups_of_two_steps_multiply() {
        let config = Config::default();
        let mut speedups = Speedups::new(&config);
        let both = speedups.expect(Tier::Baseline, Tier::Guided);
        assert!((both - config.speedup_optimized * config.speedup_guided).abs() < 1e-9);
        assert_eq!(speedups.expect(Tier::Guided, Tier::Baseline), 1.0);
        let comparison = Comparison {
            speedup: 5.0,
            error: 0.1,
        };
        for _ in 0..200 {
            speedups.learn(Tier::Baseline, Tier::Optimized, &comparison);
            speedups.learn(Tier::Baseline, Tier::Guided, &comparison);
        }
        assert!((speedups.expect(Tier::Baseline, Tier::Optimized) - 5.0).abs() < 0.1);
        let guided = speedups.step(Tier::Guided).unwrap();
        assert_eq!(guided.observed, 0);
        assert_eq!(speedups.step(Tier::Baseline), None);
    }

    #[test]
    fn native_code_is_a_step_of_its_own() {
        let mut speedups = Speedups::new(&Config::default());
        let before = speedups.expect(Tier::Baseline, Tier::Optimized);
        let native = speedups.expect(Tier::Native, Tier::Optimized);
        assert!(native < before);
        let guided = speedups.expect(Tier::Optimized, Tier::Guided);
        let both = speedups.expect(Tier::Native, Tier::Guided);
        assert!((both - native * guided).abs() < 1e-9);
        for speedup in [0.5, f64::NAN, 0.0] {
            speedups.learn_native(speedup);
        }
        for _ in 0..100 {
            let comparison = Comparison {
                speedup: 0.8,
                error: 0.1,
            };
            speedups.learn(Tier::Native, Tier::Optimized, &comparison);
            speedups.learn_native(0.8);
        }
        assert_eq!(speedups.expect(Tier::Baseline, Tier::Optimized), before);
        let native = speedups.expect(Tier::Native, Tier::Optimized);
        assert!(native < 1.05 && native > 1.0, "{native}");
    }

    #[test]
    fn samples_correct_the_counters() {
        let mut calibration = Calibration::new();
        calibration.counted(1e9);
        assert_eq!(calibration.common().value, 1.0, "sampling is off");
        calibration.set_period(Some(Nanos::from_ms(1)));
        for _ in 0..500 {
            calibration.counted(1e6);
            calibration.sampled(3, 3e6);
        }
        let common = calibration.common();
        assert!((2.5..3.1).contains(&common.value), "{common:?}");
        assert_eq!(common.observed, 1500);
    }

    #[test]
    fn load_is_time_per_time() {
        let window = Nanos::from_ms(100);
        let mut load = Load::new();
        assert_eq!(load.at(Nanos::from_ms(5), window), 0.0);
        for ms in 0..50 {
            load.add(Nanos::from_ms(ms), window, 1.5e6);
        }
        let now = load.at(Nanos::from_ms(50), window);
        assert!((1.4..1.6).contains(&now), "{now}");
        assert!(load.at(Nanos::from_ms(550), window) < 0.02);
    }
}
