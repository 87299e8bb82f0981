//! `uruk swap` of what people edit: what is said to each kind of edit, and what the program then does. The
//! table is that of `docs/guide/edits.md`.

use std::path::PathBuf;

use crate::live_talk::{Talk, driver, fresh, make, source};
use crate::trial::Bench;

/// An edit of `demos/live/edits.cc`.
struct Edit {
    /// The number that the file is made with.
    number: u32,
    /// The function that is asked.
    asked: u32,
    /// Words for `uruk swap`.
    words: &'static [&'static str],
    /// Answers before it and after it; after a step back, if it is made.
    answers: [i64; 2],
    back: Option<i64>,
    said: &'static [&'static str],
}

const fn made(number: u32, answers: [i64; 3], said: &'static [&'static str]) -> Edit {
    Edit {
        back: Some(answers[2]),
        ..refused(number, [answers[0], answers[1]], said)
    }
}

const fn refused(number: u32, answers: [i64; 2], said: &'static [&'static str]) -> Edit {
    Edit {
        number,
        asked: number,
        words: &[],
        answers,
        back: None,
        said,
    }
}

/// The same, of the function that is asked.
const fn of(asked: u32, edit: Edit) -> Edit {
    Edit { asked, ..edit }
}

const EDITS: [Edit; 58] = [
    // A number in a function.
    made(1, [13, 23, 13], &["exchanged: f1"]),
    // A macro.
    made(2, [9, 21, 9], &["exchanged: f2"]),
    // The value of an enumerator.
    made(3, [5, 12, 5], &["exchanged: f3"]),
    // A string.
    made(4, [7, 9, 7], &["exchanged: f4"]),
    // The value of a constant.
    made(
        5,
        [40043, 40053, 40043],
        &[
            "exchanged: f5",
            "note: the constant `limit` has another value",
        ],
    ),
    // A longer constant table.
    made(6, [205, 305, 205], &["exchanged: f6"]),
    // The initial value of a variable.
    made(
        7,
        [8, 1011, 14],
        &[
            "exchanged: f7",
            "note: the variable `begins` keeps its contents",
        ],
    ),
    // A static variable is added.
    made(8, [3, 103, 3], &["exchanged: f8"]),
    // A static variable is removed.
    made(9, [6, 3, 6], &["exchanged: f9"]),
    // A static variable gets longer.
    refused(
        10,
        [3, 4],
        &[
            "uses the variable `",
            "which has 32 bytes here and 8 in the program",
        ],
    ),
    // The type of a variable, with a sign or without.
    made(11, [4, 14, 4], &["exchanged: f11"]),
    // A variable is a `float`, which was an `int`.
    Edit {
        asked: 11,
        ..refused(
            40,
            [4, 4],
            &[
                "uses the variable `typed`, which is a floating-point number here and an integer in the program",
            ],
        )
    },
    // A parameter more.
    refused(12, [3, 3], &["the signature of `more` changed"]),
    // A parameter more, with `--allow-signatures`.
    Edit {
        words: &["--allow-signatures"],
        ..made(12, [3, 8, 3], &["exchanged: more", "exchanged: f12"])
    },
    // Another type of a result.
    refused(13, [12, 12], &["the signature of `other` changed"]),
    // A field more in a structure of which there is a variable.
    refused(
        14,
        [3, 6],
        &["uses the variable `state`, which has 16 bytes here and 8 in the program"],
    ),
    // An inline function of a header, in C's way.
    made(15, [7, 9, 7], &["in_header", "with it: f15"]),
    // An inline function of a header, in C++'s way.
    made(16, [7, 9, 7], &["exchanged: in_class_header"]),
    // A template with another type.
    made(17, [6, 13, 6], &["exchanged: f17", "added: "]),
    // A method.
    made(18, [12, 112, 12], &["area"]),
    // A virtual function is added.
    refused(19, [7, 7], &["has other virtual functions or bases"]),
    // The body of a virtual function.
    made(20, [5, 11, 5], &["exchanged: "]),
    // A new variable that a constructor makes.
    refused(21, [3, 3], &["initializes the new variable `made`"]),
    // A function that uses a thread-local.
    made(22, [5, 15, 16], &["exchanged: f22"]),
    // A new thread-local.
    made(23, [3, 34, 3], &["exchanged: f23"]),
    // Labels whose addresses are kept (computed `goto`).
    made(24, [2, 22, 2], &["exchanged: f24"]),
    // A function with any number of arguments.
    made(25, [6, 106, 6], &["exchanged: sum"]),
    // The value that `longjmp` brings.
    made(26, [4, 8, 4], &["exchanged: jumps"]),
    // A signal handler.
    Edit {
        asked: 29,
        ..made(28, [4, 14, 15], &["exchanged: on_signal"])
    },
    // Comments, or nothing.
    refused(
        29,
        [16, 17],
        &["all its functions are as the program has them"],
    ),
    // An exception's text.
    made(30, [5, 4, 5], &["exchanged: f30"]),
    // A new function, and a call of it.
    made(31, [3, 18, 3], &["exchanged: f31", "added: added"]),
    // A function is removed.
    made(32, [4, 5, 4], &["exchanged: f32"]),
    // A function whose address was kept.
    made(33, [9, 63, 9], &["exchanged: called_back"]),
    // Lines are added: `__LINE__`.
    made(34, [4, 4, 4], &["line_of"]),
    // A function that throws, which did not.
    made(35, [3, 35, 3], &["exchanged: throws"]),
    // A local function is called with other arguments than natively, where all its calls were seen.
    made(36, [10, 99, 10], &["exchanged: f36"]),
    // A new thread-local whose first value is computed.
    made(37, [3, 47, 3], &["exchanged: f37"]),
    // A lambda before others.
    of(38, refused(41, [306, 306], &["is numbered by its order"])),
    // Static variables of one name in a function, one less.
    of(
        39,
        refused(42, [1001, 1003], &["`f39::n", "is numbered by its order"]),
    ),
    // An alias of another function.
    of(
        40,
        refused(43, [4, 4], &["`way` stands for something else"]),
    ),
    // A constructor in a section.
    of(
        41,
        refused(
            44,
            [3, 3],
            &["`booting` is new in the section `.init_array`"],
        ),
    ),
    // An entry of a table that the linker makes.
    of(
        42,
        refused(
            45,
            [13, 13],
            &["`entry_two` is new in the section `entries`"],
        ),
    ),
    // Virtual functions change places.
    of(
        43,
        refused(46, [2, 2], &["`fish` has other virtual functions or bases"]),
    ),
    // A class with another base.
    of(
        44,
        refused(
            47,
            [6, 6],
            &["`angel` has other virtual functions or bases"],
        ),
    ),
    // A local function that others see now.
    of(
        45,
        made(48, [7, 43, 7], &["exchanged: f45", "added: now_seen"]),
    ),
    // A function that has no code of its own in any file.
    of(46, made(49, [3, 21, 3], &["exchanged: f46"])),
    // A weak function whose place another file's has.
    of(47, made(50, [53, 54, 53], &["exchanged: f47"])),
    // The first value of a static variable is computed, which was a constant.
    of(
        48,
        refused(52, [6, 7], &["is now computed when it is first used"]),
    ),
    // A local function that is called by a weak alias.
    of(49, made(53, [9, 63, 9], &["exchanged: behind"])),
    // A weak function that no other file has.
    of(50, refused(54, [10, 10], &["`weak_alone` is weak"])),
    // A variable gets another alignment.
    of(
        51,
        refused(
            55,
            [4, 4],
            &["uses the variable `aligned_at`, which is aligned to 4096 bytes here"],
        ),
    ),
    // A local function that has a global name by an alias.
    of(53, made(58, [11, 83, 11], &["exchanged: in_front_two"])),
    // A function becomes a name for another one.
    of(
        54,
        refused(59, [12, 12], &["`becomes` stands for something else"]),
    ),
    // A thread-local gets another alignment.
    of(
        55,
        refused(
            60,
            [7, 7],
            &["uses the variable `own_aligned`, which is aligned to 256 bytes here"],
        ),
    ),
    // A thread-local becomes a variable of all threads.
    of(
        56,
        refused(
            61,
            [8, 8],
            &["uses the variable `own_or_not`, which is a thread-local in the program"],
        ),
    ),
    // A caller of this file's definition of a function whose place another file's has.
    of(57, made(62, [503, 504, 503], &["exchanged: f57"])),
    // A destructor.
    of(1, refused(51, [13, 13], &["`ends", "is to run at the end"])),
];

