//! Runs the programs whose loops are entered once, in their small sizes: one trial for each
//! program, flavor and mode.
//!
//! They run for long enough that a better version of the function whose loop runs is ready before
//! the loop ends. A thread that changes to it in the middle must bring along all values that the
//! loop carries. Each program prints a checksum of all its results, bit by bit.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use uruk_guests::Flavor;
use uruk_guests::once::{Once, Size};

use crate::subject::Mode;
use crate::trial::{self, Bench, Building, Plan, Reference};

/// Flavors, and the modes of each. The loops differ between flavors: with every variable in
/// memory, as the front end leaves them, and in the shape that an optimizer gave them.
const TRIALS: [(&str, &[Mode]); 3] = [
    ("O1-no-passes", &[Mode::Lazy, Mode::Tiered, Mode::Moving]),
    ("O0", &[Mode::Lazy]),
    ("O2+g", &[Mode::Lazy]),
];

/// The test binary's `main`.
pub fn main() -> ExitCode {
    trial::run(trials)
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let bench = Bench::set_up(arguments)?;
    let mut trials = Vec::new();
    for once in Once::all() {
        for (name, modes) in TRIALS {
            let flavor: Flavor = name.parse().map_err(|_| format!("no flavor {name}"))?;
            let building = Building::new(once.program(Size::Small), flavor);
            let plan = Plan::new(format!("once {}", once.name()));
            let reference = Reference::new(plan, building);
            for &mode in modes {
                trials.push(reference.trial(bench.as_ref(), mode, None));
            }
        }
    }
    Ok(trials)
}
