//! `uruk swap`: exchanges functions of a program that runs under `uruk live`.

use std::path::PathBuf;
use std::time::Duration;

use uruk::{EXIT_FAILURE, Level};
use uruk_live::asking;
use uruk_live::swap::{Exchange, NewVersion};

use super::mangled;

#[derive(clap::Args)]
#[command(after_help = "Only the user that the program runs as is answered.")]
pub(super) struct Swap {
    /// The program's process.
    pid: u32,
    /// An object of `uruk cc`, or bitcode: a new version of one of the program's sources.
    #[arg(required_unless_present_any = ["rollback", "explain", "stats", "report", "trace"])]
    file: Option<PathBuf>,
    /// Wait so many milliseconds at most until no thread runs old code; calls wait meanwhile.
    #[arg(long, value_name = "MS", conflicts_with_all = ["explain", "stats", "report", "trace"])]
    quiescent: Option<u64>,
    /// Let threads in loops of old code continue in new code, at the next head of a loop that both
    /// versions have. Native and optimized code have no OSR points in their loops: threads in those
    /// continue as before, and are listed.
    #[arg(long, conflicts_with = "quiescent", requires = "file")]
    osr: bool,
    /// Accept functions whose arguments or results have other types: code that calls them with the old
    /// types must not call them any more.
    #[arg(long, requires = "file")]
    allow_signatures: bool,
    /// Go back to before the latest exchange: by waiting as that did, unless `--quiescent` or
    /// `--immediate` says otherwise.
    #[arg(long, conflicts_with = "file")]
    rollback: bool,
    /// Go back at once, also where the exchange waited: threads may use functions of both versions
    /// meanwhile.
    #[arg(long, conflicts_with = "quiescent", requires = "rollback")]
    immediate: bool,
    /// Print the table of the program's functions.
    #[arg(long, conflicts_with_all = ["file", "rollback"])]
    explain: bool,
    /// Print what was done so far.
    #[arg(long, conflicts_with_all = ["file", "rollback", "explain"])]
    stats: bool,
    /// Write the page about the run so far to a file (`uruk live --record`).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "rollback", "explain", "stats"])]
    report: Option<PathBuf>,
    /// Write its timeline so far, in Chrome's trace format.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "rollback", "explain", "stats", "report"])]
    trace: Option<PathBuf>,
}

pub(super) fn main(swap: &Swap) -> i32 {
    let waiting = swap.quiescent.map(|ms| Level::Quiescent {
        wait: Duration::from_millis(ms),
    });
    let answer = match &swap.file {
        None if swap.rollback => {
            let at_once = swap.immediate.then_some(Level::Immediate);
            asking::ask_rollback(swap.pid, waiting.or(at_once))
        }
        None if swap.stats => asking::ask(swap.pid, "stats"),
        None if swap.report.is_some() => asking::ask(swap.pid, "report"),
        None if swap.trace.is_some() => asking::ask(swap.pid, "trace"),
        None => asking::ask(swap.pid, "explain"),
        Some(file) => {
            let version = match NewVersion::read(file) {
                Ok(version) => version,
                Err(cause) => return super::fail(&cause),
            };
            let exchange = Exchange {
                level: waiting.unwrap_or_default(),
                osr: swap.osr,
                allow_signatures: swap.allow_signatures,
            };
            asking::ask_exchange(swap.pid, &exchange, &version)
        }
    };
    match answer {
        Ok(text) => match swap.report.as_ref().or(swap.trace.as_ref()) {
            Some(file) => match uruk_files::write(file, text) {
                Ok(()) => 0,
                Err(cause) => {
                    uruk_files::say!("uruk swap: {}: {cause}", file.display());
                    EXIT_FAILURE
                }
            },
            None => match uruk_files::print(&readable(swap, text)) {
                Ok(()) => 0,
                Err(cause) => super::fail(&cause),
            },
        },
        Err(cause) => {
            let cause = mangled::written_in(&cause.to_string());
            uruk_files::say!("uruk swap: {}: {cause}", swap.pid);
            EXIT_FAILURE
        }
    }
}

/// An answer for users. Tables keep the mangled names of symbol tables.
fn readable(swap: &Swap, text: String) -> String {
    match swap.file.is_some() || swap.rollback {
        true => mangled::written_in(&text),
        false => text,
    }
}
