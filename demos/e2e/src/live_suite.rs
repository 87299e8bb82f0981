//! Runs the cases of `demos/cases` once more as native programs: built by `uruk cc`, natively and under
//! `uruk live`, where every function is compiled again, taken back and compiled once more before the
//! program starts, and then taken back and published again, one after the other, until it ends. That
//! is looked at, too ([`live_forced`](crate::live_forced)).
//!
//! | trial | code is |
//! |---|---|
//! | `CASE::live` | of tier 2 |
//! | `CASE::guided` | of tier 3, after versions with probes |
//!
//! | case | is |
//! |---|---|
//! | of C and C++, and of several such files | run |
//! | with libraries of C and C++ | run: they are built by `uruk cc`, too; those that it opens stay native |
//! | of other languages, or IR; and [`LEFT_OUT`] | left out |
//! | [`STILL`] | run with every function compiled again, and no more; once |
//! | of which nothing can be compiled ([`STAY`](crate::live_forced::STAY)) | run: it stays native |
//!
//! LLVM compiles all of each program for that, so the ordinary tests run one of [`SHARE`] cases in
//! either way, told by their names, and all with libraries at tier 2; `cargo test -p uruk-e2e --test live
//! -- --include-ignored` runs all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use uruk_guests::execute::{Job, Outcome};
use uruk_guests::{Language, Library};

use crate::case::Case;
use crate::gate::{self, Gate};
use crate::live_forced::Forced;
use crate::trial::{self, Bench};
use crate::verdict;

/// A case that is left out: it compares the functions that frames are in, which are of several
/// versions here. What else is to be said of frames is `backtraces::as_natively`'s.
const LEFT_OUT: &str = "unwinding.c";

/// Cases of which everything is compiled once, and not taken back: what each would notice.
///
/// | case | is about |
/// |---|---|
/// | `copied_processes.c` | copies of the process by system calls of its own, which find a compile under way, and say so |
/// | `block_addresses.c` | labels: functions that keep them are never counted, so that none of them gets guided code |
/// | `signals.c` | handlers that are not its own: native code sees that of the signal by which running threads are asked, once code is to be freed |
const STILL: [&str; 4] = [
    "block_addresses.c",
    "copied_processes.c",
    // The sampler starts beside its only `open`, and each of its files has the lowest number until it is
    // moved: 10 of 100 runs.
    "dispositions.c",
    "signals.c",
];

/// Cases that are built without optimizations: otherwise clang removes what all functions use, and none
/// could be compiled.
const UNOPTIMIZED: [&str; 4] = [
    "atomics_library.c",
    "bss.c",
    "instrument_functions.c",
    "static_locals.c",
];

/// Of how many cases the ordinary tests run one.
const SHARE: u32 = 4;

/// How many times longer it may take than natively.
const FACTOR: u32 = 3;

/// The same where code is guided: it is made by threads that let everybody else go first.
const GUIDED_FACTOR: u32 = 12;

