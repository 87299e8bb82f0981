//! `uruk live --tuning FILE`: what a run learned is in the file at its end, and the next one makes use
//! of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_guests::execute::{Ending, Job, Outcome};

use crate::trial::Bench;
use crate::verdict;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Seconds in which a program that is slower compiled has long been compiled, if nothing is known.
const SHORT: &str = "3";

/// Begins a file of what was learned.
const HEAD: &str = "uruk tuning 1\ncpu ";

/// A function that was found slower than native code stays native in the next run, and in runs of
/// `uruk tune`.
///
/// # Errors
/// The failure, in words.
pub fn judge_native(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-tuning-native")?;
    let flags = ["-fno-inline-functions"];
    let program = build(bench, "slower.c", &folder, &flags)?;
    let file = folder.join("tuning");
    let first = run(bench, &folder, &live(bench, &file, &program, "90"))?;
    expect(&first, 0, "native again")?;
    let kept = read(&file)?;
    let is_back = |line: &str| line.starts_with("native ") && line.contains(" stays #");
    if !kept.starts_with(HEAD) || !kept.lines().any(is_back) {
        return Err(format!("not kept: {kept}"));
    }
    let second = run(bench, &folder, &live(bench, &file, &program, SHORT))?;
    expect(&second, 1, "never compiled")?;
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    if !told.contains("beside native code\n") {
        return Err(format!("what was known is not told: {told}"));
    }
    tune(bench, &folder, &file, &program)?;
    // A file that is something else is of no use, does no harm, and is told of.
    fs::write(&file, "something else\n").map_err(|error| error.to_string())?;
    let third = run(bench, &folder, &live(bench, &file, &program, "1"))?;
    let told = String::from_utf8_lossy(&third.stderr).into_owned();
    match told.contains("not used: it begins with") && read(&file)?.starts_with(HEAD) {
        true => Ok(()),
        false => Err(format!("a file of something else: {told}")),
    }
}

/// `uruk tune` of a native program: each run begins with what the file says. The program ends with 1
/// where it was never compiled, so there is one run.
fn tune(bench: &Bench, folder: &Path, file: &Path, program: &Path) -> Result<(), String> {
    let mut job = bench.subject.job(LIMIT);
    for word in ["tune", "--runs", "3", "--tuning"] {
        job.arg(word);
    }
    job.arg(file).arg(program).arg("--").arg(SHORT);
    let done = run(bench, folder, &job)?;
    expect(&done, 1, "never compiled")?;
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    match told.contains("uruk tune: run 1: ") {
        true => Ok(()),
        false => Err(format!("`uruk tune` says: {told}")),
    }
}

/// The file is one of the folder that the command began in, written once, by the process that began,
/// however it ends.
///
/// # Errors
/// As [`judge_native`].
pub fn judge_end(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-tuning-end")?;
    let program = build(bench, "ends.c", &folder, &["-pthread"])?;
    let runs = folder.join("runs");
    fs::create_dir_all(&runs).map_err(|error| error.to_string())?;
    let output = Command::new(bench.subject.program())
        .args(["live", "--tuning", "kept", "--force=all", "--no-control"])
        .arg("--")
        .arg(&program)
        .arg(runs.join("kept"))
        .current_dir(&runs)
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || said != "left alone\n" {
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{}: {said}{told}", output.status));
    }
    let kept = read(&runs.join("kept"))?;
    let files = fs::read_dir(&runs).map_err(|error| error.to_string())?;
    match kept.starts_with(HEAD) && files.count() == 1 {
        true => Ok(()),
        false => Err(format!("in {}: {kept}", runs.display())),
    }
}

fn live(bench: &Bench, file: &Path, program: &Path, seconds: &str) -> Job {
    let mut job = bench.subject.job(LIMIT);
    for word in ["live", "--after=20", "--stats", "--no-control"] {
        job.arg(word);
    }
    job.arg("--tuning").arg(file).arg("--").arg(program);
    job.arg(seconds);
    job
}

fn expect(outcome: &Outcome, status: i32, said: &str) -> Result<(), String> {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    match outcome.ending == Ending::Status(status) && text.trim() == said {
        true => Ok(()),
        false => Err(format!(
            "{}, not {said}: {text}{}",
            verdict::ending(outcome.ending),
            verdict::excerpt(&outcome.stderr)
        )),
    }
}

/// A folder of nothing.
fn fresh(bench: &Bench, name: &str) -> Result<PathBuf, String> {
    let folder = bench.scratch(name);
    // Of an earlier run.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn build(bench: &Bench, source: &str, folder: &Path, flags: &[&str]) -> Result<PathBuf, String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../live")
        .join(source);
    let program = folder.join("program");
    let mut job = bench.subject.job(LIMIT);
    job.args.extend(["cc", "-O2"].map(Into::into));
    job.args.extend(flags.iter().map(Into::into));
    job.arg(from).arg("-o").arg(&program);
    let built = run(bench, folder, &job)?;
    match program.exists() {
        true => Ok(program),
        false => Err(verdict::excerpt(&built.stderr)),
    }
}

fn run(bench: &Bench, folder: &Path, job: &Job) -> Result<Outcome, String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let scratch = bench.scratch(&format!("{name}-run"));
    job.run(&scratch)
        .map_err(|error| format!("cannot run {}: {error}", job.command_line()))
}
