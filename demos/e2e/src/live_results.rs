//! A local function whose native code gives no result, as its callers know it: compiled callers do not call
//! that code, also not after a rollback.

use std::path::Path;

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// The function is exchanged for one with two results, and back, by several levels of optimization.
///
/// # Errors
/// A text that describes the failure.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-results")?;
    let (from, main) = (source("lost_result.c"), source("lost_result_main.c"));
    for level in ["-O1", "-O2", "-O3"] {
        let program = make(
            driver(bench),
            &[level],
            &[&from, &main],
            folder.join("program"),
        )?;
        let words = [level, "-DFIXED", "-c"];
        let fixed = make(driver(bench), &words, &[&from], folder.join("fixed.o"))?;
        judge_level(bench, &folder, &program, &fixed).map_err(|text| format!("{level}: {text}"))?;
    }
    Ok(())
}

fn judge_level(bench: &Bench, folder: &Path, program: &Path, fixed: &Path) -> Result<(), String> {
    let mut talk = Talk::live(bench, folder, program)?;
    for _ in 0..3 {
        talk.asked("x", "70 70")?;
        let (done, text) = talk.swap([fixed])?;
        if !done {
            return Err(text);
        }
        talk.asked("x", "70 80")?;
        let (done, text) = talk.swap(["--rollback"])?;
        if !done {
            return Err(text);
        }
    }
    // Hot functions are compiled again, and may be taken back.
    for _ in 0..1000 {
        talk.asked("x", "70 70")?;
    }
    Ok(())
}
