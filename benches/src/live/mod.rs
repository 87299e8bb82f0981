//! Native programs under `uruk live`, beside the same programs built without us.
//!
//! Three executables of each program run the same iterations, in one stretch of time and in turns of
//! a quarter of a second (`tiers::beside`):
//!
//! | executable | runs | says |
//! |---|---|---|
//! | `clang -O2` for plain x86-64 | alone | the peer |
//! | `uruk cc -O2` | alone | what the additions cost: room at entries |
//! | `uruk cc -O2` | under `uruk live` | the figure |
//!
//! Figures are iterations per second of processor time at the level where a process settles. Ratios
//! are of the mean processor time of iterations in a turn, beside those of the peer's turns before and
//! after it: the median of the later half of a round, and that of the rounds. All threads are counted:
//! those that sample, compile and compare are ours to pay for. When the last level began is in the
//! row's note, counted from the first iteration. [`measure_idle`] is a program in which there is
//! nothing to gain.

mod lengths;
mod server;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use uruk_guests::guest::idle;
use uruk_guests::{Compiler, Native, Program, Workload};

use crate::bench::{Bench, progress};
use crate::findings::Findings;
use crate::row::{Figure, Row, Target, Unit};
use crate::sample::Sample;
use crate::tiers::beside::{self, Compared, Turns};
use crate::tiers::steady::geometric_mean;
use crate::tiers::trial::Side;

pub use lengths::measure_lengths;
pub use server::measure_server;

/// The geometric mean to reach, and the least of any program.
const MEAN: f64 = 1.05;
const LEAST: f64 = 0.98;
/// The least ratio to the plain speed: with the additions, and when watched with nothing to gain.
const NOTHING: f64 = 0.99;
/// Iterations, and in a quick run; each takes about 20 ms. The steady state is taken to be the later
/// half: of kernels all is compiled and compared after some five seconds; large functions of zstd and
/// bzip2 get guided code after 40 to 75 s only. Of quick runs it is a part of the start.
const KERNEL: usize = 600;
const PROGRAM: usize = 1000;
const QUICK: usize = 200;
/// Rounds, each with new processes. Processes of one executable differ: of 24 of the C kernel
/// `hash-mix`, which is told by where its addresses lie (13.4 to 18.3 ms an iteration; 13.8 to 16.0
/// where they are not random), the middle half took 14.6 to 15.9.
const KERNEL_ROUNDS: usize = 6;
const PROGRAM_ROUNDS: usize = 3;
/// Iterations of the program without anything to gain, and the bytes it handles.
const IDLE: usize = 500;
const IDLE_BYTES: usize = 1 << 20;

/// Where the sides of a program stand in its list.
const PLAIN: usize = 0;
const LIVE: usize = 1;
const BUILT: usize = 2;

/// The programs: steady state, and what the build's additions cost.
///
/// # Errors
/// A program cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Findings> {
    let compiler = compiler(bench)?;
    let mut found = Findings::default();
    let (mut speeds, mut costs) = (Vec::new(), Vec::new());
    for workload in bench.native_workloads() {
        let name = workload.name();
        let program = workload.program()?;
        let built = Built::of(bench, &compiler, &name, &program)?;
        let (full, rounds) = match workload {
            Workload::Kernel(..) => (KERNEL, KERNEL_ROUNDS),
            _ => (PROGRAM, PROGRAM_ROUNDS),
        };
        let (full, rounds) = if bench.quick {
            (QUICK, 1)
        } else {
            (full, rounds)
        };
        let args = move |count| workload.args(count);
        let held = built.hold(bench, &name, full, rounds, args)?;
        let live = &held.sides[LIVE];
        let row = held.compared(format!("live {name}"), LIVE);
        speeds.push((name.clone(), row.ratio()));
        found
            .rows
            .push(row.target(Target::RatioAtLeast(LEAST)).note(gained(live)));
        let row = held.compared(format!("  built for it, {name}"), BUILT);
        costs.push((name, row.ratio()));
        found.rows.push(row.note(built.sizes()?));
        let curves = held.sides.into_iter().flat_map(|side| side.curves);
        found.curves.extend(curves.filter(|curve| curve.ours));
    }
    found
        .rows
        .push(mean("live, geometric mean", &speeds).target(Target::AtLeast(MEAN)));
    found
        .rows
        .push(mean("built for it, geometric mean", &costs).target(Target::AtLeast(NOTHING)));
    Ok(found)
}

