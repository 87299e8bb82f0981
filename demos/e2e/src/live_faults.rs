//! Obstacles of `uruk live`: the program computes the same results as without it, and ends the same
//! way. The fault is reported once.
//!
//! | in the way | answer |
//! |---|---|
//! | a filter that forbids executable memory, before or while functions are compiled | said once; native |
//! | a filter that forbids counting events | nothing is said: samples come from timers |
//! | no memory, little memory, a limit that comes while something is compiled | said once, or nothing |
//! | no file, or no thread more, before or while something is compiled | said once, or nothing |
//! | the program reads its own text | it sees the bytes that were changed: 14 in front of an entry, two at it |
//! | the program writes to its own text | the entry is left alone, or its own code wins |
//! | LLVM ends a compile by a fatal error, asked for or by samples | the function stays native; the table says why |
//! | the program signals all threads there are, or is copied, while something is compiled | nothing |
//! | no symbols, no dynamic loader, rights of its own (setuid, file capabilities) | refused before it starts |

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_guests::execute::{Ending, Job, Outcome};

use crate::subject::STATUS_FAILURE;
use crate::trial::Bench;
use crate::verdict;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Begins each line that `uruk live` says.
const SAYS: &str = "uruk live: ";

/// Arguments of the program, and what is said: `None` where it depends on the moment, but at most
/// one thing is.
const RUNS: [(&[&str], Option<&str>); 14] = [
    (&["plain", "300"], Some("")),
    (&["no-code", "600"], Some("executable memory")),
    (&["late-no-code", "400", "60"], None),
    (&["no-events", "300"], Some("")),
    (&["memory", "300", "0"], Some("no memory")),
    (&["memory", "300", "64"], Some("no memory")),
    (&["late-memory", "400", "80"], None),
    (&["files", "300"], Some("Too many open files")),
    (&["late-files", "400", "60"], None),
    (&["processes", "300"], None),
    (&["late-processes", "400", "60"], None),
    (&["text", "300"], Some("")),
    (&["patch", "300"], Some("")),
    (&["late-patch", "300"], Some("")),
];

/// Runs the program in each way, natively and live.
///
/// # Errors
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let program = build(bench, "faults", &[])?;
    for (args, said) in RUNS {
        let mut job = Job::new(&program, LIMIT);
        job.args.extend(args.iter().map(Into::into));
        let native = execute(bench, "faults", job)?;
        let ours = execute(
            bench,
            "faults",
            live(bench, &["--after=20"], &program, args),
        )?;
        if let Some(text) = verdict::difference(&native, &ours, false) {
            return Err(format!("{args:?}: {text}"));
        }
        let error = verdict::excerpt(&ours.stderr);
        let lines: Vec<&str> = error.lines().filter(|line| line.contains(SAYS)).collect();
        let fits = match said {
            Some("") => lines.is_empty(),
            Some(said) => lines.len() == 1 && lines[0].contains(said),
            None => lines.len() <= 1,
        };
        if !fits {
            return Err(format!("{args:?}: {lines:?} was said, not {said:?}"));
        }
    }
    Ok(())
}

/// How the program whose compiles are killed is run: its arguments, an option, and the function of
/// which the table has to say what it died of, if any.
const KILLED: [(&[&str], &str, &str); 5] = [
    (&["own", "0"], "--force=all", "own"),
    (&["inner", "0"], "--force=all", "inner"),
    (&["signals", "300"], "--force=all", "own"),
    (&["signals", "300"], "--after=20", ""),
    (&["fork", "500"], "--force=all", "own"),
];

/// Processor time in which samples are to find the function that dies, in milliseconds: longer if it
/// was not enough, as on a busy machine.
const SAMPLED: [&str; 3] = ["1000", "4000", "16000"];

