//! Steady state: the level at which a process's iterations settle against native code
//! that was compiled from the same sources.
//!
//! A process runs long enough to become warm: kernels for a multiple of a second, larger
//! programs, whose large functions are compiled last, for longer, and twice as long again if
//! the level still changed in the last quarter (`trial`). The best native code runs as
//! long; other peers, which have nothing to warm up, a quarter. The best native code runs
//! a second time, last: what it differs from itself is what a ratio is worth.
//!
//! Figures are iterations per second of processor time, threads that compile or
//! sample included, so a ratio above 1 is faster than native.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use uruk_guests::{Flavor, Level, Native, Workload};

use super::trial::{self, Output, Side};
use crate::bench::{Bench, progress};
use crate::findings::Findings;
use crate::row::{Figure, Row, Target, Unit};

/// A workload may be this much slower than the best native code, as a part.
const LEAST: f64 = 0.90;
/// The geometric means to reach, against the best and against plain native code.
const MEAN_OF_BEST: f64 = 0.98;
const MEAN_OF_PLAIN: f64 = 1.0;
/// The same where it was tuned before.
const LEAST_TUNED: f64 = 0.95;
const MEAN_TUNED: f64 = 1.05;
/// Runs of `uruk tune`, at most, and their iterations over those that are measured.
const TUNING_RUNS: &str = "8";
const TUNING_PART: usize = 3;
/// Processes of each side in the tables with targets: code with many indirect branches differs by a
/// fifth from one process to the next, ours and native code alike.
const ROUNDS: usize = 5;
/// Iterations of a kernel, of a larger program, and of both in a quick run; each takes
/// about 20 ms natively.
const KERNEL: usize = 120;
const PROGRAM: usize = 240;
/// Of sqlite, whose largest function, a fifth of its time, is compiled after some six seconds: when
/// the program has been in it for as long as its compile takes.
const SQLITE: usize = 600;
const QUICK_KERNEL: usize = 60;
const QUICK_PROGRAM: usize = 150;
/// Times a run of the table with targets may be doubled.
const DOUBLINGS: u32 = 1;
/// Peers that warm nothing up run this part.
const PEER_PART: usize = 4;

/// Input without passes against native code, best and plain.
///
/// # Errors
/// A workload cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Findings> {
    let table = Table {
        label: "",
        level: Level::O3NoPasses,
        options: vec![("", vec!["--tiers", "auto"])],
        peers: vec![Native::BEST, Native::PLAIN],
        output: Output::Same,
        part: 1.0,
        rounds: bench.rounds(ROUNDS),
        doublings: DOUBLINGS,
        least: Target::RatioAtLeast(LEAST),
        tuned: false,
    };
    let results = table.run(bench, |_| true)?;
    let mut found = results.findings(&table);
    let means = [(Native::BEST, MEAN_OF_BEST), (Native::PLAIN, MEAN_OF_PLAIN)];
    for (peer, least) in means {
        found
            .rows
            .push(results.mean(&table, 0, peer).target(Target::AtLeast(least)));
    }
    found.rows.extend(results.noise());
    Ok(found)
}

/// The same workloads once `uruk tune` has run each, against the best native code.
///
/// # Errors
/// As of [`measure`].
pub fn measure_tuned(bench: &Bench) -> Result<Findings> {
    let table = Table {
        label: ", tuned",
        level: Level::O3NoPasses,
        options: vec![("", vec!["--tiers", "auto"])],
        peers: vec![Native::BEST],
        output: Output::Same,
        part: 1.0,
        rounds: bench.rounds(ROUNDS),
        doublings: DOUBLINGS,
        least: Target::RatioAtLeast(LEAST_TUNED),
        tuned: true,
    };
    let results = table.run(bench, |_| true)?;
    let mut found = results.findings(&table);
    let mean = results.mean(&table, 0, Native::BEST);
    found.rows.push(mean.target(Target::AtLeast(MEAN_TUNED)));
    found.rows.extend(results.noise());
    Ok(found)
}

