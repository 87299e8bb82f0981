//! How soon a hot function runs optimized code, by its effect: short iterations of a
//! kernel whose time is spent in one small function, and the first of them from which
//! on it is about as fast as in the end.

use anyhow::Result;
use uruk_guests::{Kernel, Level, Tongue, Workload};

use super::curve::{Curve, Iteration};
use super::steady;
use super::trial::{self, Side};
use crate::bench::Bench;
use crate::findings::Findings;
use crate::row::{Figure, Row, Target, Unit};

/// Kernels with the size that makes an iteration take some 10 us natively.
const HOT: [(Kernel, &str); 3] = [
    (Kernel::NBody, "100"),
    (Kernel::Mandelbrot, "10"),
    (Kernel::SpectralNorm, "30"),
];
const ITERATIONS: &str = "20000";
const ROUNDS: usize = 8;
/// An iteration up to this much slower than the settled ones runs optimized code; at
/// tier 1 these kernels are more than twice as slow.
const ABOUT: f64 = 1.4;
/// So many iterations in a row, so that one that was quick by chance does not count.
const IN_A_ROW: usize = 5;
const LIMIT_MS: f64 = 10.0;

/// Milliseconds from the first call to optimized code.
///
/// # Errors
/// A kernel cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Findings> {
    let mut found = Findings::default();
    for (kernel, size) in HOT {
        let workload = Workload::Kernel(Tongue::C, kernel);
        let bitcode = steady::bitcode(bench, workload, Level::O3NoPasses)?;
        let args = [ITERATIONS, size].map(str::to_owned);
        let tiers = |which: &str| bench.uruk_run_with(&["--tiers", which], &bitcode, &args);
        let mut sides = [
            Side::ours("uruk", tiers("auto")),
            Side::ours("uruk, tier 1", tiers("1")),
        ];
        let title = format!("{} in short iterations", workload.name());
        let rounds = bench.rounds(ROUNDS);
        trial::hold(bench, &title, "", rounds, &mut sides)?;
        let [auto, baseline] = &sides;
        let slow = baseline.figure(|settled| settled.wall).median();
        let delays = auto.curves.iter().filter_map(|curve| {
            let settled = curve.settled().wall;
            // Where tier 1 is as fast, there is nothing to see.
            slow.filter(|slow| *slow > 1.5 * ABOUT * settled)?;
            Some(delay_ms(curve, settled))
        });
        let row = Row::new(
            format!("first call to optimized code, {}", workload.name()),
            Unit::Ms,
            Figure::of(delays),
        );
        found
            .rows
            .push(row.target(Target::AtMost(LIMIT_MS)).note(format!(
                "wall-clock time from the first iteration to {IN_A_ROW} in a row that take at most \
             {ABOUT} times what they take in the end"
            )));
    }
    Ok(found)
}

/// From the first iteration's start to the first of those in a row that are quick.
fn delay_ms(curve: &Curve, settled: f64) -> f64 {
    let quick = |one: &Iteration| one.wall <= ABOUT * settled;
    let all = &curve.iterations;
    let first = all.windows(IN_A_ROW).position(|row| row.iter().all(quick));
    first.map_or(f64::NAN, |first| (all[first].start - all[0].start) / 1e6)
}
