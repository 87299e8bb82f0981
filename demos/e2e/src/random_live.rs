//! A random program as a native one, under `uruk live`, with every function exchanged again and again: most of
//! csmith's functions are local, and the compiler recorded how they are called.

use std::path::Path;

use uruk_guests::execute::Job;

use crate::live_forced::Forced;
use crate::live_talk::{LIMIT, driver, make, run};
use crate::trial::Bench;
use crate::verdict;

/// Levels, by seed.
const LEVELS: [&str; 3] = ["-O1", "-O2", "-O3"];

/// Builds a program of a seed without inlining, which would leave few calls, and runs it natively and live.
///
/// # Errors
/// The difference, in words.
pub(crate) fn judge(bench: &Bench, source: &Path, include: &Path, seed: u64) -> Result<(), String> {
    let folder = source.parent().unwrap_or(source);
    let level = LEVELS[(seed % LEVELS.len() as u64) as usize];
    let include = format!("-I{}", include.display());
    let words = [level, "-fno-inline", "-w", &include];
    let program = make(driver(bench), &words, &[source], folder.join("live"))?;
    let native = run(&job(Job::new(&program, LIMIT)), &folder.join("native"))?;
    let mut live = bench.subject.job(LIMIT);
    for word in ["live", Forced::Flip.option(), "--no-control", "--"] {
        live.arg(word);
    }
    live.arg(&program);
    let ours = run(&job(live), &folder.join("ours"))?;
    match verdict::difference(&native, &ours, false) {
        Some(text) => Err(format!("{level}, live: {text}")),
        None => Ok(()),
    }
}

/// With an argument, csmith's programs print every global on the way.
fn job(mut job: Job) -> Job {
    job.arg("1");
    job
}
