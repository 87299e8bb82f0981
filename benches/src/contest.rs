//! Several ways to run the same program, timed in turns.
//!
//! Everyone runs once first: who does not end as the reference did is out, and
//! who is much slower than the fastest peer is stopped. Then the others repeat,
//! interleaved and in alternating order, so that what the machine does meanwhile
//! falls on all of them alike.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bench::{Bench, progress};
use crate::process::{Ending, Run};
use crate::row::Figure;

/// The longest anything may take while there is nothing to compare it with.
const FIRST_LIMIT: Duration = Duration::from_secs(90);
/// No peer is stopped before it has run this long.
const LEAST_LIMIT: Duration = Duration::from_secs(2);
/// Repetitions of each, at most.
const MOST_ROUNDS: usize = 25;
/// A contender that takes less than this part of the budget is repeated, needed or not.
const CHEAP: f64 = 0.1;

/// Characters of what a failing process said that are shown.
const SAID: usize = 400;

/// On which side a contender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The program as it should behave: its output is what all must print.
    Reference,
    /// Ours.
    Ours,
    /// The side we are compared with.
    Peer,
}

/// One way to run the program.
pub struct Contender {
    /// Its name in the table.
    pub name: String,
    /// Its side.
    pub side: Side,
    command: Vec<OsString>,
    cpu: Vec<f64>,
    wall: Vec<f64>,
    out: Option<Figure>,
}

impl Contender {
    /// A contender that has not run yet.
    pub fn new(name: impl Into<String>, side: Side, command: Vec<OsString>) -> Contender {
        let (cpu, wall) = (Vec::new(), Vec::new());
        Contender {
            name: name.into(),
            side,
            command,
            cpu,
            wall,
            out: None,
        }
    }

    /// Processor time of its runs in milliseconds, or what became of it.
    pub fn figure(&self) -> Figure {
        self.out
            .clone()
            .unwrap_or_else(|| Figure::of(self.cpu.iter().copied()))
    }

    /// Like [`Contender::figure`], by wall-clock time.
    pub fn wall_figure(&self) -> Figure {
        self.out
            .clone()
            .unwrap_or_else(|| Figure::of(self.wall.iter().copied()))
    }

    /// Median of the wall-clock time, in milliseconds.
    pub fn wall_ms(&self) -> Option<f64> {
        match &self.out {
            Some(Figure::Stopped(at)) => Some(*at),
            Some(_) => None,
            None => Figure::of(self.wall.iter().copied()).median(),
        }
    }

    fn record(&mut self, run: &Run, expected: Option<&Run>) {
        self.out = complaint(run, expected);
        self.cpu.push(run.cpu_ms);
        self.wall.push(run.wall_ms);
    }

    fn is_in(&self) -> bool {
        self.out.is_none()
    }
}

/// Times the contenders, the reference first, ours next, then the peers in the
/// order they are given: the one expected to be the fastest should be first. Our
/// first one and the peer named `key` (the fastest, if none is) are repeated in
/// any case, the others only if that costs little.
///
/// # Errors
/// A command cannot be started.
pub fn hold(
    bench: &Bench,
    title: &str,
    key: Option<&str>,
    mut contenders: Vec<Contender>,
) -> Result<Vec<Contender>> {
    let expected = first_runs(bench, title, &mut contenders)?;
    let needed = [Side::Ours, Side::Peer].map(|side| match (side, key) {
        (Side::Peer, Some(key)) => Some(key.to_owned()),
        (Side::Ours, _) => contenders
            .iter()
            .find(|one| one.side == side)
            .map(|one| one.name.clone()),
        _ => fastest(&contenders, side).map(|one| one.name.clone()),
    });
    let cheap_ms = bench.repeat_budget.as_secs_f64() * 1e3 * CHEAP;
    let repeated: Vec<usize> = (0..contenders.len())
        .filter(|&index| {
            let one = &contenders[index];
            let needed = needed.iter().flatten().any(|name| *name == one.name);
            one.is_in() && (needed || one.wall[0] < cheap_ms)
        })
        .collect();
    repeat(bench, &mut contenders, &repeated, expected.as_ref())?;
    Ok(contenders)
}

/// As [`hold`], but everyone is repeated who does as the reference did.
///
/// # Errors
/// A command cannot be started.
pub fn hold_all(
    bench: &Bench,
    title: &str,
    mut contenders: Vec<Contender>,
) -> Result<Vec<Contender>> {
    let expected = first_runs(bench, title, &mut contenders)?;
    let all: Vec<usize> = (0..contenders.len()).collect();
    repeat(bench, &mut contenders, &all, expected.as_ref())?;
    Ok(contenders)
}