/// A compile that LLVM does not come back from costs a function its new code, and no more; so do
/// signals to all threads, and copies of the process.
///
/// # Errors
/// As [`judge`].
pub fn judge_killed(bench: &Bench) -> Result<(), String> {
    let program = build_of(bench, "killed.c", "killed", &[])?;
    for (args, option, dies) in KILLED {
        let table = killed(bench, &program, args, option)?;
        if !dies.is_empty() && !tells_of(&table, dies) {
            return Err(format!("{args:?}: `{dies}` is not told of:\n{table}"));
        }
    }
    ["own", "inner"]
        .into_iter()
        .try_for_each(|name| sampled(bench, &program, name))
}

/// Samples find the function that dies, or what it calls.
fn sampled(bench: &Bench, program: &Path, name: &str) -> Result<(), String> {
    let mut table = String::new();
    for time in SAMPLED {
        table = killed(bench, program, &[name, time], "--after=20")?;
        if tells_of(&table, name) {
            return Ok(());
        }
    }
    Err(format!("`{name}` is not told of:\n{table}"))
}

/// The table of a run, which does as the program does natively.
fn killed(bench: &Bench, program: &Path, args: &[&str], option: &str) -> Result<String, String> {
    let mut job = Job::new(program, LIMIT);
    job.args.extend(args.iter().map(Into::into));
    let native = execute(bench, "killed", job)?;
    let options = [option, "--explain"];
    let ours = execute(bench, "killed", live(bench, &options, program, args))?;
    let table = String::from_utf8_lossy(&ours.stderr).into_owned();
    let same = ours.ending == native.ending && ours.stdout == native.stdout;
    match same && native.ending == Ending::Status(0) {
        true => Ok(table),
        false => Err(format!("{args:?} {option}: not as natively:\n{table}")),
    }
}

/// Whether the table says what a function died of, and that it is native.
fn tells_of(table: &str, name: &str) -> bool {
    let name = format!(" {name} (");
    let words = [&*name, "not compiled", "fatal error in LLVM"];
    let told = |line: &str| {
        line.trim_start().starts_with("0 ") && words.iter().all(|word| line.contains(word))
    };
    table.lines().any(told)
}

/// Local functions are led to new code as all others are, also where code is to be small, which
/// leaves functions unaligned.
///
/// # Errors
/// As [`judge`].
pub fn judge_local(bench: &Bench) -> Result<(), String> {
    for (name, flags) in [("local", &[][..]), ("local-small", &["-Os"])] {
        let program = build_of(bench, "faults.c", name, flags)?;
        let options = ["--force=all", "--explain"];
        let job = live(bench, &options, &program, &["plain", "0"]);
        let ours = execute(bench, name, job)?;
        let table = String::from_utf8_lossy(&ours.stderr).into_owned();
        let is_led = |line: &str| line.trim_start().starts_with("2 ") && line.contains(" mix (");
        if !table.lines().any(is_led) {
            return Err(format!("{name}: `mix` is not redirected:\n{table}"));
        }
    }
    Ok(())
}

/// A function whose new code is slower than native code returns to native code. The report shows
/// the run with its tiers.
///
/// # Errors
/// As [`judge`].
pub fn judge_slower(bench: &Bench) -> Result<(), String> {
    let program = build_of(bench, "slower.c", "slower", &["-fno-inline-functions"])?;
    let page = bench.scratch("live-faults").join("slower.html");
    let report = format!("--report={}", page.display());
    let options = ["--after=20", "--explain", "--stats", &report];
    let ours = execute(bench, "slower", live(bench, &options, &program, &["90"]))?;
    let told = String::from_utf8_lossy(&ours.stderr).into_owned();
    if ours.ending != Ending::Status(0) {
        let printed = String::from_utf8_lossy(&ours.stdout).into_owned();
        return Err(format!("{printed}{told}"));
    }
    let is_back = |line: &str| line.trim_start().starts_with("0 ") && line.contains(" work (");
    if !told.lines().any(is_back) {
        return Err(format!("`work` is not told of as native:\n{told}"));
    }
    if !told.contains("0 native") {
        return Err(format!("the table has no tier 0:\n{told}"));
    }
    let text = fs::read_to_string(&page).map_err(|error| error.to_string())?;
    match text.contains("tier 0, native") && text.contains("work") {
        true => Ok(()),
        false => Err(format!("{} does not tell of tier 0", page.display())),
    }
}

