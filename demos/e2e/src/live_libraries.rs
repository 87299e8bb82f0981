//! Libraries that carry bitcode under `uruk live`: of an executable with or without bitcode, hot
//! functions are compiled again, and functions of a library are exchanged by hand.
//!
//! The cases that have libraries ([`crate::live_suite`]) check the meaning of a library's names
//! beside those of an executable.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uruk_guests::execute::{Ending, Job, Outcome};

use crate::trial::Bench;
use crate::verdict;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the program in each way.
///
/// # Errors
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = bench.scratch("live-libraries");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let library = folder.join("libengine.so");
    let shared = ["-fPIC", "-shared"];
    compile(bench, "cc", &shared, "engine.c", &[], &library)?;
    let fixed = folder.join("fixed.o");
    compile(
        bench,
        "cc",
        &["-DFIXED", "-fPIC", "-c"],
        "engine.c",
        &[],
        &fixed,
    )?;
    for (name, options) in [("with", &[][..]), ("stripped", &["-s"])] {
        let program = folder.join(name);
        let library = std::slice::from_ref(&library);
        compile(bench, "cc", options, "engine_user.c", library, &program)?;
        follow(bench, &program, &fixed).map_err(|text| format!("{name}: {text}"))?;
    }
    let stays = folder.join("libstays.so");
    compile(
        bench,
        "cc",
        &["-fPIC", "-shared", "-s"],
        "engine.c",
        &[],
        &stays,
    )?;
    let program = folder.join("neither");
    compile(bench, "cc", &["-s"], "engine_user.c", &[stays], &program)?;
    let refused = execute(bench, live(bench, &[], &program, &["20"]))?;
    match verdict::excerpt(&refused.stderr).contains("was stripped") {
        true => Ok(()),
        false => Err(format!("nothing was refused: {refused:?}")),
    }
}

/// Hot functions are compiled, one is exchanged, and the exchange is taken back.
fn follow(bench: &Bench, program: &Path, fixed: &Path) -> Result<(), String> {
    let native = execute(bench, job(program, &["50"]))?;
    let swap = bench.subject.job(LIMIT);
    let command = swap.program.display().to_string();
    let exchange = format!("{command} swap %d {}", fixed.display());
    let back = format!("{command} swap %d --rollback");
    // A function of the library has been compiled again; native code may have been faster, and be back.
    let compiled = "{print} /libengine.so/ && $2 > 0 {is = 1} END {exit !is}";
    let explain = format!("?{command} swap %d --explain | awk '{compiled}'");
    let args = ["20", &explain, &exchange, &back];
    let ours = execute(bench, live(bench, &["--after=20"], program, &args))?;
    let (was, is) = (text(&native), text(&ours));
    if ours.ending != Ending::Status(0) {
        return Err(format!(
            "{:?}\n{is}\n{}",
            ours.ending,
            text_of(&ours.stderr)
        ));
    }
    let numbers: Vec<&str> = is
        .lines()
        .filter(|line| line.len() == 8 && line.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .collect();
    if is.contains("exchanged: engine_rounds") {
        return Err(format!("what is the same was exchanged:\n{is}"));
    }
    let [before, still, exchanged, after] = numbers[..] else {
        return Err(format!("four numbers are wanted:\n{is}"));
    };
    if before != was.lines().next().unwrap_or_default() || still != before || after != before {
        return Err(format!("not {before} at all times:\n{is}natively:\n{was}"));
    }
    if exchanged == before {
        return Err(format!("the exchange did nothing:\n{is}"));
    }
    Ok(())
}

fn text(outcome: &Outcome) -> String {
    text_of(&outcome.stdout)
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn job(program: &Path, args: &[&str]) -> Job {
    let mut job = Job::new(program, LIMIT);
    job.args.extend(args.iter().map(Into::into));
    job
}

fn live(bench: &Bench, options: &[&str], program: &Path, args: &[&str]) -> Job {
    let mut job = bench.subject.job(LIMIT);
    job.arg("live");
    job.args.extend(options.iter().map(Into::into));
    job.arg("--").arg(program);
    job.args.extend(args.iter().map(Into::into));
    job
}

fn compile(
    bench: &Bench,
    driver: &str,
    options: &[&str],
    source: &str,
    more: &[PathBuf],
    to: &Path,
) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../live");
    let mut job = bench.subject.job(LIMIT);
    job.args.extend([driver, "-O2"].map(Into::into));
    job.args.extend(options.iter().map(Into::into));
    job.arg(folder.join(source));
    job.args.extend(more.iter().map(Into::into));
    job.arg("-o").arg(to);
    let built = execute(bench, job)?;
    match to.exists() {
        true => Ok(()),
        false => Err(verdict::excerpt(&built.stderr)),
    }
}

fn execute(bench: &Bench, job: Job) -> Result<Outcome, String> {
    let line = job.command_line();
    job.run(&bench.scratch("live-libraries-run"))
        .map_err(|error| format!("cannot run {line}: {error}"))
}
