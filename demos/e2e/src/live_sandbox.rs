//! A program that gives up system calls while others may ask it: the threads that answer end before that.

use std::fs;

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// After the program has given up its system calls, no thread of the runtime is left, and a later client gets an
/// error and does not end the program.
///
/// # Errors
/// A text that describes the failure.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-sandbox")?;
    let from = source("sandboxed.c");
    let program = make(driver(bench), &[], &[&from], folder.join("program"))?;
    let mut talk = Talk::live(bench, &folder, &program)?;
    talk.asked("number", "7")?;
    let (done, text) = talk.swap(["--stats"])?;
    if !done {
        return Err(format!("--stats before: {text}"));
    }
    talk.asked("give up", "0")?;
    let tasks = format!("/proc/{}/task", talk.process());
    let threads = fs::read_dir(tasks).map_err(|error| error.to_string())?;
    let threads = threads.count();
    if threads != 1 {
        return Err(format!("{threads} threads are left"));
    }
    for _ in 0..3 {
        let (done, text) = talk.swap(["--stats"])?;
        if done || !text.contains("has given up system calls") {
            return Err(format!("--stats after: {text}"));
        }
        talk.asked("number", "7")?;
    }
    Ok(())
}

/// The kernel hides the threads of a program that gave up root: a quiescent exchange is refused at once,
/// and an immediate one is made. Does nothing where the tests do not run as root.
///
/// # Errors
/// A text that describes the failure.
pub fn judge_rights(bench: &Bench) -> Result<(), String> {
    const HOUR: &str = "3600000";
    let folder = fresh(bench, "live-rights")?;
    let from = source("sandboxed.c");
    let program = make(driver(bench), &[], &[&from], folder.join("program"))?;
    let new = folder.join("new.o");
    let new = make(driver(bench), &["-c", "-DANSWER=8"], &[&from], new)?;
    let mut talk = Talk::live(bench, &folder, &program)?;
    if talk.ask("give up root")? != "0" {
        return Ok(());
    }
    let words = [new.as_os_str(), "--quiescent".as_ref(), HOUR.as_ref()];
    let (done, text) = talk.swap(words)?;
    if done || !text.contains("once a process gave up rights") {
        return Err(format!("--quiescent: {text}"));
    }
    talk.asked("number", "7")?;
    talk.swapped([&new], &["exchanged: number"])?;
    talk.asked("number", "8")
}
