//! The formulas of the policy, as functions of numbers. Times are in nanoseconds.
//!
//! # When to promote
//! A function is compiled at the next tier if
//!
//! ```text
//! score = (remaining - missed) * gain / (cost * weight * pressure * reluctance)  >=  1
//! ```
//!
//! | variable | meaning | from |
//! |---|---|---|
//! | `remaining` | time that the function would still run, at its present rate | `lindy * spent + share * outlook` |
//! | `missed` | a part of the time it runs until the compile has ended | `latency * share * (cost + opening)`; `opening`: the first compile also makes LLVM ready |
//! | `spent` | time it has run in its present version, old times forgotten | counters and samples |
//! | `share` | processors it occupies at present | the same, over the last `window`; at most what the process used |
//! | `gain` | part of that time the next tier saves | `1 - 1 / speedup` |
//! | `speedup` | next tier against this one | learned per pair of tiers, prior at first |
//! | `cost` | time of the compile | a learned line over instructions, calls and loops (`costs`) |
//! | `weight` | price of compile time: 1 if it is taken from the program, less if a processor is idle and the program spends its time in the function | `cost_weight` |
//! | `pressure` | rises with the hotter candidates that wait: `1 + ahead / (queue_feedback * jobs)` | the form is HotSpot's (`compilationPolicy.hpp`, `scale`), which counts the whole queue; but the next in turn is not to be refused because others wait |
//! | `reluctance` | 2 to the number of times that the compile was taken back or cancelled | hysteresis |
//!
//! Jikes RVM assumes that a method runs on for as long as it has run (Arnold, Fink, Grove, Hind,
//! Sweeney: *Adaptive Optimization in the Jalapeño JVM*, OOPSLA 2000). This is Lindy's rule: it is
//! exact for lives with `P(L > t) ~ 1/t`. It does not cover the first milliseconds, hence
//! `outlook`: a program that has just begun is not about to end. Example with the defaults: a
//! function of 34 instructions and a loop takes 5 ms to compile. It is promoted at the first poll
//! if it occupies one processor of two, `(0.5 + 10 - 2.5) * 0.6 / (5 * 0.25) = 3.8`; with a share of
//! a tenth it needs 7 ms of its own time. An interpreter's loop of 9,000 instructions with calls
//! (456 ms) that the program is in for nine tenths of its time needs 443 ms.
//!
//! Code that comes when the program has ended gains nothing: hence `missed`. Without it a loop that
//! takes 28 ms to compile was compiled 5 ms after its first call, in runs of 40 ms. With `latency` at
//! 1 short runs take less processor time still, but a hot loop of 5 ms waits for 8 ms where LLVM is
//! not ready. A bound on the time of all compiles together by the time that the program ran (ski
//! rental) was tried too: it cost more wall time for the same processor time.
//!
//! # Price of idle processors
//! Time of an idle processor is no time of the program's, but it still has a cost. It is spent in
//! proportion to the possible gain: a function that occupies a `share` of a processor makes the
//! program at most `1 / (1 - share)` times faster. So the price of idle time falls from 1 to
//! `idle_weight` with the share. The compile of a function with a tenth of a short run may cost no
//! more than it gains; the one loop that a program is in is compiled when a quarter of its cost has
//! been spent in it. Where a few functions share a program's time, idle time is priced by their
//! common share (`leaders`). One weight cannot serve both: at 0.4 a run of sqlite of a second takes
//! 14 to 29 % more processor time than at tier 1, at 0.7 Lua's loop waits for a second.
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
//! hundreds of samples weigh little against the prior. So `m` is at least the estimate of the
//! samples alone, less two standard deviations:
//!
//! ```text
//! m >= (n - 2 * sqrt(n)) * period / counted,  n = sampled / period
//! ```
//!
//! # Why
//! Idle processors are priced by share. A compile beside the program costs a quarter for the
//! function that the program is in, and in full for one of many: one price either made short runs
//! of sqlite more expensive or an interpreter's loop late (`tiering::policy`).

use crate::config::Config;
use crate::ids::Nanos;

/// Weight of the counters' estimate, in samples.
pub const PRIOR_SAMPLES: f64 = 4.0;

/// Largest exponent of the reluctance.
pub const RELUCTANCE_LIMIT: u8 = 10;

/// Facts of a function that are known before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// IR instructions before optimization.
    pub instructions: u32,
    /// Loops (targets of back edges).
    pub loops: u32,
    /// Whether a loop lies in another.
    pub nested: bool,
    /// Calls of functions by name: their callees are read, too, when the function is compiled at
    /// tier 2.
    pub calls: u32,
}