/// A program whose time is the C library's.
///
/// # Errors
/// As of [`measure`].
pub fn measure_idle(bench: &Bench) -> Result<Findings> {
    let compiler = compiler(bench)?;
    let program = idle();
    let built = Built::of(bench, &compiler, "idle", &program)?;
    let args = |count: usize| vec![count.to_string(), IDLE_BYTES.to_string()];
    let rounds = if bench.quick { 1 } else { PROGRAM_ROUNDS };
    let held = built.hold(bench, "idle", bench.rounds(IDLE), rounds, args)?;
    let row = held.compared("live, nothing to gain", LIVE);
    let sides = &held.sides;
    let whole = |side: &Side| {
        let times = side.curves.iter().map(|curve| {
            let sum: f64 = curve.iterations.iter().map(|one| one.process).sum();
            sum / 1e6 / curve.iterations.len() as f64
        });
        Figure::of(times)
    };
    let all = Row::new(
        "  the same, start included",
        Unit::CpuMs,
        whole(&sides[LIVE]),
    );
    let all = all.peer(&*sides[PLAIN].name, whole(&sides[PLAIN]));
    Ok(vec![
        row.target(Target::RatioAtLeast(NOTHING)),
        all.note("mean processor time of an iteration, from the first one on"),
    ]
    .into())
}

/// `uruk cc`.
fn compiler(bench: &Bench) -> Result<Compiler> {
    build_library(bench)?;
    let flags = Command::new(&bench.uruk)
        .args(["cc", "--print-flags"])
        .output()
        .context("starting the uruk command")?;
    Ok(Compiler {
        name: "live",
        command: vec![bench.uruk.clone().into(), "cc".into()],
        identity: String::from_utf8_lossy(&flags.stdout).into_owned(),
    })
}

/// Builds the library of `uruk live` and the plugin of `uruk cc` beside the command; those of another command
/// are its owner's affair.
fn build_library(bench: &Bench) -> Result<()> {
    if std::env::var_os("URUK_BIN").is_some() {
        return Ok(());
    }
    progress("building what is loaded into native programs and compilers");
    let target = bench.directory.parent().context("a target directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet"])
        .args(["-p", "uruk-preload", "-p", "uruk-locals"])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(target)
        .status()
        .context("starting cargo")?;
    match status.success() {
        true => Ok(()),
        false => bail!("the library of `uruk live` does not build"),
    }
}

/// A program's executables.
struct Built {
    plain: PathBuf,
    live: PathBuf,
}

impl Built {
    fn of(bench: &Bench, compiler: &Compiler, name: &str, program: &Program) -> Result<Built> {
        progress(&format!("compiling {name} twice, unless it is there"));
        let (tools, cache) = (&bench.tools, &bench.cache);
        Ok(Built {
            plain: program.build_native(tools, cache, Native::O2)?,
            live: program.build_by(tools, cache, compiler, Native::O2)?,
        })
    }

    /// The command that runs the program live.
    fn command(&self, bench: &Bench) -> Vec<OsString> {
        let mut live: Vec<OsString> = vec![bench.uruk.clone().into()];
        live.extend(["live", "--no-control", "--"].map(OsString::from));
        live.push(self.live.clone().into());
        live
    }

