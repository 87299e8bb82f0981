//! `uruk compare`: a program at each tier, tiered, and compiled ahead of time by clang.
//!
//! Every way of running it is a process of its own, uruk's ways included, so none warms up another's
//! memory. The ways take turns, one run of each a round: a temporary slowdown of the machine affects all
//! of them. The first run, at tier 1, defines the right output; a way with another output is not run
//! again and has no speed.

mod child;
mod native;
mod scratch;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use uruk::EXIT_FAILURE;
use uruk_report::compare::{Comparison, Output, Row, Side};
use uruk_report::html;

use child::{Ending, Job, Outcome, difference};
use scratch::Scratch;

/// Exit status if the output of a way differs from the first one's.
const DIFFERENT: i32 = 1;

#[derive(clap::Args)]
#[command(
    after_help = "The program reads nothing on standard input unless --stdin is given. Exit \
status: 0; 1 if a way of running it did not put out what the first one did; 125 if it could \
not be run at all; 2 for a wrong command line."
)]
pub(super) struct Compare {
    /// Runs of each way, of which the median is shown; the ways take turns.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Write the comparison to a file as well, as a page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Standard input of the program.
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Arguments, in one word, with which the program does more of the same: what such a run takes
    /// beyond the first is shown as the steady state, without start and warm-up.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    steady: Option<String>,
    /// Do not compile the program ahead of time to compare with.
    #[arg(long)]
    no_native: bool,
    /// Bitcode (.bc), IR text (.ll) and object files (.o); together one program.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Arguments of the program.
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Reasons why there is no comparison.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{}", file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("{0}")]
    Output(String),
    #[error("the program cannot be run at tier 1\n{0}")]
    Unusable(String),
}

/// A way to run the program, and its results.
struct Way {
    row: Row,
    job: Job,
    /// The longer run.
    longer: Option<Job>,
}

/// The output of the first way's run, which is the right one.
struct Right {
    file: PathBuf,
    ending: Ending,
}

/// Compares and prints; the exit status.
pub(super) fn main(compare: &Compare) -> i32 {
    let result = run(compare).and_then(|(note, comparison)| {
        // A closed standard output is not an error.
        let _ = uruk_files::print(&format!("{note}\n{}", comparison.render()));
        if let Some(file) = &compare.html {
            uruk_files::write(file, html::compare(&comparison)).map_err(|e| in_file(file, e))?;
        }
        Ok(comparison)
    });
    match result {
        Ok(comparison) => {
            let wrong =
                |row: &Row| matches!(row.output, Output::Differs { .. } | Output::Failed { .. });
            i32::from(comparison.rows.iter().any(wrong)) * DIFFERENT
        }
        Err(problem) => super::fail(&problem),
    }
}

fn run(compare: &Compare) -> Result<(String, Comparison), Problem> {
    for file in compare.files.iter().chain(&compare.stdin) {
        File::open(file).map_err(|error| in_file(file, error))?;
    }
    let inputs = compare.files.iter().chain(&compare.stdin);
    let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
    super::outputs::check(&compare.html, &inputs).map_err(Problem::Output)?;
    let temporary = std::env::temp_dir();
    let scratch = Scratch::new(&temporary).map_err(|error| in_file(&temporary, error))?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut ways: Vec<Way> = ["1", "2", "3", "auto"]
        .map(|tiers| under_uruk(compare, tiers))
        .into();

    let right = first_run(&mut ways[0], &scratch, "expected")?;
    let mut notes = vec![format!(
        "{}: {}, {} bytes of output; medians of {} runs",
        compare.files[0].display(),
        right.ending,
        fs::metadata(&right.file).map_or(0, |data| data.len()),
        compare.runs
    )];
    let longer = match compare.steady {
        Some(_) => Some(first_run(&mut ways[0], &scratch, "expected-longer")?),
        None => None,
    };
    // Only now: the files have proved to be readable.
    if !compare.no_native {
        let native = native::build(&compare.files, &scratch, &progress);
        notes.extend(native.notes);
        for build in native.builds {
            ways.push(ahead_of_time(compare, build));
        }
    }
    for round in 0..compare.runs {
        for (at, way) in ways.iter_mut().enumerate() {
            if round == 0 && at == 0 {
                continue;
            }
            for (right, longer) in [(Some(&right), false), (longer.as_ref(), true)] {
                if let Some(right) = right.filter(|_| way.row.output == Output::Same) {
                    let (name, of) = (&way.row.name, compare.runs);
                    progress(&format!("{name}, run {} of {of}", round + 1));
                    again(way, right, longer, &scratch);
                }
            }
        }
    }
    progress("");
    let rows: Vec<Row> = ways.into_iter().map(|way| way.row).collect();
    let sound = |row: &Row| row.name == "clang -O2" && row.output == Output::Same;
    let comparison = Comparison {
        program: compare.files[0].display().to_string(),
        args: compare
            .args
            .iter()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
        uruk: env!("CARGO_PKG_VERSION").to_owned(),
        llvm: uruk::llvm_version(),
        processor: uruk::host_cpu(),
        started_unix_ms: started.map_or(0, |time| time.as_millis() as u64),
        reference: Some(rows.iter().position(sound).unwrap_or(0)),
        rows,
    };
    Ok((notes.join("\n"), comparison))
}

