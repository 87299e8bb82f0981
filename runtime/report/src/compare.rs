//! A comparison of several ways to run the same program: figures and their presentation.
//!
//! The measurement itself is elsewhere. Each way has several runs; the table shows the median and
//! the spread from the fastest to the slowest, because a standard deviation of three to ten runs
//! would mislead.
//!
//! **Steady state.** A run takes `start + rate * work`: the extra time of a longer run of the same
//! program is work alone, as start, first calls and warm-up are in both.
//!
//! ```text
//! steady = min(CPU time of the longer runs) - min(CPU time of the runs)
//! ```
//!
//! Taken from the fastest runs, and processor time: the difference of two figures has the noise of
//! both.
//!
//! Invariants: a row without runs has no figures; ratios are only between medians of
//! rows whose output is the expected one.

use serde::{Deserialize, Serialize};

use crate::recording::Nanos;
use crate::text::{Align, Table};
use crate::units::{ratio, time};

/// One run's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// From start to exit.
    pub wall: Nanos,
    /// CPU time of the process and the children it waited for.
    pub cpu: Nanos,
}

/// The side of a way of running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Under Uruk.
    Uruk,
    /// Compiled ahead of time, or under another runtime.
    Peer,
}

/// The output of the runs, compared with the reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "output", rename_all = "lowercase")]
pub enum Output {
    /// Equal to the reference's.
    Same,
    /// Different.
    Differs {
        /// The first difference, in words.
        how: String,
    },
    /// The program did not run to its end.
    Failed {
        /// The failure, in words.
        reason: String,
    },
    /// The way was not tried.
    Skipped {
        /// The missing requirement, in words.
        reason: String,
    },
}

/// A step of the program's work, for a warm-up curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iteration {
    /// Its end, since the process began.
    pub at: Nanos,
    /// Its duration.
    pub took: Nanos,
}

/// One way of running the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its name, for example `tier 2` or `clang -O2`.
    pub name: String,
    /// Its side.
    pub side: Side,
    /// The runs, in chronological order.
    pub runs: Vec<Times>,
    /// Ahead-of-time compile time, which the runs do not include; none if there is none.
    pub build: Option<Nanos>,
    /// The output of all runs.
    pub output: Output,
    /// Runs with more of the same work, in chronological order; empty if not requested.
    #[serde(default)]
    pub longer: Vec<Times>,
    /// The warm-up of one run; empty if the program reported none.
    pub curve: Vec<Iteration>,
}

/// A comparison of several ways to run the same program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The program, as named on the command line.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The runtime's version.
    pub uruk: String,
    /// LLVM's version.
    pub llvm: String,
    /// The processor's name.
    pub processor: String,
    /// Start, milliseconds since 1970 in UTC.
    pub started_unix_ms: u64,
    /// The ways, in display order.
    pub rows: Vec<Row>,
    /// The row that ratios refer to; none for no ratios.
    pub reference: Option<usize>,
}

/// Median and spread of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The fastest.
    pub min: Nanos,
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: Nanos,
    /// The slowest.
    pub max: Nanos,
}

impl Spread {
    /// The spread of some times; none without times.
    pub fn of(times: impl IntoIterator<Item = Nanos>) -> Option<Spread> {
        let mut sorted: Vec<Nanos> = times.into_iter().collect();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            let (low, high) = (sorted[middle - 1], sorted[middle]);
            Nanos(low.0 + high.since(low).0 / 2)
        } else {
            sorted[middle]
        };
        Some(Spread { min, median, max })
    }

    /// Half the distance between fastest and slowest, as a part of the median.
    pub fn relative(&self) -> f64 {
        ratio(
            self.max.since(self.min).0 as f64 / 2.0,
            self.median.0 as f64,
        )
    }
}

impl Row {
    /// Wall time.
    pub fn wall(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.wall))
    }

    /// Processor time of a longer run beyond a run; none without both, or if the longer run takes
    /// no more time.
    pub fn steady(&self) -> Option<Nanos> {
        let longer = self.longer.iter().map(|run| run.cpu).min()?;
        let beyond = longer.since(self.cpu()?.min);
        (beyond > Nanos(0)).then_some(beyond)
    }

    /// `± 1.2 %` of the wall time; none for a single run, which has no spread.
    pub(crate) fn shown_spread(&self) -> Option<String> {
        let wall = self.wall().filter(|_| self.runs.len() > 1)?;
        Some(format!("±\u{a0}{}", crate::units::percent(wall.relative())))
    }

    /// CPU time.
    pub fn cpu(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.cpu))
    }

    /// The output in a word or two.
    pub fn verdict(&self) -> String {
        match &self.output {
            Output::Same => "same".to_owned(),
            Output::Differs { how } => format!("differs: {how}"),
            Output::Failed { reason } => format!("failed: {reason}"),
            Output::Skipped { reason } => format!("skipped: {reason}"),
        }
    }
}

impl Comparison {
    /// The speed of a row relative to the reference, by median wall time. None if one of them has
    /// no runs or a different output.
    pub fn speed(&self, row: &Row) -> Option<f64> {
        self.speed_of(row, |row| Some(row.wall()?.median))
    }

    /// The speed relative to the reference in the [steady state](Row::steady).
    pub fn steady_speed(&self, row: &Row) -> Option<f64> {
        self.speed_of(row, Row::steady)
    }

    fn speed_of(&self, row: &Row, time: impl Fn(&Row) -> Option<Nanos>) -> Option<f64> {
        let reference = self.rows.get(self.reference?)?;
        let sound = [row, reference]
            .iter()
            .all(|row| row.output == Output::Same);
        let (own, other) = (time(row)?, time(reference)?);
        (sound && own > Nanos(0)).then(|| other.0 as f64 / own.0 as f64)
    }