    /// Runs all sides.
    fn hold(
        &self,
        bench: &Bench,
        name: &str,
        iterations: usize,
        rounds: usize,
        args: impl Fn(usize) -> Vec<String> + Clone + 'static,
    ) -> Result<Held> {
        let command = |words: Vec<OsString>| {
            let args = args.clone();
            move |count: usize| {
                let own = args(count).into_iter().map(OsString::from);
                words.iter().cloned().chain(own).collect::<Vec<OsString>>()
            }
        };
        let live = self.command(bench);
        let alone = |program: &PathBuf| command(vec![program.clone().into()]);
        let mut sides = vec![
            Side::peer("clang -O2", iterations, alone(&self.plain)),
            Side::ours("uruk live", iterations, command(live)),
            Side::peer("uruk cc -O2", iterations, alone(&self.live)),
        ];
        let turns = beside::hold(bench, name, "O2", rounds, &mut sides)?;
        Ok(Held { sides, turns })
    }

    /// The size of the additions in the file.
    fn sizes(&self) -> Result<String> {
        let size = |file: &PathBuf| -> Result<f64> { Ok(file.metadata()?.len() as f64 / 1024.0) };
        let (plain, live) = (size(&self.plain)?, size(&self.live)?);
        Ok(format!(
            "the executables: {live:.0} KB and {plain:.0} KB, {:.2} times",
            live / plain
        ))
    }
}

/// The results of the runs.
struct Held {
    sides: Vec<Side>,
    /// Of each round.
    turns: Vec<Turns>,
}

impl Held {
    /// Rates of a side and of the plain executable, and their ratios: of each round, the median of its
    /// turns.
    fn compared(&self, name: impl Into<String>, number: usize) -> Row {
        let (ours, peer) = (&self.sides[number], &self.sides[PLAIN]);
        let mut row = Row::new(name, Unit::IterationsPerSecond, ours.rate())
            .level("O2")
            .peer(&*peer.name, peer.rate());
        let rounds = self.turns.iter().zip(&ours.curves).zip(&peer.curves);
        let ratios = rounds.filter_map(|((turns, ours), peers)| {
            let (ours, peers) = (&ours.iterations, &peers.iterations);
            let found = beside::compare(turns, (number, ours), (PLAIN, peers));
            let median = |of: fn(&Compared) -> f64| Sample::new(found.iter().map(of));
            Some((
                median(|it| it.cpu)?.median(),
                median(|it| it.wall)?.median(),
            ))
        });
        let (cpu, wall): (Vec<f64>, Vec<f64>) = ratios.unzip();
        row.paired = Sample::new(cpu);
        // A rate of wall-clock time that is so many times the peer's.
        let wall = Sample::new(wall).map(|sample| sample.median());
        row.wall = wall
            .zip(peer.wall_rate())
            .map(|(wall, rate)| (wall * rate, rate));
        row
    }
}

/// When the last level began, in each round.
fn gained(side: &Side) -> String {
    let since = side.curves.iter().map(|curve| {
        let last = curve.segments().last().map_or(0, |last| last.start);
        let ns = curve.iterations[last].start - curve.iterations[0].start;
        format!("{:.1}", ns / 1e9)
    });
    let since: Vec<String> = since.collect();
    format!("the last level began after {} s", since.join(", "))
}

/// The geometric mean of ratios; one that is missing leaves none: it would flatter.
fn mean(name: &str, ratios: &[(String, Option<f64>)]) -> Row {
    let missing: Vec<&str> = ratios
        .iter()
        .filter(|(_, ratio)| ratio.is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    let known: Vec<f64> = ratios.iter().filter_map(|(_, ratio)| *ratio).collect();
    let figure = match missing.is_empty() {
        true => Figure::of(geometric_mean(&known)),
        false => Figure::Failed(format!("no ratio of {}", missing.join(", "))),
    };
    let least = known.iter().copied().fold(f64::INFINITY, f64::min);
    Row::new(name, Unit::Times, figure)
        .level("O2")
        .note(format!(
            "speed over that of clang -O2 for plain x86-64, {} programs; the least is {least:.3}",
            known.len()
        ))
}
