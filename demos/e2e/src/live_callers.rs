//! `uruk swap` of functions whose native callers were compiled with what their bodies were known to
//! do. A caller that loops for ever keeps such code: what would be wrong there is refused. Where the
//! caller is left, the exchange waits for that, and new code is right.

use std::path::{Path, PathBuf};

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// The word that a new version is made with, and the seven numbers that it leads to.
struct Edit {
    word: &'static str,
    numbers: [i64; 7],
    /// Added to the last number, beyond what each answer adds.
    more: i64,
    /// Callers know nothing that is not so any more.
    fits: bool,
}

const BEFORE: [i64; 7] = [3, 7, 0, 0, 200, 0, 0];

const fn edit(word: &'static str, numbers: [i64; 7]) -> Edit {
    Edit {
        word,
        numbers,
        more: 0,
        fits: false,
    }
}

const EDITS: [Edit; 11] = [
    edit("-DIGNORED", [136, 7, 0, 0, 200, 0, 0]),
    edit("-DCONSTANT", [3, 8, 0, 0, 200, 0, 0]),
    edit("-DRANGE", [3, 7, 1, 0, 200, 0, 0]),
    edit("-DNOTHING", [3, 7, 0, 1, 200, 0, 0]),
    edit("-DWRITES", [3, 7, 0, 0, 220, 0, 0]),
    edit("-DOTHER", [3, 7, 0, 0, 200, -51, 0]),
    Edit {
        more: 200,
        ..edit("-DVARIABLE", BEFORE)
    },
    Edit {
        fits: true,
        ..edit("-DFITS=5", BEFORE)
    },
    Edit {
        fits: true,
        ..edit("-DLINE", BEFORE)
    },
    Edit {
        fits: true,
        ..edit("-DBUMP=3", BEFORE)
    },
    // The last: it leaves a pointer behind.
    edit("-DKEEPS", [3, 7, 0, 0, 170, 0, 0]),
];

/// A program, live.
struct Callers<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    /// Words that the source is made with.
    words: &'static [&'static str],
    talk: Talk<'b>,
    rounds: i64,
}

impl Callers<'_> {
    fn object(&self, word: &str) -> Result<PathBuf, String> {
        let words = [self.words, &[word, "-c"]].concat();
        let to = self.folder.join(format!("{word}.o"));
        make(driver(self.bench), &words, &[&source("callers.c")], to)
    }

    fn answer(&mut self) -> Result<Vec<i64>, String> {
        let text = self.talk.ask("d")?;
        let numbers = text.split(' ').map(str::parse);
        let numbers: Result<Vec<i64>, _> = numbers.collect();
        numbers.map_err(|error| format!("{error}: {text}"))
    }

    fn expect(&mut self, numbers: [i64; 7], more: i64, when: &str) -> Result<(), String> {
        self.rounds += 2 + more;
        let wanted = [&numbers[..], &[self.rounds]].concat();
        match self.answer()? {
            found if found == wanted => Ok(()),
            found => Err(format!("{when}: {found:?}, not {wanted:?}")),
        }
    }

    /// Exchanges, asks and goes back.
    fn exchanged(&mut self, edit: &Edit, words: &[&str]) -> Result<(), String> {
        let object = self.object(edit.word)?;
        let words = words.iter().map(AsRef::as_ref);
        let words = words.chain([object.as_os_str()]);
        self.talk.swapped(words, &["exchanged: "])?;
        self.expect(edit.numbers, edit.more, edit.word)?;
        self.talk.swapped(["--rollback"], &["back: "])?;
        if edit.word != "-DKEEPS" {
            self.expect(BEFORE, 0, "after the step back")?;
        }
        Ok(())
    }

    fn refused(&mut self, word: &str, words: &[&str]) -> Result<(), String> {
        let object = self.object(word)?;
        let words = words.iter().map(AsRef::as_ref);
        let (done, text) = self.talk.swap(words.chain([object.as_os_str()]))?;
        let said = "native code of `main` was made for the old bodies of what it calls";
        if done || !text.contains(said) {
            return Err(format!("{word}: not `{said}`: {text}"));
        }
        self.expect(BEFORE, 0, word)
    }
}

fn start<'b>(
    bench: &'b Bench,
    folder: &Path,
    words: &'static [&'static str],
    objects: &[&Path],
) -> Result<Callers<'b>, String> {
    let program = make(driver(bench), &[], objects, folder.join("program"))?;
    let talk = Talk::live(bench, folder, &program)?;
    let mut it = Callers {
        bench,
        folder: folder.to_owned(),
        words,
        talk,
        rounds: 0,
    };
    it.rounds = it.answer()?.last().copied().unwrap_or_default();
    it.expect(BEFORE, 0, "before")?;
    Ok(it)
}

/// The loop is in the file of the functions, then there without being their caller, and then in another
/// file.
///
/// # Errors
/// A sentence about the first difference.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-callers-within")?;
    let from = source("callers.c");
    let whole = make(driver(bench), &["-c"], &[&from], folder.join("whole.o"))?;
    let mut within = start(bench, &folder, &[], &[&whole])?;
    within.refused("-DRETURNS", &[])?;
    for edit in &EDITS {
        match edit.fits {
            true => within.exchanged(edit, &[])?,
            false => within.refused(edit.word, &[])?,
        }
    }
    // Functions that are never inlined are not in the loop's code, which is never left.
    for edit in &EDITS {
        match edit.fits {
            true => within.exchanged(edit, &["--quiescent", "10000"])?,
            false => within.refused(edit.word, &["--quiescent", "50"])?,
        }
    }
    let folder = fresh(bench, "live-callers-apart")?;
    let words = &["-c", "-DAPART"];
    let whole = make(driver(bench), words, &[&from], folder.join("whole.o"))?;
    let mut apart = start(bench, &folder, &["-DAPART"], &[&whole])?;
    for edit in &EDITS {
        apart.exchanged(edit, &["--quiescent", "10000"])?;
    }
    let folder = fresh(bench, "live-callers-elsewhere")?;
    let make = |words: &[&str], name| make(driver(bench), words, &[&from], folder.join(name));
    let functions = make(&["-c", "-DELSEWHERE"], "functions.o")?;
    let looping = make(&["-c", "-DELSEWHERE", "-DLOOP"], "loop.o")?;
    let objects = [&*functions, &*looping];
    let mut elsewhere = start(bench, &folder, &["-DELSEWHERE"], &objects)?;
    EDITS
        .iter()
        .try_for_each(|edit| elsewhere.exchanged(edit, &[]))?;
    judge_throwing(bench)
}

/// The front end has made the loop without a handler.
fn judge_throwing(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-callers-throwing")?;
    let from = source("throwing.cc");
    let program = make(
        driver(bench),
        &["-lstdc++"],
        &[&from],
        folder.join("program"),
    )?;
    let words = ["-c", "-DTHROWS"];
    let throws = make(driver(bench), &words, &[&from], folder.join("throws.o"))?;
    let mut talk = Talk::live(bench, &folder, &program)?;
    talk.asked("e", "1")?;
    let (done, text) = talk.swap([&throws])?;
    if done || !text.contains("native code of `main` was made for the old bodies") {
        return Err(format!("an exception without a handler: {text}"));
    }
    talk.asked("e", "1")
}
