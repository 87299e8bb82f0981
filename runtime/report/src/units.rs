//! Formats numbers for people: three significant digits, a unit, grouped digits.
//!
//! A space between number and unit is a no-break space, so that no line ends there.

use crate::recording::Nanos;

/// Between a number and its unit.
const GAP: char = '\u{a0}';

/// Three significant digits, but all digits before the point.
pub(crate) fn significant(value: f64) -> String {
    let size = value.abs();
    // At these bounds rounding would carry into one more digit.
    if size >= 99.95 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A duration or an instant: `840 ns`, `12.3 µs`, `4.07 ms`, `1.23 s`, `3 min 12 s`.
pub(crate) fn time(time: Nanos) -> String {
    let ns = time.0 as f64;
    match time.0 {
        0 => format!("0{GAP}ms"),
        1..1_000 => format!("{ns:.0}{GAP}ns"),
        // Bounds as in `significant`: a value that would be shown as 1000 takes the next unit.
        1_000..999_500 => format!("{}{GAP}µs", significant(ns / 1e3)),
        999_500..999_500_000 => format!("{}{GAP}ms", significant(ns / 1e6)),
        999_500_000..120_000_000_000 => format!("{}{GAP}s", significant(ns / 1e9)),
        _ => {
            let seconds = time.0 / 1_000_000_000;
            format!("{}{GAP}min {}{GAP}s", seconds / 60, seconds % 60)
        }
    }
}

/// A duration in milliseconds without the unit, for columns whose head names it.
pub(crate) fn ms(time: Nanos) -> String {
    let ms = time.as_ms();
    if ms >= 1000.0 {
        count(ms.round() as u64)
    } else {
        format!("{ms:.2}")
    }
}

/// A size: `512 B`, `4.10 KiB`, `12.0 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let size = bytes as f64;
    let kib = 1024.0;
    match bytes {
        0..1024 => format!("{bytes}{GAP}B"),
        1024..1_048_576 => format!("{}{GAP}KiB", significant(size / kib)),
        1_048_576..1_073_741_824 => format!("{}{GAP}MiB", significant(size / kib.powi(2))),
        _ => format!("{}{GAP}GiB", significant(size / kib.powi(3))),
    }
}

/// A number with its digits in groups: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun, singular or plural: `1 sample`, `2,000 samples`.
pub(crate) fn things(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{}{GAP}{thing}{plural}", count(number))
}

/// A fraction as percent: `12.3 %`; below a tenth with more digits.
pub(crate) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent > 0.0 && percent < 0.095 {
        format!("{percent:.2}{GAP}%")
    } else {
        format!("{percent:.1}{GAP}%")
    }
}

/// `part` of `whole`; zero if `whole` is zero.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shown: &str, expected: &str) {
        assert_eq!(shown.replace(GAP, " "), expected);
    }

    #[test]
    fn times_take_the_unit_that_keeps_three_digits() {
        for (ns, expected) in [
            (0, "0 ms"),
            (840, "840 ns"),
            (1_000, "1.00 µs"),
            (9_996, "10.0 µs"),
            (99_960, "100 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (999_500_000, "1.00 s"),
            (61_000_000_000, "61.0 s"),
            (192_400_000_000, "3 min 12 s"),
        ] {
            check(&time(Nanos(ns)), expected);
        }
        assert_eq!(ms(Nanos(1_234_000)), "1.23");
        assert_eq!(ms(Nanos(1_234_567_000_000)), "1,234,567");
    }

    #[test]
    fn sizes_counts_and_parts() {
        check(&bytes(1023), "1023 B");
        check(&bytes(1024), "1.00 KiB");
        check(&bytes(5_000_000), "4.77 MiB");
        check(&bytes(3 << 30), "3.00 GiB");
        for (number, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            check(&count(number), expected);
        }
        check(&things(1, "sample"), "1 sample");
        check(&things(2000, "sample"), "2,000 samples");
        check(&percent(0.1234), "12.3 %");
        check(&percent(0.0004), "0.04 %");
        check(&percent(0.0), "0.0 %");
        assert_eq!(ratio(1.0, 0.0), 0.0);
    }
}
