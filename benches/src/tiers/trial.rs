//! Several ways to run the same iterations, timed within their processes and in
//! turns, so that what the machine does meanwhile falls on all of them alike.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result};
use uruk_guests::workload::TIMES;

use super::curve::{self, Curve, Settled};
use crate::bench::{Bench, progress};
use crate::contest;
use crate::process::Run;
use crate::row::Figure;

/// What a process may take.
const LIMIT: Duration = Duration::from_secs(60);

/// One way to run the iterations.
pub struct Side {
    /// Its name in the table.
    pub name: String,
    ours: bool,
    command: Vec<OsString>,
    /// A curve for each run.
    pub curves: Vec<Curve>,
    out: Option<Figure>,
}

impl Side {
    /// A way of ours that has not been tried yet.
    pub fn ours(name: impl Into<String>, command: Vec<OsString>) -> Side {
        Side {
            ours: true,
            ..Side::peer(name, command)
        }
    }

    /// A way of a peer's that has not been tried yet.
    pub fn peer(name: impl Into<String>, command: Vec<OsString>) -> Side {
        Side {
            name: name.into(),
            ours: false,
            command,
            curves: Vec::new(),
            out: None,
        }
    }

    /// A figure of the settled half of each run, or what became of them.
    pub fn figure(&self, of: impl Fn(Settled) -> f64) -> Figure {
        let figures = self.curves.iter().map(|curve| of(curve.settled()));
        self.out.clone().unwrap_or_else(|| Figure::of(figures))
    }

    /// Iterations in a second of processor time, all threads of the process counted.
    pub fn rate(&self) -> Figure {
        self.figure(|settled| 1e9 / settled.cpu)
    }

    /// The median of iterations in a second of wall-clock time.
    pub fn wall_rate(&self) -> Option<f64> {
        self.figure(|settled| 1e9 / settled.wall).median()
    }
}

/// Whether all sides must print the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// What the first side prints is what all must print.
    Same,
    /// Each may round in its own way: which products are contracted is the compiler's
    /// choice.
    Free,
}

/// Runs every side `rounds` times, the order reversed from round to round.
///
/// # Errors
/// A command cannot be started.
pub fn hold(
    bench: &Bench,
    workload: &str,
    level: &str,
    rounds: usize,
    output: Output,
    sides: &mut [Side],
) -> Result<()> {
    let mut expected: Option<Run> = None;
    let mut order: Vec<usize> = (0..sides.len()).collect();
    for round in 1..=rounds {
        for &index in &order {
            let side = &mut sides[index];
            if side.out.is_some() {
                continue;
            }
            let run = run(bench, side, workload, level, round, expected.as_ref())?;
            if output == Output::Same {
                expected = expected.or(run);
            }
        }
        order.reverse();
    }
    let shown: Vec<String> = sides
        .iter()
        .map(
            |side| match side.figure(|settled| settled.cpu / 1e6).median() {
                Some(ms) => format!("{} {ms:.3}", side.name),
                None => format!("{} out", side.name),
            },
        )
        .collect();
    progress(&format!("{workload} {level}, ms cpu: {}", shown.join(", ")));
    Ok(())
}

/// Runs a side once; the run, if it counts.
fn run(
    bench: &Bench,
    side: &mut Side,
    workload: &str,
    level: &str,
    round: usize,
    expected: Option<&Run>,
) -> Result<Option<Run>> {
    let path = bench.directory.join("iterations");
    // What an earlier process left must not pass for this one's.
    let _ = std::fs::remove_file(&path);
    let variables = [(TIMES, path.as_os_str())];
    let run = bench
        .runner
        .run_with(&side.command, &variables, LIMIT)
        .with_context(|| format!("starting {}", side.name))?;
    side.out = contest::complaint(&run, expected).map(|out| match out {
        // Of rates, the time at which it was stopped is no bound.
        Figure::Stopped(ms) => Figure::Failed(format!("stopped at {:.0} s", ms / 1e3)),
        other => other,
    });
    if side.out.is_none() {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        match curve::parse(&text) {
            Ok(iterations) => side.curves.push(Curve {
                workload: workload.to_owned(),
                side: side.name.clone(),
                ours: side.ours,
                level: level.to_owned(),
                round,
                iterations,
            }),
            Err(error) => side.out = Some(Figure::Failed(error.to_string())),
        }
    }
    Ok(side.out.is_none().then_some(run))
}
