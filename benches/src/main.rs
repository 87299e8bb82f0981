//! `uruk-benches`: what Uruk costs, beside its peers, in one run and one table.
//!
//! Measuring and reporting are separate: an experiment gives rows, a row says by
//! itself whether it reaches its target, and the report is text made of rows.
//!
//! `URUK_BIN` names the `uruk` command to measure; without it, one is built. The
//! table goes to standard output, progress to standard error, and the same rows
//! to `bench/results.csv` in cargo's target directory.
//!
//! Reading order: `sample` and `row` (data), `report` (text); `clock`, `process`,
//! `contest` (how time is taken); `bench` (surroundings), `catalogue` (what there
//! is); `programs`, `generated`, `first_call`, `session`, `linking`, `stubs` (the
//! experiments), `tiny_object` and `orc` (what they need).

mod bench;
mod catalogue;
mod clock;
mod contest;
mod first_call;
mod generated;
mod linking;
mod orc;
mod process;
mod programs;
mod report;
mod row;
mod sample;
mod session;
mod stubs;
mod tiny_object;

use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::bench::{Bench, progress};
use crate::linking::Way;
use crate::row::{Figure, Row, Unit};

#[derive(Parser)]
#[command(
    name = "uruk-benches",
    about = "Measures Uruk beside its peers and prints one table"
)]
struct Arguments {
    /// Only the experiments whose name contains this; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print the experiments' names and stop.
    #[arg(long)]
    list: bool,
    /// Fewer repetitions, and bitcode of one level.
    #[arg(long)]
    quick: bool,
    /// Link objects, print how many bytes of memory each takes, and stop.
    #[arg(long, value_name = "WAY", hide = true)]
    memory_of: Option<Way>,
}

/// Batches of objects that are linked to see what memory they take.
const MEMORY_ROUNDS: usize = 60;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(way) = arguments.memory_of {
        println!("{}", way.measure(MEMORY_ROUNDS)?.bytes);
        return Ok(());
    }
    let mut experiments = catalogue::all();
    if !arguments.only.is_empty() {
        experiments.retain(|one| arguments.only.iter().any(|part| one.name.contains(part)));
    }
    if arguments.list {
        experiments.iter().for_each(|one| println!("{}", one.name));
        return Ok(());
    }
    if experiments.is_empty() {
        bail!(
            "no experiment has {} in its name; see --list",
            arguments.only.join(" or ")
        );
    }
    let bench = Bench::new(arguments.quick)?;
    let start = Instant::now();
    let mut rows: Vec<Row> = Vec::new();
    for experiment in &experiments {
        progress(&format!(
            "{} ({:.0} s so far)",
            experiment.name,
            start.elapsed().as_secs_f64()
        ));
        // One that fails is a row of the table; the others go on.
        rows.extend(experiment.run(&bench).unwrap_or_else(|error| {
            let name = format!("{}: failed", experiment.name);
            let row = Row::new(name, Unit::Us, Figure::Failed("failed".to_owned()));
            vec![row.note(format!("{error:#}"))]
        }));
    }
    print!("{}", report::table(&rows));
    let path = bench.directory.join("results.csv");
    std::fs::write(&path, report::csv(&rows))
        .with_context(|| format!("writing {}", path.display()))?;
    println!(
        "measured in {:.0} s; also in {}",
        start.elapsed().as_secs_f64(),
        path.display()
    );
    Ok(())
}
