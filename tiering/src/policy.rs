//! The formulas of the policy, as functions of numbers. Times are in nanoseconds.
//!
//! # When to promote
//! A function is compiled at the next tier if
//!
//! ```text
//! score = remaining * gain / (cost * weight * pressure * reluctance)  >=  1
//! ```
//!
//! | variable | meaning | from |
//! |---|---|---|
//! | `remaining` | time the function would go on running as it is | `lindy * spent + share * outlook` |
//! | `spent` | time it has run in its present version, old times forgotten | counters and samples |
//! | `share` | processors it occupies at present | the same, over the last `window` |
//! | `gain` | part of that time the next tier saves | `1 - 1 / speedup` |
//! | `speedup` | next tier against this one | learned per pair of tiers, prior at first |
//! | `cost` | time of the compile | a learned line over instructions, calls and loops (`costs`) |
//! | `weight` | what compile time costs: 1 if it takes it from the program, less if a processor is idle and the function is what the program does | `cost_weight` |
//! | `pressure` | rises with the hotter candidates that wait: `1 + ahead / (queue_feedback * jobs)` | the form is HotSpot's (`compilationPolicy.hpp`, `scale`), which counts the whole queue; but who would be next is not to be refused because others wait |
//! | `reluctance` | 2 to the number of times the compile was taken back or given up | hysteresis |
//!
//! That a method goes on for as long as it has run is the rule of Jikes RVM (Arnold, Fink,
//! Grove, Hind, Sweeney: *Adaptive Optimization in the Jalapeño JVM*, OOPSLA 2000), which
//! is Lindy's: it is exact for lives with `P(L > t) ~ 1/t`. It says nothing about the
//! first milliseconds, hence `outlook`: a program that has just begun is not about to end.
//! With the defaults a function of 34 instructions and a loop, which takes 5 ms to compile,
//! is promoted at the first look if it occupies one processor of two,
//! `(0.5 + 10) * 0.6 / (5 * 0.25) = 5`; with a share of a tenth it needs 6.7 ms of its own
//! time. An interpreter's loop of 9,000 instructions with calls (456 ms) that the
//! program is in for nine tenths of its time needs 238 ms.
//!
//! # What idle processors are for
//! Time of an idle processor is no time of the program's, but somebody pays for it. It is
//! spent in proportion to what it can bring: a function that occupies a `share` of a
//! processor makes the program at most `1 / (1 - share)` times faster. So the price of idle
//! time falls from 1 to `idle_weight` with the share. What makes a tenth of a short run
//! may cost no more than it brings; the one loop that a program is in is compiled when a
//! quarter of its cost has been spent in it. Where a few functions share a program's time, idle
//! time is priced by what they occupy together (`leaders`). One weight cannot serve
//! both: at 0.4 a run of sqlite of a second takes 14 to 29 % more processor time than at
//! tier 1, at 0.7 Lua's loop waits for a second.
//!
//! # Time from counters
//! Tier 1 counts entries and back edges. Each stands for the part of the body between two
//! of them, `instructions / (loops + 1)` at most `event_instructions`, at `instruction_ns`
//! each. Samples measure the same time without bias but late and with noise: `n` samples
//! of a version are Poisson with mean `m * counted / period`, where `m` corrects the
//! counters' estimate. With a Gamma prior of mean `k` (the same ratio over all functions)
//! and strength [`PRIOR_SAMPLES`] the estimate is
//!
//! ```text
//! m = (PRIOR_SAMPLES * period + sampled) / (PRIOR_SAMPLES * period / k + counted)
//! ```
//!
//! so that one sample in a function that ran for a microsecond changes nothing, and after
//! many samples they alone count. A body that is inlined by `alwaysinline` is not counted:
//! the count of such a wrapper can be short by a factor of ten thousand, and then even
//! hundreds of samples weigh little against the prior. So `m` is at least what the samples
//! say by themselves, less two standard deviations:
//!
//! ```text
//! m >= (n - 2 * sqrt(n)) * period / counted,  n = sampled / period
//! ```
//!
//! # Why
//! Idle processors are paid for by share. A compile beside the program costs a quarter for the
//! function the program is in, and in full for one of many: one price either made short runs of
//! sqlite dearer or an interpreter's loop late (`tiering::policy`).

