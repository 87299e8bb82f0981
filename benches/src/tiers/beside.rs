//! Sides that run in one stretch of time, each for a quarter of a second while the others are stopped,
//! and what one costs against another right then.
//!
//! # Why
//! One executable took 17.0 ms an iteration and 18.4 a minute later, as other processes on the
//! machine came and went. Processes one after the other differ by that, whatever they run. So a
//! turn is compared with those of the other side before and after it, and the median of many turns
//! is taken: for half a second at a time everything takes a quarter longer. Some differences stay
//! with a process, such as the addresses of stack and heap; only rounds show them. Six runs of
//! Lua's spectral-norm, one executable without us, took 16.1 to 20.5 ms an iteration, an
//! interpreter's loop 43 to 56.

use std::time::Duration;

use anyhow::{Context, Result};
use uruk_guests::workload::TIMES;

use super::curve::Iteration;
use super::trial::Side;
use crate::bench::{Bench, progress};
use crate::process::{Run, Turn};

/// How long one runs.
const TURN: Duration = Duration::from_millis(250);

/// The time limit of all of them together.
const LIMIT: Duration = Duration::from_secs(180);

/// The turns of a round, by number of the side, in order of time.
pub type Turns = Vec<Turn>;

/// Runs all sides `rounds` times; the turns of each round, in which sides have the numbers of their
/// places in the list. A round that did not count for one of them has none.
///
/// # Errors
/// A command cannot be started.
pub fn hold(
    bench: &Bench,
    workload: &str,
    level: &str,
    rounds: usize,
    sides: &mut [Side],
) -> Result<Vec<Turns>> {
    let mut all = Vec::new();
    for round in 1..=rounds {
        let path = |index: usize| bench.directory.join(format!("iterations-{index}"));
        let paths: Vec<_> = (0..sides.len()).map(path).collect();
        let commands = sides.iter().zip(&paths).map(|(side, path)| {
            // An earlier process's file must not pass for this one's.
            let _ = std::fs::remove_file(path);
            (side.line(), vec![(TIMES, path.as_os_str())])
        });
        let commands: Vec<_> = commands.collect();
        let done = bench.runner.run_in_turns(&commands, TURN, LIMIT);
        let done = done.with_context(|| format!("starting {workload}"))?;
        let mut expected: Option<&Run> = None;
        let mut counts = true;
        for ((side, run), path) in sides.iter_mut().zip(&done.runs).zip(&paths) {
            let taken = side.take(run, expected, path, workload, level, round);
            if taken && expected.is_none() {
                expected = Some(run);
            }
            counts &= taken;
        }
        if !counts {
            break;
        }
        all.push(done.turns);
    }
    let shown: Vec<String> = sides.iter().map(Side::shown).collect();
    progress(&format!("{workload} {level}, ms cpu: {}", shown.join(", ")));
    Ok(all)
}

/// The cost of a side against another in one of its turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Processor time of the peer's iterations over that of ours.
    pub cpu: f64,
    /// The same of wall-clock time.
    pub wall: f64,
}

/// Compares two sides by the turns of a round, whose iterations are `ours` and `peers`: for each turn
/// of the later half of ours.
pub fn compare(
    turns: &[Turn],
    (number, ours): (usize, &[Iteration]),
    (peer, peers): (usize, &[Iteration]),
) -> Vec<Compared> {
    let own: Vec<usize> = (0..turns.len())
        .filter(|&at| turns[at].number == number)
        .collect();
    // The last one ends early.
    let later = own.get(own.len() / 2..own.len().saturating_sub(1));
    let compared = later.unwrap_or_default().iter().filter_map(|&at| {
        let before = turns[..at].iter().rfind(|turn| turn.number == peer);
        let after = turns[at..].iter().find(|turn| turn.number == peer);
        let beside = before.into_iter().chain(after);
        let beside: Vec<_> = beside.filter_map(|turn| cost(turn, peers)).collect();
        let mine = cost(&turns[at], ours).filter(|_| !beside.is_empty())?;
        let mean = |of: fn(&Cost) -> f64| {
            let sum: f64 = beside.iter().map(of).map(f64::ln).sum();
            (sum / beside.len() as f64).exp()
        };
        Some(Compared {
            cpu: mean(|cost| cost.cpu) / mine.cpu,
            wall: mean(|cost| cost.wall) / mine.wall,
        })
    });
    compared.collect()
}

/// Mean times of an iteration.
struct Cost {
    cpu: f64,
    wall: f64,
}

/// Of the iterations that began and ended in a turn.
fn cost(turn: &Turn, iterations: &[Iteration]) -> Option<Cost> {
    let whole = iterations
        .iter()
        .filter(|one| one.start >= turn.began && one.start + one.wall <= turn.ended);
    let (mut cpu, mut wall, mut count) = (0.0, 0.0, 0.0);
    for one in whole {
        cpu += one.process;
        wall += one.wall;
        count += 1.0;
    }
    (count > 0.0).then(|| Cost {
        cpu: cpu / count,
        wall: wall / count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sides in turns of 10; what an iteration takes doubles for both in the middle.
    #[test]
    fn what_falls_on_both_is_no_difference() {
        let mut turns = Vec::new();
        let mut iterations = [Vec::new(), Vec::new()];
        for at in 0..40 {
            let number = at % 2;
            let began = 10.0 * at as f64;
            let slow = if at < 30 { 1.0 } else { 2.0 };
            let wall = slow * [1.0, 1.25][number];
            turns.push(Turn {
                number,
                began,
                ended: began + 10.0,
            });
            // One that is stopped in the middle counts for nothing.
            for place in 0..(10.0 / wall) as usize + 1 {
                iterations[number].push(Iteration {
                    start: began + wall * place as f64,
                    wall,
                    thread: wall,
                    process: wall,
                });
            }
        }
        let [peers, ours] = &iterations;
        let found = compare(&turns, (1, ours), (0, peers));
        assert_eq!(found.len(), 9);
        // But for where it changed, where one of both neighbours counts.
        let right = found.iter().filter(|it| (it.cpu - 0.8).abs() < 1e-9);
        assert_eq!(right.count(), 8);
        assert!(found.iter().all(|it| it.cpu == it.wall));
        assert_eq!(compare(&turns, (2, ours), (0, peers)), []);
        assert_eq!(compare(&[], (1, ours), (0, peers)), []);
    }
}
