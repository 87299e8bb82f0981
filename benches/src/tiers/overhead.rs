//! The cost of sampling: short windows of one running program with and without it (`windows`), a
//! process for each program and rate.
//!
//! The burst's rate is held for as long as that takes, and, to see that this measures
//! anything, ten times that rate. A row whose standard error is too large to tell its
//! limit from nothing has failed.

use anyhow::{Context, Result, bail};
use uruk_guests::workload::TIMES;
use uruk_guests::{Kernel, Level, Tongue, Workload};

use super::estimate::Estimate;
use super::steady;
use super::windows::{Found, ITERATIONS, Rate};
use crate::bench::{Bench, progress};
use crate::findings::Findings;
use crate::process::Ending;
use crate::row::{Figure, Row, Target, Unit};

/// Loops over registers, over memory, with calls, with indirect jumps; and the size at
/// which an iteration takes about 2 ms.
const WORKLOADS: [(Workload, &str); 4] = [
    (Workload::Kernel(Tongue::C, Kernel::Mandelbrot), "150"),
    (Workload::Kernel(Tongue::C, Kernel::HashMix), "70000"),
    (Workload::Lua("fib"), "23"),
    (Workload::Kernel(Tongue::C, Kernel::Interpreter), "35000"),
];
/// The one that is also run at ten times the rate.
const SANITY: usize = 3;
/// Of a process.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(150);

/// Limits in per cent.
const STEADY_LIMIT: f64 = 0.5;
const BURST_LIMIT: f64 = 2.0;
/// A standard error above this tells nothing, in per cent.
const WORST_ERROR: f64 = 0.2;
/// The least cost of ten times the rate, over that of the rate itself.
const TENFOLD: f64 = 5.0;

/// A program at a rate.
struct Measured {
    found: Found,
    sampled: Estimate,
    nothing: Estimate,
}

/// Sampling on and off.
///
/// # Errors
/// A workload cannot be built, or a process fails.
pub fn measure(bench: &Bench) -> Result<Findings> {
    let mut found = Findings::default();
    let mut burst = None;
    for (rate, limit) in [(Rate::Steady, STEADY_LIMIT), (Rate::Burst, BURST_LIMIT)] {
        for (index, workload) in WORKLOADS.into_iter().enumerate() {
            let measured = windows(bench, workload, rate)?;
            let name = format!("sampling, {}: {}", rate.name(), workload.0.name());
            found.rows.push(row(name, &measured, limit));
            if rate == Rate::Burst && index == SANITY {
                burst = Some(measured);
            }
        }
    }
    let tenfold = windows(bench, WORKLOADS[SANITY], Rate::Tenfold)?;
    let name = format!("sampling, ten times: {}", WORKLOADS[SANITY].0.name());
    found
        .rows
        .push(row(name, &tenfold, f64::INFINITY).target(Target::Information));
    if let Some(burst) = burst {
        let times = tenfold.sampled.mean / burst.sampled.mean;
        let row = Row::new("  over the burst's", Unit::Times, Figure::of([times]))
            .target(Target::AtLeast(TENFOLD))
            .note(format!(
                "it measures: {:.0} instead of {:.0} samples a second cost accordingly more",
                tenfold.found.samples_per_second, burst.found.samples_per_second
            ));
        found.rows.push(row);
    }
    Ok(found)
}

/// The row of a program: the mean and twice its standard error to both sides.
fn row(name: String, measured: &Measured, limit: f64) -> Row {
    let Measured {
        found,
        sampled,
        nothing,
    } = measured;
    let figure = |estimate: &Estimate| match estimate.error <= WORST_ERROR {
        true => Figure::of([-2.0, 0.0, 2.0].map(|times| estimate.mean + times * estimate.error)),
        false => Figure::Failed(format!("error {:.2}", estimate.error)),
    };
    let lost = match found.lost {
        0 => String::new(),
        lost => format!(", {lost} lost, which lowers the rate"),
    };
    Row::new(name, Unit::PerCent, figure(sampled))
        .peer("A and A", figure(nothing))
        .target(Target::AtMost(limit))
        .note(format!(
            "processor time that sampling adds, all threads and interrupts, in windows of one \
             process: mean of {} fours (the tenth at either end cut), and twice the standard error \
             of {:.3} to both sides; `A and A` is without over without, {} fours, {:.3}; {:.0} \
             samples a second by {}{lost}; of it the reader of the samples {:.2}; \
             the session itself tells {:.2}",
            sampled.count,
            sampled.error,
            nothing.count,
            nothing.error,
            found.samples_per_second,
            found.source,
            found.reader,
            found.told,
        ))
}

/// Runs a process of windows.
fn windows(bench: &Bench, workload: (Workload, &str), rate: Rate) -> Result<Measured> {
    let (workload, size) = workload;
    let bitcode = steady::bitcode(bench, workload, Level::O3NoPasses)?;
    let mut args = workload.args(ITERATIONS);
    if let Some(last) = args.last_mut() {
        *last = size.to_owned();
    }
    let mut command = vec![std::env::current_exe()?.into_os_string()];
    command.extend(["--windows".into(), rate.name().into(), bitcode.into()]);
    command.extend(args.into_iter().map(Into::into));
    // The guest asks the clock if it is to write times.
    let variables = [(TIMES, std::ffi::OsStr::new("/dev/null"))];
    let run = bench.runner.run_with(&command, &variables, LIMIT)?;
    if run.ending != Ending::Status(0) {
        bail!(
            "windows of {}: {:?}: {}",
            workload.name(),
            run.ending,
            String::from_utf8_lossy(&run.stderr)
        );
    }
    let found = Found::parse(&String::from_utf8_lossy(&run.stdout))?;
    let few = || format!("too few windows of {}", workload.name());
    let measured = Measured {
        sampled: Estimate::of(&found.sampled).with_context(few)?,
        nothing: Estimate::of(&found.nothing).with_context(few)?,
        found,
    };
    progress(&format!(
        "  {} {}: {:+.2} +- {:.2} %, A and A {:+.2} +- {:.2}, {:.0} samples a second, {} fours",
        workload.name(),
        rate.name(),
        measured.sampled.mean,
        measured.sampled.error,
        measured.nothing.mean,
        measured.nothing.error,
        measured.found.samples_per_second,
        measured.sampled.count,
    ));
    Ok(measured)
}
