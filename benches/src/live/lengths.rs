//! Native programs under `uruk live` at several lengths of run: the processor time of all threads, and
//! the wall-clock time, of a whole process over those of `clang -O2`.
//!
//! The library spends a small part of the time of any run, besides what it gains (`uruk_tiering`,
//! *overhead*). Both processes run interleaved. A short run shows the cost of the library before it
//! has compiled anything; a long one whether that was gained back.

use std::ffi::OsString;

use anyhow::Result;
use uruk_guests::{Kernel, Tongue, Workload};

use super::{Built, compiler};
use crate::bench::Bench;
use crate::contest::{self, Contender, Side};
use crate::row::{Figure, Row, Target, Unit};
use crate::tiers::steady::geometric_mean;

/// The programs.
const WORKLOADS: [Workload; 8] = [
    Workload::Kernel(Tongue::C, Kernel::HashMix),
    Workload::Kernel(Tongue::C, Kernel::SpectralNorm),
    Workload::Lua("fib"),
    Workload::Lua("binary-trees"),
    Workload::QuickJs,
    Workload::Sqlite,
    Workload::Zstd,
    Workload::Bzip2,
];

/// Iterations of the runs: 1 to 20 s, for an iteration takes about 20 ms (of QuickJS, 45).
const ITERATIONS: [usize; 4] = [50, 150, 400, 1000];

/// Lengths of a quick run.
const QUICK: usize = 2;

/// The largest ratio at any length, by processor time.
const MOST: f64 = 1.05;

/// Every program at every length.
///
/// # Errors
/// A program cannot be built, or a command cannot be started.
pub fn measure_lengths(bench: &Bench) -> Result<Vec<Row>> {
    let compiler = compiler(bench)?;
    let (asked, named) = (bench.native_workloads(), !bench.only_workloads.is_empty());
    let lengths = match bench.quick {
        true => &ITERATIONS[..QUICK],
        false => &ITERATIONS[..],
    };
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for workload in WORKLOADS {
        if named && !asked.contains(&workload) {
            continue;
        }
        let name = workload.name();
        let built = Built::of(bench, &compiler, &name, &workload.program()?)?;
        for &iterations in lengths {
            let args: Vec<OsString> = workload
                .args(iterations)
                .into_iter()
                .map(Into::into)
                .collect();
            let name = format!("live {name}, {iterations} iterations");
            let commands = [vec![built.plain.clone().into()], built.command(bench)];
            let [plain, live] = commands.map(|mut command: Vec<OsString>| {
                command.extend(args.iter().cloned());
                command
            });
            let contenders = vec![
                Contender::new("clang -O2", Side::Reference, plain),
                Contender::new("uruk live", Side::Ours, live),
            ];
            let held = contest::hold_all(bench, &name, contenders)?;
            let row = |unit, figure: fn(&Contender) -> Figure| {
                Row::new(&*name, unit, figure(&held[1])).peer(&*held[0].name, figure(&held[0]))
            };
            let cpu = row(Unit::CpuMs, Contender::figure);
            ratios.extend(cpu.ratio());
            rows.push(cpu.target(Target::RatioAtMost(MOST)));
            rows.push(row(Unit::Ms, Contender::wall_figure));
        }
    }
    rows.extend(mean(&ratios));
    Ok(rows)
}

/// The geometric mean of all ratios, and the largest one.
fn mean(ratios: &[f64]) -> Option<Row> {
    let most = ratios.iter().copied().reduce(f64::max)?;
    let mean = Figure::of(geometric_mean(ratios));
    let row = Row::new("live, geometric mean over lengths", Unit::Times, mean);
    Some(row.level("O2").target(Target::AtMost(MOST)).note(format!(
        "processor time over that of clang -O2 for plain x86-64, {} runs; the most is {most:.3}",
        ratios.len()
    )))
}
