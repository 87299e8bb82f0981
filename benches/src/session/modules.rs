//! Rows of modules that live, and of one that comes and goes beside them.

use std::time::Duration;

use anyhow::Result;

use super::inputs;
use super::scenario::{Outcome, Side, Sides};
use crate::bench::Bench;
use crate::row::{Figure, Row, Target, Unit};

const ORC: &str = "ORC (LLJIT)";

/// Both sides' scenario: modules that stay, then cycles of another one.
struct Pair {
    ours: Outcome,
    orc: Outcome,
    /// ORC's name, with the number of its modules where it has fewer.
    orc_name: String,
}

/// How far both go.
#[derive(Clone, Copy)]
struct Sizes {
    /// Modules of ours that stay.
    live: usize,
    /// ORC's.
    orc_live: usize,
    cycles: usize,
    /// Adding modules ends after this much processor time.
    seconds: usize,
}

impl Sizes {
    /// The same for both.
    fn of(live: usize, cycles: usize, seconds: usize) -> Sizes {
        Sizes {
            live,
            orc_live: live,
            cycles,
            seconds,
        }
    }
}

impl Pair {
    fn run(sides: &Sides<'_>, kind: &str, file: &str, sizes: Sizes) -> Pair {
        let [cycles, seconds] = [sizes.cycles, sizes.seconds].map(|number| number.to_string());
        // More is wanted where others want the processors, too.
        let limit = Duration::from_secs(4 * sizes.seconds as u64 + 60);
        let run = |side, live: usize| {
            let live = live.to_string();
            sides.run(
                side,
                &["modules", kind, file, &live, &cycles, &seconds],
                limit,
            )
        };
        Pair {
            ours: run(Side::Ours, sizes.live),
            orc: run(Side::Orc, sizes.orc_live),
            orc_name: match sizes.orc_live == sizes.live {
                true => ORC.to_owned(),
                false => format!("{ORC}, of {}", sizes.orc_live),
            },
        }
    }

    /// The sides that were stopped early, for a note.
    fn note(&self) -> String {
        let sides = [("ours", &self.ours), (ORC, &self.orc)];
        let stopped = sides.into_iter().filter_map(|(who, outcome)| {
            let reached = outcome.reached("live")?;
            Some(format!("{who} {reached}"))
        });
        stopped.collect::<Vec<_>>().join("; ")
    }

    /// Time and memory of the one that came and went.
    fn cycle_rows(&self, name: &str) -> Vec<Row> {
        let note = match self.note() {
            stopped if stopped.is_empty() => "processor time of all threads: add, look up, call, \
                                              remove, and what frees it"
                .to_owned(),
            stopped => stopped,
        };
        let time = Row::new(name, Unit::Us, whole_cycle(&self.ours));
        let memory = |outcome: &Outcome| outcome.value("cycle_bytes", 1.0);
        let stays = Row::new("  memory that stays, each", Unit::Bytes, memory(&self.ours));
        vec![
            time.peer(self.orc_name.clone(), whole_cycle(&self.orc))
                .target(Target::RatioAtMost(1.0))
                .note(note),
            stays
                .peer(self.orc_name.clone(), memory(&self.orc))
                .note("growth of resident memory, each page once; what the allocator keeps is given back first"),
        ]
    }

    /// Time and memory of those that stay; `scale` bytes are one of the row's unit.
    fn live_rows(&self, name: &str, unit: Unit, scale: f64) -> Vec<Row> {
        let held = |outcome: &Outcome| outcome.value("live_bytes", scale);
        let row = Row::new(format!("{name}, each"), unit, held(&self.ours));
        let time = Row::new(
            "  adding and calling it",
            Unit::Us,
            self.ours.each_us("live"),
        );
        vec![
            row.peer(self.orc_name.clone(), held(&self.orc))
                .target(Target::RatioAtMost(1.0))
                .note(self.note()),
            time.peer(self.orc_name.clone(), self.orc.each_us("live"))
                .target(Target::RatioAtMost(1.0)),
        ]
    }
}

