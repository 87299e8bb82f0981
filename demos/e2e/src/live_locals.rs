//! Local functions under `uruk live`, by what the compiler recorded of them (`demos/live/locals`).
//!
//! | source | built as | must |
//! |---|---|---|
//! | `hot.c` | C, C++ with an anonymous namespace, a shared library | have hot functions exchanged by samples |
//! | `ways.c`, `other.c` | C at each level | print what it prints natively, with each function exchanged that is called by its type, and no other |
//! | the same | C at `-O2`, with damaged records | print that, with no local function of these exchanged |

use std::fs;
use std::path::{Path, PathBuf};

use uruk_guests::execute::{Ending, Job};

use crate::live_forced::Forced;
use crate::live_talk::{LIMIT, driver, fresh, make, published, quiet, run, source};
use crate::trial::Bench;
use crate::verdict;

/// The hot functions.
const HOT: [&str; 4] = ["filtered", "mixed", "counted", "shifted"];

/// How often each is called: about a second.
const CALLS: &str = "6000";

/// Levels of optimization.
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];

/// Functions of `ways.c` that are called by their types at each level.
const BY_TYPE: [&str; 13] = [
    "as_pointer",
    "as_two",
    "as_large",
    "as_mixed",
    "as_vectors",
    "as_floats",
    "as_variadic",
    "as_recursive",
    "as_odd",
    "as_even",
    "as_small",
    "as_many",
    "same/ways.c",
];

/// Functions that are not, at `-O1` and above.
const OTHERWISE: [&str; 6] = [
    "not_removed",
    "not_constant",
    "not_ignored",
    "not_known",
    "not_variadic",
    "same/other.c",
];

/// Begins the record of an object.
const MAGIC: &[u8] = b"URUKLOC1";

/// Fields of a record, as offsets from its beginning: magic, length and hash of the bitcode, length of the names, and the
/// hash of these.
const FIELDS: [usize; 5] = [7, 8, 16, 24, 32];

/// Hot functions are exchanged while a native function calls them.
///
/// # Errors
/// The failure, in words.
pub fn judge_hot(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-locals-hot")?;
    let file = |name: &str| folder.join(name);
    let hot = locals("hot.c");
    let library = ["-fPIC", "-shared", "-DLIBRARY"];
    let library = make(driver(bench), &library, &[&hot], file("libhot.so"))?;
    let programs = [
        make(driver(bench), &[], &[&hot], file("c"))?,
        make(driver(bench), &["-x", "c++"], &[&hot], file("cxx"))?,
        make(
            driver(bench),
            &[],
            &[&locals("user.c"), &library],
            file("user"),
        )?,
    ];
    for program in programs {
        let mut native = Job::new(&program, LIMIT);
        native.arg(CALLS);
        let printed = quiet(&native, &file("native"))?;
        let (ours, table) = live(bench, &program, &["--after", "0"], &[CALLS], &file("live"))?;
        let exchanged = HOT.iter().map(|name| published(&table, name));
        // C++ has other names: those of an anonymous namespace.
        let mangled = HOT.map(|name| format!("_GLOBAL__N_1{}{name}", name.len()));
        let is_one = |line: &&str| mangled.iter().any(|name| line.contains(name));
        let counts = table.lines().filter(is_one);
        let counts = counts.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
        if ours != printed || exchanged.chain(counts).sum::<u64>() == 0 {
            return Err(format!("{}: {ours}{printed}{table}", program.display()));
        }
    }
    Ok(())
}

/// Functions that are called by their types are exchanged, and others are not.
///
/// # Errors
/// The failure, in words.
pub fn judge_ways(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-locals-ways")?;
    for (number, level) in LEVELS.into_iter().enumerate() {
        let program = ways(bench, level, folder.join(number.to_string()))?;
        let printed = quiet(&Job::new(&program, LIMIT), &folder.join("native"))?;
        let ways = match level {
            "-O2" => &[Forced::Flip, Forced::Guided][..],
            _ => &[Forced::Flip],
        };
        for &forced in ways {
            let how = [forced.option()];
            let (ours, table) = live(bench, &program, &how, &[], &folder.join("live"))?;
            forced.check("ways.c", table.as_bytes())?;
            let mut unlike = BY_TYPE.iter().filter(|name| !is_exchanged(&table, name));
            let mut more = OTHERWISE.iter().filter(|name| is_exchanged(&table, name));
            let odd = unlike.next().or(more.next().filter(|_| level != "-O0"));
            if ours != printed || odd.is_some() {
                return Err(format!(
                    "{level}, {forced:?}: {odd:?}: {printed}{ours}{table}"
                ));
            }
        }
    }
    Ok(())
}

/// Damaged records are no records, and do no harm.
///
/// # Errors
/// The failure, in words.
pub fn judge_damaged(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-locals-damaged")?;
    let program = ways(bench, "-O2", folder.join("whole"))?;
    let printed = quiet(&Job::new(&program, LIMIT), &folder.join("native"))?;
    let whole = fs::read(&program).map_err(|error| error.to_string())?;
    let found = whole.windows(MAGIC.len()).position(|it| it == MAGIC);
    let at = found.ok_or("the program has no record")?;
    for field in FIELDS {
        let mut bytes = whole.clone();
        bytes[at + field..at + field + 1].fill(0xff);
        let damaged = folder.join(format!("damaged-{field}"));
        fs::copy(&program, &damaged).map_err(|error| error.to_string())?;
        fs::write(&damaged, bytes).map_err(|error| error.to_string())?;
        let how = ["--force=all"];
        let (ours, table) = live(bench, &damaged, &how, &[], &folder.join("live"))?;
        // Functions of numbers are found by their instructions.
        if ours != printed || is_exchanged(&table, "as_pointer") {
            return Err(format!("field at {field}: {printed}{ours}{table}"));
        }
    }
    Ok(())
}

/// A file of the folder.
fn locals(name: &str) -> PathBuf {
    source("locals").join(name)
}

/// The program of functions called in all ways.
fn ways(bench: &Bench, level: &str, to: PathBuf) -> Result<PathBuf, String> {
    let sources = ["ways.c", "other.c"].map(locals);
    let sources = sources.each_ref().map(PathBuf::as_path);
    make(driver(bench), &[level, "-fwrapv"], &sources, to)
}

/// Standard output and error of a program under `uruk live`.
fn live(
    bench: &Bench,
    program: &Path,
    how: &[&str],
    words: &[&str],
    scratch: &Path,
) -> Result<(String, String), String> {
    let mut job = bench.subject.job(LIMIT);
    job.args
        .extend(["live", "--explain", "--no-control"].map(Into::into));
    job.args.extend(how.iter().map(Into::into));
    job.arg("--").arg(program);
    job.args.extend(words.iter().map(Into::into));
    let done = run(&job, scratch)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match done.ending {
        Ending::Status(0) => Ok((text(&done.stdout), text(&done.stderr))),
        ending => Err(format!(
            "{}: {}: {}",
            job.command_line(),
            verdict::ending(ending),
            verdict::excerpt(&done.stderr)
        )),
    }
}

/// Whether code of a function was published; the name may have its file behind it.
fn is_exchanged(table: &str, name: &str) -> bool {
    let (name, file) = name.split_once('/').unwrap_or((name, ""));
    let lines = table
        .lines()
        .filter(|line| line.contains(&format!("/{file}")));
    let lines: Vec<&str> = lines.collect();
    published(&lines.join("\n"), name) > 0
}
