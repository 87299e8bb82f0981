//! A time, in whole nanoseconds.

use std::fmt;
use std::ops::{Add, Sub};

/// A time in nanoseconds: a duration, or a moment of any monotonic clock. Sums saturate at the
/// greatest value, differences at zero, so a clock that steps back does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero: the beginning, or no time.
    pub const ZERO: Nanos = Nanos(0);

    /// Converts milliseconds.
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// Converts microseconds.
    pub const fn from_us(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// Converts nanoseconds with a fraction; negative values and not-a-number give zero.
    pub fn from_f64(ns: f64) -> Nanos {
        // The cast saturates and sends not-a-number to zero.
        Nanos(ns as u64)
    }

    /// The nanoseconds as a floating-point number.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// The time from `earlier` to `self`; zero if that is negative.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time in seconds.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time in milliseconds.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// `self * 2^doublings`.
    pub fn doubled(self, doublings: u32) -> Nanos {
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        Nanos(self.0.saturating_mul(factor))
    }

    /// `self / part`, for a part above zero.
    pub fn divided(self, part: f64) -> Nanos {
        Nanos::from_f64(self.0 as f64 / part)
    }
}

impl std::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(times: I) -> Nanos {
        times.fold(Nanos::ZERO, Add::add)
    }
}

impl Add for Nanos {
    type Output = Nanos;

    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;

    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Nanos {
    /// Prints the largest of the units s, ms, us and ns that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "0ns"),
            ns if ns % 1_000_000_000 == 0 => write!(f, "{}s", ns / 1_000_000_000),
            ns if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            ns if ns % 1_000 == 0 => write!(f, "{}us", ns / 1_000),
            ns => write!(f, "{ns}ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_do_not_wrap() {
        assert_eq!(Nanos(3) - Nanos(5), Nanos::ZERO);
        assert_eq!(Nanos(u64::MAX) + Nanos(1), Nanos(u64::MAX));
        assert_eq!(Nanos::from_f64(f64::NAN), Nanos::ZERO);
        assert_eq!(Nanos::from_f64(-1.0), Nanos::ZERO);
        assert_eq!(Nanos(3).doubled(2), Nanos(12));
        assert_eq!(Nanos(3).doubled(64), Nanos(u64::MAX));
        assert_eq!(Nanos(3).divided(0.5), Nanos(6));
        let shown = [0, 999, 25_000, 1_500_000, 2_000_000, 30_000_000_000].map(Nanos);
        let shown = shown.map(|time| time.to_string());
        assert_eq!(shown, ["0ns", "999ns", "25us", "1500us", "2ms", "30s"]);
    }
}
