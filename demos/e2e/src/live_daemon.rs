//! A daemon, live: the process that was started ends, and its grandchild is asked.

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// Files that it opens have the numbers that it closed, its own functions are exchanged, and the process
/// that ended is not there any more.
///
/// # Errors
/// A sentence about the first difference.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-daemon")?;
    let from = source("daemon.c");
    let program = make(driver(bench), &[], &[&from], folder.join("program"))?;
    let two = ["-c", "-DNUMBER=2"];
    let two = make(driver(bench), &two, &[&from], folder.join("two.o"))?;
    // Before there is a session, and with one that the parent has.
    for (after, name) in [("100000", "early"), ("0", "late")] {
        let mut talk = match name {
            "early" => Talk::live_unasked(bench, &folder, &program, after)?,
            _ => Talk::live(bench, &folder, &program)?,
        };
        let (parent, said) = (talk.process(), talk.ask("fork")?);
        let child = said.strip_prefix("0 1 ").map(str::parse::<u32>);
        let Some(Ok(child)) = child else {
            return Err(format!("{name}: the daemon began by `{said}`"));
        };
        let expect = |talk: &mut Talk<'_>, answer, when: &str| {
            let when = format!("{name}: {when}");
            talk.expect(answer, &when)
        };
        expect(&mut talk, "401", "before the exchange")?;
        let (done, text) = talk.swap_in(parent, ["--stats"])?;
        if done || !text.contains("it has ended") {
            return Err(format!("{name}: the process that ended says {text}"));
        }
        let (done, text) = talk.swap_in(child, [&two])?;
        if !done || !text.contains("exchanged: number") {
            return Err(format!("{name}: not exchanged: {text}"));
        }
        expect(&mut talk, "402", "after the exchange")?;
        talk.swap_in(child, ["--rollback"])?;
        expect(&mut talk, "401", "after the step back")?;
    }
    Ok(())
}