/// Microseconds of a cycle, its part of what frees all of them included.
fn whole_cycle(outcome: &Outcome) -> Figure {
    outcome.figure(|readings| {
        let cycle = readings.each_ns("cycle").first().copied()?;
        let free = readings.each_ns("free").first().copied().unwrap_or(0.0);
        Some((cycle + free) / 1e3)
    })
}

/// An object that comes and goes, alone and beside many live ones.
///
/// # Errors
/// The object cannot be written.
pub fn measure_cycles(bench: &Bench) -> Result<Vec<Row>> {
    let sides = Sides::new(bench)?;
    let file = inputs::template_file(bench)?;
    let mut rows = Vec::new();
    // Each of ORC's objects has three mappings of its own: 30,000 are more than the kernel allows.
    for (live, orc_live, cycles, name) in [
        (0, 0, 4_000, "add, call and remove an object, alone"),
        (
            30_000,
            20_000,
            1_000,
            "add, call and remove an object, beside 30,000",
        ),
    ] {
        let sizes = Sizes {
            live,
            orc_live,
            cycles,
            seconds: 20,
        };
        rows.extend(Pair::run(&sides, "object", &file, sizes).cycle_rows(name));
    }
    Ok(rows)
}

/// Many objects that live.
///
/// # Errors
/// The object cannot be written.
pub fn measure_live_objects(bench: &Bench) -> Result<Vec<Row>> {
    let sides = Sides::new(bench)?;
    let file = inputs::template_file(bench)?;
    let live = if bench.quick { 20_000 } else { 200_000 };
    let pair = Pair::run(&sides, "object", &file, Sizes::of(live, 0, 30));
    Ok(pair.live_rows(&format!("memory of {live} live objects"), Unit::Bytes, 1.0))
}

/// Memory beside that of cranelift-jit, which keeps all in one module and gives nothing back.
fn beside_cranelift(sides: &Sides<'_>, name: &str, ours: &Outcome, live: usize) -> Row {
    let limit = Duration::from_secs(120);
    let live = live.to_string();
    let words = ["modules", "ir", CRANELIFT, &live, "0", "20"];
    let theirs = sides.run(Side::Ours, &words, limit);
    let held = |outcome: &Outcome| outcome.value("live_bytes", 1024.0);
    Row::new(format!("{name}, each"), Unit::Kilobytes, held(ours))
        .peer(CRANELIFT, held(&theirs))
        .target(Target::AtMost(8.0))
}

/// In place of a path: our side compiles modules without LLVM's code generator.
pub const BASELINE: &str = "baseline";

/// In place of a path: cranelift-jit does it.
pub const CRANELIFT: &str = "cranelift-jit";

/// Modules of one small function with a global: memory of those that live and were called, and
/// one that comes and goes.
///
/// # Errors
/// This executable is nowhere.
pub fn measure_cheap_modules(bench: &Bench) -> Result<Vec<Row>> {
    let sides = Sides::new(bench)?;
    let alone = Pair::run(&sides, "ir", "none", Sizes::of(0, 300, 15));
    let mut rows = alone.cycle_rows("add, call and remove a module, alone");
    let counts: &[usize] = if bench.quick {
        &[1_000]
    } else {
        &[4_000, 30_000]
    };
    for &live in counts {
        let pair = Pair::run(&sides, "ir", "none", Sizes::of(live, 200, 20));
        let name = format!("memory of {live} live modules, called");
        rows.extend(pair.live_rows(&name, Unit::Kilobytes, 1024.0));
        let without = Pair::run(&sides, "ir", BASELINE, Sizes::of(live, 0, 20));
        let name = format!("{name}, baseline compiler");
        rows.extend(without.live_rows(&name, Unit::Kilobytes, 1024.0));
        rows.push(beside_cranelift(&sides, &name, &without.ours, live));
        rows.extend(pair.cycle_rows(&format!("add, call and remove a module, beside {live}")));
    }
    Ok(rows)
}