/// Time of one entry or back edge at tier 1, before correction.
pub fn event_time(facts: &Facts, config: &Config) -> f64 {
    let between = f64::from(facts.instructions) / (f64::from(facts.loops) + 1.0);
    let most = f64::from(config.event_instructions);
    between.clamp(1.0, most) * config.instruction_ns
}

/// The correction `m` of the time from counters. `common` is the mean over all functions, `period`
/// the time one sample stands for, `sampled` and `counted` are both measures of the same stretch.
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

/// Processors occupied, from the sum of times that decays with time constant `window` and that
/// began `age` ago: unbiased from the first moment, for a constant rate.
pub fn share(decayed: f64, age: f64, window: f64) -> f64 {
    decayed / (window * -(-age / window).exp_m1())
}

/// Time that the function is expected to run on.
pub fn remaining(spent: f64, share: f64, config: &Config) -> f64 {
    config.lindy * spent + share * config.outlook.as_f64()
}

/// Time that a function runs while it is compiled, as far as it is counted.
pub fn missed(cost: f64, share: f64, config: &Config) -> f64 {
    config.latency * cost * share.min(1.0)
}

/// Part of the time that a speedup saves: `1 - 1 / speedup`, zero if the code is slower.
pub fn gain(speedup: f64) -> f64 {
    (1.0 - 1.0 / speedup).max(0.0)
}

/// Price of a nanosecond of compile time for a function that occupies `share` processors. It is 1
/// when program and compiles leave no processor idle or the share is zero. It is `idle_weight` when
/// one is idle and the share is 1.
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
    /// Time that the function would still run.
    pub remaining: f64,
    /// Time that it runs while it is compiled.
    pub missed: f64,
    /// The next tier against this one.
    pub speedup: f64,
    /// Time of the compile.
    pub cost: f64,
    /// Price of compile time.
    pub weight: f64,
    /// Factor of the queue.
    pub pressure: f64,
    /// Number of times that it was taken back.
    pub reluctance: u8,
}

impl Prospect {
    fn price(&self) -> f64 {
        let reluctance = f64::from(1u32 << self.reluctance.min(RELUCTANCE_LIMIT));
        self.cost * self.weight * self.pressure * reluctance
    }

    /// Time saved per time spent; promotion pays from 1 on.
    pub fn score(&self) -> f64 {
        (self.remaining - self.missed).max(0.0) * gain(self.speedup) / self.price().max(1.0)
    }

    /// Time until promotion pays, for a function that keeps its `share` of processors.
    pub fn pays_after(&self, share: f64, config: &Config) -> Nanos {
        let needed = self.missed + self.price().max(1.0) / gain(self.speedup);
        let after = (needed - self.remaining).max(0.0) / (config.lindy * share);
        match after.is_finite() {
            true => Nanos::from_f64(after),
            false => Nanos(u64::MAX),
        }
    }
}

/// Both measures of one version, over the time when both were on.
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
    /// Speed of the later version relative to the earlier one.
    pub speedup: f64,
    /// Standard error of its logarithm.
    pub error: f64,
}

/// Compares time per entry: `speedup = (s1 / c1) / (s2 / c2)`. The number of samples is Poisson, so
/// its logarithm has the variance `1 / n`. The work of an entry varies, and its standard deviation
/// is taken to be its mean:
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

/// Time until the next poll of the counters.
///
/// ```text
/// clamp(min(quiet, due), poll_min, poll_max)    quiet: since the last news
///                                               due: until a candidate will be worth it
/// at least missing / poll_overhead              missing: cost of a poll beyond the balance
///                                               of the account (`polls`)
/// ```
///
/// Waiting as long as the quiet time doubles the interval with every poll.
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
            missed: missed(cost, share, &config),
            speedup: config.speedup_optimized,
            cost,
            weight: cost_weight(1.0, share, &config),
            pressure: pressure(0.0, &config),
            reluctance: 0,
        };
        let score = |cost, spent_ms, share| prospect(cost, spent_ms, share).score();
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{a} for {b}");
        near(score(5e6, 0.5, 1.0), 3.84);
        near(score(5e6, 6.96, 0.1), 1.0);
        near(score(456e6, 443.0, 0.9), 1.0);
        // The time that is missing to 6.96 ms, at a tenth of a processor, takes ten times as long.
        let after = prospect(5e6, 2.96, 0.1).pays_after(0.1, &config);
        near(after.as_f64(), 40e6);
        assert_eq!(
            prospect(5e6, 7.0, 0.1).pays_after(0.1, &config),
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
            missed: 0.0,
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
        // Also where the counters count almost nothing.
        let m = correction(1.0, period, 200.0 * period, 50e3);
        assert!(m * 50e3 > 170.0 * period, "{m}");
        // No samples in a long time: it runs less than its counters estimate.
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
