//! Where the tuner ends, beside the best there is: ten kernels, each compiled in all ways of a grid
//! and timed in turns with the others, and once in a session that tunes.
//!
//! An eleventh has an argument that is always the same, which the tuner finds out and no way of the
//! grid knows.
//!
//! Times are the calling thread's processor time, the least of several rounds: what disturbs a call
//! only makes it longer. The tuner has to find out under whatever load there is meanwhile. Its
//! budget is a quarter of the time here, so that a kernel is done in some seconds.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use uruk::{Jit, Tier, Tiers, Variant};

use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// The kernels, and how much each is given to do.
const KERNELS: [(&str, i64); 10] = [
    ("mandelbrot", 20),
    ("short_loops", 4000),
    ("dot", 8),
    ("horner", 6),
    ("matmul", 1),
    ("interpret", 6000),
    ("pairs", 4000),
    ("find", 60),
    ("hash", 12),
    ("stencil", 8),
];

/// A kernel whose second argument is always the same: no way to compile it makes use of that but the
/// one that compares it.
const USUAL: (&str, i64) = ("digits", 60);

/// That argument.
const BASE: i64 = 10;

/// The parts of the grid's variants; a word from each line.
const GRID: [&[&str]; 5] = [
    &["", "inline=none"],
    &["", "vectors=none", "vectors=128"],
    &["", "no-unroll"],
    &["", "no-slp"],
    &["", "thorough"],
];

/// Ways besides the grid.
const OTHERS: [&str; 7] = [
    "no-interleave",
    "no-tables",
    "packed",
    "start=16",
    "start=32",
    "start=48",
    "inline=eager",
];

/// Longest time for one kernel to be tuned.
const LONGEST: Duration = Duration::from_secs(60);

/// Time that one reading takes, at least.
const READING_NS: f64 = 1e6;

type Kernel = Box<dyn Fn(i64) -> i64>;

/// Ten kernels.
///
/// # Errors
/// They do not compile, or return different values.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let bitcode = compile(bench)?;
    let variants = grid()?;
    progress(&format!("ten kernels, compiled in {} ways", variants.len()));
    let sessions = variants.iter().map(|&variant| {
        let fixed = Jit::builder().tiers(Tiers::Fixed(Tier::Optimized));
        load(fixed.variant(variant).build()?, &bitcode)
    });
    let sessions = sessions.collect::<Result<Vec<Jit>>>()?;
    let mut rows = Vec::new();
    let mut close = 0;
    let grid = Grid { variants, sessions };
    for (name, work) in KERNELS {
        let (ratio, row) = compare(bench, &grid, &bitcode, name, work)?;
        close += u32::from(ratio >= 0.97);
        rows.push(row.target(Target::AtLeast(0.97)));
    }
    let row = Row::new(
        "  kernels within 3 %, of ten",
        Unit::Times,
        Figure::of([f64::from(close)]),
    );
    rows.push(row.target(Target::AtLeast(9.0)));
    let (name, work) = USUAL;
    let (_, row) = compare(bench, &grid, &bitcode, name, work)?;
    rows.push(row.target(Target::AtLeast(1.2)));
    Ok(rows)
}

/// A session for each way.
struct Grid {
    variants: Vec<Variant>,
    sessions: Vec<Jit>,
}

/// One kernel: how many times as fast as the best of the grid it is where it is tuned.
fn compare(
    bench: &Bench,
    grid: &Grid,
    bitcode: &[u8],
    name: &str,
    work: i64,
) -> Result<(f64, Row)> {
    let ways = grid.sessions.iter().map(|jit| kernel(jit, name));
    let ways = ways.collect::<Result<Vec<Kernel>>>()?;
    let mut times = vec![f64::INFINITY; ways.len()];
    for _ in 0..bench.rounds(15) {
        for (way, time) in ways.iter().zip(&mut times) {
            *time = time.min(reading(way, work));
        }
    }
    let best = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b]));
    let best = best.context("a grid without ways")?;
    let (tuned, story, jit) = tune(bitcode, name, work, ways[0](work))?;
    let [mut least, mut ours] = [f64::INFINITY; 2];
    for _ in 0..bench.rounds(30) {
        least = least.min(reading(&ways[best], work));
        ours = ours.min(reading(&tuned, work));
    }
    drop(jit);
    let [first, least_us, ours_us] = [times[0], least, ours].map(|time| time / 1e3);
    progress(&format!(
        "{name}: {first:.1} us, best {least_us:.1}, tuned {ours_us:.1}"
    ));
    let row = Row::new(
        format!("tuned against the best, {name}"),
        Unit::Times,
        Figure::of([least / ours]),
    );
    let note = format!(
        "plain {first:.1} us; best of {} ways {least_us:.1} us, {}; tuned {ours_us:.1} us, {story}",
        ways.len(),
        grid.variants[best],
    );
    Ok((least / ours, row.note(note)))
}