/// Makes one edit after the other, and goes back each time.
///
/// # Errors
/// A sentence about the first difference.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-edits")?;
    let object = |name: String, file: &str, word: &str| {
        let words = ["-c", word];
        make(driver(bench), &words, &[&source(file)], folder.join(name))
    };
    let functions = object("functions.o".to_owned(), "edits.cc", "-DEDIT=0")?;
    let looping = object("loop.o".to_owned(), "edits_loop.c", "-DNOW")?;
    let program = make(
        driver(bench),
        &["-lstdc++"],
        &[&functions, &looping],
        folder.join("program"),
    )?;
    let mut talk = Talk::live(bench, &folder, &program)?;
    let ask = |talk: &mut Talk<'_>, number: u32| -> Result<i64, String> {
        let text = talk.ask(&number.to_string())?;
        text.parse().map_err(|error| format!("{error}: {text}"))
    };
    // The handler is there from now on.
    ask(&mut talk, 28)?;
    for edit in &EDITS {
        let number = edit.number;
        let file = object(
            format!("edit{number}.o"),
            "edits.cc",
            &format!("-DEDIT={number}"),
        )?;
        let expect = |found: i64, wanted: i64, when: &str| match found == wanted {
            true => Ok(()),
            false => Err(format!("edit {number}: {when}: {found}, not {wanted}")),
        };
        expect(ask(&mut talk, edit.asked)?, edit.answers[0], "before")?;
        let words = edit.words.iter().map(AsRef::as_ref);
        let (done, text) = talk.swap(words.chain([file.as_os_str()]))?;
        let is_said = edit.said.iter().all(|said| text.contains(said));
        if done != edit.back.is_some() || !is_said {
            return Err(format!("edit {number}: not {:?}: {text}", edit.said));
        }
        expect(ask(&mut talk, edit.asked)?, edit.answers[1], "after it")?;
        if let Some(back) = edit.back {
            let went = talk.swap(["--rollback"])?.1;
            let with = |text: &str| text.matches("with it: ").count();
            if !went.contains("back: ") || with(&went) < with(&text) {
                return Err(format!("edit {number}: not all went back: {went}: {text}"));
            }
            expect(ask(&mut talk, edit.asked)?, back, "after a step back")?;
        }
    }
    judge_threads(&mut talk, |number| {
        let name = format!("late{number}.o");
        object(name, "edits.cc", &format!("-DEDIT={number}"))
    })?;
    // A native caller that was right for one body of a function is not for the next of its callee.
    for (number, answer) in [(63, "4"), (64, "5")] {
        let name = format!("folds{number}.o");
        let file = object(name, "edits.cc", &format!("-DEDIT={number}"))?;
        talk.swapped([&file], &["exchanged: "])?;
        talk.asked("58", answer)?;
    }
    for _ in 0..2 {
        talk.swapped(["--rollback"], &["back: "])?;
    }
    talk.asked("58", "4")?;
    // A new variable is used by another file's new version, and by the next of its own.
    let brings = |number: u32| {
        let name = format!("brings{number}.o");
        object(name, "edits.cc", &format!("-DEDIT={number}"))
    };
    talk.swapped([&brings(56)?], &["exchanged: f52"])?;
    talk.asked("52", "103")?;
    let uses = object("uses.o".to_owned(), "edits_loop.c", "-DBROUGHT")?;
    talk.asked("97", "0")?;
    talk.swapped([&uses], &["exchanged: asked"])?;
    talk.asked("97", "1")?;
    talk.asked("52", "1106")?;
    talk.swapped([&brings(57)?], &["exchanged: f52"])?;
    talk.asked("52", "21090")?;
    for function in ["f52", "asked", "f52"] {
        talk.swapped(["--rollback"], &[&format!("back: {function}")])?;
    }
    talk.asked("52", "3")?;
    // The loop itself, which goes on in old code, and what the program does at its end.
    let later = object("later.o".to_owned(), "edits_loop.c", "-DLATER")?;
    let said = [
        "exchanged: asked",
        "exchanged: at_end",
        "exchanged: once",
        "still in old code",
    ];
    talk.swapped([&later], &said)?;
    talk.asked("1", "1014")?;
    talk.asked("99", "new end")
}

/// Thread-locals of one version after the other.
fn judge_threads(
    talk: &mut Talk<'_>,
    version: impl Fn(u32) -> Result<PathBuf, String>,
) -> Result<(), String> {
    // One that came with an exchange is the next one's, too.
    for (number, answer) in [(23, "35"), (38, "136")] {
        talk.swapped([&version(number)?], &["exchanged: f23"])?;
        talk.asked("23", answer)?;
    }
    talk.swapped(["--rollback"], &["back: f23"])?;
    talk.swapped(["--rollback"], &["back: f23"])?;
    // Threads have made those of the file, and make no further ones.
    talk.swapped([&version(37)?], &["exchanged: f37"])?;
    let (done, text) = talk.swap([&version(39)?])?;
    if done || !text.contains("initializes the new variable `later`") {
        return Err(format!("a thread-local that comes late: {text}"));
    }
    talk.swapped(["--rollback"], &["back: f37"])
}
