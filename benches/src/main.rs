//! `uruk-benches`: what Uruk costs, beside its peers, in one run and one table.
//!
//! Measuring and reporting are separate: an experiment gives rows, a row says by
//! itself whether it reaches its target, and the report is text made of rows.
//!
//! `URUK_BIN` names the `uruk` command to measure; without it, one is built. The
//! table goes to standard output, progress to standard error, the same rows to
//! `bench/results.csv` in cargo's target directory and the times of single iterations
//! to `bench/iterations.csv` there.
//!
//! Reading order: `sample`, `row` and `findings` (data), `report` (text); `clock`,
//! `process`, `contest` (how time is taken); `bench` (surroundings), `catalogue` (the list);
//! `programs`, `once`, `counted`, `generated`, `compiling`, `first_call`, `repl`, `session`, `linking`,
//! `tiers`, `tuner`, `warm`, `live`, `reclaim`, `soak` (the experiments), `tiny_object` and `orc` (what they
//! need). `session` has its peer in C++, which it compiles: `benches/orc`.

mod bench;
mod catalogue;
mod clock;
mod compiling;
mod contest;
mod counted;
mod findings;
mod first_call;
mod generated;
mod linking;
mod live;
mod once;
mod orc;
mod process;
mod programs;
mod reclaim;
mod repl;
mod report;
mod row;
mod sample;
mod session;
mod soak;
mod tiers;
mod tiny_object;
mod tuner;
mod warm;

use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::bench::{Bench, progress};
use crate::findings::Findings;
use crate::linking::Way;
use crate::reclaim::Who;
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
    /// Of what is repeated within one process, and of loops entered once, only what has
    /// this in its name; may be repeated.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Print the experiments' names and stop.
    #[arg(long)]
    list: bool,
    /// Fewer repetitions, and bitcode of one level.
    #[arg(long)]
    quick: bool,
    /// Link objects, print how many bytes of memory each takes, and stop.
    #[arg(long, value_name = "WAY", hide = true)]
    memory_of: Option<Way>,
    /// Add, look up and remove objects, print what that took, and stop.
    #[arg(long, value_name = "WHO", hide = true)]
    removal_by: Option<Who>,
    /// Carry out a scenario of a session, print its readings, and stop.
    #[arg(long, value_name = "WORDS", num_args = 1.., hide = true)]
    scenario: Option<Vec<String>>,
    /// Repeat a cycle, print what stays of it and how long it takes, and stop.
    #[arg(long, value_names = ["WHO", "CYCLE", "COUNT"], num_args = 3, hide = true)]
    soak: Option<Vec<String>>,
    /// Run a guest in windows with and without sampling at a rate, print what that costs,
    /// and stop.
    #[arg(long, value_names = ["RATE", "FILE", "ARGS"], num_args = 3.., hide = true)]
    windows: Option<Vec<String>>,
}

/// Batches of objects that are linked to see what memory they take.
const MEMORY_ROUNDS: usize = 60;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(way) = arguments.memory_of {
        println!("{}", way.measure(MEMORY_ROUNDS)?.bytes);
        return Ok(());
    }
    if let Some(who) = arguments.removal_by {
        print!("{}", who.measure()?);
        return Ok(());
    }
    if let Some(words) = arguments.scenario {
        return session::ours::run(&words);
    }
    if let Some(words) = arguments.soak {
        return soak::run(&words);
    }
    if let Some(words) = arguments.windows {
        return tiers::windows::run(&words);
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
    let bench = Bench::new(arguments.quick, arguments.workload)?;
    let steady = bench.workloads().len() + bench.native_workloads().len();
    if steady == 0 && bench.once().is_empty() {
        bail!(
            "no workload has {} in its name",
            bench.only_workloads.join(" or ")
        );
    }
    let start = Instant::now();
    let mut found = Findings::default();
    for experiment in &experiments {
        progress(&format!(
            "{} ({:.0} s so far)",
            experiment.name,
            start.elapsed().as_secs_f64()
        ));
        // One that fails is a row of the table; the others go on.
        found.extend(experiment.run(&bench).unwrap_or_else(|error| {
            let name = format!("{}: failed", experiment.name);
            let row = Row::new(name, Unit::Us, Figure::Failed("failed".to_owned()));
            vec![row.note(format!("{error:#}"))].into()
        }));
    }
    print!("{}", report::table(&found.rows));
    print!("{}", report::warm_up(&found.curves));
    let results = write(&bench, "results.csv", &report::csv(&found.rows))?;
    let iterations = match found.curves.is_empty() {
        true => String::new(),
        false => write(&bench, "iterations.csv", &tiers::csv(&found.curves))?,
    };
    println!(
        "measured in {:.0} s; also in {results} {iterations}",
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// Writes a file of results; its path.
fn write(bench: &Bench, name: &str, text: &str) -> Result<String> {
    let path = bench.directory.join(name);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path.display().to_string())
}
