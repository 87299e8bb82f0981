//! Kinds of values: how each is read, and the errors of invalid ones.

use std::fmt;

use thiserror::Error;

use crate::ids::Tier;
use crate::nanos::Nanos;

/// Error of a setting that is not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// No setting has this name.
    #[error("there is no setting {0:?}")]
    Unknown(String),
    /// The value is not of the setting's kind.
    #[error("{name} is {expected}, which {value:?} is not")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// The given text.
        value: String,
        /// The kind of value that the setting takes.
        expected: &'static str,
    },
    /// The value is outside of the allowed range.
    #[error("{name} lies between {low} and {high}, which {value} does not")]
    Range {
        /// The setting.
        name: &'static str,
        /// The given text.
        value: String,
        /// The least value allowed.
        low: String,
        /// The greatest value allowed.
        high: String,
    },
}

/// A kind of value. [`Value::read`] reads the text that `Display` writes.
pub trait Value: Copy + PartialOrd + fmt::Display {
    /// The kind in words, as in "a number".
    const EXPECTED: &'static str;

    /// The value of a text without blanks around it.
    fn read(text: &str) -> Option<Self>;
}

macro_rules! whole_numbers {
    ($($kind:ty),*) => {$(
        impl Value for $kind {
            const EXPECTED: &'static str = "a whole number";

            fn read(text: &str) -> Option<$kind> {
                text.parse().ok()
            }
        }
    )*};
}

whole_numbers!(u32, u64);

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

impl Value for Tier {
    const EXPECTED: &'static str = "a tier, 1 to 3";

    fn read(text: &str) -> Option<Tier> {
        let number = text.strip_prefix("tier ").unwrap_or(text).parse().ok()?;
        Tier::from_number(number)
    }
}

/// The value nearest to `value` in `low` to `high`.
pub fn clamped<T: PartialOrd>(value: T, low: T, high: T) -> T {
    // Not-a-number compares false with all numbers and becomes the least.
    match value {
        value if value > high => high,
        value if value >= low => value,
        _ => low,
    }
}

/// Reads the value of setting `name`, with range `low` to `high`.
///
/// # Errors
/// Unreadable, or out of range.
pub fn read<T: Value>(name: &'static str, text: &str, low: T, high: T) -> Result<T, SettingError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were_written() {
        for time in [0, 1, 999, 25_000, 1_500_000, 30_000_000_000, u64::MAX].map(Nanos) {
            assert_eq!(Nanos::read(&time.to_string()), Some(time));
        }
        for number in [0.0, 0.1, 1e300, -2.5, f64::MIN_POSITIVE] {
            assert_eq!(f64::read(&number.to_string()), Some(number));
        }
    }

    #[test]
    fn other_texts_are_no_values() {
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "1min",
            "18446744073709551615s",
        ] {
            assert_eq!(Nanos::read(text), None, "{text}");
        }
        assert_eq!(f64::read("nan"), None);
        assert_eq!(f64::read("inf"), None);
        assert_eq!(u32::read("4294967296"), None);
    }

    #[test]
    fn ranges_hold_their_ends() {
        assert_eq!(read("n", " 8 ", 1_u32, 8), Ok(8));
        assert!(read("n", "0", 1_u32, 8).is_err());
        assert_eq!(clamped(f64::NAN, 0.5, 2.0), 0.5);
        assert_eq!(
            (clamped(9, 1, 8), clamped(0, 1, 8), clamped(3, 1, 8)),
            (8, 1, 3)
        );
    }
}
