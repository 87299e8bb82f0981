//! The cost of code that counts its passes: the programs whose loops are entered once, with every
//! function at one tier, beside the same with `--count-fuel`. Figures are processor time of whole
//! runs, compiles among them; a ratio of 1.03 is 3 % more.

use anyhow::Result;
use uruk_guests::once::Size;
use uruk_guests::{Flavor, Level};

use crate::bench::Bench;
use crate::contest::{self, Contender, Side};
use crate::row::{Figure, Row, Target, Unit};

/// The bitcode's level: annotated for optimization, no pass has run.
const LEVEL: Level = Level::O1NoPasses;
/// The limit of the cost of counting at tiers 2 and 3, as the geometric mean of all programs.
const MEAN: f64 = 1.03;

/// Rows of each program, then means.
///
/// # Errors
/// A program cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for tiers in ["1", "2", "3"] {
        let mut ratios = Vec::new();
        for once in bench.once() {
            let program = once.program(Size::Large);
            let flavor = Flavor::plain(LEVEL);
            let built = program.build(&bench.tools, &bench.cache, flavor, 1, &|_, _| {})?;
            let run = |more: &[&str]| {
                let options = [&["--tiers", tiers][..], more].concat();
                bench.uruk_run_with(&options, &built.bitcode, &[])
            };
            let contenders = vec![
                Contender::new("not counted", Side::Reference, run(&[])),
                Contender::new("counted", Side::Ours, run(&["--count-fuel"])),
            ];
            let title = format!("counted passes, {}, tier {tiers}", once.name());
            let held = contest::hold_all(bench, &title, contenders)?;
            let [plain, counted] = &held[..] else {
                continue;
            };
            let row = Row::new(&title, Unit::CpuMs, counted.figure())
                .peer(&plain.name, plain.figure())
                .level(LEVEL.name());
            ratios.extend(row.ratio());
            rows.push(row);
        }
        let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let mean = (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp());
        let name = format!("counted passes, geometric mean, tier {tiers}");
        let mean = Row::new(name, Unit::Times, Figure::of(mean)).level(LEVEL.name());
        rows.push(match tiers {
            // Tier 1 is left soon.
            "1" => mean,
            _ => mean
                .peer("not counted", Figure::of([1.0]))
                .target(Target::RatioAtMost(MEAN)),
        });
    }
    Ok(rows)
}
