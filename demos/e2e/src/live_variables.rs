//! Variables that clang's optimizer removed or split, under `uruk live`: functions that use them are
//! compiled again where it is certain what they are natively, and mean what the native ones mean.
//!
//! The program is `demos/live/variables.c`, which says what becomes of each of its variables; that is
//! looked up in its symbol table first, as the test says nothing where clang does otherwise.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use uruk_guests::execute::{Ending, Job, Outcome};

use crate::trial::Bench;
use crate::verdict;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Variables that the executable has to have.
const THERE: [&str; 8] = [
    "state.0", "state.1", "state.2", "state.3", "ready", "level", "given.0", "lone",
];

/// Variables that it must not have.
const GONE: [&str; 13] = [
    "state",
    "state.4",
    "limits",
    "names",
    "operations",
    "defaults",
    "trace",
    "leads",
    "behind",
    "given",
    "given.1",
    "state.b",
    "ready.b",
];

/// Functions that have to be led to new code.
const COMPILED: [&str; 8] = [
    "look", "change", "limit", "name", "operate", "address", "area", "note",
];

/// Functions that have to stay native, and the variable that is the reason; none where the reason
/// is that they ask the dynamic loader.
const NATIVE: [(&str, &str); 8] = [
    ("is_ready", "ready"),
    ("finish", "ready"),
    ("get_level", "level"),
    ("give", "given"),
    ("get_given", "given"),
    ("led", "behind"),
    ("native_look", ""),
    ("native_change", ""),
];

/// Runs the program natively and live.
///
/// # Errors
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = bench.scratch("live-variables");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let program = folder.join("variables");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/variables.c");
    let mut job = bench.subject.job(LIMIT);
    job.args.extend(["cc", "-O2"].map(Into::into));
    job.arg(source).arg("-o").arg(&program);
    let built = execute(bench, job)?;
    if built.ending != Ending::Status(0) {
        return Err(verdict::excerpt(&built.stderr));
    }
    check_symbols(bench, &program)?;
    let native = execute(bench, Job::new(&program, LIMIT))?;
    for force in ["--force=all", "--force=flip"] {
        let mut live = bench.subject.job(LIMIT);
        for word in ["live", force, "--no-control", "--explain", "--"] {
            live.arg(word);
        }
        live.arg(&program);
        let ours = execute(bench, live)?;
        if let Some(text) = verdict::difference(&native, &ours, false) {
            return Err(format!("{force}: {text}"));
        }
        if force == "--force=all" {
            check_table(&String::from_utf8_lossy(&ours.stderr))?;
        }
    }
    Ok(())
}

/// Whether clang did with the variables what the program is about.
fn check_symbols(bench: &Bench, program: &Path) -> Result<(), String> {
    let mut job = Job::new(Path::new("nm"), LIMIT);
    job.arg(program);
    let listed = execute(bench, job)?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: HashSet<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let lacking = THERE.iter().find(|name| !names.contains(*name));
    let left = GONE.iter().find(|name| names.contains(*name));
    match (lacking, left) {
        (Some(name), _) => Err(format!("clang made no `{name}`:\n{text}")),
        (None, Some(name)) => Err(format!("clang left `{name}`:\n{text}")),
        (None, None) => Ok(()),
    }
}

/// Whether the table tells of each function what it should.
fn check_table(table: &str) -> Result<(), String> {
    let line = |name: &str| {
        let name = format!(" {name} (");
        table.lines().find(|line| line.contains(&name))
    };
    for name in COMPILED {
        let is_led = |line: &str| line.trim_start().starts_with("2 ");
        if !line(name).is_some_and(is_led) {
            return Err(format!("`{name}` is not redirected:\n{table}"));
        }
    }
    for (name, variable) in NATIVE {
        let reason = match variable {
            "" => "stays native".to_owned(),
            variable => format!("stays native: uses `{variable}`"),
        };
        if !line(name).is_some_and(|line| line.contains(&reason)) {
            return Err(format!("`{name}` is not said to be native:\n{table}"));
        }
    }
    Ok(())
}

fn execute(bench: &Bench, job: Job) -> Result<Outcome, String> {
    let line = job.command_line();
    job.run(&bench.scratch("live-variables-run"))
        .map_err(|error| format!("cannot run {line}: {error}"))
}