    /// Whether there were longer runs.
    pub(crate) fn has_steady(&self) -> bool {
        self.rows.iter().any(|row| !row.longer.is_empty())
    }

    /// Renders a table for a terminal.
    pub fn render(&self) -> String {
        let right = Align::Right;
        let reference = self.reference.and_then(|at| self.rows.get(at));
        let speed = reference.map_or(String::new(), |row| format!("speed ({} = 1)", row.name));
        let mut columns = vec![
            ("way", Align::Left),
            ("wall", right),
            ("spread", right),
            ("CPU", right),
            ("build", right),
            (&*speed, right),
        ];
        if self.has_steady() {
            columns.extend([("steady CPU", right), ("its speed", right)]);
        }
        columns.extend([("runs", right), ("output", Align::Left)]);
        let mut table = Table::new(&columns);
        for row in &self.rows {
            let dash = || "-".to_owned();
            let factor =
                |speed: Option<f64>| speed.map_or_else(dash, |speed| format!("{speed:.2}"));
            let wall = row.wall();
            let mut cells = vec![
                row.name.clone(),
                wall.map_or_else(dash, |spread| time(spread.median)),
                row.shown_spread().unwrap_or_else(dash),
                row.cpu().map_or_else(dash, |spread| time(spread.median)),
                row.build.map_or_else(dash, time),
                factor(self.speed(row)),
            ];
            if self.has_steady() {
                let steady = row.steady().map_or_else(dash, time);
                cells.extend([steady, factor(self.steady_speed(row))]);
            }
            cells.extend([row.runs.len().to_string(), row.verdict()]);
            table.row(cells);
        }
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, wall_ms: &[u64], output: Output) -> Row {
        let run = |ms: &u64| Times {
            wall: Nanos(ms * 1_000_000),
            cpu: Nanos(ms * 900_000),
        };
        Row {
            name: name.to_owned(),
            side: Side::Uruk,
            runs: wall_ms.iter().map(run).collect(),
            build: None,
            output,
            longer: Vec::new(),
            curve: Vec::new(),
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |times: &[u64]| Spread::of(times.iter().map(|t| Nanos(*t))).map(|s| s.median.0);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[5]), Some(5));
        assert_eq!(of(&[9, 1]), Some(5));
        assert_eq!(of(&[9, 1, 2]), Some(2));
        let huge = Spread::of([Nanos(u64::MAX), Nanos(u64::MAX)]);
        assert_eq!(huge.map(|s| s.median.0), Some(u64::MAX));
        let spread = Spread::of([Nanos(90), Nanos(100), Nanos(120)]).expect("three");
        assert!((spread.relative() - 0.15).abs() < 1e-12);
    }

    #[test]
    fn one_run_has_no_spread() {
        assert_eq!(row("tiered", &[90], Output::Same).shown_spread(), None);
        let two = row("tiered", &[90, 110], Output::Same).shown_spread();
        assert_eq!(two.as_deref(), Some("±\u{a0}10.0\u{a0}%"));
    }

    #[test]
    fn the_steady_state_is_what_more_work_takes() {
        let longer = |ms: u64| {
            vec![Times {
                wall: Nanos(0),
                cpu: Nanos(ms * 900_000),
            }]
        };
        let mut rows = [
            row("tiered", &[90], Output::Same),
            row("clang -O2", &[50], Output::Same),
            row("tier 1", &[80], Output::Same),
        ];
        rows[0].longer = longer(130);
        rows[1].longer = longer(100);
        rows[2].longer = longer(70);
        let comparison = Comparison {
            rows: rows.into(),
            reference: Some(1),
            ..Comparison::default()
        };
        let expected = "\
way           wall  spread      CPU  build  speed (clang -O2 = 1)  steady CPU  its speed  runs  output
tiered     90.0 ms       -  81.0 ms      -                   0.56     36.0 ms       1.25     1  same
clang -O2  50.0 ms       -  45.0 ms      -                   1.00     45.0 ms       1.00     1  same
tier 1     80.0 ms       -  72.0 ms      -                   0.62           -          -     1  same
";
        assert_eq!(comparison.render(), expected);
    }

    #[test]
    fn wrong_output_has_no_speed() {
        let how = "line 3".to_owned();
        let comparison = Comparison {
            rows: vec![
                row("tiered", &[50, 52, 51], Output::Same),
                row("tier 1", &[100], Output::Differs { how }),
                row("clang -O2", &[102], Output::Same),
                row(
                    "clang -O3",
                    &[],
                    Output::Skipped {
                        reason: "no clang".to_owned(),
                    },
                ),
            ],
            reference: Some(2),
            ..Comparison::default()
        };
        let speeds: Vec<Option<f64>> = comparison
            .rows
            .iter()
            .map(|r| comparison.speed(r))
            .collect();
        assert_eq!(speeds, [Some(2.0), None, Some(1.0), None]);
        let expected = "\
way           wall   spread      CPU  build  speed (clang -O2 = 1)  runs  output
tiered     51.0 ms  ± 2.0 %  45.9 ms      -                   2.00     3  same
tier 1      100 ms        -  90.0 ms      -                      -     1  differs: line 3
clang -O2   102 ms        -  91.8 ms      -                   1.00     1  same
clang -O3        -        -        -      -                      -     0  skipped: no clang
";
        assert_eq!(comparison.render(), expected);
    }
}