/// Contraction allowed on both sides.
///
/// # Errors
/// As of [`measure`].
pub fn measure_contracted(bench: &Bench) -> Result<Findings> {
    let table = Table {
        label: ", contracted",
        level: Level::O3NoPasses,
        options: vec![("", vec!["--tiers", "auto", "--fp-contract", "fast"])],
        peers: vec![Native::CONTRACTED],
        output: Output::Free,
        part: 0.7,
        rounds: 1,
        doublings: 0,
        least: Target::RatioAtLeast(LEAST),
        tuned: false,
    };
    let results = table.run(bench, Workload::contracts)?;
    let mut found = results.findings(&table);
    let mean = results.mean(&table, 0, Native::CONTRACTED);
    found.rows.push(mean.target(Target::AtLeast(MEAN_OF_BEST)));
    Ok(found)
}

/// Input that was compiled for something else: without optimization in mind, and
/// optimized already.
///
/// # Errors
/// As of [`measure`].
pub fn measure_other_bitcode(bench: &Bench) -> Result<Findings> {
    let mut found = Findings::default();
    for level in [Level::O0, Level::O2] {
        let table = Table {
            label: "",
            level,
            options: vec![("", vec!["--tiers", "auto"])],
            peers: vec![Native::BEST],
            output: Output::Same,
            part: 0.7,
            rounds: 1,
            doublings: 0,
            least: Target::Information,
            tuned: false,
        };
        let results = table.run(bench, Workload::has_levels)?;
        found.extend(results.findings(&table));
        found.rows.push(results.mean(&table, 0, Native::BEST));
    }
    Ok(found)
}

/// Every function compiled at one tier at its first call: what tiering has to choose
/// from.
///
/// # Errors
/// As of [`measure`].
pub fn measure_fixed_tiers(bench: &Bench) -> Result<Findings> {
    let tier = |label, number| (label, vec!["--tiers", number]);
    let table = Table {
        label: "",
        level: Level::O3NoPasses,
        options: vec![
            tier(", tier 1", "1"),
            tier(", tier 2", "2"),
            tier(", tier 3", "3"),
        ],
        peers: vec![Native::BEST],
        output: Output::Same,
        // Nothing warms up there.
        part: 0.15,
        rounds: 1,
        doublings: 0,
        least: Target::Information,
        tuned: false,
    };
    let results = table.run(bench, |_| true)?;
    let mut found = results.findings(&table);
    found.curves.clear();
    for option in 0..table.options.len() {
        found.rows.push(results.mean(&table, option, Native::BEST));
    }
    Ok(found)
}

/// A comparison: the ways to run ours, and their peers.
struct Table {
    /// Told behind a workload's name.
    label: &'static str,
    /// Of the bitcode we are given.
    level: Level,
    /// Ways to run ours: what is told behind the name, and the options.
    options: Vec<(&'static str, Vec<&'static str>)>,
    peers: Vec<Native>,
    output: Output,
    /// Iterations of a process, over those of the first table.
    part: f64,
    /// Processes of each side.
    rounds: usize,
    /// Times ours are run for twice as long if they have not settled.
    doublings: u32,
    /// The target of our first option against the first peer.
    least: Target,
    /// Whether ours begin with what `uruk tune` found out.
    tuned: bool,
}

/// The sides of each workload: the peers, then ours, then the first peer again.
struct Results {
    workloads: Vec<(Workload, Vec<Side>)>,
    peers: usize,
}

impl Table {
    fn run(&self, bench: &Bench, wanted: impl Fn(Workload) -> bool) -> Result<Results> {
        let mut workloads = Vec::new();
        for workload in bench.workloads().into_iter().filter(|one| wanted(*one)) {
            let mut sides = self.sides(bench, workload)?;
            let (name, level) = (workload.name(), self.level.name());
            trial::hold(bench, &name, level, self.rounds, self.output, &mut sides)?;
            workloads.push((workload, sides));
        }
        Ok(Results {
            workloads,
            peers: self.peers.len(),
        })
    }

