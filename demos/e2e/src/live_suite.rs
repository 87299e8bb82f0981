//! Runs the cases of `demos/cases` once more as native programs: built by `uruk cc`, natively and under
//! `uruk live`, where every function is compiled again before the program starts, and then taken
//! back and published again, one after the other, until it ends.
//!
//! | case | is |
//! |---|---|
//! | of C and C++, and of several such files | run |
//! | with libraries of C and C++ | run: they are built by `uruk cc`, too; those that it opens stay native |
//! | of other languages, or IR; and [`LEFT_OUT`] | left out |
//! | [`STILL`] | run with every function compiled again, and no more |
//! | about an allocator of its own | run: it stays native, and nothing else happens |
//!
//! LLVM compiles all of each program for that, so the ordinary tests run one of [`SHARE`] cases,
//! told by their names, and all with libraries; `cargo test -p uruk-e2e --test live -- --include-ignored` runs all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use uruk_guests::execute::{Job, Outcome};
use uruk_guests::{Language, Library};

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
        let skipped = !sum.is_multiple_of(SHARE) && case.libraries.is_empty();
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
    let others: [(&str, Judge); 12] = [
        ("server::quiescent", crate::live_server::judge_quiescent),
        ("faults::survived", crate::live_faults::judge),
        ("faults::killed", crate::live_faults::judge_killed),
        ("faults::refused", crate::live_faults::judge_refusals),
        ("libraries::swapped", crate::live_libraries::judge),
        ("files::as_natively", crate::live_files::judge),
        ("files::swap", crate::live_files::judge_swap),
        ("redirected::local", crate::live_faults::judge_local),
        ("variables::as_natively", crate::live_variables::judge),
        ("slower::native_again", crate::live_faults::judge_slower),
        ("tuning::native_stays", crate::live_tuning::judge_native),
        ("tuning::kept_at_the_end", crate::live_tuning::judge_end),
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
    let sources = sources.map(|source| &source.path);
    let libraries = case.libraries.iter().map(|library| &library.source);
    let mut all = sources.chain(libraries);
    case.plan.name != LEFT_OUT && all.all(|path| plain(Language::of(path)))
}

/// Builds a case, runs it both ways and compares.
fn judge(case: &Case, bench: &Bench) -> Result<(), String> {
    let (program, opened) = build(case, bench)?;
    let mut job = Job::new(&program, case.plan.limit);
    job.args.extend(case.plan.args.iter().map(Into::into));
    job.args.extend(opened.into_iter().map(Into::into));
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

/// The executable, and the libraries that it opens.
fn build(case: &Case, bench: &Bench) -> Result<(PathBuf, Vec<PathBuf>), String> {
    let folder = bench.scratch(&format!("live-{}", case.plan.name));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let (mut linked, mut opened) = (Vec::new(), Vec::new());
    for library in &case.libraries {
        let built = build_library(library, case, bench, &folder)?;
        match library.opened {
            true => opened.push(built),
            false => linked.push(built),
        }
    }
    let sources: Vec<&PathBuf> = case.sources.iter().map(|source| &source.path).collect();
    let mut job = compiler(&sources, case, bench);
    job.args.extend(case.flags.iter().map(Into::into));
    job.args.extend(sources.into_iter().map(Into::into));
    job.args.extend(linked.iter().map(Into::into));
    job.args.extend(case.link_flags.iter().map(Into::into));
    job.args.extend(["-lm", "-pthread"].map(Into::into));
    let program = make(job, &folder, "program")?;
    Ok((program, opened))
}

/// A library, and before it what it needs. Without a name of its own it is found by its path.
fn build_library(
    library: &Library,
    case: &Case,
    bench: &Bench,
    folder: &Path,
) -> Result<PathBuf, String> {
    let needs = library.needs.iter();
    let needs = needs.map(|needed| build_library(needed, case, bench, folder));
    let needs = needs.collect::<Result<Vec<_>, _>>()?;
    let mut job = compiler(&[&library.source], case, bench);
    job.args.extend(["-fPIC", "-shared"].map(Into::into));
    job.arg(&library.source);
    job.args.extend(needs.iter().map(Into::into));
    job.arg("-pthread");
    let stem = library.source.file_stem().unwrap_or_default();
    make(job, folder, &format!("lib{}.so", stem.to_string_lossy()))
}

/// `uruk cc`, or `uruk c++`, for sources.
fn compiler(sources: &[&PathBuf], case: &Case, bench: &Bench) -> Job {
    let is_cxx = |path: &&PathBuf| Language::of(path) == Some(Language::Cxx);
    let cxx = sources.iter().any(is_cxx);
    let mut job = bench.subject.job(case.plan.limit);
    job.arg(if cxx { "c++" } else { "cc" });
    job.args.extend(["-O1", "-w"].map(Into::into));
    if cxx {
        job.arg("-std=c++20");
    }
    job
}

/// What a compiler makes.
fn make(mut job: Job, folder: &Path, name: &str) -> Result<PathBuf, String> {
    let made = folder.join(name);
    job.arg("-o");
    job.arg(&made);
    let line = job.command_line();
    let built = job
        .run(&folder.join(format!("build-{name}")))
        .map_err(|error| error.to_string())?;
    match made.exists() {
        true => Ok(made),
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
