//! `uruk swap` of damaged objects: each is refused or exchanged, and the program goes on. LLVM crashes on
//! some of them, in a process apart.

use std::fs;
use std::path::Path;

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// Objects on which LLVM crashed, until the test ends, and objects at most.
const CRASHES: usize = 2;
const MOST: usize = 3000;

/// Distance of two damaged places: all are reached.
const STEP: usize = 7919;

/// # Errors
/// A sentence about the first difference.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-damaged")?;
    let object = |name: &str, file: &str, word: &str| {
        let words = ["-c", word];
        make(driver(bench), &words, &[&source(file)], folder.join(name))
    };
    let parts = [
        object("loop.o", "edits_loop.c", "-DNOW")?,
        object("old.o", "damaged.c", "-DVERSION=1")?,
    ];
    let program = folder.join("program");
    let program = make(driver(bench), &[], &[&parts[0], &parts[1]], program)?;
    let new = object("new.o", "damaged.c", "-DVERSION=2")?;
    let bytes = fs::read(&new).map_err(|error| error.to_string())?;
    let begin = bytes.windows(4).position(|it| it == b"BC\xc0\xde");
    let begin = begin.ok_or("no bitcode in the object")?;
    // Behind it are the string table of the object, and others.
    let size = (bytes.len() - begin) / 2;
    let mut talk = Talk::live(bench, &folder, &program)?;
    let damaged = folder.join("damaged.o");
    let mut crashes = 0;
    for number in 0..MOST {
        let mut bytes = bytes.clone();
        bytes[begin + number * STEP % size] ^= 1 << (number % 8);
        let went = exchange(&mut talk, &damaged, &bytes);
        let (done, text) = went.map_err(|error| format!("object {number}: {error}"))?;
        if done {
            talk.swapped(["--rollback"], &[])?;
        }
        crashes += usize::from(text.contains("LLVM crashed"));
        if crashes == CRASHES {
            talk.swapped([&new], &["exchanged: answer"])?;
            talk.asked("1", "6")?;
            return Ok(());
        }
    }
    Err(format!("LLVM crashed on {crashes} of {MOST} objects only"))
}

fn exchange(talk: &mut Talk<'_>, file: &Path, bytes: &[u8]) -> Result<(bool, String), String> {
    fs::write(file, bytes).map_err(|error| error.to_string())?;
    let told = talk.swap([file])?;
    // No function of the file is called.
    talk.asked("0", "0")
        .map_err(|error| format!("{error}: {}", told.1))?;
    Ok(told)
}
