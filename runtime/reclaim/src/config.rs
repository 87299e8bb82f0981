//! Settings of the engine: names, defaults, ranges and meanings in one list, from which
//! `uruk_base::settings` makes a struct.
//!
//! Invariant: [`Config::set`] reads the output of [`Config`] back. The engine replaces values
//! outside their range by the nearest in it.

use std::fmt;

pub use uruk_base::settings::SettingError;
use uruk_base::settings::Value;

use crate::ids::Nanos;

/// Treatment of stacks to which a program switches in its own assembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stacks {
    /// The program registers them; reclaim ends if an unregistered one is found.
    Told,
    /// All memory is searched for them once the program has code that may switch to one.
    Auto,
    /// All memory is searched.
    Always,
}

impl fmt::Display for Stacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stacks::Told => "told",
            Stacks::Auto => "auto",
            Stacks::Always => "always",
        })
    }
}

impl Value for Stacks {
    const EXPECTED: &'static str = "told, auto or always";
    fn read(text: &str) -> Option<Stacks> {
        let all = [Stacks::Told, Stacks::Auto, Stacks::Always];
        all.into_iter().find(|stacks| stacks.to_string() == text)
    }
}

const MINUTE: Nanos = Nanos::from_ms(60_000);
const DAY: Nanos = Nanos::from_ms(86_400_000);

uruk_base::settings! {
    /// Settings of policy and engine. Printed as one `name = value` line each, with a
    /// comment.
    pub struct Config;

    sweep_floor: u64 = 64 << 10, 0 => 1 << 40,
        " Retired bytes below which no sweep starts, but for their age.";
    sweep_fraction: f64 = 0.3, 0.0 => 100.0,
        " Retired bytes at which a sweep starts, as a part of the live bytes.";
    sweep_limit: f64 = 0.4, 0.0 => 100.0,
        " Retired bytes at which a sweep no longer waits for its share of a processor, as a part of the live bytes.";
    sweep_after: Nanos = Nanos::from_ms(1_000), Nanos::ZERO => DAY,
        " Retired code waits for so long for a sweep, however little it is, where sweeps are cheap.";
    evacuate_floor: u64 = 64 << 10, 0 => 1 << 40,
        " Fragmented bytes below which no evacuation starts.";
    evacuate_fraction: f64 = 0.3, 0.0 => 100.0,
        " Fragmented bytes at which live code is moved together, as a part of the live bytes.";
    evacuate_every: u64 = 0, 0 => 1 << 40,
        " For tests: evacuate each time so many blocks were published. 0: never for that.";
    cpu_fraction: f64 = 0.01, 0.000_1 => 1.0,
        " Most of one processor's time that cycles may take.";
    aged_part: f64 = 0.1, 0.000_1 => 1.0,
        " The part of that which cycles may take while little is retired, and only its age asks for one.";
    interval: Nanos = Nanos::from_ms(10), Nanos::ZERO => DAY,
        " Least time between the starts of two cycles that nobody asked for.";
    backoff_min: Nanos = Nanos::from_ms(20), Nanos(1) => DAY,
        " Wait of a block that was found pinned, or after a scan that failed; it doubles.";
    backoff_max: Nanos = Nanos::from_ms(10_000), Nanos(1) => DAY,
        " Longest such wait.";
    step_blocks: u64 = 256, 1 => 1 << 20,
        " Blocks copied or freed in one step; between steps the runtime may stop.";
    scan_blocks: u64 = 65_536, 1 => 1 << 24,
        " Retired blocks that one scan asks about.";
    cluster_bytes: u64 = 4096, 64 => 1 << 30,
        " Callers and callees are put side by side up to so many bytes.";
    listed: u64 = 64, 0 => 65_536,
        " Pinned blocks, and threads by block, that the statistics name.";
    stacks: Stacks = Stacks::Auto, Stacks::Told => Stacks::Always,
        " Stacks that a program switches to in its own assembly: told (they are registered, or reclaim ends), auto (all memory is searched for them once there is code that may do so), always (searched).";
    search_limit: u64 = 1 << 30, 1 => 1 << 40,
        " Bytes of memory that such a search reads at most. A program that uses more keeps its old code.";
    patience: Nanos = MINUTE, Nanos::ZERO => DAY,
        " Retired code this old that still cannot be freed is reported as stuck.";
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn printed_settings_are_read_back() {
        let mut config = Config {
            step_blocks: 7,
            cpu_fraction: 0.25,
            interval: Nanos(1_234_567),
            ..Config::default()
        };
        let mut again = Config::default();
        for line in config.to_string().lines().filter(|l| !l.starts_with('#')) {
            let (name, value) = line.split_once(" = ").unwrap();
            again.set(name, value).unwrap();
        }
        assert_eq!(again, config);
        config.step_blocks = 0;
        config.cpu_fraction = f64::NAN;
        let clamped = config.clamped();
        assert_eq!((clamped.step_blocks, clamped.cpu_fraction), (1, 0.000_1));
        assert_eq!(Config::default().clamped(), Config::default());
    }

    #[test]
    fn bad_settings_are_named() {
        let mut config = Config::default();
        let mut error = |name, value| config.set(name, value).unwrap_err().to_string();
        assert_eq!(error("stepz", "1"), "there is no setting \"stepz\"");
        assert_eq!(
            error("interval", "5"),
            "interval is a whole number with ns, us, ms or s, which \"5\" is not"
        );
        assert_eq!(
            error("cpu_fraction", "2"),
            "cpu_fraction lies between 0.0001 and 1, which 2 does not"
        );
        assert_eq!(config, Config::default());
    }
}
