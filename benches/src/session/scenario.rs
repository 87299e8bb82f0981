//! Runs a scenario, by us or by ORC, in a process of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::driver;
use super::readings::Readings;
use crate::bench::{Bench, progress};
use crate::process::Ending;
use crate::row::Figure;

/// The library that carries out the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This library.
    Ours,
    /// LLVM's.
    Orc,
}

/// Both sides, ready to run scenarios.
pub struct Sides<'a> {
    bench: &'a Bench,
    ours: PathBuf,
    /// Why there is no driver of ORC is told in every row.
    orc: Result<PathBuf, String>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It ran to the end, and its phases are the run.
    Read(Readings),
    /// It was stopped after this many seconds.
    Stopped(f64),
    /// Why there is nothing.
    Failed(String),
}

impl<'a> Sides<'a> {
    /// Finds this executable and compiles the driver.
    ///
    /// # Errors
    /// This executable is nowhere.
    pub fn new(bench: &'a Bench) -> Result<Sides<'a>> {
        Ok(Sides {
            bench,
            ours: std::env::current_exe().context("finding this executable")?,
            orc: driver::build(bench).map_err(|error| format!("{error:#}")),
        })
    }

    /// Runs a scenario to its end, at most for `limit`.
    pub fn run(&self, side: Side, words: &[&str], limit: Duration) -> Outcome {
        progress(&format!("{} by {side:?}", words.join(" ")));
        let program = match (side, &self.orc) {
            (Side::Ours, _) => &self.ours,
            (Side::Orc, Ok(program)) => program,
            (Side::Orc, Err(why)) => return Outcome::Failed(why.clone()),
        };
        match self.read(side, program, words, limit) {
            Ok(Some(readings)) => Outcome::Read(readings),
            Ok(None) => Outcome::Stopped(limit.as_secs_f64()),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }

    /// The readings; `None` if it was stopped.
    fn read(
        &self,
        side: Side,
        program: &Path,
        words: &[&str],
        limit: Duration,
    ) -> Result<Option<Readings>> {
        let mut command: Vec<OsString> = vec![program.into()];
        command.extend((side == Side::Ours).then(|| OsString::from("--scenario")));
        command.extend(words.iter().map(OsString::from));
        let run = self.bench.runner.run(&command, limit)?;
        if run.ending == Ending::Stopped {
            return Ok(None);
        }
        let readings = Readings::parse(&String::from_utf8_lossy(&run.stdout))?;
        let said = String::from_utf8_lossy(&run.stderr);
        let last = said.lines().last().unwrap_or_default();
        ensure!(run.ending == Ending::Status(0), "{:?}: {last}", run.ending);
        readings.verify(Duration::from_secs_f64(run.cpu_ms / 1e3))?;
        Ok(Some(readings))
    }
}

impl Outcome {
    /// The readings, if the run reached its end.
    pub fn readings(&self) -> Option<&Readings> {
        match self {
            Outcome::Read(readings) => Some(readings),
            _ => None,
        }
    }

    /// A figure of what was read.
    pub fn figure<I>(&self, of: impl FnOnce(&Readings) -> I) -> Figure
    where
        I: IntoIterator<Item = f64>,
    {
        match self {
            Outcome::Read(readings) => Figure::of(of(readings)),
            Outcome::Stopped(seconds) => Figure::Failed(format!("none in {seconds:.0} s")),
            Outcome::Failed(why) => Figure::Failed(why.clone()),
        }
    }

    /// Microseconds of processor time of each operation of a phase.
    pub fn each_us(&self, phase: &str) -> Figure {
        self.figure(|readings| readings.each_ns(phase).into_iter().map(|ns| ns / 1e3))
    }

    /// A value, in a unit of which it is `scale`.
    pub fn value(&self, name: &str, scale: f64) -> Figure {
        self.figure(|readings| readings.value(name).map(|value| value / scale))
    }

    /// Where something was stopped, for a note.
    pub fn reached(&self, name: &str) -> Option<String> {
        let mut reached = self.readings()?.reached.iter();
        let (_, count, why) = reached.find(|(known, ..)| known == name)?;
        Some(format!("stopped at {count:.0}: {why}"))
    }
}