use crate::config::Config;
use crate::ids::Nanos;

/// Strength of the belief in the counters' estimate, in samples.
pub const PRIOR_SAMPLES: f64 = 4.0;

/// Reluctance stops at 2 to this.
pub const RELUCTANCE_LIMIT: u8 = 10;

/// What is known of a function before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// IR instructions before optimization.
    pub instructions: u32,
    /// Loops (targets of back edges).
    pub loops: u32,
    /// One of them lies in another.
    pub nested: bool,
    /// Calls of functions by their names: what they lead to is looked at, too, when it is
    /// compiled at tier 2.
    pub calls: u32,
}

/// Time one entry or back edge stands for at tier 1, before correction.
pub fn event_time(facts: &Facts, config: &Config) -> f64 {
    let between = f64::from(facts.instructions) / (f64::from(facts.loops) + 1.0);
    let most = f64::from(config.event_instructions);
    between.clamp(1.0, most) * config.instruction_ns
}

/// The correction `m` of the time from counters. `common` is the mean over all functions,
/// `period` the time one sample stands for, `sampled` and `counted` what both measures say
/// of the same stretch.
pub fn correction(common: f64, period: f64, sampled: f64, counted: f64) -> f64 {
    let period = period.max(1.0);
    let strength = PRIOR_SAMPLES * period;
    let likely = (strength + sampled) / (strength / common + counted);
    let least = sampled - 2.0 * (sampled * period).sqrt();
    match counted > 0.0 {
        true => likely.max(least / counted),
        false => likely,
    }
}

/// Processors occupied, from the sum of times that decays with time constant `window` and
/// that began `age` ago: unbiased from the first moment, for a constant rate.
pub fn share(decayed: f64, age: f64, window: f64) -> f64 {
    decayed / (window * -(-age / window).exp_m1())
}

/// Time the function is expected to go on running.
pub fn remaining(spent: f64, share: f64, config: &Config) -> f64 {
    config.lindy * spent + share * config.outlook.as_f64()
}

/// Part of the time that a speedup saves: `1 - 1 / speedup`, nothing if it is slower.
pub fn gain(speedup: f64) -> f64 {
    (1.0 - 1.0 / speedup).max(0.0)
}

/// What a nanosecond of compile time costs for a function that occupies `share`
/// processors: 1 when program and compiles leave no processor idle or the share is
/// nothing, `idle_weight` when one is idle and the share is 1.
///
/// ```text
/// 1 - (1 - idle_weight) * min(share, 1) * (1 - clamp(load - (cpus - 1), 0, 1))
/// ```
pub fn cost_weight(load: f64, share: f64, config: &Config) -> f64 {
    let taken = (load - f64::from(config.cpus - 1)).clamp(0.0, 1.0);
    1.0 - (1.0 - config.idle_weight) * share.clamp(0.0, 1.0) * (1.0 - taken)
}

/// Factor on the threshold with `ahead` hotter candidates waiting.
pub fn pressure(ahead: f64, config: &Config) -> f64 {
    1.0 + ahead / (config.queue_feedback * f64::from(config.jobs))
}

/// The variables of the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// Time the function would go on running.
    pub remaining: f64,
    /// The next tier against this one.
    pub speedup: f64,
    /// Time of the compile.
    pub cost: f64,
    /// What compile time costs.
    pub weight: f64,
    /// Factor of the queue.
    pub pressure: f64,
    /// Times it was taken back.
    pub reluctance: u8,
}

impl Prospect {
    /// Time saved per time spent; from 1 on it pays.
    pub fn score(&self) -> f64 {
        let reluctance = f64::from(1u32 << self.reluctance.min(RELUCTANCE_LIMIT));
        let price = self.cost * self.weight * self.pressure * reluctance;
        self.remaining * gain(self.speedup) / price.max(1.0)
    }

