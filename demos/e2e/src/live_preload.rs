//! The library without `uruk live`: in `LD_PRELOAD`, or linked.
//!
//! | environment | a program with bitcode | one without |
//! |---|---|---|
//! | nothing but `LD_PRELOAD` | is live, and others may ask | as it is, and nothing is said |
//! | `URUK_LIVE` besides | is live in that way, as are those that it starts | as above |
//! | `URUK_LIVE=off` | as it is | as above |
//! | that of `uruk live`: not that of what the program becomes | as it is | as above |
//! | any, but the program has rights of its own | as it is | as above |

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use uruk_guests::execute::{Ending, Job};

use crate::live_talk::{LIMIT, Talk, driver, fresh, make, published, run, source};
use crate::trial::Bench;
use crate::verdict;

/// Everything is compiled before the program starts, and told of at the end.
const FORCED: &str = "force=all,explain";

/// The number of another user, for every user that runs the tests.
const NOBODY: u32 = 65534;

fn library(bench: &Bench) -> Result<PathBuf, String> {
    let own = std::env::var_os("URUK_LIVE_LIBRARY").map(PathBuf::from);
    let beside = |folder: &str| {
        let command = bench.subject.program().parent()?;
        Some(command.join(folder).join("liburuk_preload.so"))
    };
    let places = ["", "../lib", "../lib/uruk"].map(beside);
    let mut places = own.into_iter().chain(places.into_iter().flatten());
    let found = places.find(|file| file.is_file());
    found.ok_or_else(|| "liburuk_preload.so is not beside the command".to_owned())
}

/// A job, with what the library is told.
fn told(mut job: Job, library: Option<&Path>, words: &str) -> Job {
    if let Some(library) = library {
        let library = library.display().to_string();
        job.env.push(("LD_PRELOAD".to_owned(), library));
    }
    job.env.push(("URUK_LIVE".to_owned(), words.to_owned()));
    job
}

/// The messages, without the lines about forced compiles.
fn besides_forcing(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines = said.split_inclusive('\n');
    lines
        .filter(|line| !line.starts_with("uruk live: forced: "))
        .collect()
}

/// The process takes from the library the functions that copy it, and the function that makes any
/// system call. So the library knows of a child before it exists, and knows which call to repeat.
fn interposed(bench: &Bench, folder: &Path, library: &Path) -> Result<(), String> {
    let from = source("interposed.c");
    let program = make(driver(bench), &[], &[&from], folder.join("interposed"))?;
    let job = told(Job::new(&program, LIMIT), Some(library), FORCED);
    let said = run(&job, &folder.join("run"))?.stdout;
    match said == format!("{}\n", "liburuk_preload.so ".repeat(4)).as_bytes() {
        true => Ok(()),
        false => Err(format!("calls go past us: {}", verdict::excerpt(&said))),
    }
}

/// Threads of a program under `uruk live` cache more blocks than usual. The program still reads the
/// original `GLIBC_TUNABLES`.
fn caches(bench: &Bench, folder: &Path) -> Result<(), String> {
    let from = source("caches.c");
    let program = make(driver(bench), &[], &[&from], folder.join("caches"))?;
    let told = |mut job: Job, words: &str| {
        job.env
            .push(("GLIBC_TUNABLES".to_owned(), words.to_owned()));
        run(&job, &folder.join("run"))
    };
    for (words, kept) in [
        ("glibc.malloc.arena_max=1", 1),
        ("glibc.malloc.tcache_count=9", 0),
    ] {
        let native = told(Job::new(&program, LIMIT), words)?.stdout;
        let mut command = bench.subject.job(LIMIT);
        for word in ["live", "--no-control", "--"] {
            command.arg(word);
        }
        command.arg(&program);
        let ours = told(command, words)?.stdout;
        for (said, kept) in [(native, 0), (ours, kept)] {
            if said != format!("{words} {kept}\n").as_bytes() {
                let said = verdict::excerpt(&said);
                return Err(format!("{words}, {kept} kept: {said}"));
            }
        }
    }
    Ok(())
}

/// A signal that is ignored when the command starts is ignored by the program, too.
fn ignored(bench: &Bench, folder: &Path) -> Result<(), String> {
    let from = source("ignored.c");
    let program = make(driver(bench), &[], &[&from], folder.join("ignored"))?;
    let (command, program) = (bench.subject.program().display(), program.display());
    for (words, expected) in [("trap '' PIPE;", "1\n"), ("", "0\n")] {
        let mut job = Job::new("/bin/sh", LIMIT);
        job.arg("-c").arg(format!(
            "{words} exec '{command}' live --no-control -- '{program}'"
        ));
        let said = run(&job, &folder.join("run"))?.stdout;
        if said != expected.as_bytes() {
            return Err(format!("{words:?}: {}", verdict::excerpt(&said)));
        }
    }
    Ok(())
}

