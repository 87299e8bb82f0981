//! `uruk swap` of a function with another string: each string is in the program once, however often files
//! bring it along, and what was returned keeps its bytes.

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// # Errors
/// A sentence about the first difference.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-strings")?;
    let from = source("strings.c");
    let object = |text: &str| {
        let word = format!("-DTEXT=\"{text}\"");
        let to = folder.join(format!("{text}.o"));
        make(driver(bench), &[&word, "-c"], &[&from], to)
    };
    let objects = [object("one")?, object("two")?, object("first")?];
    let program = make(driver(bench), &[], &[&from], folder.join("program"))?;
    let mut talk = Talk::live(bench, &folder, &program)?;
    talk.asked("x", "first 1")?;
    for _ in 0..3 {
        for (object, answer) in objects.iter().zip(["one 1", "two 1", "first 1"]) {
            talk.swapped([object], &["exchanged: text"])?;
            talk.asked("x", answer)?;
        }
    }
    talk.swapped(["--rollback"], &["back: "])?;
    talk.asked("x", "two 1")
}
