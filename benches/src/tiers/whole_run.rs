//! Whole runs, from bitcode to exit, against `lli` and against compiling natively
//! first. A run of one iteration is over before much is hot; one of many is not.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use uruk_guests::{Kernel, Level, Native, Tongue, Workload};

use super::steady;
use crate::bench::Bench;
use crate::contest::{self, Contender, Side};
use crate::programs::{LLI_MODES, pair};
use crate::row::{Row, Target};

/// The workloads that run if none is named.
const WORKLOADS: [Workload; 5] = [
    Workload::Kernel(Tongue::C, Kernel::NBody),
    Workload::Kernel(Tongue::Rust, Kernel::HashMix),
    Workload::Lua("fib"),
    Workload::Sqlite,
    Workload::Zstd,
];
/// Iterations of a short run, and of one that takes a second or more.
const SHORT: usize = 1;
const LONG: usize = 60;
/// How long the contenders of a run are repeated, in all; and the multiple of the
/// fastest peer's time at which others are stopped.
const BUDGET: Duration = Duration::from_secs(4);
const PATIENCE: f64 = 2.0;
/// The peer that compiles first.
const COMPILED: &str = "clang -O2, then run";

/// Short and long runs of a few workloads, or of those that were named.
///
/// # Errors
/// A workload cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let named = !bench.only_workloads.is_empty();
    let workloads = if named {
        bench.workloads()
    } else {
        WORKLOADS.to_vec()
    };
    let bench = Bench {
        repeat_budget: BUDGET.min(bench.repeat_budget),
        patience: PATIENCE.min(bench.patience),
        ..bench.clone()
    };
    let mut rows = Vec::new();
    for workload in workloads {
        for iterations in [SHORT, LONG] {
            rows.extend(compare(&bench, workload, Level::O3NoPasses, iterations)?);
        }
        // Optimized bitcode suits `lli`, which runs no passes of its own.
        if workload.has_levels() && !bench.quick {
            rows.extend(compare(&bench, workload, Level::O2, LONG)?);
        }
    }
    Ok(rows)
}

fn compare(bench: &Bench, workload: Workload, level: Level, iterations: usize) -> Result<Vec<Row>> {
    let args = workload.args(iterations);
    let bitcode = steady::bitcode(bench, workload, level)?;
    let native = steady::native(bench, workload, Native::BEST)?;
    let mut command: Vec<OsString> = vec![native.into()];
    command.extend(args.iter().map(Into::into));
    let ours = bench.uruk_run_with(&["--tiers", "auto"], &bitcode, &args);
    let mut contenders = vec![
        Contender::new("native", Side::Reference, command),
        Contender::new("uruk", Side::Ours, ours),
    ];
    let long = iterations == LONG;
    // First, so that it is timed to its end, and limits the others. A short run is no
    // match for a compiler.
    if long {
        let command = compile_then_run(bench, &bitcode, &args);
        contenders.push(Contender::new(COMPILED, Side::Peer, command));
    }
    for (name, flags) in LLI_MODES {
        let command = bench.lli(flags, &bitcode, &args);
        contenders.extend(command.map(|command| Contender::new(name, Side::Peer, command)));
    }
    let length = if long { "long" } else { "short" };
    let name = format!("whole run, {length}, {}", workload.name());
    let contenders = contest::hold(bench, &name, None, contenders)?;
    Ok(rows(&name, level, &contenders))
}

/// Against the best mode of `lli`, and against compiling first.
fn rows(name: &str, level: Level, contenders: &[Contender]) -> Vec<Row> {
    let Some(ours) = contenders.iter().find(|one| one.side == Side::Ours) else {
        return Vec::new();
    };
    let (compiled, lli): (Vec<&Contender>, Vec<&Contender>) = contenders
        .iter()
        .filter(|one| one.side == Side::Peer)
        .partition(|one| one.name == COMPILED);
    let best = lli
        .iter()
        .filter_map(|one| Some((one, one.figure().median()?)))
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(one, _)| *one)
        .or(lli.first().copied());
    let no_slower = Target::RatioAtMost(1.0);
    let against_lli = best.map(|best| pair(name, ours, best).target(no_slower));
    let against_clang = compiled
        .first()
        .map(|one| pair(name, ours, one).target(no_slower));
    let rows = against_lli.into_iter().chain(against_clang);
    rows.map(|row| row.level(level.name())).collect()
}

/// A shell that compiles the bitcode to an executable and becomes it.
fn compile_then_run(bench: &Bench, bitcode: &Path, args: &[String]) -> Vec<OsString> {
    // `-x ir`: what the file is called does not matter. No warnings: bitcode without
    // passes is one, to clang.
    const SCRIPT: &str = "clang=$1; bitcode=$2; program=$3; shift 3; \
                          \"$clang\" -w -O2 -pthread -x ir \"$bitcode\" -o \"$program\" -lm && \
                          exec \"$program\" \"$@\"";
    let program = bench.directory.join("compiled-first");
    let mut command: Vec<OsString> = ["/bin/sh", "-c", SCRIPT, "sh"].map(OsString::from).into();
    command.extend([
        bench.tools.clang.clone().into(),
        bitcode.into(),
        program.into(),
    ]);
    command.extend(args.iter().map(OsString::from));
    command
}
