//! A native program whose address space is limited, live: it goes on whether there is room for a session
//! or not.

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// Limits in MiB: too little to begin with, what ended programs, and enough.
const LIMITS: [u32; 9] = [300, 400, 450, 480, 500, 520, 550, 600, 1000];

/// The program answers under every limit. Its functions are exchanged, or the client is told that no
/// memory is left.
///
/// # Errors
/// A sentence about the first difference.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-memory")?;
    let from = source("exchanged.c");
    let program = make(driver(bench), &[], &[&from], folder.join("program"))?;
    let twelve = ["-c", "-DNUMBER=12"];
    let twelve = make(driver(bench), &twelve, &[&from], folder.join("twelve.o"))?;
    let (mut refused, mut exchanged) = (0, 0);
    for limit in LIMITS {
        let mut talk = Talk::live_limited(bench, &folder, &program, limit)?;
        let before = talk.ask("abc")?;
        let (done, text) = talk.swap([&twelve])?;
        let told = match done {
            true => text.contains("exchanged: number"),
            false => text.contains("memory is left") || text.contains("ulimit -v"),
        };
        if !told {
            return Err(format!("with {limit} MiB: {text}"));
        }
        match done {
            true => exchanged += 1,
            false => {
                talk.expect(&before, &format!("with {limit} MiB, refused"))?;
                refused += 1;
            }
        }
        // It still runs.
        talk.ask("abc")?;
    }
    match refused > 0 && exchanged > 0 {
        true => Ok(()),
        false => Err(format!("{refused} refused, {exchanged} exchanged")),
    }
}