/// All ways of the grid, the plain one first, and the others.
fn grid() -> Result<Vec<Variant>> {
    let mut texts = vec![String::new()];
    for words in GRID {
        let longer = |word: &&str| {
            let word = *word;
            texts
                .iter()
                .map(move |text| format!("{text} {word}"))
                .collect::<Vec<_>>()
        };
        texts = words.iter().flat_map(longer).collect();
    }
    texts.extend(OTHERS.map(str::to_owned));
    let variants = texts.iter().map(|text| Ok(text.parse()?));
    variants.collect()
}

fn compile(bench: &Bench) -> Result<Vec<u8>> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/tuned.c");
    let out = bench.directory.join("tuned.bc");
    let mut clang = Command::new(&bench.tools.clang);
    clang.args(["-O1", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c"]);
    let status = clang.arg(source).arg("-o").arg(&out).status()?;
    ensure!(status.success(), "clang: {status}");
    Ok(std::fs::read(&out)?)
}

fn load(jit: Jit, bitcode: &[u8]) -> Result<Jit> {
    jit.main().add_bitcode("tuned", bitcode)?;
    // SAFETY: fills the kernels' tables.
    let prepare = unsafe { jit.function::<extern "C" fn() -> i64>("prepare")? };
    prepare.call();
    Ok(jit)
}

fn kernel(jit: &Jit, name: &str) -> Result<Kernel> {
    if name == USUAL.0 {
        // SAFETY: it has this type, and computes.
        let kernel = unsafe { jit.function::<extern "C" fn(i64, i64) -> i64>(name)? };
        return Ok(Box::new(move |work| kernel.call(work, BASE)));
    }
    // SAFETY: the kernels have this type, and touch their own tables only.
    let kernel = unsafe { jit.function::<extern "C" fn(i64) -> i64>(name)? };
    Ok(Box::new(move |work| kernel.call(work)))
}

/// Time of one call, in ns.
fn reading(kernel: &Kernel, work: i64) -> f64 {
    let (begin, mut calls) = (clock::thread_ns(), 0.0);
    loop {
        std::hint::black_box(kernel(work));
        calls += 1.0;
        let took = clock::thread_ns() - begin;
        if took >= READING_NS {
            return took / calls;
        }
    }
}

/// Calls a kernel until nothing is left to try; how it ended.
fn tune(bitcode: &[u8], name: &str, work: i64, expected: i64) -> Result<(Kernel, String, Jit)> {
    let builder = Jit::builder().tune(true);
    let builder = builder.tuning_budget(0.25, Duration::from_secs(1));
    let jit = load(builder.build()?, bitcode)?;
    let kernel = kernel(&jit, name)?;
    let stateless = name != "stencil";
    let begin = Instant::now();
    let settled = loop {
        let (part, mut result) = (Instant::now(), expected);
        while part.elapsed() < Duration::from_millis(200) {
            result = kernel(work);
        }
        ensure!(!stateless || result == expected, "{name} returned {result}");
        let views = jit.tuning();
        let view = views.into_iter().find(|view| view.function == name);
        let settled = view
            .as_ref()
            .is_some_and(|view| view.settled || view.left.is_some());
        if settled || begin.elapsed() > LONGEST {
            break view;
        }
    };
    let story = settled.map_or_else(
        || "not seen".to_owned(),
        |view| {
            format!(
                "{} {}{} after {} trials, {:.0} s",
                view.tier,
                view.variant,
                if view.settled { "" } else { ", not done" },
                view.trials.len(),
                begin.elapsed().as_secs_f64(),
            )
        },
    );
    Ok((kernel, story, jit))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_grid_has_all_ways() {
        let grid = super::grid().expect("words of variants");
        let different: std::collections::HashSet<_> = grid.iter().collect();
        assert_eq!((grid.len(), different.len()), (55, 55));
        assert_eq!(grid[0], uruk::Variant::default());
    }
}