/// `LD_PRELOAD` by hand.
///
/// # Errors
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-preload")?;
    let library = library(bench)?;
    let from = source("exchanged.c");
    let program = make(driver(bench), &[], &[&from], folder.join("program"))?;
    let words = ["-c", "-DNUMBER=20"];
    let fix = make(driver(bench), &words, &[&from], folder.join("fix.o"))?;
    let mut command = Command::new(&program);
    command
        .env("LD_PRELOAD", &library)
        .env_remove("URUK_LIVE")
        .env_remove("URUK_LIVE_PRELOAD");
    let mut talk = Talk::start(bench, &folder, command)?;
    talk.expect("10 1003 10 21", "with the usual settings")?;
    talk.swapped([&fix], &["exchanged: number\n"])?;
    talk.expect("10 2003 10 21", "after an exchange")?;
    drop(talk);
    interposed(bench, &folder, &library)?;
    caches(bench, &folder)?;
    ignored(bench, &folder)?;
    let from = source("linked.c");
    let program = make(driver(bench), &[], &[&from], folder.join("told"))?;
    let native = run(&Job::new(&program, LIMIT), &folder.join("run"))?;
    let shell = |words: &str| {
        let mut job = told(Job::new("/bin/sh", LIMIT), Some(&library), words);
        let program = program.display();
        // The first one as a child, the second one in the shell's place.
        job.arg("-c")
            .arg(format!("'{program}' && exec '{program}'"));
        run(&job, &folder.join("run"))
    };
    let mut command = bench.subject.job(LIMIT);
    for word in ["live", "--force=all", "--explain", "--no-control", "--"] {
        command.arg(word);
    }
    command.arg(&program).arg(&program);
    let ours = run(&command, &folder.join("run"))?;
    if ours.stdout != native.stdout.repeat(2) || !besides_forcing(&ours.stderr).is_empty() {
        return Err(format!(
            "what a program of `uruk live` becomes is not as it is: {}",
            verdict::excerpt(&ours.stderr)
        ));
    }
    for (words, tables) in [(FORCED, 2), ("off,force=all,explain", 0)] {
        let ours = shell(words)?;
        let table = besides_forcing(&ours.stderr);
        if ours.ending != Ending::Status(0) || ours.stdout != native.stdout.repeat(2) {
            return Err(format!("{words}: not as natively: {ours:?}"));
        }
        let fits = match tables {
            0 => table.is_empty(),
            // A table has each function once.
            _ => {
                table.matches(" work (").count() == tables
                    && published(&table, "work") >= tables as u64
                    && !table.contains("uruk live: ")
            }
        };
        if !fits {
            return Err(format!(
                "{words}: {tables} tables were to be told:\n{table}"
            ));
        }
    }
    Ok(())
}

/// A program that is linked with the library, and one that has rights of its own besides.
///
/// # Errors
/// As [`judge`].
pub fn judge_linked(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-linked")?;
    let library = library(bench)?;
    let place = library.parent().unwrap_or(&folder).display();
    let (search, find) = (format!("-L{place}"), format!("-Wl,-rpath,{place}"));
    let words = ["-Wl,--no-as-needed", &search, &find, "-luruk_preload"];
    let from = source("linked.c");
    let program = make(driver(bench), &words, &[&from], folder.join("program"))?;
    let plain = run(&Job::new(&program, LIMIT), &folder.join("run"))?;
    if plain.ending != Ending::Status(0) || !plain.stderr.is_empty() {
        return Err(format!("with the usual settings: {plain:?}"));
    }
    let job = told(Job::new(&program, LIMIT), None, FORCED);
    let ours = run(&job, &folder.join("run"))?;
    let table = String::from_utf8_lossy(&ours.stderr);
    if ours.stdout != plain.stdout || published(&table, "work") == 0 {
        return Err(format!("not compiled again: {ours:?}\n{table}"));
    }
    // Only a process that may give files away can create a program of another user.
    let owned = chown(&program, Some(NOBODY), None)
        .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)));
    if owned.is_err() {
        eprintln!("whether programs with rights of their own are left alone: not tried");
        return Ok(());
    }
    let ours = run(&job, &folder.join("run"))?;
    let said = String::from_utf8_lossy(&ours.stdout);
    match said.ends_with(" 1\n") {
        true if ours.stderr.is_empty() => Ok(()),
        true => Err(format!(
            "something was done in a program with rights of its own: {}",
            verdict::excerpt(&ours.stderr)
        )),
        // The file system gives no rights, or the loader cannot come to the library.
        false => {
            eprintln!("no rights of its own are to be had here: not tried");
            Ok(())
        }
    }
}