/// The arguments of the longer run, if there is to be one.
fn longer_args(compare: &Compare) -> Option<Vec<OsString>> {
    let words = compare.steady.as_ref()?.split_whitespace();
    Some(words.map(OsString::from).collect())
}

/// A way to run the program with this command.
fn under_uruk(compare: &Compare, tiers: &str) -> Way {
    let job = |args: &[OsString]| {
        let mut words: Vec<OsString> = vec!["run".into(), "--tiers".into(), tiers.into()];
        words.extend(compare.files.iter().map(|file| file.into()));
        words.push("--".into());
        words.extend(args.iter().cloned());
        Job {
            program: "/proc/self/exe".into(),
            name: "uruk".into(),
            words,
            stdin: compare.stdin.clone(),
        }
    };
    let name = match tiers {
        "auto" => "tiered".to_owned(),
        number => format!("tier {number}"),
    };
    Way {
        row: row(name, Side::Uruk),
        job: job(&compare.args),
        longer: longer_args(compare).map(|args| job(&args)),
    }
}

fn ahead_of_time(compare: &Compare, build: native::Build) -> Way {
    let mut row = row(build.name, Side::Peer);
    row.build = build.time;
    let program = build.program.unwrap_or_else(|reason| {
        row.output = Output::Skipped { reason };
        PathBuf::new()
    });
    let job = |words: Vec<OsString>| Job {
        program: program.clone(),
        // The program name that `uruk run` passes.
        name: compare.files[0].clone().into(),
        words,
        stdin: compare.stdin.clone(),
    };
    Way {
        row,
        job: job(compare.args.clone()),
        longer: longer_args(compare).map(job),
    }
}

fn row(name: String, side: Side) -> Row {
    Row {
        name,
        side,
        runs: Vec::new(),
        build: None,
        output: Output::Same,
        longer: Vec::new(),
        curve: Vec::new(),
    }
}

/// Runs the first way, which defines the right output; the longer job if there is a first run already.
fn first_run(way: &mut Way, scratch: &Scratch, file: &str) -> Result<Right, Problem> {
    progress(&way.row.name);
    let file = scratch.file(file);
    let is_longer = !way.row.runs.is_empty();
    let job = way.longer.as_ref().filter(|_| is_longer);
    let outcome = job.unwrap_or(&way.job).run(&file, scratch);
    progress("");
    let outcome = outcome.map_err(|error| Problem::Unusable(error.to_string()))?;
    if outcome.ending == Ending::Status(EXIT_FAILURE) {
        return Err(Problem::Unusable(outcome.said));
    }
    match is_longer {
        true => way.row.longer.push(outcome.times),
        false => way.row.runs.push(outcome.times),
    }
    Ok(Right {
        file,
        ending: outcome.ending,
    })
}

/// Runs a way once more, and compares its output with the right one.
fn again(way: &mut Way, right: &Right, longer: bool, scratch: &Scratch) {
    let actual = scratch.file("output");
    let job = way.longer.as_ref().filter(|_| longer);
    way.row.output = match job.unwrap_or(&way.job).run(&actual, scratch) {
        Ok(outcome) => {
            match longer {
                true => way.row.longer.push(outcome.times),
                false => way.row.runs.push(outcome.times),
            }
            judge(&outcome, right.ending, &right.file, &actual)
        }
        Err(error) => Output::Failed {
            reason: error.to_string(),
        },
    };
}

fn judge(outcome: &Outcome, ending: Ending, expected: &Path, actual: &Path) -> Output {
    if outcome.ending != ending {
        let said = outcome.said.lines().last().map(|line| format!(": {line}"));
        return Output::Failed {
            reason: format!(
                "{}, not {ending}{}",
                outcome.ending,
                said.unwrap_or_default()
            ),
        };
    }
    match difference(expected, actual) {
        Ok(None) => Output::Same,
        Ok(Some(how)) => Output::Differs { how },
        Err(error) => Output::Failed {
            reason: format!("its output is lost: {error}"),
        },
    }
}

fn in_file(file: &Path, source: io::Error) -> Problem {
    Problem::File {
        file: file.to_owned(),
        source,
    }
}

/// Shows progress on a terminal: a line that the next one overwrites.
fn progress(line: &str) {
    if io::stderr().is_terminal() {
        // A failed write of the progress line is ignored.
        let _ = write!(io::stderr(), "\r\x1b[K{}", uruk_files::shown(line));
    }
}
