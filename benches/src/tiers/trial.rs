//! Several ways to run the same iterations, timed within their processes and in
//! turns, so that what the machine does meanwhile falls on all of them alike.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use uruk_guests::workload::TIMES;

use super::curve::{self, Curve, Settled};
use crate::bench::{Bench, progress};
use crate::contest;
use crate::process::Run;
use crate::row::Figure;

/// The time limit of a process.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes the command line for a number of iterations.
type Command = dyn Fn(usize) -> Vec<OsString>;

/// One way to run the iterations.
pub struct Side {
    /// Its name in the table.
    pub name: String,
    ours: bool,
    command: Box<Command>,
    iterations: usize,
    /// How often a run that has not settled is repeated with twice the iterations.
    patience: u32,
    /// A curve for each round.
    pub curves: Vec<Curve>,
    out: Option<Figure>,
}

impl Side {
    /// A way of ours that has not been tried yet.
    pub fn ours(
        name: impl Into<String>,
        iterations: usize,
        command: impl Fn(usize) -> Vec<OsString> + 'static,
    ) -> Side {
        Side {
            ours: true,
            ..Side::peer(name, iterations, command)
        }
    }

    /// A way of a peer's that has not been tried yet.
    pub fn peer(
        name: impl Into<String>,
        iterations: usize,
        command: impl Fn(usize) -> Vec<OsString> + 'static,
    ) -> Side {
        Side {
            name: name.into(),
            ours: false,
            command: Box::new(command),
            iterations,
            patience: 0,
            curves: Vec::new(),
            out: None,
        }
    }

    /// The same, run until it has settled: with up to `2^times` as many iterations.
    pub fn until_warm(mut self, times: u32) -> Side {
        self.patience = times;
        self
    }

    /// A figure of the settled level of each run, or what became of them.
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

impl Side {
    /// Its command line.
    pub(super) fn line(&self) -> Vec<OsString> {
        (self.command)(self.iterations)
    }

    /// Its name, and the time of an iteration.
    pub(super) fn shown(&self) -> String {
        match self.figure(|settled| settled.cpu / 1e6).median() {
            Some(ms) => format!("{} {ms:.3}", self.name),
            None => format!("{} out", self.name),
        }
    }

    /// Takes a run, and what it wrote of its iterations; whether it counts.
    pub(super) fn take(
        &mut self,
        run: &Run,
        expected: Option<&Run>,
        times: &Path,
        workload: &str,
        level: &str,
        round: usize,
    ) -> bool {
        self.out = contest::complaint(run, expected).map(|out| match out {
            // Of rates, the time at which it was stopped is no bound.
            Figure::Stopped(ms) => Figure::Failed(format!("stopped at {:.0} s", ms / 1e3)),
            other => other,
        });
        if self.out.is_none() {
            let text = std::fs::read_to_string(times).unwrap_or_default();
            match curve::parse(&text) {
                Ok(iterations) => self.curves.push(Curve {
                    workload: workload.to_owned(),
                    side: self.name.clone(),
                    ours: self.ours,
                    level: level.to_owned(),
                    round,
                    iterations,
                }),
                Err(error) => self.out = Some(Figure::Failed(error.to_string())),
            }
        }
        self.out.is_none()
    }

    /// Forgets the last run if it has not settled, and is to be run for longer.
    fn goes_on(&mut self) -> bool {
        let again = self.patience > 0 && self.curves.last().is_some_and(|last| !last.is_warm());
        if again {
            self.patience -= 1;
            self.iterations *= 2;
            self.curves.pop();
        }
        again
    }
}

/// Whether sides with as many iterations must print the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// All sides must print the same output as the first one.
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
    // The output, by the number of iterations: the checksum depends on it.
    let mut expected: HashMap<usize, Run> = HashMap::new();
    let mut order: Vec<usize> = (0..sides.len()).collect();
    for round in 1..=rounds {
        for &index in &order {
            let side = &mut sides[index];
            while side.out.is_none() {
                let iterations = side.iterations;
                let before = expected.get(&iterations);
                let run = run(bench, side, workload, level, round, before)?;
                if let (Output::Same, Some(run)) = (output, run) {
                    expected.entry(iterations).or_insert(run);
                }
                if !side.goes_on() {
                    break;
                }
            }
        }
        order.reverse();
    }
    let shown: Vec<String> = sides.iter().map(Side::shown).collect();
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
    // An earlier process's file must not pass for this one's.
    let _ = std::fs::remove_file(&path);
    let variables = [(TIMES, path.as_os_str())];
    let run = bench
        .runner
        .run_with(&side.line(), &variables, LIMIT)
        .with_context(|| format!("starting {}", side.name))?;
    let counts = side.take(&run, expected, &path, workload, level, round);
    Ok(counts.then_some(run))
}
