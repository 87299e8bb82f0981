//! `uruk swap` where the compiler left out what native code did not need: calls of functions without effects,
//! and writable memory for variables that nothing writes to.

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// The program as it is built answers so.
const BEFORE: &str = "23 0 5";

/// Calls and memory that natively were left out are not missing: callers are exchanged along where threads
/// leave them, else the exchange is refused, and so are writes to memory that is only read.
///
/// # Errors
/// A text that describes the failure.
pub fn judge(bench: &Bench) -> Result<(), String> {
    for way in [&[][..], &["-g"], &["-mcmodel=large"]] {
        in_callers(bench, way)?;
        in_main(bench, way)?;
    }
    Ok(())
}

/// `answer` calls them, and ends.
fn in_callers(bench: &Bench, way: &[&str]) -> Result<(), String> {
    let (mut talk, object) = start(bench, way)?;
    for (word, after) in [("-DNUMBER=24", "24 0 5"), ("-DHOOKS", "23 7 5")] {
        talk.swapped([object(word)?], &["exchanged: "])?;
        talk.asked("line", after)?;
        talk.swapped(["--rollback"], &["back: "])?;
        // The counter keeps its value.
        let back = after.replace("24", "23");
        talk.asked("line", &back)?;
    }
    for word in ["-DSETS", "-DFIRST"] {
        let (done, text) = talk.swap([object(word)?])?;
        if done || !text.contains("which natively nothing writes to") {
            return Err(format!("{word} writes to memory that is only read: {text}"));
        }
        talk.asked("line", "23 7 5")?;
    }
    Ok(())
}

/// `main` calls them, and never ends.
fn in_main(bench: &Bench, way: &[&str]) -> Result<(), String> {
    let words = [way, &["-DIN_MAIN"]].concat();
    let (mut talk, object) = start(bench, &words)?;
    for word in ["-DNUMBER=24", "-DHOOKS"] {
        for level in [&[][..], &["--quiescent", "50"]] {
            let object = object(word)?;
            let words = level.iter().map(AsRef::as_ref).chain([object.as_os_str()]);
            let (done, text) = talk.swap(words)?;
            if done || !text.contains("native code of `main` was made for the old bodies") {
                return Err(format!("{word}: `main` does not call it: {text}"));
            }
        }
    }
    talk.asked("line", BEFORE)
}

type Make<'b> = Box<dyn Fn(&str) -> Result<std::path::PathBuf, String> + 'b>;

/// The program, live, and what makes objects of new versions.
fn start<'b>(bench: &'b Bench, words: &[&str]) -> Result<(Talk<'b>, Make<'b>), String> {
    let folder = fresh(bench, "live-left-out")?;
    let program = folder.join("program");
    let program = make(driver(bench), words, &[&source("left_out.c")], program)?;
    let mut talk = Talk::live(bench, &folder, &program)?;
    talk.asked("line", BEFORE)?;
    let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
    let object = move |word: &str| {
        let words = words.iter().map(String::as_str);
        let words: Vec<&str> = words.chain([word, "-c"]).collect();
        let to = folder.join("new.o");
        make(driver(bench), &words, &[&source("left_out.c")], to)
    };
    Ok((talk, Box::new(object)))
}
