//! Runs the guest programs: one trial for each guest, run, and flavor and mode that [`Pairs`] chooses.
//!
//! The flavors differ between guests, so that all of them fit the time that two
//! cores have: what a flavor changes shows in Lua as well as in SQLite, which
//! takes half a minute to compile with optimization.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use uruk_guests::execute::Ending;
use uruk_guests::{Flavor, Guest, Run};

use crate::gate::Gate;
use crate::pairs::{Pair, Pairs};
use crate::subject::Mode;
use crate::trial::{self, Bench, Building, Plan, Reference};

/// The time limit of a guest: SQLite's work at -O0 in an unoptimized runtime needs that much.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// In which flavors and modes a guest is tried.
struct Budget {
    guest: Guest,
    gate: char,
    /// Flavors that are loaded in both ways.
    both: &'static [&'static str],
    /// Flavors that run lazily only.
    lazy: &'static [&'static str],
    /// Flavors that run through the tiers, too.
    tiered: &'static [&'static str],
    /// Runs that are also tried with code that moves, in the same flavors.
    moving: &'static [&'static str],
    /// Flavors in which each source stays a file of its own.
    in_parts: &'static [&'static str],
}

const BUDGETS: [Budget; 6] = [
    Budget {
        guest: Guest::Lua,
        gate: 'A',
        both: &["O0", "O2"],
        lazy: &[
            "O0-no-optnone",
            "O1-no-passes",
            "O0+g+pic",
            "O2+g+pic",
            "O2+nopic",
        ],
        tiered: &["O1-no-passes"],
        moving: &["errors"],
        in_parts: &["O1-no-passes"],
    },
    Budget {
        guest: Guest::Sqlite,
        gate: 'C',
        both: &["O0"],
        lazy: &["O0+g+pic", "O1-no-passes", "O2"],
        tiered: &["O1-no-passes"],
        moving: &[],
        in_parts: &[],
    },
    Budget {
        guest: Guest::Zstd,
        gate: 'C',
        both: &["O2"],
        lazy: &["O0", "O1-no-passes+pic"],
        tiered: &["O1-no-passes+pic"],
        moving: &[],
        in_parts: &["O2"],
    },
    Budget {
        guest: Guest::Bzip2,
        gate: 'C',
        both: &["O0", "O2"],
        lazy: &["O0-no-optnone", "O1-no-passes", "O2+g+pic"],
        tiered: &["O0", "O1-no-passes"],
        moving: &["round-trip"],
        in_parts: &["O0"],
    },
    Budget {
        guest: Guest::QuickJs,
        gate: 'D',
        both: &["O2"],
        lazy: &["O0", "O1-no-passes"],
        tiered: &["O1-no-passes"],
        moving: &[],
        in_parts: &[],
    },
    Budget {
        guest: Guest::Rust,
        gate: 'D',
        both: &["O2"],
        lazy: &["O0+g"],
        tiered: &[],
        moving: &[],
        in_parts: &[],
    },
];

/// The test binary's `main`.
pub fn main() -> ExitCode {
    trial::run(trials)
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let open = Gate::open()?;
    let bench = Bench::set_up(arguments)?;
    let mut trials = Vec::new();
    let mut pairs = Pairs::default();
    for budget in &BUDGETS {
        let ignored = Gate::parse(&budget.gate.to_string()) > Some(open);
        let program = budget.guest.program().map_err(|error| error.to_string())?;
        let runs = budget.guest.runs();
        let chosen: Vec<_> = runs
            .iter()
            .map(|run| Ok(pairs.choose(&offered(budget, run)?)))
            .collect::<Result<_, String>>()?;
        for name in flavors(budget) {
            let flavor = parse(name)?;
            let building = Building::new(program.clone(), flavor);
            for (run, chosen) in runs.iter().zip(&chosen) {
                let reference = Reference::new(plan(budget.guest, run, true), building.clone());
                for &(_, mode) in chosen.iter().filter(|pair| pair.0 == flavor) {
                    let trial = reference.trial(bench.as_ref(), mode, None);
                    trials.push(trial.with_ignored_flag(ignored));
                }
                if budget.in_parts.contains(&name) {
                    let plan = plan(budget.guest, run, false);
                    let reference = Reference::new(plan, building.clone());
                    let trial = reference.trial(bench.as_ref(), Mode::Lazy, None);
                    trials.push(trial.with_ignored_flag(ignored));
                }
            }
        }
    }
    Ok(trials)
}

fn parse(flavor: &str) -> Result<Flavor, String> {
    flavor.parse().map_err(|_| format!("no flavor {flavor}"))
}

/// All combinations of a flavor and a mode in which a run is tried.
fn offered(budget: &Budget, run: &Run) -> Result<Vec<Pair>, String> {
    let mut all = Vec::new();
    for name in flavors(budget) {
        let flavor = parse(name)?;
        all.extend(
            modes(budget, name, run)
                .into_iter()
                .map(|mode| (flavor, mode)),
        );
    }
    Ok(all)
}

fn flavors(budget: &Budget) -> impl Iterator<Item = &'static str> {
    budget.both.iter().chain(budget.lazy).copied()
}

fn modes(budget: &Budget, name: &str, run: &Run) -> Vec<Mode> {
    let mut modes = if budget.both.contains(&name) {
        Mode::LOADING.to_vec()
    } else {
        vec![Mode::Lazy]
    };
    modes.push(Mode::Baseline);
    if budget.tiered.contains(&name) {
        modes.extend([Mode::Tiered, Mode::Leaving]);
        let moving = budget.moving.contains(&run.name);
        if moving {
            modes.extend([Mode::Moving, Mode::Mixed]);
        }
    }
    modes
}

fn plan(guest: Guest, run: &Run, as_one_file: bool) -> Plan {
    let suffix = if as_one_file { "" } else { " in parts" };
    Plan {
        args: run.args.clone(),
        ending: Some(Ending::Status(run.status)),
        as_one_file,
        limit: TIME_LIMIT,
        ..Plan::new(format!("{guest} {}{suffix}", run.name))
    }
}