    /// How long it is until it pays, for a function that goes on to occupy `share` processors.
    pub fn pays_after(&self, share: f64, config: &Config) -> Nanos {
        let needed = self.remaining / self.score();
        let after = (needed - self.remaining).max(0.0) / (config.lindy * share);
        match after.is_finite() {
            true => Nanos::from_f64(after),
            false => Nanos(u64::MAX),
        }
    }
}

/// What both measures say of one version, over the time both were on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Time by samples.
    pub sampled: f64,
    /// Work by counters: entries, or the time they would take at tier 1.
    pub counted: f64,
    /// Number of samples.
    pub samples: u32,
}

/// A comparison of two versions of the same function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// How many times faster the later one is.
    pub speedup: f64,
    /// Standard error of its logarithm.
    pub error: f64,
}

/// Compares time per entry: `speedup = (s1 / c1) / (s2 / c2)`. The number of samples is
/// Poisson, so its logarithm has the variance `1 / n`; what an entry has to do varies, and
/// its standard deviation is taken to be its mean:
///
/// ```text
/// error = sqrt(1/n1 + 1/n2 + 1/c1 + 1/c2)
/// ```
///
/// `None` without `least` samples and some counts of each: samples alone rank functions,
/// they do not compare versions.
pub fn compare(before: &Measured, after: &Measured, least: u32) -> Option<Comparison> {
    let enough = |m: &Measured| m.samples >= least.max(1) && m.sampled > 0.0 && m.counted > 0.0;
    (enough(before) && enough(after)).then(|| Comparison {
        speedup: (before.sampled / before.counted) / (after.sampled / after.counted),
        error: [before, after]
            .map(|m| 1.0 / f64::from(m.samples) + 1.0 / m.counted)
            .iter()
            .sum::<f64>()
            .sqrt(),
    })
}

/// Standard errors by which a version must be worse before it is taken back.
pub const CERTAIN: f64 = 3.0;

/// Whether a comparison shows the later version to be slower by the factor `slower`, by
/// [`CERTAIN`] standard errors: `ln speedup + CERTAIN * error < -ln slower`.
pub fn is_slower(comparison: &Comparison, slower: f64) -> bool {
    comparison.speedup.ln() + CERTAIN * comparison.error < -slower.ln()
}

