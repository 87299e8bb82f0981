//! The settings of policy and controller, one table for all uses: fields, docs, defaults, ranges,
//! the text of `--print-config` and setting one by name. `uruk_base::settings` makes these from the
//! table.

pub use uruk_base::settings::SettingError;

use crate::ids::{Nanos, Tier};

uruk_base::settings! {
    /// Settings of policy and controller. A value outside of its range is replaced by the nearest
    /// one inside. Printed as one `name = value` line each, with a comment.
    pub struct Config;

    jobs: u32 = 1, 1 => 1024, " Compiles under way at the same time.";
    cpus: u32 = 2, 1 => 65_536, " Processors the program and the compiles share.";
    max_tier: Tier = Tier::Guided, Tier::Baseline => Tier::Guided,
        " The highest tier the policy goes to.";
    max_functions: u32 = 1 << 22, 1 => 1 << 28,
        " Functions that are watched; those with higher numbers stay at tier 1.";
    queue_capacity: u32 = 1024, 1 => 1 << 20,
        " Candidates that wait; the one with the lowest rate leaves when it is full.";
    request_capacity: u32 = 65_536, 1 => 1 << 24,
        " Explicit requests that wait; more are refused.";
    window: Nanos = Nanos::from_ms(100), Nanos::from_ms(1) => Nanos::from_ms(60_000),
        " Time constant of the present rate of a function.";
    memory: Nanos = Nanos::from_ms(30_000), Nanos::from_ms(1) => Nanos::from_ms(86_400_000),
        " Time constant with which the past of a function is forgotten.";
    lindy: f64 = 1.0, 0.0 => 100.0,
        " Time a function is expected to go on running, per time it has run.";
    outlook: Nanos = Nanos::from_ms(10), Nanos::ZERO => Nanos::from_ms(60_000),
        " Time a program is expected to go on as now, whatever its past.";
    speedup_optimized: f64 = 2.5, 1.0 => 1000.0,
        " Prior: how many times faster tier 2 is than tier 1.";
    speedup_native: f64 = 1.1, 1.0 => 1000.0,
        " Prior: how many times faster tier 2 is than code of a native program.";
    speedup_guided: f64 = 1.08, 1.0 => 1000.0,
        " Prior: how many times faster tier 3 is than tier 2.";
    cost_baseline: Nanos = Nanos::from_us(80), Nanos(1) => Nanos::from_ms(60_000),
        " Prior: compile time of an empty function at tier 1.";
    cost_optimized: Nanos = Nanos::from_us(800), Nanos(1) => Nanos::from_ms(60_000),
        " Prior: compile time of an empty function at tier 2.";
    cost_guided: Nanos = Nanos::from_us(1800), Nanos(1) => Nanos::from_ms(60_000),
        " Prior: compile time of an empty function at tier 3.";
    instruction_baseline: Nanos = Nanos::from_us(1), Nanos(0) => Nanos::from_ms(60_000),
        " Prior: compile time of each IR instruction at tier 1.";
    instruction_optimized: Nanos = Nanos::from_us(50), Nanos(0) => Nanos::from_ms(60_000),
        " Prior: compile time of each IR instruction at tier 2.";
    instruction_guided: Nanos = Nanos::from_us(100), Nanos(0) => Nanos::from_ms(60_000),
        " Prior: compile time of each IR instruction at tier 3.";
    part_optimized: Nanos = Nanos::from_us(2500), Nanos(0) => Nanos::from_ms(60_000),
        " Prior: compile time of a loop, and of each of two calls, at tier 2.";
    part_guided: Nanos = Nanos::from_ms(12), Nanos(0) => Nanos::from_ms(60_000),
        " Prior: compile time of a loop, and of each of two calls, at tier 3.";
    instruction_ns: f64 = 0.4, 0.001 => 1000.0,
        " Prior: time tier 1 code runs per IR instruction, in ns.";
    event_instructions: u32 = 100, 1 => 1_000_000,
        " Most IR instructions that one entry or back edge is taken to stand for.";
    idle_weight: f64 = 0.25, 0.01 => 1.0,
        " What compile time for what the program does all the time costs while a processor is idle.";
    latency: f64 = 0.5, 0.0 => 100.0,
        " Part of the time of a compile that is taken from what its function is expected to run.";
    overhead: f64 = 0.0, 0.0 => 1000.0,
        " Most processor time of the runtime's threads, per time of the program's; no limit if 0.";
    queue_feedback: f64 = 3.0, 0.1 => 1000.0,
        " Hotter candidates waiting per job at which the threshold has doubled.";
    keep: f64 = 0.5, 0.0 => 1.0,
        " Part of the threshold above which a waiting candidate stays one.";
    stale_after: Nanos = Nanos::from_ms(300), Nanos::from_ms(1) => Nanos::from_ms(600_000),
        " A waiting candidate that did nothing for so long is dropped.";
    guided_after: Nanos = Nanos::from_ms(50), Nanos::ZERO => Nanos::from_ms(600_000),
        " Least time at tier 2 before tier 3, for a profile worth using.";
    guided_samples: u32 = 8, 0 => 60_000,
        " Least samples at tier 2 before tier 3, if it has no counters.";
    trial_entry: Nanos = Nanos::from_us(1), Nanos(1) => Nanos::from_ms(60_000),
        " Least time per entry of a function whose tier 2 code counts entries, to compare it.";
    trial_samples: u32 = 20, 4 => 60_000,
        " Least samples of each of two versions before they are compared.";
    slower: f64 = 1.15, 1.0 => 100.0,
        " Times slower than the version before at which a version is taken back.";
    memory_backoff: Nanos = Nanos::from_ms(100), Nanos::from_ms(1) => Nanos::from_ms(600_000),
        " First wait after a compile that found no memory; it doubles, ten times at most.";
    poll_min: Nanos = Nanos::from_us(500), Nanos::from_us(10) => Nanos::from_ms(60_000),
        " Time between looks at the counters while something is new.";
    poll_max: Nanos = Nanos::from_ms(100), Nanos::from_us(10) => Nanos::from_ms(60_000),
        " Time between looks at the counters when nothing is.";
    poll_overhead: f64 = 0.002, 0.000_001 => 1.0,
        " Most of one processor's time that looking at counters may take in the long run.";
    poll_credit: Nanos = Nanos::from_us(400), Nanos::ZERO => Nanos::from_ms(1000),
        " Time that looking at counters may take on top of that, at the start or after quiet.";
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Printed settings can be read back, for defaults and for other values.
    #[test]
    fn printed_settings_are_read_back() {
        let mut config = Config {
            jobs: 7,
            lindy: 0.25,
            outlook: Nanos(1_234_567),
            max_tier: Tier::Optimized,
            ..Config::default()
        };
        let printed = config.to_string();
        assert!(printed.starts_with("# Compiles under way at the same time.\njobs = 7\n"));
        let mut read = Config::default();
        for line in printed.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.split_once(" = ").unwrap();
            read.set(name, value).unwrap();
        }
        assert_eq!(read, config);
        assert_eq!(config.clamped(), config);
        config.jobs = 0;
        config.keep = f64::NAN;
        let clamped = config.clamped();
        assert_eq!((clamped.jobs, clamped.keep), (1, 0.0));
    }

    #[test]
    fn defaults_are_in_range() {
        assert_eq!(Config::default().clamped(), Config::default());
    }

    #[test]
    fn bad_settings_are_named() {
        let mut config = Config::default();
        let mut error = |name, value| config.set(name, value).unwrap_err().to_string();
        assert_eq!(error("jobz", "1"), "there is no setting \"jobz\"");
        assert_eq!(
            error("window", "5"),
            "window is a whole number with ns, us, ms or s, which \"5\" is not"
        );
        assert_eq!(
            error("jobs", "0"),
            "jobs lies between 1 and 1024, which 0 does not"
        );
        assert_eq!(
            error("max_tier", "4"),
            "max_tier is a tier, 1 to 3, which \"4\" is not"
        );
        assert_eq!(
            error("lindy", "inf"),
            "lindy is a number, which \"inf\" is not"
        );
        assert_eq!(config, Config::default());
    }
}