    /// The peers, ours, and the first peer again.
    fn sides(&self, bench: &Bench, workload: Workload) -> Result<Vec<Side>> {
        let iterations = ((iterations(bench, workload) as f64 * self.part) as usize).max(PEER_PART);
        let natively = |peer: &Native, part: usize, name: String| -> Result<Side> {
            let program = native(bench, workload, *peer)?;
            Ok(Side::peer(name, iterations / part, move |count| {
                let mut command: Vec<OsString> = vec![program.clone().into()];
                command.extend(workload.args(count).iter().map(Into::into));
                command
            }))
        };
        let mut sides = Vec::new();
        for (number, peer) in self.peers.iter().enumerate() {
            let part = if number == 0 { 1 } else { PEER_PART };
            sides.push(natively(peer, part, peer_name(*peer))?);
        }
        let bitcode = bitcode(bench, workload, self.level)?;
        for (label, options) in &self.options {
            let (bench, bitcode) = (bench.clone(), bitcode.clone());
            let mut options: Vec<String> = options.iter().map(|&it| it.to_owned()).collect();
            if self.tuned {
                let file = tune(&bench, workload, &bitcode, iterations * TUNING_PART)?;
                options.extend(["--tuning".to_owned(), file]);
            }
            let command = move |count| {
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                bench.uruk_run_with(&options, &bitcode, &workload.args(count))
            };
            let name = format!("uruk{label}{}", self.label);
            sides.push(Side::ours(name, iterations, command).until_warm(self.doublings));
        }
        if let Some(first) = self.peers.first() {
            let name = format!("{}, again", peer_name(*first));
            sides.push(natively(first, PEER_PART, name)?);
        }
        Ok(sides)
    }
}

/// Has a workload tuned; the file with what was found out.
fn tune(bench: &Bench, workload: Workload, bitcode: &Path, iterations: usize) -> Result<String> {
    let name = workload.name();
    progress(&format!("tuning {name}"));
    let file = bench
        .directory
        .join(format!("{}.tuning", name.replace(' ', "-")));
    let _ = std::fs::remove_file(&file);
    let mut command = Command::new(&bench.uruk);
    command.args(["tune", "--runs", TUNING_RUNS, "--tuning"]);
    command.arg(&file).arg(bitcode).arg("--");
    let status = command
        .args(workload.args(iterations))
        .stdout(Stdio::null())
        .status()?;
    ensure!(status.success(), "uruk tune, {name}: {status}");
    Ok(file.to_string_lossy().into_owned())
}

/// Iterations after which a workload is warm.
fn iterations(bench: &Bench, workload: Workload) -> usize {
    match (workload, bench.quick) {
        (Workload::Kernel(..), false) => KERNEL,
        (Workload::Kernel(..), true) => QUICK_KERNEL,
        (Workload::Sqlite, false) => SQLITE,
        (_, false) => PROGRAM,
        (_, true) => QUICK_PROGRAM,
    }
}

impl Results {
    /// A row for each workload, way and peer; the curves of the first round.
    fn findings(&self, table: &Table) -> Findings {
        let mut found = Findings::default();
        for (workload, sides) in &self.workloads {
            let (peers, ours) = sides.split_at(self.peers);
            for (index, (one, (label, _))) in ours.iter().zip(&table.options).enumerate() {
                for (number, peer) in peers.iter().enumerate() {
                    let name = format!("steady {}{label}{}", workload.name(), table.label);
                    let row = Row::new(name, Unit::IterationsPerSecond, one.rate())
                        .level(table.level.name())
                        .peer(&*peer.name, peer.rate());
                    let mut row = row.target(match (index, number) {
                        (0, 0) => table.least,
                        _ => Target::Information,
                    });
                    row.wall = one.wall_rate().zip(peer.wall_rate());
                    found.rows.push(row);
                }
            }
            found
                .curves
                .extend(sides.iter().flat_map(|side| side.curves.iter().cloned()));
        }
        found
    }

