//! The long stress: cases whose faults show in some runs only, again and again.
//!
//! A case with the directive `hazard: NAME` takes part, in every flavor it has, lazily
//! (default settings) and moving (constant cycles, freed code closed). Two workers take one
//! trial after the other, round after round, until the time is over: `URUK_STRESS_MINUTES`
//! (60 by itself; the round that is under way is cut short). Arguments are parts of case
//! names or of hazards; without any all take part.
//!
//! The table at the end has a row for each case and mode: runs, and runs that failed. The
//! first failure of each row is told in full when it happens. The status is 1 if any did.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use parking_lot::Mutex;
use uruk_guests::execute;

use crate::case::Case;
use crate::gate;
use crate::subject::Mode;
use crate::trial::{Bench, Building, Reference};

/// Trials at a time.
const WORKERS: usize = 2;

/// Minutes of a run that names none.
const MINUTES: f64 = 60.0;

/// One program in one flavor and mode, and what its runs came to.
struct Row {
    hazard: String,
    case: String,
    flavor: String,
    mode: Mode,
    reference: Arc<Reference>,
    runs: AtomicUsize,
    failed: AtomicUsize,
}

/// The program's `main`.
pub fn main() -> ExitCode {
    execute::forbid_core_files();
    match stress() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn stress() -> Result<bool, String> {
    let minutes = match env::var("URUK_STRESS_MINUTES") {
        Ok(text) => text
            .parse()
            .ok()
            .filter(|minutes: &f64| minutes.is_finite() && *minutes >= 0.0)
            .ok_or_else(|| format!("URUK_STRESS_MINUTES={text} is no time"))?,
        Err(_) => MINUTES,
    };
    let wanted: Vec<String> = env::args().skip(1).collect();
    let rows = rows(&wanted)?;
    if rows.is_empty() {
        return Err("no case with a `hazard` directive has such a name".to_owned());
    }
    let Some(bench) = Bench::set_up(&Arguments::default())? else {
        return Err("the command under test was not found".to_owned());
    };
    let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (rows, bench, next) = (&rows, &bench, &next);
            scope.spawn(move || work(rows, bench, worker, next, end));
        }
    });
    Ok(report(&rows))
}

/// The trials of all cases that have a hazard of a wanted name.
fn rows(wanted: &[String]) -> Result<Vec<Row>, String> {
    let cases = Case::all(&gate::cases_folder()).map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    for case in cases {
        let Some(hazard) = case.hazard.clone() else {
            continue;
        };
        let named = |part: &String| case.plan.name.contains(part) || hazard.contains(part);
        if !wanted.is_empty() && !wanted.iter().any(named) {
            continue;
        }
        let mut plan = case.plan.clone();
        plan.repeat = 1;
        for &flavor in &case.flavors {
            let building = Building::new(case.program(), flavor);
            let reference = Reference::new(plan.clone(), building);
            for mode in case.modes_of(flavor) {
                if matches!(mode, Mode::Lazy | Mode::Moving) {
                    rows.push(Row {
                        hazard: hazard.clone(),
                        case: case.plan.name.clone(),
                        flavor: flavor.to_string(),
                        mode,
                        reference: Arc::clone(&reference),
                        runs: AtomicUsize::new(0),
                        failed: AtomicUsize::new(0),
                    });
                }
            }
        }
    }
    Ok(rows)
}

/// Takes the next trial until the time is over; each is run once at least.
fn work(rows: &[Row], bench: &Bench, worker: usize, next: &AtomicUsize, end: Instant) {
    static TELLING: Mutex<()> = Mutex::new(());
    loop {
        // Relaxed: a ticket.
        let ticket = next.fetch_add(1, Ordering::Relaxed);
        if ticket >= rows.len() && Instant::now() >= end {
            return;
        }
        let row = &rows[ticket % rows.len()];
        let result = row.reference.compare_as(bench, row.mode, worker);
        row.runs.fetch_add(1, Ordering::Relaxed);
        let Err(text) = result else {
            continue;
        };
        if row.failed.fetch_add(1, Ordering::Relaxed) == 0 {
            let _one = TELLING.lock();
            println!("{}::{}::{}: {text}", row.case, row.flavor, row.mode.name());
        }
    }
}

/// Prints the table; true if nothing failed.
fn report(rows: &[Row]) -> bool {
    println!(
        "{:<14} {:<32} {:<14} {:<7} {:>6} {:>7}",
        "hazard", "case", "flavor", "mode", "runs", "failed"
    );
    let (mut runs, mut failed) = (0, 0);
    for row in rows {
        let row_runs = row.runs.load(Ordering::Relaxed);
        let row_failed = row.failed.load(Ordering::Relaxed);
        println!(
            "{:<14} {:<32} {:<14} {:<7} {row_runs:>6} {row_failed:>7}",
            row.hazard,
            row.case,
            row.flavor,
            row.mode.name()
        );
        runs += row_runs;
        failed += row_failed;
    }
    println!("{} passed, {failed} failed", runs - failed);
    failed == 0
}
