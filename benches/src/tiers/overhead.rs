//! What sampling costs: the same processes with and without, in turns, and twice
//! without, which shows what such a difference is worth on this machine.
//!
//! Neither side goes beyond tier 2, which counters alone lead to: both come to run the
//! same code whatever the samples say.

use anyhow::Result;
use uruk_guests::{Kernel, Level, Tongue, Workload};

use super::changes;
use super::curve::Curve;
use super::steady;
use super::trial::{self, Output, Side};
use crate::bench::Bench;
use crate::findings::Findings;
use crate::row::{Figure, Row, Target, Unit};

/// Loops over registers, over memory, with calls, with indirect jumps.
const WORKLOADS: [Workload; 4] = [
    Workload::Kernel(Tongue::C, Kernel::Mandelbrot),
    Workload::Kernel(Tongue::C, Kernel::HashMix),
    Workload::Lua("fib"),
    Workload::Kernel(Tongue::C, Kernel::Interpreter),
];
const ROUNDS: usize = 12;
const ITERATIONS: usize = 30;
/// From a process's first iteration on, what counts as the burst.
const BURST_MS: f64 = 250.0;
/// Limits in per cent.
const STEADY_LIMIT: f64 = 0.5;
const BURST_LIMIT: f64 = 2.0;

/// A part of a process's life.
#[derive(Clone, Copy)]
enum Part {
    Burst,
    Steady,
}

/// Sampling on and off.
///
/// # Errors
/// A workload cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Findings> {
    let mut found = Findings::default();
    let mut differences: [[Vec<f64>; 2]; 2] = Default::default();
    for workload in WORKLOADS {
        let bitcode = steady::bitcode(bench, workload, Level::O3NoPasses)?;
        let side = |name: &str, sampling: &'static str| {
            let (bench, bitcode) = (bench.clone(), bitcode.clone());
            Side::ours(name, ITERATIONS, move |count| {
                let options = ["--set", "max_tier=2", "--sampling", sampling];
                bench.uruk_run_with(&options, &bitcode, &workload.args(count))
            })
        };
        let mut sides = [
            side("without", "off"),
            side("sampled", "auto"),
            side("without again", "off"),
        ];
        let rounds = bench.rounds(ROUNDS);
        let name = workload.name();
        trial::hold(
            bench,
            &name,
            Level::O3NoPasses.name(),
            rounds,
            Output::Same,
            &mut sides,
        )?;
        let [without, sampled, again] = &sides;
        for (part, kept) in [Part::Burst, Part::Steady]
            .into_iter()
            .zip(&mut differences)
        {
            kept[0].extend(per_cent(part, sampled, without));
            kept[1].extend(per_cent(part, again, without));
        }
    }
    let [burst, steady] = differences;
    for (name, [difference, noise], limit) in [
        ("sampling overhead, burst", burst, BURST_LIMIT),
        ("sampling overhead, steady", steady, STEADY_LIMIT),
    ] {
        let error = standard_error(&difference);
        let row = Row::new(name, Unit::PerCent, Figure::of(difference))
            .peer("A and A", Figure::of(noise))
            .target(Target::AtMost(limit));
        found.rows.push(row.note(format!(
            "processor time of an iteration, all threads, with sampling over without, both up to tier 2, \
             less 1, process by process; `A and A` is without over without; the burst is the first \
             {BURST_MS} ms, its first iteration left out; the standard error of the mean is \
             {error:.2}, a difference below twice that is none"
        )));
    }
    Ok(found)
}

/// Standard error of the mean.
fn standard_error(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0).max(1.0) / count).sqrt()
}

/// The difference of each round's processes.
fn per_cent(part: Part, ours: &Side, other: &Side) -> Vec<f64> {
    let pairs = ours.curves.iter().zip(&other.curves);
    pairs
        .map(|(ours, other)| (part.cpu(ours) / part.cpu(other) - 1.0) * 100.0)
        .collect()
}

impl Part {
    /// Median processor time of an iteration of this part.
    fn cpu(self, curve: &Curve) -> f64 {
        match self {
            Part::Steady => curve.settled().cpu,
            Part::Burst => {
                let end = curve.iterations[0].start + BURST_MS * 1e6;
                let all = curve.iterations.iter().skip(1);
                let burst = all.take_while(|one| one.start < end).map(|one| one.process);
                changes::median(&burst.collect::<Vec<f64>>())
            }
        }
    }
}
