//! Growth: cycles that leave a session as it was are repeated, each kind in a process of its own;
//! what stays of a cycle, and how long it takes. LLJIT does what it has of them in the same run.

#[path = "../../../runtime/tests/support/cycles.rs"]
mod cycles;
mod lljit;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::cycles::{Cycle, Cycles, OTHERS};
use self::lljit::LlJit;
use crate::bench::{Bench, progress};
use crate::reclaim::held_bytes;
use crate::row::{Figure, Row, Target, Unit};

/// Cycles of a process; what stays is measured over the last half.
const COUNT: usize = 200_000;
const QUICK: usize = 20_000;
/// Bytes of a cycle that are noise.
const NOISE: f64 = 30.0;
/// The longest that a process may take.
const LIMIT: Duration = Duration::from_secs(900);

/// A session that carries out cycles.
enum Side {
    Ours(Cycles),
    Peer(LlJit),
}

impl Side {
    fn new(who: &str, cycle: Cycle) -> Result<Side> {
        // LLJIT has no table that the others would be in.
        let others = match cycle {
            Cycle::Object => OTHERS,
            _ => 0,
        };
        Ok(match who {
            "uruk" => Side::Ours(Cycles::new(cycle, others)),
            _ => Side::Peer(LlJit::new(others)?),
        })
    }

    fn run(&mut self, cycle: Cycle, number: usize) -> Result<()> {
        match self {
            Side::Ours(cycles) => cycles.run(number),
            Side::Peer(peer) => peer.run(cycle, number)?,
        }
        Ok(())
    }

    /// Bytes that the session tells of.
    fn told(&self) -> f64 {
        match self {
            Side::Ours(cycles) => cycles.jit().memory().total() as f64,
            Side::Peer(_) => 0.0,
        }
    }

    fn settle(&self) {
        if let Side::Ours(cycles) = self {
            cycles.settle();
        }
    }
}

/// Carries out cycles in this process. Prints, of the last half, the bytes that stay of a cycle and its
/// microseconds, those of the longest of all, and the bytes that the session tells of.
///
/// # Errors
/// There is no such cycle, or ORC's.
pub fn run(words: &[String]) -> Result<()> {
    let [who, name, count] = words else {
        anyhow::bail!("usage: --soak WHO CYCLE COUNT");
    };
    let cycle = Cycle::ALL.into_iter().find(|cycle| cycle.name() == name);
    let cycle = cycle.with_context(|| format!("no cycle {name}"))?;
    let count: usize = count.parse()?;
    // Panics that are part of a cycle are not printed.
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref::<i64>().is_none() {
            eprintln!("{info}");
        }
    }));
    let mut side = Side::new(who, cycle)?;
    let mut longest = Duration::ZERO;
    let mut stretch = |side: &mut Side, range: std::ops::Range<usize>| -> Result<f64> {
        let begin = Instant::now();
        for number in range {
            let start = Instant::now();
            side.run(cycle, number)?;
            longest = longest.max(start.elapsed());
        }
        let spent = begin.elapsed();
        side.settle();
        Ok(spent.as_secs_f64() * 1e6)
    };
    stretch(&mut side, 0..count / 2)?;
    let before = (held_bytes(), side.told());
    let spent = stretch(&mut side, count / 2..count)?;
    let half = (count - count / 2) as f64;
    let stays = (held_bytes() - before.0) / half;
    let told = (side.told() - before.1) / half;
    let longest = longest.as_secs_f64() * 1e6;
    println!("{stays} {} {longest} {told}", spent / half);
    Ok(())
}

/// The numbers that [`run`] prints in a process of its own.
fn in_child(bench: &Bench, who: &str, cycle: Cycle) -> Result<Vec<f64>> {
    progress(&format!("{}: {who}", cycle.name()));
    let count = if bench.quick { QUICK } else { COUNT };
    let executable = std::env::current_exe().context("finding this executable")?;
    let count = count.to_string();
    let arguments = ["--soak", who, cycle.name(), &count].map(OsString::from);
    let command: Vec<OsString> = [executable.into()].into_iter().chain(arguments).collect();
    let run = bench.runner.run(&command, LIMIT)?;
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let numbers: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    let numbers = numbers.unwrap_or_default();
    ensure!(
        numbers.len() == 4,
        "{who} printed {text:?}: {:?} {}",
        run.ending,
        String::from_utf8_lossy(&run.stderr)
    );
    Ok(numbers)
}

/// Memory that stays of each kind of cycle, and the time of a cycle.
///
/// # Errors
/// A process could not be run.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for cycle in Cycle::ALL {
        let figure = |found: &Result<Vec<f64>>, at: usize| match found {
            Ok(figures) => Figure::of([figures[at]]),
            Err(error) => Figure::Failed(format!("{error:#}")),
        };
        let ours = in_child(bench, "uruk", cycle);
        let peer = LlJit::has(cycle).then(|| in_child(bench, "lljit", cycle));
        let row = |what: &str, unit, at| {
            let name = format!("{}: {what}", cycle.name());
            let row = Row::new(name, unit, figure(&ours, at));
            match &peer {
                Some(peer) => row.peer("LLJIT", figure(peer, at)),
                None => row,
            }
        };
        let stays = row("what stays of a cycle", Unit::Bytes, 0);
        rows.push(stays.target(Target::AtMost(NOISE)).note(
            "growth of the process over the last half of the cycles; the allocator's spare is given \
             back first",
        ));
        let name = "  of which Jit::memory tells".to_owned();
        rows.push(Row::new(name, Unit::Bytes, figure(&ours, 3)));
        rows.push(row("  time of a cycle", Unit::Us, 1));
        rows.push(row("  time of the longest", Unit::Us, 2));
    }
    Ok(rows)
}