    /// The geometric mean of the ratios of one of ours to a peer. A workload that
    /// failed on our side leaves no mean: it would flatter.
    fn mean(&self, table: &Table, option: usize, peer: Native) -> Row {
        let number = table.peers.iter().position(|one| *one == peer).unwrap_or(0);
        let ratios = self.workloads.iter().map(|(workload, sides)| {
            let ours = sides[self.peers + option].rate().median();
            let peer = sides[number].rate().median();
            (
                workload.name(),
                ours.zip(peer).map(|(ours, peer)| ours / peer),
            )
        });
        let ratios: Vec<(String, Option<f64>)> = ratios.collect();
        let missing: Vec<&str> = ratios
            .iter()
            .filter(|(_, ratio)| ratio.is_none())
            .map(|(name, _)| name.as_str())
            .collect();
        let known: Vec<f64> = ratios.iter().filter_map(|(_, ratio)| *ratio).collect();
        let figure = if missing.is_empty() {
            Figure::of(geometric_mean(&known))
        } else {
            Figure::Failed(format!("no ratio of {}", missing.join(", ")))
        };
        let least = known.iter().copied().fold(f64::INFINITY, f64::min);
        let label = table.options[option].0;
        let name = format!("steady, geometric mean{label}{}", table.label);
        Row::new(name, Unit::Times, figure)
            .level(table.level.name())
            .note(format!(
                "speed over that of {}, {} workloads; the least is {least:.3}",
                peer_name(peer),
                known.len()
            ))
    }

    /// The best native code against itself, before ours and after: what a ratio is worth.
    fn noise(&self) -> Option<Row> {
        let rate = |side: Option<&Side>| side.and_then(|side| side.rate().median());
        let ratios = self.workloads.iter().filter_map(|(_, sides)| {
            let (first, again) = (rate(sides.first())?, rate(sides.last())?);
            Some(first / again)
        });
        let ratios: Vec<f64> = ratios.collect();
        let worst = ratios.iter().copied().max_by(|a, b| {
            let distance = |ratio: &f64| ratio.ln().abs();
            distance(a).total_cmp(&distance(b))
        })?;
        let row = Row::new("steady, noise: A and A", Unit::Times, Figure::of(ratios));
        Some(row.note(format!(
            "the best native code over itself, run before ours and after, each workload; the one \
             farthest from 1 is {worst:.3}"
        )))
    }
}

/// The bitcode of a workload.
///
/// # Errors
/// It cannot be built.
pub fn bitcode(bench: &Bench, workload: Workload, level: Level) -> Result<PathBuf> {
    let flavor = Flavor::plain(level);
    progress(&format!(
        "compiling {} {flavor}, unless it is there",
        workload.name()
    ));
    let program = workload.program()?;
    let built = program.build(&bench.tools, &bench.cache, flavor, 2, &|_, _| {})?;
    Ok(built.bitcode)
}

/// The native executable of a workload.
///
/// # Errors
/// It cannot be built.
pub fn native(bench: &Bench, workload: Workload, native: Native) -> Result<PathBuf> {
    progress(&format!(
        "compiling {} {}, unless it is there",
        workload.name(),
        native.name
    ));
    Ok(workload
        .program()?
        .build_native(&bench.tools, &bench.cache, native)?)
}

fn peer_name(native: Native) -> String {
    format!("native {}", native.name)
}

/// The geometric mean; none of nothing.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::geometric_mean;

    #[test]
    fn the_mean_of_ratios_is_geometric() {
        assert_eq!(geometric_mean(&[]), None);
        let mean = geometric_mean(&[0.5, 2.0, 1.0]).expect("three ratios");
        assert!((mean - 1.0).abs() < 1e-12);
    }
}
