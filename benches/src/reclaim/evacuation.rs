//! Moving live code together: what it costs, and what it gains.

use std::time::Duration;

use anyhow::{Result, ensure};
use uruk::{Jit, ReclaimKind};
use uruk_reclaim::{Config, Kind};
use uruk_stubs::call_void;

use super::program::program;
use super::world::{Reclaimer, World};
use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// Functions of about a mebibyte.
const FUNCTIONS: usize = 2_000;
/// The limit that the issue asks for.
const LIMIT_MS: f64 = 5.0;
/// The longest wait for a cycle.
const PATIENCE: Duration = Duration::from_secs(20);

/// Functions of the large program, and how many of them are hot.
const LARGE: usize = 40_000;
const HOT: usize = 1_000;
/// Bytes of each, and how much of that a call runs through.
const BYTES: usize = 512;
const LINE: usize = 64;
const LINES: usize = 3;
/// Rounds through all hot functions that are timed together.
const ROUNDS: usize = 20;

/// Evacuates the code of 2,000 functions.
///
/// # Errors
/// A compile fails, or a cycle does not end.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    progress("compiling what is evacuated");
    let jit = program(FUNCTIONS)?;
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..bench.rounds(20) {
        let (time, moved) = evacuate(&jit)?;
        times.push(time);
        bytes = moved;
    }
    drop(jit);
    clock::until_one_thread();
    let row = Row::new(
        format!("evacuate {FUNCTIONS} functions"),
        Unit::Ms,
        Figure::of(times),
    );
    Ok(vec![row.target(Target::AtMost(LIMIT_MS)).note(format!(
        "processor time of the thread that reclaims, by `Jit::stats`: copy and relocate {bytes} bytes, unwind \
         rows, slots, scan, free the old space"
    ))])
}

/// Milliseconds and bytes of one evacuation.
fn evacuate(jit: &Jit) -> Result<(f64, u64)> {
    let before = jit.stats().memory;
    ensure!(
        jit.reclaim(ReclaimKind::Evacuate, PATIENCE),
        "an evacuation did not end"
    );
    let after = jit.stats().memory;
    let moved = (
        after.moved.0 - before.moved.0,
        after.moved.1 - before.moved.1,
    );
    ensure!(moved.0 >= FUNCTIONS as u64, "only {} moved", moved.0);
    Ok(((after.time - before.time).as_secs_f64() * 1e3, moved.1))
}

/// Hot functions scattered over a large heap, against the same after an evacuation.
///
/// # Errors
/// No memory for code, or a cycle does not end.
pub fn measure_packing(bench: &Bench) -> Result<Vec<Row>> {
    let (hot, numbers) = scattered();
    let worlds = [make_world()?, make_world()?];
    let mut packer = Reclaimer::new(&worlds[1], &Config::default())?;
    let evacuation_ms = packer.cycle(Kind::Evacuate, |number| u64::from(hot[number]))? / 1e6;
    let moved = packer.stats().moved;
    ensure!(moved.blocks == LARGE as u64, "{moved:?}");
    let calls = [
        worlds[0].caller_of(&numbers)?,
        worlds[1].caller_of(&numbers)?,
    ];
    let mut rates: [Vec<f64>; 2] = Default::default();
    let _pinned = clock::pin(0);
    for round in 0..bench.rounds(60) {
        // In turns, the first first and last.
        for side in [round % 2, 1 - round % 2] {
            let start = clock::thread_ns();
            for _ in 0..ROUNDS {
                // SAFETY: the code of `caller_of`: a function without arguments.
                unsafe { call_void(calls[side]) };
            }
            let spent = clock::thread_ns() - start;
            rates[side].push((ROUNDS * HOT) as f64 / spent * 1e3);
        }
    }
    let [scattered, packed] = rates.map(Figure::of);
    let row = Row::new(
        "calls of hot functions, packed by an evacuation",
        Unit::MillionPerSecond,
        packed,
    );
    Ok(vec![
        row.peer("scattered", scattered)
            .target(Target::RatioAtLeast(1.3))
            .note(format!(
                "{HOT} of {LARGE} functions of {BYTES} bytes are called in an order of chance through their \
                 slots, {LINES} cache lines of each are run; in turns; the evacuation of all took \
                 {evacuation_ms:.0} ms"
            )),
    ])
}

fn make_world() -> Result<World> {
    World::new((0..LARGE).map(|_| hopping_body()))
}

/// Code that jumps from cache line to cache line.
fn hopping_body() -> Vec<u8> {
    let mut code = vec![0xcc; BYTES];
    for line in 0..LINES {
        let at = line * LINE;
        if line + 1 == LINES {
            code[at] = 0xc3;
        } else {
            code[at] = 0xe9;
            code[at + 1..at + 5].copy_from_slice(&(LINE as u32 - 5).to_le_bytes());
        }
    }
    code
}

/// Which functions are hot, and these in the order in which they are called. By a
/// generator with a fixed seed (xorshift), so that no stride favours either side.
fn scattered() -> (Vec<bool>, Vec<usize>) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut hot = vec![false; LARGE];
    let mut numbers = Vec::new();
    while numbers.len() < HOT {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = (state % LARGE as u64) as usize;
        if !std::mem::replace(&mut hot[number], true) {
            numbers.push(number);
        }
    }
    (hot, numbers)
}

#[cfg(test)]
mod tests {
    use super::{HOT, LARGE, scattered};

    #[test]
    fn hot_functions_are_spread_over_the_whole_heap() {
        let (hot, numbers) = scattered();
        assert_eq!(numbers.len(), HOT);
        let eighth = LARGE / 8;
        for part in hot.chunks(eighth) {
            let count = part.iter().filter(|hot| **hot).count();
            assert!((HOT / 16..HOT / 4).contains(&count), "{count}");
        }
    }
}
