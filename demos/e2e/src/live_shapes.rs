//! `uruk swap` of sources whose variables changed: memory of the program that old and new code share.

use std::path::{Path, PathBuf};

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// A new version that is refused, and what is said.
const REFUSED: [(&str, &str); 4] = [
    (
        "-DGROWN",
        "`stated` uses the variable `state`, which has 72 bytes here and 8 in the program",
    ),
    (
        "-DLONGER",
        "`count` uses the variable `counted`, which has 32 bytes here and 8 in the program",
    ),
    (
        "-DSTARTS",
        "`start` initializes the new variable `started`, and would not run any more",
    ),
    (
        "-DWRITES",
        "`colored` uses the variable `red`, which was a constant",
    ),
];

/// Four numbers of an answer.
type Answer = [i64; 4];

struct Shapes<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    talk: Talk<'b>,
    /// The two counters.
    counted: i64,
    stated: i64,
}

impl Shapes<'_> {
    fn object(&self, name: &str, words: &[&str]) -> Result<PathBuf, String> {
        let words = [words, &["-c"]].concat();
        make(
            driver(self.bench),
            &words,
            &[&source("shapes.c")],
            self.folder.join(name),
        )
    }

    fn answer(&mut self) -> Result<Answer, String> {
        let text = self.talk.ask("abc")?;
        let numbers = text.split(' ').map(str::parse);
        let numbers: Result<Vec<i64>, _> = numbers.collect();
        let numbers = numbers.map_err(|error| format!("{error}: {text}"))?;
        numbers.try_into().map_err(|_| format!("an answer: {text}"))
    }

    /// Asks once: both counters go on from where they are, by three and `more`.
    fn expect(&mut self, more: i64, colored: i64, when: &str) -> Result<(), String> {
        let found = self.answer()?;
        self.counted += 3 + more;
        self.stated += 3;
        let wanted = [self.counted, self.stated, colored, 10];
        match found == wanted {
            true => Ok(()),
            false => Err(format!("{when}: {found:?}, not {wanted:?}")),
        }
    }

    fn refused(&self, file: &Path, said: &str) -> Result<(), String> {
        let (done, text) = self.talk.swap([file])?;
        match !done && text.contains(said) {
            true => Ok(()),
            false => Err(format!("not `{said}`: {text}")),
        }
    }
}

/// Exchanges functions whose variables stay, changed their values, or do not fit.
///
/// # Errors
/// A sentence about the first difference.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-shapes")?;
    let program = make(
        driver(bench),
        &["-O2"],
        &[&source("shapes.c")],
        folder.join("program"),
    )?;
    let mut it = begin(bench, folder, &program)?;
    for (number, (word, said)) in REFUSED.into_iter().enumerate() {
        let file = it.object(&format!("refused{number}.o"), &["-O2", word])?;
        it.refused(&file, said)?;
        it.expect(0, 1107, said)?;
    }
    // Constants and variables stay what and where they are.
    let other = it.object("other.o", &["-O2", "-DNUMBER=2"])?;
    it.talk.swapped([&other], &["exchanged: colored"])?;
    it.expect(0, 1207, "another number")?;
    let begins = it.object("begins.o", &["-O2", "-DNUMBER=3", "-DBEGINS=50", "-DADDED"])?;
    it.talk
        .swapped([&begins], &["exchanged: colored", "exchanged: count\n"])?;
    it.expect(100, 1307, "a new static variable, and another first value")?;
    it.expect(101, 1307, "the new variable is kept")?;
    let red = it.object("red.o", &["-O2", "-DNUMBER=4", "-DRED=8"])?;
    let said = [
        "exchanged: colored",
        "note: the constant `red` has another value",
    ];
    it.talk.swapped([&red], &said)?;
    it.expect(0, 408, "another constant")?;
    for (colored, more) in [(1307, 102), (1207, 0), (1107, 0)] {
        it.talk.swapped(["--rollback"], &["back: colored"])?;
        it.expect(more, colored, "after a step back")?;
    }
    judge_older(&mut it, &other)?;
    judge_layouts(bench)
}

/// The program, live.
fn begin<'b>(bench: &'b Bench, folder: PathBuf, program: &Path) -> Result<Shapes<'b>, String> {
    let talk = Talk::live(bench, &folder, program)?;
    let mut it = Shapes {
        bench,
        folder,
        talk,
        counted: 0,
        stated: 0,
    };
    let [counted, stated, ..] = it.answer()?;
    (it.counted, it.stated) = (counted, stated);
    it.expect(0, 1107, "before")?;
    Ok(it)
}

/// Members of structures in places where the program has others, which debug information tells.
fn judge_layouts(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-layouts")?;
    let words = ["-O2", "-g"];
    let program = make(
        driver(bench),
        &words,
        &[&source("shapes.c")],
        folder.join("program"),
    )?;
    let mut it = begin(bench, folder, &program)?;
    for (word, said) in [
        (
            "-DSWAPPED",
            "`paired` uses the variable `pair`, whose `high` is at byte 0 here and at byte 4 in the program",
        ),
        (
            "-DREAL",
            "`paired` uses the variable `pair`, whose `high` is a floating-point number here and an integer",
        ),
    ] {
        let file = it.object("refused.o", &[&words[..], &[word]].concat())?;
        it.refused(&file, said)?;
        it.expect(0, 1107, said)?;
    }
    let file = it.object("node.o", &["-O2", "-g", "-DNODE"])?;
    let said = ["exchanged: noded", "note: the structure `node`, whose `"];
    it.talk.swapped([&file], &said)?;
    it.talk.swapped(["--rollback"], &["back: noded"])?;
    it.expect(0, 1107, "after a step back")
}

/// Exchanges beyond the last eight stay, which is said, and the way back.
fn judge_older(it: &mut Shapes<'_>, other: &Path) -> Result<(), String> {
    let six = it.object("six.o", &["-O2", "-DNUMBER=6"])?;
    for _ in 0..5 {
        it.talk.swapped([other], &["exchanged: colored"])?;
        it.talk.swapped([&six], &["exchanged: colored"])?;
    }
    for _ in 0..8 {
        it.talk.swapped(["--rollback"], &["back: colored"])?;
    }
    it.expect(0, 1607, "after all steps back")?;
    let (done, text) = it.talk.swap(["--rollback"])?;
    if done || !text.contains("those before stay: new bodies of colored") {
        return Err(format!("older exchanges: {text}"));
    }
    let first = it.object("first.o", &["-O2"])?;
    it.talk.swapped([&first], &["exchanged: colored"])?;
    it.expect(0, 1107, "as it was built")
}
