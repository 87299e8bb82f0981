//! Settings of the engine: names, defaults, ranges and meanings in one list.
//!
//! Invariant: what [`Config`] prints, [`Config::set`] reads back. The engine takes values
//! outside their range as the nearest in it.

use std::fmt;

use thiserror::Error;

use crate::ids::Nanos;

/// A setting could not be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// No setting has this name.
    #[error("there is no setting {0:?}")]
    Unknown(String),
    /// The value does not read as one.
    #[error("{name} is {expected}, which {value:?} is not")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is read.
        expected: &'static str,
    },
    /// The value is outside of what is allowed.
    #[error("{name} lies between {low} and {high}, which {value} does not")]
    Range {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// The least.
        low: String,
        /// The most.
        high: String,
    },
}

/// A kind of value: how it is read.
trait Value: Copy + PartialOrd + fmt::Display {
    const EXPECTED: &'static str;
    fn read(text: &str) -> Option<Self>;
}

impl Value for u64 {
    const EXPECTED: &'static str = "a whole number";
    fn read(text: &str) -> Option<u64> {
        text.parse().ok()
    }
}

impl Value for f64 {
    const EXPECTED: &'static str = "a number";
    fn read(text: &str) -> Option<f64> {
        text.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

impl Value for Nanos {
    const EXPECTED: &'static str = "a whole number with ns, us, ms or s";
    fn read(text: &str) -> Option<Nanos> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let unit = match &text[digits.len()..] {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return None,
        };
        let number: u64 = digits.parse().ok()?;
        number.checked_mul(unit).map(Nanos)
    }
}

fn clamped<T: PartialOrd>(value: T, low: T, high: T) -> T {
    // A not-a-number compares with nothing and becomes the least.
    match value {
        value if value > high => high,
        value if value >= low => value,
        _ => low,
    }
}

fn read<T: Value>(name: &'static str, text: &str, low: T, high: T) -> Result<T, SettingError> {
    let text = text.trim();
    let value = T::read(text).ok_or_else(|| SettingError::Invalid {
        name,
        value: text.to_owned(),
        expected: T::EXPECTED,
    })?;
    if value < low || value > high {
        return Err(SettingError::Range {
            name,
            value: value.to_string(),
            low: low.to_string(),
            high: high.to_string(),
        });
    }
    Ok(value)
}

macro_rules! settings {
    ($($name:ident: $kind:ty = $default:expr, $low:expr => $high:expr, $doc:literal;)*) => {
        /// Settings of policy and engine. Printed as one `name = value` line each, with a
        /// comment.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $(#[doc = $doc] pub $name: $kind,)*
        }

        impl Default for Config {
            fn default() -> Config {
                Config { $($name: $default,)* }
            }
        }

        impl Config {
            /// The same with every value in its range.
            pub fn clamped(&self) -> Config {
                Config { $($name: clamped(self.$name, $low, $high),)* }
            }

            /// Sets one by name.
            ///
            /// # Errors
            /// Unknown name, unreadable value, or out of range; nothing changed then.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = read(stringify!($name), value, $low, $high)?;
                    })*
                    _ => return Err(SettingError::Unknown(name.to_owned())),
                }
                Ok(())
            }

            /// Name, value and meaning of each setting, in the order of the fields.
            pub fn entries(&self) -> Vec<(&'static str, String, &'static str)> {
                vec![$((stringify!($name), self.$name.to_string(), $doc.trim()),)*]
            }
        }
    };
}

const MINUTE: Nanos = Nanos::from_ms(60_000);
const DAY: Nanos = Nanos::from_ms(86_400_000);

settings! {
    sweep_floor: u64 = 64 << 10, 0 => 1 << 40,
        " Retired bytes below which no sweep starts, but for their age.";
    sweep_fraction: f64 = 0.3, 0.0 => 100.0,
        " Retired bytes at which a sweep starts, as a part of the live bytes.";
    sweep_limit: f64 = 0.4, 0.0 => 100.0,
        " Retired bytes at which a sweep no longer waits for its share of a processor, as a part of the live bytes.";
    sweep_after: Nanos = Nanos::from_ms(1_000), Nanos::ZERO => DAY,
        " Retired code waits no longer than this for a sweep, however little it is.";
    evacuate_floor: u64 = 64 << 10, 0 => 1 << 40,
        " Fragmented bytes below which no evacuation starts.";
    evacuate_fraction: f64 = 0.3, 0.0 => 100.0,
        " Fragmented bytes at which live code is moved together, as a part of the live bytes.";
    evacuate_every: u64 = 0, 0 => 1 << 40,
        " For tests: evacuate each time so many blocks were published. 0: never for that.";
    cpu_fraction: f64 = 0.01, 0.000_1 => 1.0,
        " Most of one processor's time that cycles may take.";
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
    patience: Nanos = MINUTE, Nanos::ZERO => DAY,
        " Retired code this old that still cannot be freed is reported as stuck.";
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value, meaning) in self.entries() {
            writeln!(f, "# {meaning}\n{name} = {value}")?;
        }
        Ok(())
    }
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
