//! Calls that are not over, where scans of the threads' stacks do not show the function: a quiescent exchange
//! waits for them. And functions that have the code of others.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::thread;

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// The program, live, and a new version of it.
struct Suspended<'b> {
    talk: Talk<'b>,
    new: PathBuf,
}

impl<'b> Suspended<'b> {
    fn start(bench: &'b Bench, name: &str, words: &[&str]) -> Result<Self, String> {
        let folder = fresh(bench, name)?;
        let from = source("suspended.c");
        let program = make(driver(bench), words, &[&from], folder.join("program"))?;
        let words = [words, &["-DVERSION=2", "-c"]].concat();
        let new = make(driver(bench), &words, &[&from], folder.join("new.o"))?;
        let mut talk = Talk::live(bench, &folder, &program)?;
        talk.asked("line", "1 1")?;
        Ok(Suspended { talk, new })
    }

    /// A call is under way: it has one version of all functions, to its end.
    fn refuses_quiescent(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            let words = ["--quiescent".as_ref(), "200".as_ref(), self.new.as_os_str()];
            let (done, text) = self.talk.swap(words)?;
            if done || !text.contains("old code is still running") {
                return Err(format!("a call of `work` is not over: {text}"));
            }
            self.talk.asked("line", "1 1")?;
        }
        Ok(())
    }
}

/// A coroutine that is suspended in a function is seen by a quiescent exchange.
///
/// # Errors
/// A text that describes the failure.
pub fn judge_coroutine(bench: &Bench) -> Result<(), String> {
    let mut it = Suspended::start(bench, "live-suspended-coroutine", &["-DCOROUTINE"])?;
    it.refuses_quiescent()
}

/// So is a thread in a part of a function that the compiler put elsewhere.
///
/// # Errors
/// A text that describes the failure.
pub fn judge_split(bench: &Bench) -> Result<(), String> {
    let words = ["-fbasic-block-sections=all"];
    let mut it = Suspended::start(bench, "live-suspended-split", &words)?;
    it.refuses_quiescent()
}

/// Functions of which the compiler kept one body are not exchanged alone.
///
/// # Errors
/// A text that describes the failure.
pub fn judge_merged(bench: &Bench) -> Result<(), String> {
    let words = ["-DMERGED", "-Xclang", "-fmerge-functions"];
    let it = Suspended::start(bench, "live-suspended-merged", &words)?;
    let (done, text) = it.talk.swap([&it.new])?;
    match !done && text.contains("have the same native code") {
        true => Ok(()),
        false => Err(format!("`same` and `other` have one body: {text}")),
    }
}

/// More clients than are attended to at a time keep no question from being answered, and a fork does not
/// wait for an exchange that waits.
///
/// # Errors
/// A text that describes the failure.
pub fn judge_crowd(bench: &Bench) -> Result<(), String> {
    const CLIENTS: usize = 40;
    let mut it = Suspended::start(bench, "live-suspended-crowd", &[])?;
    let words = [
        "--quiescent".as_ref(),
        "120000".as_ref(),
        it.new.as_os_str(),
    ];
    let mut clients = it.talk.crowd(CLIENTS, &words)?;
    // Those that are too many are told so.
    while clients.waiting() > CLIENTS / 2 {
        thread::yield_now();
    }
    it.talk.swapped([OsStr::new("--stats")], &["0 not added"])?;
    if clients.waiting() == 0 {
        return Err("no exchange waits, though `work` is not over".to_owned());
    }
    drop(clients);
    // Each that waited for its turn hears then that its client is gone.
    while it
        .talk
        .swap(["--rollback"])?
        .1
        .contains("exchanges are under way")
    {
        thread::yield_now();
    }
    // The function that is exchanged forks itself: the exchange would wait for it, and it for that.
    let mut client = it.talk.crowd(1, &words)?;
    while client.waiting() != 0 {
        let answer = it.talk.ask("fork")?;
        if !matches!(answer.as_str(), "1 1" | "2 2") {
            return Err(format!("one call of `work` has seen `{answer}`"));
        }
    }
    match client.all_succeeded() {
        true => it.talk.asked("line", "2 2"),
        false => Err("an exchange was refused as a fork waited for it".to_owned()),
    }
}