/// The test binary's `main`.
pub fn main() -> ExitCode {
    trial::run(trials)
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let cases = Case::all(&gate::cases_folder()).map_err(|error| error.to_string())?;
    let open = Gate::open()?;
    let bench = Bench::set_up(arguments)?;
    let cases: Vec<Arc<Case>> = cases.into_iter().filter(is_native).map(Arc::new).collect();
    let ways = [(Forced::Flip, "live"), (Forced::Guided, "guided")];
    let pairs = ways
        .iter()
        .flat_map(|way| cases.iter().map(move |case| (way, case)));
    let trials = pairs.filter_map(|(&(forced, way), case)| {
        let still = STILL.contains(&&*case.plan.name);
        let forced = match (forced, still) {
            (Forced::Guided, true) => return None,
            (_, true) => Forced::Once,
            (forced, false) => forced,
        };
        let (bench, body) = (bench.clone(), Arc::clone(case));
        let late = case.gate > open;
        let name = format!("{}::{way}", case.plan.name);
        let body = move || match bench {
            Some(bench) => judge(&body, forced, &bench).map_err(Failed::from),
            None => Ok(()),
        };
        let ignored = late || !is_usual(case, forced);
        Some(Trial::test(name, body).with_ignored_flag(ignored))
    });
    let server = {
        let bench = bench.clone();
        Trial::test("server::swap", move || match bench {
            Some(bench) => crate::live_server::judge(&bench).map_err(Failed::from),
            None => Ok(()),
        })
    };
    type Judge = fn(&Bench) -> Result<(), String>;
    let others: [(&str, Judge); 17] = [
        ("server::quiescent", crate::live_server::judge_quiescent),
        ("backtraces::as_natively", crate::live_backtraces::judge),
        ("guided::counted", crate::live_forced::judge_counted),
        ("faults::survived", crate::live_faults::judge),
        ("faults::killed", crate::live_faults::judge_killed),
        ("faults::refused", crate::live_faults::judge_refusals),
        ("libraries::swapped", crate::live_libraries::judge),
        ("files::as_natively", crate::live_files::judge),
        ("files::swap", crate::live_files::judge_swap),
        ("locals::hot", crate::live_locals::judge_hot),
        ("locals::ways", crate::live_locals::judge_ways),
        ("locals::damaged", crate::live_locals::judge_damaged),
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

/// Whether the ordinary tests run a case in one of the ways.
fn is_usual(case: &Case, forced: Forced) -> bool {
    let sum: u32 = case.plan.name.bytes().map(u32::from).sum();
    match forced {
        Forced::Guided => sum % SHARE == 1,
        _ => sum.is_multiple_of(SHARE) || !case.libraries.is_empty(),
    }
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
fn judge(case: &Case, forced: Forced, bench: &Bench) -> Result<(), String> {
    let name = format!("{}-{forced:?}", case.plan.name);
    let folder = bench.scratch(&format!("live-{name}"));
    let (program, opened) = build(case, bench, &folder)?;
    let mut job = Job::new(&program, case.plan.limit);
    job.args.extend(case.plan.args.iter().map(Into::into));
    job.args.extend(opened.into_iter().map(Into::into));
    let native = execute(case, job.clone(), &folder.join("native"))?;
    let factor = match forced {
        Forced::Guided => GUIDED_FACTOR,
        _ => FACTOR,
    };
    let mut live = bench.subject.job(case.plan.limit * factor);
    for word in ["live", forced.option(), "--no-control", "--"] {
        live.arg(word);
    }
    live.arg(&program);
    live.args.extend(job.args);
    let line = live.command_line();
    let ours = execute(case, live, &folder.join("live"))?;
    // Standard error has what is said where a program stays as it is.
    let text = verdict::difference(&native, &ours, false);
    let checked = forced.check(&case.plan.name, &ours.stderr);
    match text.or(checked.err()) {
        Some(text) => Err(format!("{text}{line}\nnatively: {}", program.display())),
        None => Ok(()),
    }
}

/// The executable, and the libraries that it opens.
fn build(case: &Case, bench: &Bench, folder: &Path) -> Result<(PathBuf, Vec<PathBuf>), String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let (mut linked, mut opened) = (Vec::new(), Vec::new());
    for library in &case.libraries {
        let built = build_library(library, case, bench, folder)?;
        match library.opened {
            true => opened.push(built),
            false => linked.push(built),
        }
    }
    let sources: Vec<&PathBuf> = case.sources.iter().map(|source| &source.path).collect();
    let mut job = compiler(&sources, case, bench);
    let is_c = |path: &PathBuf| Language::of(path) == Some(Language::C);
    let mixed = sources.iter().any(|path| is_c(path)) && !sources.iter().all(|path| is_c(path));
    job.args.extend(case.flags.iter().map(Into::into));
    for (number, source) in sources.iter().enumerate() {
        let mut file = source.to_path_buf();
        // The compiler of C++ takes it for such.
        if mixed && is_c(source) {
            let mut job = compiler(&[source], case, bench);
            job.args.extend(case.flags.iter().map(Into::into));
            job.arg("-c").arg(source);
            file = make(job, folder, &format!("{number}.o"))?;
        }
        job.arg(file);
    }
    job.args.extend(linked.iter().map(Into::into));
    job.args.extend(case.link_flags.iter().map(Into::into));
    job.args.extend(["-lm", "-pthread"].map(Into::into));
    let program = make(job, folder, "program")?;
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
    let level = match UNOPTIMIZED.contains(&&*case.plan.name) {
        true => "-O0",
        false => "-O1",
    };
    job.args.extend([level, "-w"].map(Into::into));
    if cxx {
        job.arg("-std=c++20");
    }
    job
}

/// The file that a compiler makes.
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

fn execute(case: &Case, mut job: Job, scratch: &Path) -> Result<Outcome, String> {
    job.stdin.clone_from(&case.plan.stdin);
    job.env.clone_from(&case.plan.env);
    job.run(scratch)
        .map_err(|error| format!("cannot run {}: {error}", job.command_line()))
}
