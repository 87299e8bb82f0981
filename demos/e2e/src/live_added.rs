//! `uruk swap` of functions to which a new version adds a counter or a line, in a file that is too large
//! to be optimized for a comparison, called by a loop that is never left: it is exchanged at once where
//! no call can be missing natively, and refused else.

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// The words that a new version is made with, and how much more is counted in each round.
const ADDED: [(&str, i64); 6] = [
    ("-DACTS", 3),
    ("-DATOMIC", 3),
    ("-DTHROUGH", 1),
    ("-DCALLS", 1),
    ("-DOWN", 0),
    ("-DLINE", 0),
];

const REFUSED: [&str; 9] = [
    "-DPURE",
    "-DTOLD",
    "-DARGUMENT",
    "-DUSES",
    "-DPOINTED",
    "-DOLD",
    "-DVALUE",
    "-DFLOW",
    "-DESCAPES",
];

/// An answer to a line that begins with `d`, but for the last number.
const ANSWER: [i64; 4] = [101 + 102 + 1010, 200, 600 + 200 + 7, 0];

/// The program's count so far.
fn counted(talk: &mut Talk<'_>) -> Result<i64, String> {
    let text = talk.ask("d")?;
    let numbers: Result<Vec<i64>, _> = text.split(' ').map(str::parse).collect();
    let numbers = numbers.map_err(|error| format!("{error}: {text}"))?;
    match numbers.split_last() {
        Some((&counted, rest)) if rest == ANSWER => Ok(counted),
        _ => Err(format!("{text}, not {ANSWER:?}")),
    }
}

/// Two rounds, after what was counted before.
fn rounds(talk: &mut Talk<'_>, before: i64, each: i64, when: &str) -> Result<i64, String> {
    let first = counted(talk).map_err(|error| format!("{when}: {error}"))?;
    let second = counted(talk).map_err(|error| format!("{when}: {error}"))?;
    match (first - before, second - first) == (each, each) {
        true => Ok(second),
        false => Err(format!("{when}: {before}, {first}, {second}")),
    }
}

/// # Errors
/// A sentence about the first difference.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-added")?;
    let from = source("added.c");
    let object = |word: &str| {
        let words = [word, "-c"];
        make(
            driver(bench),
            &words,
            &[&from],
            folder.join(format!("{word}.o")),
        )
    };
    let parts = [object("-DNOTHING")?, object("-DOTHER")?];
    let program = make(
        driver(bench),
        &[],
        &[&parts[0], &parts[1]],
        folder.join("program"),
    )?;
    let mut talk = Talk::live(bench, &folder, &program)?;
    let mut before = counted(&mut talk)?;
    for (word, each) in ADDED {
        talk.swapped([&object(word)?], &["exchanged: "])?;
        before = rounds(&mut talk, before, each, word)?;
        talk.swapped(["--rollback"], &["back: "])?;
        before = rounds(&mut talk, before, 0, "after the step back")?;
    }
    for word in REFUSED {
        let (done, text) = talk.swap([&object(word)?])?;
        if done || !text.contains("the file is too large to tell whether native callers fit") {
            return Err(format!(
                "{word}: exchanged, or refused for another reason: {text}"
            ));
        }
        before = rounds(&mut talk, before, 0, word)?;
    }
    Ok(())
}