/// A program that `uruk live` cannot serve is refused before it starts, with the reason.
///
/// # Errors
/// As [`judge`].
pub fn judge_refusals(bench: &Bench) -> Result<(), String> {
    let owned = build(bench, "owned", &[])?;
    let failed = |error: std::io::Error| error.to_string();
    fs::set_permissions(&owned, fs::Permissions::from_mode(0o4755)).map_err(failed)?;
    let programs = [
        (build(bench, "stripped", &["-s"])?, "stripped"),
        (build(bench, "static", &["-static"])?, "linked statically"),
        (owned, "setuid"),
        (damaged(bench, "damaged", |at| at + 4)?, "of the bitcode"),
        (damaged(bench, "none", |_| 0)?, "not an ELF file"),
    ];
    let mut programs = Vec::from(programs);
    let capable = build(bench, "capable", &[])?;
    match give(&capable) {
        true => programs.push((capable, "capabilities")),
        false => eprintln!("programs with file capabilities: not tried, none can be given here"),
    }
    for (program, reason) in programs {
        let ours = execute(
            bench,
            "refused",
            live(bench, &[], &program, &["plain", "0"]),
        )?;
        let text = verdict::excerpt(&ours.stderr);
        if ours.ending != Ending::Status(STATUS_FAILURE) || !text.contains(reason) {
            let shown = program.display();
            return Err(format!("{shown}: not refused for `{reason}`: {text}"));
        }
    }
    Ok(())
}

/// A program with wrong bytes at the place that `place` gives for that of its bitcode.
fn damaged(bench: &Bench, name: &str, place: impl Fn(usize) -> usize) -> Result<PathBuf, String> {
    let program = build(bench, name, &[])?;
    let failed = |error: std::io::Error| error.to_string();
    let mut bytes = fs::read(&program).map_err(failed)?;
    let begin = bytes.windows(4).position(|it| it == b"BC\xc0\xde");
    let at = place(begin.ok_or("no bitcode in the program")?);
    bytes[at..at + 4].fill(0xff);
    fs::write(&program, bytes).map_err(failed)?;
    Ok(program)
}

/// Gives a program rights of its own, which only root can, and where file systems keep them.
fn give(program: &Path) -> bool {
    ["setcap", "/usr/sbin/setcap"].into_iter().any(|tool| {
        let mut command = Command::new(tool);
        let command = command.arg("cap_net_bind_service=ep").arg(program);
        command.status().is_ok_and(|status| status.success())
    })
}

fn live(bench: &Bench, options: &[&str], program: &Path, args: &[&str]) -> Job {
    let mut job = bench.subject.job(LIMIT);
    job.arg("live");
    job.args.extend(options.iter().map(Into::into));
    job.args.extend(["--no-control", "--"].map(Into::into));
    job.arg(program);
    job.args.extend(args.iter().map(Into::into));
    job
}

fn build(bench: &Bench, name: &str, more: &[&str]) -> Result<PathBuf, String> {
    build_of(bench, "faults.c", name, more)
}

fn build_of(bench: &Bench, file: &str, name: &str, more: &[&str]) -> Result<PathBuf, String> {
    let folder = bench.scratch("live-faults");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../live")
        .join(file);
    let program = folder.join(name);
    let mut job = bench.subject.job(LIMIT);
    job.args.extend(["cc", "-O2"].map(Into::into));
    job.args.extend(more.iter().map(Into::into));
    job.arg(source).arg("-o").arg(&program);
    let built = execute(bench, name, job)?;
    match program.exists() {
        true => Ok(program),
        false => Err(verdict::excerpt(&built.stderr)),
    }
}

fn execute(bench: &Bench, name: &str, job: Job) -> Result<Outcome, String> {
    let line = job.command_line();
    job.run(&bench.scratch(&format!("live-faults-{name}")))
        .map_err(|error| format!("cannot run {line}: {error}"))
}
