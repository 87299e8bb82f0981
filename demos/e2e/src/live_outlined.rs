//! `uruk cc --outline-loops`: loops that are entered once become functions, which `uruk live` compiles.
//!
//! | source | must |
//! |---|---|
//! | `outlined.cc`, C and C++ at each level | print what it prints without the option, natively and with all functions exchanged; loops that may not be outlined are no functions |
//! | `outlined.cc` | give loops of other layouts and arguments other names |
//! | `loops.c` | have the loop of `main` at tier 2, and anew with a function that it inlined |

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use uruk_guests::execute::{Ending, Job};

use crate::live_forced::Forced;
use crate::live_talk::{LIMIT, Talk, driver, fresh, make, run, source};
use crate::trial::Bench;
use crate::verdict;

/// The option.
const OUTLINE: &str = "--outline-loops";

/// Languages and levels.
const WAYS: [(&str, &[&str]); 8] = [
    ("c", &["-O0"]),
    ("c", &["-O1", "-g"]),
    ("c", &["-O2"]),
    ("c", &["-O3", "-g"]),
    ("c", &["-Os"]),
    ("c++", &["-O1"]),
    ("c++", &["-O2", "-g"]),
    ("c++", &["-O3", "-march=native"]),
];

/// Functions with loops that are outlined, as parts of names.
const OUTLINED: [&str; 15] = [
    "several_exits",
    "early_return",
    "arrays",
    "nested",
    "few_passes",
    "variable_size",
    "structures",
    "carried",
    "shares_stack",
    "laid_out",
    "known_alone",
    "thread",
    "serve",
    "main",
    "passes_through",
];

/// Functions with loops that may not be.
const REFUSED: [&str; 8] = [
    "jumps",
    "any_number",
    "computed_goto",
    "asm_goto",
    "passed_address",
    "shares_inside",
    "thrown_out",
    "caught_inside",
];

/// Iterations of each loop: several calls of each new function.
const ITERATIONS: &str = "40000";

/// The status with which the program ends.
const STATUS: i32 = 3;

/// Pause between two looks, and how many there are at most.
const PAUSE: Duration = Duration::from_millis(100);
const LOOKS: usize = 600;

/// The program behaves as without the option.
///
/// # Errors
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-outlined")?;
    for (number, (language, level)) in WAYS.into_iter().enumerate() {
        let file = |name: &str| folder.join(format!("{name}{number}"));
        let program = |words: &[&str], to: PathBuf| {
            let common = ["-x", language, "-pthread", "-lstdc++"];
            let words = [words, level, &common].concat();
            make(driver(bench), &words, &[&source("outlined.cc")], to)
        };
        let plain = program(&[], file("plain"))?;
        let outlined = program(&[OUTLINE], file("outlined"))?;
        let native = |program: &Path| printed(&Job::new(program, LIMIT), &folder.join("native"));
        let (expected, _) = native(&plain)?;
        let (ours, _) = native(&outlined)?;
        let forced = Forced::Flip;
        let mut job = bench.subject.job(LIMIT);
        let words = ["live", "--explain", "--no-control", forced.option(), "--"];
        job.args.extend(words.iter().map(Into::into));
        let (live, table) = printed(job.arg(&outlined), &folder.join("live"))?;
        let way = format!("{language} {level:?}");
        if ours != expected || live != expected {
            return Err(format!("{way}: {expected}\nnatively {ours}\nlive {live}"));
        }
        forced.check("outlined.cc", table.as_bytes())?;
        let is_cxx = language == "c++";
        let wanted = OUTLINED
            .iter()
            .filter(|it| is_cxx || **it != "passes_through");
        let mut missing = wanted.filter(|name| level[0] != "-O0" && !has_loop(&table, name));
        if let Some(name) = missing
            .next()
            .or_else(|| REFUSED.iter().find(|name| has_loop(&table, name)))
        {
            return Err(format!("{way}: {name}: {table}"));
        }
    }
    Ok(())
}

/// A loop of `main` is compiled while it runs, and exchanged.
///
/// # Errors
/// The failure, in words.
pub fn judge_main(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-outlined-main")?;
    let build = |words: &[&str], name: &str| {
        let words = [&[OUTLINE, "-DIN_MAIN"], words].concat();
        make(
            driver(bench),
            &words,
            &[&source("loops.c")],
            folder.join(name),
        )
    };
    // The name ends with a hash.
    let count = |table: &str| {
        let lines = table.lines().filter(|line| line.contains(" main.loop1."));
        let counts = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        counts.sum::<u64>()
    };
    let program = build(&[], "program")?;
    let mut talk = Talk::live(bench, &folder, &program)?;
    let mut table = String::new();
    for _ in 0..LOOKS {
        table = talk.swap(["--explain"])?.1;
        if count(&table) > 0 {
            break;
        }
        thread::sleep(PAUSE);
    }
    if count(&table) == 0 {
        return Err(format!("the loop stays native:\n{table}"));
    }
    talk.asked("abc", "abc")?;
    let object = build(&["-DSHIFT=13", "-c"], "new.o")?;
    talk.swapped([&object], &["exchanged: mix"])?;
    talk.asked("abc", "abc")?;
    talk.swapped(["--rollback"], &["back: mix"])?;
    talk.asked("abc", "abc")
}

/// Loops with equal text have different names if layouts, or facts about their arguments, differ: `uruk swap` gives a
/// running caller no loop that takes other arguments.
///
/// # Errors
/// The failure, in words.
pub fn judge_names(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-outlined-names")?;
    let build = |pad: &str, name: &str| {
        let words = [OUTLINE, "-O2", "-c", "-x", "c", pad];
        let object = make(
            driver(bench),
            &words,
            &[&source("outlined.cc")],
            folder.join(name),
        )?;
        fs::read(&object).map_err(|error| error.to_string())
    };
    let (one, two) = (build("-DPAD=2", "one.o")?, build("-DPAD=64", "two.o")?);
    for name in ["laid_out", "known_alone"] {
        let (one, two) = (hash_of(&one, name)?, hash_of(&two, name)?);
        if one == two {
            return Err(format!("{name}: both loops have the hash {one}"));
        }
    }
    match (hash_of(&one, "nested")?, hash_of(&two, "nested")?) {
        (one, two) if one == two => Ok(()),
        (one, two) => Err(format!("nested: {one} and {two}")),
    }
}

/// The hash in the name of the first loop of a function.
fn hash_of(object: &[u8], function: &str) -> Result<String, String> {
    let text = format!("{function}.loop1.");
    let mut places = object.windows(text.len());
    let place = places.position(|it| it == text.as_bytes());
    let place = place.ok_or_else(|| format!("{function}: no loop is outlined"))?;
    let hash = object[place + text.len()..].iter().take(12);
    Ok(hash.map(|&byte| char::from(byte)).collect())
}

/// Whether the table has a function for a loop of this one.
fn has_loop(table: &str, name: &str) -> bool {
    let mut names = table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3));
    names.any(|it| it.contains(name) && it.contains(".loop"))
}

/// Standard output and error of the program, which ends with its status.
fn printed(job: &Job, scratch: &Path) -> Result<(String, String), String> {
    let mut job = job.clone();
    job.arg(ITERATIONS);
    let done = run(&job, scratch)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match done.ending {
        Ending::Status(STATUS) => Ok((text(&done.stdout), text(&done.stderr))),
        ending => Err(format!(
            "{}: {}: {}",
            job.command_line(),
            verdict::ending(ending),
            verdict::excerpt(&done.stderr)
        )),
    }
}
