//! Runs the cases of `demos/cases` once more as native programs: built by `uruk cc`, natively and under
//! `uruk live`, where every function is compiled again before the program starts, and then taken
//! back and published again, one after the other, until it ends.
//!
//! | case | is |
//! |---|---|
//! | of C and C++, and of several such files | run |
//! | with objects, libraries, or IR; and [`LEFT_OUT`] | left out |
//! | [`STILL`] | run with every function compiled again, and no more |
//! | about an allocator of its own | run: it stays native, and nothing else happens |
//!
//! LLVM compiles all of each program for that, so the ordinary tests run one of [`SHARE`] cases,
//! told by their names; `cargo test -p uruk-e2e --test live -- --include-ignored` runs all.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use uruk_guests::Language;
use uruk_guests::execute::{Job, Outcome};

use crate::case::Case;
use crate::gate::{self, Gate};
use crate::trial::{self, Bench};
use crate::verdict;

/// A case that is left out: it compares the functions that frames are in, which are of several
/// versions here.
const LEFT_OUT: &str = "unwinding.c";

/// A case in which nothing is compiled while it runs: it makes copies of itself by system calls of
/// its own, which find a compile under way, and say so.
const STILL: &str = "copied_processes.c";

/// Of how many cases the ordinary tests run one.
const SHARE: u32 = 4;

/// How many times longer it may take than natively.
const FACTOR: u32 = 3;

/// The test binary's `main`.
pub fn main() -> ExitCode {
    trial::run(trials)
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let cases = Case::all(&gate::cases_folder()).map_err(|error| error.to_string())?;
    let open = Gate::open()?;
    let bench = Bench::set_up(arguments)?;
    let cases = cases.into_iter().filter(is_native);
    let trials = cases.map(|case| {
        let bench: Option<Arc<Bench>> = bench.clone();
        let late = case.gate > open;
        let sum: u32 = case.plan.name.bytes().map(u32::from).sum();
        let skipped = !sum.is_multiple_of(SHARE);
        let name = format!("{}::live", case.plan.name);
        let body = move || match bench {
            Some(bench) => judge(&case, &bench).map_err(Failed::from),
            None => Ok(()),
        };
        Trial::test(name, body).with_ignored_flag(late || skipped)
    });
    let server = {
        let bench = bench.clone();
        Trial::test("server::swap", move || match bench {
            Some(bench) => crate::live_server::judge(&bench).map_err(Failed::from),
            None => Ok(()),
        })
    };
    type Judge = fn(&Bench) -> Result<(), String>;
    let others: [(&str, Judge); 6] = [
        ("server::quiescent", crate::live_server::judge_quiescent),
        ("faults::survived", crate::live_faults::judge),
        ("faults::killed", crate::live_faults::judge_killed),
        ("faults::refused", crate::live_faults::judge_refusals),
        ("redirected::local", crate::live_faults::judge_local),
        ("slower::native_again", crate::live_faults::judge_slower),
    ];
    let others = others.map(|(name, judge)| {
        let bench = bench.clone();
        Trial::test(name, move || match bench {
            Some(bench) => judge(&bench).map_err(Failed::from),
            None => Ok(()),
        })
    });
    Ok(trials.chain([server]).chain(others).collect())
}

/// Whether `uruk cc` can make all of a case.
fn is_native(case: &Case) -> bool {
    let plain = |language| matches!(language, Some(Language::C | Language::Cxx));
    let sources = case.sources.iter();
    case.libraries.is_empty()
        && case.plan.name != LEFT_OUT
        && sources
            .clone()
            .all(|source| !source.as_object && plain(Language::of(&source.path)))
}

/// Builds a case, runs it both ways and compares.
fn judge(case: &Case, bench: &Bench) -> Result<(), String> {
    let program = build(case, bench)?;
    let mut job = Job::new(&program, case.plan.limit);
    job.args.extend(case.plan.args.iter().map(Into::into));
    let native = execute(case, bench, job.clone(), "native")?;
    let mut live = bench.subject.job(case.plan.limit * FACTOR);
    let force = match case.plan.name == STILL {
        true => "--force=all",
        false => "--force=flip",
    };
    for word in ["live", force, "--no-control", "--"] {
        live.arg(word);
    }
    live.arg(&program);
    live.args.extend(job.args);
    let line = live.command_line();
    let ours = execute(case, bench, live, "live")?;
    // Standard error has what is said where a program stays as it is.
    match verdict::difference(&native, &ours, false) {
        Some(text) => Err(format!("{text}{line}\nnatively: {}", program.display())),
        None => Ok(()),
    }
}

/// The executable.
fn build(case: &Case, bench: &Bench) -> Result<PathBuf, String> {
    let folder = bench.scratch(&format!("live-{}", case.plan.name));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let program = folder.join("program");
    let is_cxx = |path: &PathBuf| Language::of(path) == Some(Language::Cxx);
    let cxx = case.sources.iter().any(|source| is_cxx(&source.path));
    let mut job = bench.subject.job(case.plan.limit);
    job.arg(if cxx { "c++" } else { "cc" });
    job.args.extend(["-O1", "-w", "-o"].map(Into::into));
    job.arg(&program);
    if cxx {
        job.arg("-std=c++20");
    }
    job.args.extend(case.flags.iter().map(Into::into));
    job.args
        .extend(case.sources.iter().map(|source| source.path.clone().into()));
    job.args.extend(case.link_flags.iter().map(Into::into));
    job.args.extend(["-lm", "-pthread"].map(Into::into));
    let line = job.command_line();
    let built = job
        .run(&folder.join("build"))
        .map_err(|error| error.to_string())?;
    match program.exists() {
        true => Ok(program),
        false => Err(format!("{line}\n{}", verdict::excerpt(&built.stderr))),
    }
}

fn execute(case: &Case, bench: &Bench, mut job: Job, who: &str) -> Result<Outcome, String> {
    job.stdin.clone_from(&case.plan.stdin);
    job.env.clone_from(&case.plan.env);
    let scratch = bench.scratch(&format!("live-{}-{who}", case.plan.name));
    job.run(&scratch)
        .map_err(|error| format!("cannot run {}: {error}", job.command_line()))
}
