//! Rows of graphs of functions, archives, and lazy chains.

use std::time::Duration;

use anyhow::Result;

use super::inputs;
use super::scenario::{Side, Sides};
use super::symbols::{Ladder, SIZES};
use crate::bench::Bench;
use crate::row::{Row, Target, Unit};

const ORC: &str = "ORC (LLJIT)";

/// Objects of functions that call each other.
///
/// # Errors
/// An input cannot be written.
pub fn measure_object_graph(bench: &Bench) -> Result<Vec<Row>> {
    const LIMIT: Duration = Duration::from_secs(6);
    let sides = Sides::new(bench)?;
    let mut rows = Vec::new();
    for (shape, ring) in [("chain", false), ("ring", true)] {
        let files = SIZES.map(|size| inputs::chain_object_file(bench, size.parse()?, ring));
        let files = files.into_iter().collect::<Result<Vec<_>>>()?;
        let ladder = Ladder::climb(|side, count| {
            let file = SIZES.iter().zip(&files).find(|(size, _)| **size == count);
            let file = file.map_or("", |(_, file)| file);
            sides.run(side, &["object-graph", file, count], LIMIT)
        });
        rows.extend(ladder.rows(&format!("{shape} of {{}} functions in one object")));
    }
    Ok(rows)
}

/// An archive of which little is used.
///
/// # Errors
/// The archive cannot be written.
pub fn measure_archive(bench: &Bench) -> Result<Vec<Row>> {
    const LIMIT: Duration = Duration::from_secs(20);
    let sides = Sides::new(bench)?;
    let file = inputs::archive_file(bench, 10_000)?;
    let rounds = bench.rounds(12).to_string();
    let run = |side| sides.run(side, &["archive", &file, &rounds, "10000", "10"], LIMIT);
    let [ours, orc] = [Side::Ours, Side::Orc].map(run);
    let rows = [
        ("open", "open an archive of 10,000 members"),
        ("use", "use 10 of them, each"),
    ];
    let row = |(phase, name): (&str, &str)| {
        let row = Row::new(name, Unit::Us, ours.each_us(phase));
        row.peer(ORC, orc.each_us(phase))
            .target(Target::RatioAtMost(1.0))
    };
    Ok(rows.map(row).into())
}

/// A chain of functions that are compiled when they are first called.
///
/// # Errors
/// An input cannot be written.
pub fn measure_lazy_chain(bench: &Bench) -> Result<Vec<Row>> {
    const LIMIT: Duration = Duration::from_secs(120);
    const LAZY: &str = "ORC (LLLazyJIT)";
    let sides = Sides::new(bench)?;
    let count = if bench.quick { 10_000 } else { 100_000 };
    let mut rows = Vec::new();
    // One module: ORC takes a part out of it for each function, so that its time grows with
    // the square of the size.
    for (kind, what, ours_count, orc_count) in [
        ("together", "one module", count, 1_000),
        ("apart", "a module each", 2_000, 2_000),
    ] {
        let run = |side, count: usize| -> Result<_> {
            let file = match kind {
                "together" => inputs::chain_bitcode_file(bench, count)?,
                _ => "none".to_owned(),
            };
            Ok(sides.run(side, &["lazy", &file, kind, &count.to_string()], LIMIT))
        };
        let (ours, orc) = (run(Side::Ours, ours_count)?, run(Side::Orc, orc_count)?);
        for (phase, action) in [
            ("call", "first calls"),
            ("add", "  of which: adding, before"),
        ] {
            let name = match phase {
                "call" => format!("lazy chain of {ours_count}, {what}, {action}, each"),
                _ => "  adding it before, each".to_owned(),
            };
            let row = Row::new(name, Unit::Us, ours.each_us(phase));
            let peer = format!("{LAZY}, chain of {orc_count}");
            let row = row.peer(peer, orc.each_us(phase));
            rows.push(row.target(Target::RatioAtMost(1.0)).note(
                "processor time of all threads; calling the first compiles all, one within the other",
            ));
        }
    }
    Ok(rows)
}
