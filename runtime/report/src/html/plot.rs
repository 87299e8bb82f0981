//! Axes and shapes of plots.
//!
//! A drawing is an SVG of 1000 by 1000 units that is stretched to its place, with lines of constant
//! width; `x` runs to the right, `y` upwards, both from 0 to 1. Labels are HTML, placed in percent.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::recording::Nanos;

/// Maps times to positions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scale {
    /// Linear, from zero.
    Even {
        /// The right end.
        end: Nanos,
    },
    /// Logarithmic.
    Log {
        /// The left end; more than zero.
        start: Nanos,
        /// The right end.
        end: Nanos,
    },
}

/// A label at a position between 0 and 1.
pub(super) type Tick = (f64, String);

/// Most labels on an axis: the number that fits a phone.
const TICKS: usize = 6;

impl Scale {
    /// The position of `time`, between 0 and 1.
    pub(super) fn at(self, time: Nanos) -> f64 {
        let place = match self {
            Scale::Even { end } => time.0 as f64 / end.0.max(1) as f64,
            Scale::Log { start, end } => {
                let log = |time: Nanos| (time.0.max(1) as f64).ln();
                let width = log(end) - log(start);
                if width > 0.0 {
                    (log(time) - log(start)) / width
                } else {
                    1.0
                }
            }
        };
        place.clamp(0.0, 1.0)
    }

    /// Labels at round times.
    pub(super) fn ticks(self) -> Vec<Tick> {
        let times = match self {
            Scale::Even { end } => even_times(end),
            Scale::Log { start, end } => round_times(start, end),
        };
        let tick = |time: &Nanos| (self.at(*time), short_time(*time));
        times.iter().map(tick).collect()
    }
}

/// Multiples of a round step (1, 2 or 5 times a power of ten) up to `end`.
fn even_times(end: Nanos) -> Vec<Nanos> {
    let mut steps = (0..19).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let fits = |step: &u64| end.0 / step < TICKS as u64;
    let step = steps.find(fits).unwrap_or(u64::MAX);
    (0..=end.0 / step).map(|n| Nanos(n * step)).collect()
}

/// Powers of ten between the ends; with 2 and 5 times them if those are few, with some omitted if
/// they are many.
fn round_times(start: Nanos, end: Nanos) -> Vec<Nanos> {
    let inside = |time: &Nanos| *time >= start && *time <= end;
    let with = |digits: &'static [u64], step: usize| -> Vec<Nanos> {
        let powers = (0..19).step_by(step).map(|power| 10_u64.pow(power));
        let times = powers.flat_map(|power| digits.iter().map(move |digit| Nanos(digit * power)));
        times.filter(inside).collect()
    };
    let dense: [&'static [u64]; 2] = [&[1, 2, 5], &[1, 3]];
    let choices = dense.map(|digits| (digits, 1)).into_iter();
    // Every fourth of 19 powers makes five, so one choice always fits.
    let mut choices = choices.chain((1..=4).map(|step| (&[1_u64] as &'static [u64], step)));
    let fits = choices.find_map(|(digits, step)| {
        let times = with(digits, step);
        (times.len() <= TICKS).then_some(times)
    });
    fits.unwrap_or_default()
}

/// A round time without trailing zeros: `20 ms`, `1.5 s`.
fn short_time(time: Nanos) -> String {
    let units = [
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "µs"),
        (1, "ns"),
    ];
    let unit = units.iter().find(|(size, _)| time.0 >= *size);
    match unit {
        // 500 ms reads better than 0.5 s; both are exact.
        Some((size, name)) => format!("{}\u{a0}{name}", time.0 as f64 / *size as f64),
        None => "0".to_owned(),
    }
}

/// Labels for a share: 0 to 100 % in quarters.
pub(super) fn share_ticks() -> Vec<Tick> {
    let tick = |percent: u32| (f64::from(percent) / 100.0, format!("{percent}\u{a0}%"));
    [0, 25, 50, 75, 100].map(tick).to_vec()
}

/// A position in the drawing's units, rounded to a tenth of a unit.
fn unit(place: f64) -> f64 {
    (place.clamp(0.0, 1.0) * 10_000.0).round() / 10.0
}

/// A horizontal stretch between two heights.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Groups of steps that touch each other.
fn runs(steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    steps.chunk_by(|left, right| (left.to - right.from).abs() < 1e-9)
}

/// The area between the heights, as the data of an SVG path.
pub(super) fn area(steps: &[Step]) -> String {
    let mut path = String::new();
    for run in runs(steps) {
        let mut command = 'M';
        for step in run {
            let y = unit(1.0 - step.high);
            let _ = write!(path, "{command}{} {y}H{}", unit(step.from), unit(step.to));
            command = 'L';
        }
        for step in run.iter().rev() {
            let y = unit(1.0 - step.low);
            let _ = write!(path, "L{} {y}H{}", unit(step.to), unit(step.from));
        }
        path.push('Z');
    }
    path
}

/// The upper edge of the steps, as the data of an SVG path.
pub(super) fn edge(steps: &[Step]) -> String {
    let mut path = String::new();
    for run in runs(steps) {
        let mut command = 'M';
        for step in run {
            let y = unit(1.0 - step.high);
            let _ = write!(path, "{command}{} {y}H{}", unit(step.from), unit(step.to));
            command = 'L';
        }
    }
    path
}

/// A line through points, as the data of an SVG path.
pub(super) fn line(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (at, (x, y)) in points.iter().enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{} {}", unit(*x), unit(1.0 - y));
    }
    path
}

/// Upright marks over the whole height, at most 400 distinct ones.
pub(super) fn marks(places: impl Iterator<Item = f64>) -> String {
    let mut columns: Vec<u32> = places.map(|x| (x * 400.0).round() as u32).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut path = String::new();
    for column in columns {
        let _ = write!(path, "M{} 0V1000", unit(f64::from(column) / 400.0));
    }
    path
}

/// An SVG that fills its place; `label` describes it.
pub(super) fn canvas(label: &str, shapes: &Markup) -> Markup {
    html! {
        svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img" aria-label=(label) {
            (shapes)
        }
    }
}

