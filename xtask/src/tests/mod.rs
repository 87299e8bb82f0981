//! Runs tests: builds all test binaries by one call of cargo, and starts them as processes, as many
//! at a time as there are processors. The output of each process is printed at its end; failures,
//! the slowest processes, and totals follow at the end of the run.
//!
//! A test binary whose source is a folder has a module for each file of it. The tests of each module
//! run in a process of their own, because they send signals, copy their process, limit its memory,
//! or count its threads ([`binaries`]).
//!
//! *Why no `cargo nextest`:* to build it takes longer than all tests of the library together.

mod binaries;
mod process;
mod totals;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};

use crate::cargo::Cargo;
use process::{Ended, Process};
use totals::Totals;

/// Processes that are listed as the slowest.
const SLOWEST: usize = 10;

/// Repetitions of a report of flaky tests.
const REPETITIONS: usize = 10;

/// The selection of a run.
#[derive(Debug, Default)]
pub struct Selection {
    /// Whether cargo builds tests only: `--lib` then means the tests of a library.
    pub tests_only: bool,
    /// Arguments of cargo that choose packages.
    pub packages: Vec<String>,
    /// Arguments of cargo that choose targets of these.
    pub targets: Vec<String>,
    /// Arguments of the test binaries.
    pub arguments: Vec<String>,
    /// Whether examples in documents are run.
    pub documents: bool,
    /// Whether a process may take as long as it needs.
    pub unlimited: bool,
}

/// Runs the selected tests once. With `again`, a process that failed is run once more, alone; if it
/// passes then, it is listed as wavering, and does not fail the run.
///
/// # Errors
/// A test fails, or does not build.
pub fn run(cargo: &Cargo, selections: &[Selection], again: bool) -> anyhow::Result<()> {
    let mut processes = Vec::new();
    for selection in selections {
        processes.extend(binaries::processes(cargo, selection)?);
    }
    let mut ended = run_all(&processes);
    for process in &ended {
        process.repeat_failures();
    }
    let wavering = match again {
        true => run_again(&processes, &mut ended),
        false => Vec::new(),
    };
    let mut slowest: Vec<&Ended> = ended.iter().collect();
    slowest.sort_by_key(|process| std::cmp::Reverse(process.took));
    println!("slowest processes:");
    for process in slowest.iter().take(SLOWEST) {
        println!("{:8.1} s  {}", process.took.as_secs_f64(), process.name);
    }
    let mut totals = Totals::default();
    for process in &ended {
        totals.add(&process.output, process.passed);
    }
    for name in &wavering {
        println!("WAVERS: {name} failed, and passed when it was run again");
    }
    println!("{}", totals.line());
    match ended.iter().filter(|process| !process.passed).count() {
        0 => Ok(()),
        failed => bail!("{failed} test processes failed"),
    }
}

/// Runs the processes that failed once more, and puts those that pass in place of the failed ones;
/// returns their names.
fn run_again(processes: &[Process], ended: &mut [Ended]) -> Vec<String> {
    let mut wavering = Vec::new();
    for one in ended.iter_mut().filter(|process| !process.passed) {
        let Some(process) = processes.iter().find(|process| process.name == one.name) else {
            continue;
        };
        let second = process.run();
        second.print();
        if second.passed {
            wavering.push(std::mem::replace(one, second).name);
        }
    }
    wavering
}

/// Runs the selected tests ten times, and lists the tests and processes that failed in some runs.
///
/// # Errors
/// A test failed in one of the runs, or does not build.
pub fn report_flaky(cargo: &Cargo, selection: &Selection) -> anyhow::Result<()> {
    let processes = binaries::processes(cargo, selection)?;
    let mut failures: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..REPETITIONS {
        for failed in run_all(&processes).iter().flat_map(Ended::failed) {
            *failures.entry(failed).or_default() += 1;
        }
    }
    for (name, count) in &failures {
        println!("failed in {count} of {REPETITIONS} runs: {name}");
    }
    match failures.len() {
        0 => Ok(()),
        count => bail!("{count} tests failed at least once"),
    }
}

/// Runs processes: first as many at a time as there are processors, then those that measure times or
/// use all processors, each without company.
fn run_all(processes: &[Process]) -> Vec<Ended> {
    let (alone, shared): (Vec<&Process>, Vec<&Process>) =
        processes.iter().partition(|process| process.alone);
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut ended = run_at_once(&shared, processors);
    ended.extend(run_at_once(&alone, 1));
    ended
}

/// Runs processes, at most `count` at a time.
fn run_at_once(processes: &[&Process], count: usize) -> Vec<Ended> {
    let next = AtomicUsize::new(0);
    // Locked for each print, so that outputs do not mix.
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..count.min(processes.len()) {
            scope.spawn(|| {
                while let Some(process) = processes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = process.run();
                    let mut ended = ended.lock().expect("no thread panics with it");
                    one.print();
                    ended.push(one);
                }
            });
        }
    });
    ended.into_inner().expect("no thread panicked with it")
}

/// The folder for outputs of test processes.
fn outputs(cargo: &Cargo) -> anyhow::Result<std::path::PathBuf> {
    let folder = cargo.built("debug", "test-output");
    std::fs::create_dir_all(&folder).context("cannot make a folder for outputs")?;
    Ok(folder)
}
