//! Random programs by csmith, seed by seed: what they print must be the same
//! natively and under test, at -O0 and -O2; with the baseline compiler at -O1 without passes too,
//! and as a native program whose functions are exchanged ([`random_live`]).
//!
//! `URUK_CSMITH_SEEDS` is how many seeds run (20 by itself), `URUK_CSMITH_FIRST`
//! the first (1). Without csmith every trial is ignored.
//!
//! A program proves something only if it is well defined. Those that do not end
//! natively within five seconds are not used, nor those that do different things
//! natively at -O0 and at -O2: csmith writes loops without end now and then, which
//! the optimizer may assume away together with all that follows. Such seeds count
//! as passed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use uruk_guests::compile::{Program, Source};
use uruk_guests::execute::Ending;
use uruk_guests::toolchain;
use uruk_guests::{Cache, Flavor, Level};

use crate::gate::Gate;
use crate::random_live;
use crate::subject::Mode;
use crate::trial::{self, Bench, Building, Plan, Reference};
use crate::verdict;

/// Seeds of an ordinary test run.
const SEEDS: u64 = 20;

/// The longest native run of a useful random program.
const NATIVE_LIMIT: Duration = Duration::from_secs(5);

/// The time a random program may take under test, beyond its native time.
const EXTRA_LIMIT: Duration = Duration::from_secs(300);

/// The gate at which random programs must pass.
const GATE: &str = "D";

/// Where csmith's packages put the headers its programs include.
const INCLUDE: [&str; 3] = [
    "/usr/include/csmith",
    "/usr/include/csmith-2.3.0",
    "/usr/local/include/csmith-2.3.0",
];

/// The test binary's `main`.
pub fn main() -> ExitCode {
    trial::run(trials)
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let first = number("URUK_CSMITH_FIRST", 1)?;
    let count = number("URUK_CSMITH_SEEDS", SEEDS)?;
    let include = INCLUDE
        .map(Path::new)
        .into_iter()
        .find(|path| path.is_dir());
    let csmith = find_on_path("csmith").zip(include.map(Path::to_owned));
    let ignored = csmith.is_none() || Gate::parse(GATE) > Some(Gate::open()?);
    let bench = Bench::set_up(arguments)?;
    let mut trials = Vec::new();
    for seed in first..first + count {
        let (bench, csmith) = (bench.clone(), csmith.clone());
        let body = move || match (bench, csmith) {
            (Some(bench), Some((csmith, include))) => {
                one(bench, &csmith, include, seed).map_err(Failed::from)
            }
            _ => Err(Failed::from("csmith or its headers are not installed")),
        };
        trials.push(Trial::test(format!("seed {seed}"), body).with_ignored_flag(ignored));
    }
    Ok(trials)
}

/// One seed at both levels, in all modes. Leaves nothing behind unless it fails.
fn one(bench: Arc<Bench>, csmith: &Path, include: PathBuf, seed: u64) -> Result<(), String> {
    let name = format!("seed-{seed}");
    let directory = bench.cache.directory().join("random").join(&name);
    let bench = Bench {
        tools: bench.tools.clone(),
        cache: Cache::at(directory.clone()),
        subject: bench.subject.clone(),
    };
    let generated = generate(csmith, &directory, seed)?;
    let program = Program {
        name: name.clone(),
        sources: vec![Source::new(generated.clone())],
        include: vec![include.clone()],
        flags: vec!["-w".to_owned()],
        ..Program::default()
    };
    let plan = Plan {
        // With an argument, csmith's programs print every global on the way.
        args: vec!["1".to_owned()],
        ending: None,
        limit: NATIVE_LIMIT,
        ..Plan::new(name)
    };
    let levels = [Level::O0, Level::O2].map(Flavor::plain);
    let buildings = levels.map(|flavor| Building::new(program.clone(), flavor));
    if well_defined(&bench, &plan, &buildings)? {
        let plan = Plan {
            limit: NATIVE_LIMIT + EXTRA_LIMIT,
            ..plan
        };
        for building in buildings {
            let reference = Reference::new(plan.clone(), building);
            for mode in Mode::ALL {
                reference.compare(&bench, mode)?;
            }
        }
        // Output of the front end that is meant for optimization; no pass has run on it.
        let bare = Building::new(program, Flavor::plain(Level::O1NoPasses));
        let reference = Reference::new(plan, bare);
        for mode in [Mode::Baseline, Mode::Mixed] {
            reference.compare(&bench, mode)?;
        }
        random_live::judge(&bench, &generated, &include, seed)?;
    }
    fs::remove_dir_all(&directory)
        .map_err(|error| format!("cannot remove {}: {error}", directory.display()))
}

/// Whether the native program ends, and does the same at both levels.
fn well_defined(
    bench: &Bench,
    plan: &Plan,
    buildings: &[Arc<Building>; 2],
) -> Result<bool, String> {
    let references = buildings
        .clone()
        .map(|building| Reference::new(plan.clone(), building));
    let [plain, optimized] = &references;
    let (plain, optimized) = (plain.native(bench)?, optimized.native(bench)?);
    Ok(plain.ending != Ending::Timeout && verdict::difference(plain, optimized, false).is_none())
}

fn generate(csmith: &Path, directory: &Path, seed: u64) -> Result<PathBuf, String> {
    fs::create_dir_all(directory)
        .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    let path = directory.join("program.c");
    let mut command = Command::new(csmith);
    command
        .arg("--seed")
        .arg(seed.to_string())
        .arg("--output")
        .arg(&path);
    // It notes its platform in the working directory.
    command.current_dir(directory);
    toolchain::run(&mut command).map_err(|error| error.to_string())?;
    Ok(path)
}

fn number(variable: &str, otherwise: u64) -> Result<u64, String> {
    match env::var(variable) {
        Ok(text) => text
            .parse()
            .map_err(|_| format!("{variable}={text} is not a number")),
        Err(_) => Ok(otherwise),
    }
}

fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut candidates = env::split_paths(&path).map(|directory| directory.join(program));
    candidates.find(|candidate| candidate.is_file())
}