/// A drawing between its axes. `over` is HTML on top of it, `under` a strip below.
pub(super) fn frame(
    x: &[Tick],
    y: &[Tick],
    drawing: &Markup,
    over: &Markup,
    under: Option<&Markup>,
) -> Markup {
    html! {
        div.plot {
            div.y aria-hidden="true" {
                @for (place, label) in y {
                    span style=(format!("bottom:{:.2}%", place * 100.0)) { (label) }
                }
            }
            div.canvas {
                div.grid aria-hidden="true" {
                    @for (place, _) in y {
                        span style=(format!("bottom:{:.2}%", place * 100.0)) {}
                    }
                }
                (drawing)
                (over)
            }
            @if let Some(strip) = under {
                div.strip { (strip) }
            }
            div.x aria-hidden="true" {
                @for (place, label) in x {
                    // Labels at the ends must stay on the page.
                    @let side = if *place < 0.06 { "start" } else if *place > 0.94 { "end" } else { "middle" };
                    span.(side) style=(format!("left:{:.2}%", place * 100.0)) { (label) }
                }
            }
        }
    }
}

/// The numbers of a plot, folded away.
pub(super) fn numbers(heads: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        details.numbers {
            summary { "The numbers" }
            div.scroll tabindex="0" {
                table {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody {
                        @for row in rows {
                            tr { @for cell in row { td { (cell) } } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        let ticks = scale.ticks();
        assert!(ticks.len() <= TICKS, "{ticks:?}");
        assert!(ticks.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let plain = |(_, label): Tick| label.replace('\u{a0}', " ");
        ticks.into_iter().map(plain).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        let even = |end| labels(Scale::Even { end: Nanos(end) });
        assert_eq!(even(2_300_000_000), ["0", "500 ms", "1 s", "1.5 s", "2 s"]);
        assert_eq!(
            even(10_000_000),
            ["0", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms"]
        );
        assert_eq!(even(0), ["0"]);
        let log = |start, end| {
            labels(Scale::Log {
                start: Nanos(start),
                end: Nanos(end),
            })
        };
        assert_eq!(
            log(1_000_000, 2_000_000_000),
            ["1 ms", "10 ms", "100 ms", "1 s"]
        );
        assert_eq!(log(3_000_000, 30_000_000), ["5 ms", "10 ms", "20 ms"]);
        for end in (0..19).map(|power| 10_u64.pow(power)) {
            even(end);
            log(1, end);
        }
    }

    #[test]
    fn scales_stay_between_their_ends() {
        let scale = Scale::Log {
            start: Nanos(10),
            end: Nanos(1000),
        };
        for (time, place) in [(0, 0.0), (10, 0.0), (100, 0.5), (1000, 1.0), (5000, 1.0)] {
            assert!((scale.at(Nanos(time)) - place).abs() < 1e-9, "{time}");
        }
    }

    #[test]
    fn areas_break_where_steps_do() {
        let step = |from, to, high| Step {
            from,
            to,
            low: 0.0,
            high,
        };
        let steps = [
            step(0.0, 0.25, 0.5),
            step(0.25, 0.5, 1.0),
            step(0.75, 1.0, 0.5),
        ];
        assert_eq!(
            area(&steps),
            "M0 500H250L250 0H500L500 1000H250L250 1000H0ZM750 500H1000L1000 1000H750Z"
        );
        assert_eq!(edge(&steps), "M0 500H250L250 0H500M750 500H1000");
        assert_eq!(line(&[(0.0, 0.0), (1.0, 1.0)]), "M0 1000L1000 0");
        assert_eq!(
            marks([0.5, 0.5001, 0.0].into_iter()),
            "M0 0V1000M500 0V1000"
        );
    }
}