/// Time until the next look at the counters.
///
/// ```text
/// clamp(min(quiet, due), poll_min, poll_max)    quiet: since something was new
///                                               due: until a candidate will be worth it
/// at least missing / poll_overhead              missing: what a look takes beyond what is
/// ```                                           left of the account (`polls`)
///
/// Waiting as long as it has been quiet doubles the interval with every look.
pub fn poll_interval(quiet: Nanos, due: Option<Nanos>, missing: f64, config: &Config) -> Nanos {
    let low = config.poll_min.min(config.poll_max);
    let affordable = Nanos::from_f64(missing / config.poll_overhead);
    let wanted = due.map_or(quiet, |due| quiet.min(due));
    wanted.max(affordable).clamp(low, config.poll_max)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn the_example_of_the_module() {
        let config = Config::default();
        let prospect = |cost: f64, spent_ms: f64, share: f64| Prospect {
            remaining: remaining(spent_ms * 1e6, share, &config),
            speedup: config.speedup_optimized,
            cost,
            weight: cost_weight(1.0, share, &config),
            pressure: pressure(0.0, &config),
            reluctance: 0,
        };
        let score = |cost, spent_ms, share| prospect(cost, spent_ms, share).score();
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{a} for {b}");
        near(score(5e6, 0.5, 1.0), 5.04);
        near(score(5e6, 6.7, 0.1), 1.0);
        near(score(456e6, 238.0, 0.9), 1.0);
        // What is missing of 6.7 ms at a tenth of a processor takes ten times as long.
        let after = prospect(5e6, 2.7, 0.1).pays_after(0.1, &config);
        near(after.as_f64(), 40e6);
        assert_eq!(
            prospect(5e6, 6.8, 0.1).pays_after(0.1, &config),
            Nanos::ZERO
        );
        assert_eq!(
            prospect(5e6, 0.0, 0.0).pays_after(0.0, &config),
            Nanos(u64::MAX)
        );
    }

    #[test]
    fn a_busy_machine_a_long_queue_and_failures_raise_the_price() {
        let config = Config::default();
        let idle = config.idle_weight;
        assert!(close(cost_weight(0.3, 1.0, &config), idle));
        assert!(close(cost_weight(0.3, 7.0, &config), idle));
        assert!(close(cost_weight(0.3, 0.5, &config), (1.0 + idle) / 2.0));
        assert!(close(cost_weight(0.3, 0.0, &config), 1.0));
        assert!(close(cost_weight(1.5, 1.0, &config), (1.0 + idle) / 2.0));
        assert!(close(cost_weight(9.0, 1.0, &config), 1.0));
        assert!(close(pressure(3.0, &config), 2.0));
        let prospect = |reluctance| Prospect {
            remaining: 1e6,
            speedup: 2.0,
            cost: 1e5,
            weight: 1.0,
            pressure: 1.0,
            reluctance,
        };
        assert!(close(prospect(0).score() / prospect(3).score(), 8.0));
        assert_eq!(prospect(10).score(), prospect(200).score());
        assert_eq!(gain(0.5), 0.0);
    }

    #[test]
    fn a_constant_rate_gives_its_share_at_any_age() {
        let window = 100e6;
        for age in [1e6, 30e6, 1e9_f64] {
            // The decayed sum of a rate of 0.7 since `age` ago.
            let decayed = 0.7 * window * (1.0 - (-age / window).exp());
            assert!(close(share(decayed, age, window), 0.7), "{age}");
        }
    }

    #[test]
    fn one_sample_does_not_outweigh_the_counters() {
        let period = 10e6;
        // A microsecond by counters, one sample of 10 ms by chance.
        assert!(correction(1.0, period, period, 1e3) < 1.26);
        // Hundreds of samples decide.
        let m = correction(1.0, period, 500.0 * period, 100.0 * period);
        assert!(m > 4.8 && m < 5.0, "{m}");
        // Also where the counters see next to nothing.
        let m = correction(1.0, period, 200.0 * period, 50e3);
        assert!(m * 50e3 > 170.0 * period, "{m}");
        // No samples in a long time: it runs less than its counters say.
        assert!(correction(1.0, period, 0.0, 400.0 * period) < 0.011);
    }

    #[test]
    fn versions_are_compared_only_with_enough_of_both() {
        let version = |time_per_work: f64, samples: u32| Measured {
            sampled: f64::from(samples) * 1e6,
            counted: f64::from(samples) * 1e6 / time_per_work,
            samples,
        };
        assert_eq!(compare(&version(1.0, 10), &version(1.0, 100), 30), None);
        let faster = compare(&version(1.0, 100), &version(0.4, 100), 30).unwrap();
        assert!(close(faster.speedup, 2.5) && close(faster.error, 0.02f64.sqrt()));
        assert!(!is_slower(&faster, 1.15));
        let slower = compare(&version(1.0, 400), &version(2.0, 400), 30).unwrap();
        assert!(is_slower(&slower, 1.15));
        // The same ratio with few samples is not certain.
        let unsure = compare(&version(1.0, 5), &version(2.0, 5), 4).unwrap();
        assert!(!is_slower(&unsure, 1.15));
    }

    #[test]
    fn looks_become_rare_when_nothing_is_new() {
        let config = Config::default();
        let interval = |quiet| poll_interval(quiet, None, 0.0, &config);
        assert_eq!(interval(Nanos::ZERO), config.poll_min);
        assert_eq!(interval(Nanos::from_ms(9)), Nanos::from_ms(9));
        assert_eq!(interval(Nanos::from_ms(9000)), config.poll_max);
        let due = |ms| poll_interval(Nanos::from_ms(90), Some(Nanos::from_ms(ms)), 0.0, &config);
        assert_eq!((due(7), due(95)), (Nanos::from_ms(7), Nanos::from_ms(90)));
        // 20 us a look at 0.2 %: every 10 ms.
        assert_eq!(
            poll_interval(Nanos::ZERO, None, 20e3, &config),
            Nanos::from_ms(10)
        );
    }
}
