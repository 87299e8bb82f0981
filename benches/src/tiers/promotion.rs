//! How soon a hot function runs tier 2 code: from its first call to the publication,
//! as the run's own timeline has it; and how soon a loop that is entered once does, by
//! the loop's own clock (`left.ll`): it ends when it sees itself optimized.

use std::time::Duration;

use anyhow::{Context, Result};
use uruk_guests::{Kernel, Level, Tongue, Workload};

use super::steady;
use super::trace::{self, Promotion};
use crate::bench::{Bench, progress};
use crate::row::{Figure, Row, Target, Unit};

/// Kernels, with a function in which they spend their time and a size that lets nothing
/// else happen before it is called: it is hot from the first call on. Of a smaller hash
/// table the kernel's time goes to zeroed pages, not to `find`. In spectral-norm three
/// functions are equally hot, and `times` may be the last in the queue.
/// Iterations are short, and enough for the process to outlive the promotion.
///
/// Whether the function or one of its loops comes first is not asked.
const HOT: [(Kernel, &str, [&str; 2]); 4] = [
    (Kernel::NBody, "attract", ["4000", "100"]),
    (Kernel::Mandelbrot, "escapes_after", ["4000", "10"]),
    (Kernel::SpectralNorm, "times", ["4000", "30"]),
    (Kernel::HashMix, "find", ["400", "20000"]),
];
/// Those whose time several functions share.
const SHARED: [&str; 2] = ["times", "find"];
const ROUNDS: usize = 8;
/// The functions the limit is for.
const INSTRUCTIONS: u64 = 200;
const LIMIT_MS: f64 = 10.0;
/// The limit for functions whose time several share.
const SHARED_LIMIT_MS: f64 = 15.0;
/// A loop of one call, of 32 IR instructions, that ends at its first pass at tier 2; its program
/// prints how many milliseconds that took.
const LEFT: &str = include_str!("left.ll");
const LEFT_ROUNDS: usize = 20;
/// The time limit of a process.
const PATIENCE: Duration = Duration::from_secs(60);

/// Milliseconds from first calls to tier 2 code.
///
/// # Errors
/// A kernel cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = left(bench)?;
    for (kernel, function, args) in HOT {
        let workload = Workload::Kernel(Tongue::C, kernel);
        let bitcode = steady::bitcode(bench, workload, Level::O3NoPasses)?;
        let args = args.map(str::to_owned);
        let path = bench.directory.join("trace.json");
        let shown = path.to_string_lossy();
        let command = bench.uruk_run_with(&["--tiers", "auto", "--trace", &shown], &bitcode, &args);
        let mut seen: Vec<Promotion> = Vec::new();
        for _ in 0..bench.rounds(ROUNDS) {
            // An earlier process's file must not pass for this one's.
            let _ = std::fs::remove_file(&path);
            bench
                .runner
                .run(&command, PATIENCE)
                .context("starting uruk")?;
            let text = std::fs::read_to_string(&path).context("reading the trace")?;
            let mut found = trace::promotions(&text)?;
            found.retain(|one| one.is_of(function));
            seen.extend(found.into_iter().next());
        }
        progress(&format!(
            "{function}: {} of the runs promoted it",
            seen.len()
        ));
        rows.extend(rows_of(&workload.name(), function, &seen));
    }
    Ok(rows)
}

/// The loop of one call: what it says itself, and what of that was the compile.
fn left(bench: &Bench) -> Result<Vec<Row>> {
    let file = bench.directory.join("left.ll");
    std::fs::write(&file, LEFT).context("writing a program")?;
    let path = bench.directory.join("trace.json");
    let shown = path.to_string_lossy();
    let command = bench.uruk_run_with(&["--tiers", "auto", "--trace", &shown], &file, &[]);
    let (mut whole, mut compiles) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(LEFT_ROUNDS) {
        let _ = std::fs::remove_file(&path);
        let run = bench
            .runner
            .run(&command, PATIENCE)
            .context("starting uruk")?;
        let words = String::from_utf8_lossy(&run.stdout).into_owned();
        whole.push(
            words
                .trim()
                .parse::<f64>()
                .context("the program's own time")?,
        );
        let text = std::fs::read_to_string(&path).context("reading the trace")?;
        let found = trace::promotions(&text)?;
        let found = found.iter().find(|one| one.is_of("spin"));
        compiles.extend(found.map(|one| (one.published - one.began) / 1e3));
    }
    let least = whole.iter().copied().fold(f64::INFINITY, f64::min);
    let row = Row::new("loop of one call: to tier 2", Unit::Ms, Figure::of(whole));
    Ok(vec![
        row.target(Target::AtMost(LIMIT_MS)).note(format!(
            "from the first pass to the first at tier 2, by the program's clock, which sees both: 32 \
             IR instructions, in a process that has compiled nothing at tier 2; the least is {least:.1}"
        )),
        Row::new("  of which compile, link, publish", Unit::Ms, Figure::of(compiles)),
    ])
}

/// The whole, and its two parts.
fn rows_of(workload: &str, function: &str, seen: &[Promotion]) -> Vec<Row> {
    let figure = |of: fn(&Promotion) -> f64| Figure::of(seen.iter().map(|one| of(one) / 1e3));
    let small = seen.iter().all(|one| one.instructions <= INSTRUCTIONS);
    let size = seen.first().map_or(0, |one| one.instructions);
    let name = format!("first call to tier 2 code, {workload}: {function}");
    let whole = Row::new(name, Unit::Ms, figure(|one| one.published - one.called));
    let whole = whole.target(match small {
        true if SHARED.contains(&function) => Target::AtMost(SHARED_LIMIT_MS),
        true => Target::AtMost(LIMIT_MS),
        false => Target::Information,
    });
    vec![
        whole.note(format!(
            "wall-clock time, by the timeline of the run; for functions of up to {INSTRUCTIONS} IR \
             instructions on an idle machine, as a compile thread gives way to all others"
        )),
        Row::new(
            format!("  of which until its compile began ({size} IR instructions)"),
            Unit::Ms,
            figure(|one| one.began - one.called),
        ),
        Row::new(
            "  of which compile, link, publish",
            Unit::Ms,
            figure(|one| one.published - one.began),
        ),
    ]
}