/// Runs everyone once; the reference's run.
fn first_runs(bench: &Bench, title: &str, contenders: &mut [Contender]) -> Result<Option<Run>> {
    let mut expected: Option<Run> = None;
    let mut best_peer = f64::INFINITY;
    for contender in contenders {
        let limit = match contender.side {
            Side::Peer => peer_limit(best_peer, bench.patience),
            _ => FIRST_LIMIT,
        };
        let run = run_once(bench, contender, limit)?;
        contender.record(&run, expected.as_ref());
        progress(&format!(
            "{title}: {}: {:.0} ms wall, {:.0} ms cpu{}",
            contender.name,
            run.wall_ms,
            run.cpu_ms,
            if contender.is_in() { "" } else { ", out" }
        ));
        if contender.side == Side::Reference && expected.is_none() {
            expected = Some(run);
        } else if contender.side == Side::Peer && contender.is_in() {
            best_peer = best_peer.min(run.wall_ms);
        }
    }
    Ok(expected)
}

/// The contender of least processor time on one side.
pub fn fastest(contenders: &[Contender], side: Side) -> Option<&Contender> {
    let ran = contenders.iter().filter(|one| one.side == side);
    let timed = ran.filter_map(|one| Some((one, one.figure().median()?)));
    timed
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(one, _)| one)
}

/// Runs the contenders of these indexes in turns while the budget lasts; at least
/// once, but for a quick run.
fn repeat(
    bench: &Bench,
    contenders: &mut [Contender],
    indexes: &[usize],
    expected: Option<&Run>,
) -> Result<()> {
    let start = Instant::now();
    let mut order = indexes.to_vec();
    for round in 1..bench.rounds(MOST_ROUNDS) {
        let round_ms: f64 = order.iter().map(|&index| contenders[index].wall[0]).sum();
        let end = start.elapsed().as_secs_f64() * 1e3 + round_ms;
        if end > bench.repeat_budget.as_secs_f64() * 1e3 && (round > 1 || bench.quick) {
            break;
        }
        order.reverse();
        for &index in &order {
            let contender = &mut contenders[index];
            if contender.is_in() {
                let run = run_once(bench, contender, FIRST_LIMIT)?;
                contender.record(&run, expected);
            }
        }
    }
    Ok(())
}

fn run_once(bench: &Bench, contender: &Contender, limit: Duration) -> Result<Run> {
    let run = bench.runner.run(&contender.command, limit);
    run.with_context(|| format!("starting {}", contender.name))
}

fn peer_limit(best_ms: f64, patience: f64) -> Duration {
    if best_ms.is_infinite() {
        return FIRST_LIMIT;
    }
    Duration::from_secs_f64(best_ms * patience / 1e3).max(LEAST_LIMIT)
}

/// Why a run does not count, if it does not: another ending or other output than
/// expected, or where nothing is expected, a signal.
pub fn complaint(run: &Run, expected: Option<&Run>) -> Option<Figure> {
    let why = match run.ending {
        Ending::Stopped => return Some(Figure::Stopped(run.wall_ms)),
        Ending::Signal(signal) => format!("signal {signal}"),
        Ending::Status(status) => match expected {
            Some(expected) if run.ending != expected.ending => format!("status {status}"),
            Some(expected) if run.stdout != expected.stdout => "other output".to_owned(),
            _ => return None,
        },
    };
    let text = String::from_utf8_lossy(&run.stderr);
    let said: String = text.lines().take(3).collect::<Vec<_>>().join(" | ");
    let said: String = said.chars().take(SAID).collect();
    progress(&format!("{why}: {said}"));
    Some(Figure::Failed(why))
}

#[cfg(test)]
mod tests {
    use super::{Figure, complaint, peer_limit};
    use crate::process::{Ending, Run};

    fn run(ending: Ending, stdout: &str) -> Run {
        let stdout = stdout.as_bytes().to_vec();
        Run {
            ending,
            cpu_ms: 1.0,
            wall_ms: 2.0,
            stdout,
            stderr: Vec::new(),
        }
    }

    #[test]
    fn only_runs_that_do_the_same_count() {
        let expected = run(Ending::Status(0), "a");
        let check = |other: Run| complaint(&other, Some(&expected));
        assert_eq!(check(run(Ending::Status(0), "a")), None);
        let failed = |why: &str| Some(Figure::Failed(why.to_owned()));
        assert_eq!(check(run(Ending::Status(0), "b")), failed("other output"));
        assert_eq!(check(run(Ending::Status(1), "a")), failed("status 1"));
        assert_eq!(check(run(Ending::Signal(11), "")), failed("signal 11"));
        assert_eq!(check(run(Ending::Stopped, "")), Some(Figure::Stopped(2.0)));
    }

    #[test]
    fn limits() {
        assert_eq!(peer_limit(f64::INFINITY, 4.0).as_secs(), 90);
        assert_eq!(peer_limit(10.0, 4.0).as_secs(), 2);
        assert_eq!(peer_limit(2000.0, 4.0).as_secs(), 8);
    }
}
