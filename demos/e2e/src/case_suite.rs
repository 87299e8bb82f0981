//! Runs the cases of `demos/cases`: one trial for each case, flavor and mode that [`Pairs`] chooses.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::case::Case;
use crate::gate::{self, Gate};
use crate::pairs::Pairs;
use crate::trial::{self, Bench, Building, Reference};

/// The test binary's `main`.
pub fn main() -> ExitCode {
    trial::run(trials)
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let cases = Case::all(&gate::cases_folder()).map_err(|error| error.to_string())?;
    let open = Gate::open()?;
    let bench = Bench::set_up(arguments)?;
    let mut trials = Vec::new();
    let mut pairs = Pairs::default();
    for case in cases {
        let chosen = pairs.choose(&case.pairs());
        for &flavor in &case.flavors {
            let own = chosen.iter().filter(|pair| pair.0 == flavor);
            let building = Building::new(case.program(), flavor);
            let reference = Reference::new(case.plan.clone(), building);
            for &(_, mode) in own {
                let known_failure = case.known_failure(flavor, mode);
                let trial = reference.trial(bench.as_ref(), mode, known_failure);
                trials.push(trial.with_ignored_flag(case.gate > open));
            }
        }
    }
    Ok(trials)
}
