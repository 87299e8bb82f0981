//! `uruk tune`: runs a workload repeatedly; each run starts from the results of the ones before.
//!
//! Each run is `uruk run --tuning FILE`, or `uruk live --tuning FILE` where the last of the files is a
//! native program, in a process of its own. So nothing of a run, such as its heap or its caches'
//! contents, is left for the next, and a run that fails ends only itself. Trials may take more of the
//! program's time than in other runs: here they are the purpose. And the policy expects more of compiled
//! code ([`HOPES`]). The file is complete after each run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use uruk::EXIT_FAILURE;

/// Later runs pay for compiles here, and code that does not pay off is not kept. SQLite's main loop
/// takes five seconds to compile with its counts, so 25 s in it passed before a run did. With all hot
/// code at tier 3 an iteration takes 21.3 ms instead of 24.8. Settings of the command line override
/// these.
const HOPES: [&str; 2] = ["outlook=60s", "speedup_guided=3"];

/// Kinds of lines that record the progress of functions.
const KINDS: [&str; 8] = [
    "settled", "open", "native", "tier", "tried", "doubtful", "compared", "fine",
];

#[derive(clap::Args)]
#[command(after_help = "Exit status: 0, or that of the first run that failed.")]
pub(super) struct Tune {
    /// Runs, at most; fewer if two in a row find nothing, or one where nothing is left to try.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Percent of the program's processor time that trials may take which win nothing.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=100))]
    percent: u8,
    /// The file, which the next `uruk run --tuning`, or `uruk live --tuning`, starts from.
    #[arg(long, value_name = "FILE", default_value = "uruk.tuning")]
    tuning: PathBuf,
    /// Files and options as `uruk run` takes them, or options of `uruk live` and a native program;
    /// after `--`, arguments of the program.
    #[arg(required = true, value_name = "FILE", allow_hyphen_values = true, num_args = 1..)]
    words: Vec<OsString>,
}

pub(super) fn main(tune: &Tune) -> i32 {
    let mut before = known(&tune.tuning);
    let mut quiet = 0;
    for number in 1..=tune.runs {
        let start = Instant::now();
        let status = match run(tune) {
            Ok(status) => status,
            Err(cause) => return super::fail(&cause),
        };
        if !status.success() {
            uruk_files::say!("uruk tune: run {number}: {status}");
            return status.code().unwrap_or(EXIT_FAILURE);
        }
        let now = known(&tune.tuning);
        tell(number, start.elapsed(), &now);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        // A run may find nothing because it was too short, unless nothing is left.
        let any = |kind| before.iter().any(|line| line.starts_with(kind));
        let is_done = any("settled") && !any("open");
        if quiet == if is_done { 1 } else { 2 } {
            break;
        }
    }
    0
}

fn run(tune: &Tune) -> std::io::Result<ExitStatus> {
    let mut command = Command::new(std::env::current_exe()?);
    // Other options may have any form, so the command line's own division cannot be determined.
    let mut parts = tune.words.splitn(2, |word| word == "--");
    let (files, args) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let program = files.split_last();
    let percent = tune.percent.to_string();
    match program.filter(|(program, _)| super::live::is_native(Path::new(program))) {
        Some((program, options)) => {
            command.arg("live").arg("--tuning").arg(&tune.tuning);
            command.args(["--tuning-percent", &percent]);
            // The run is made for its results, not for its own sake.
            let limits = |it: &OsString| it.to_string_lossy().starts_with("--overhead");
            if !options.iter().any(limits) {
                command.args(["--overhead", "0"]);
            }
            command.args(options).arg("--").arg(program)
        }
        None => {
            command.arg("run").arg("--tuning").arg(&tune.tuning);
            command.args(["--tuning-percent", &percent]);
            command.args(HOPES.iter().flat_map(|hope| ["--set", hope]));
            command.args(files).arg("--")
        }
    };
    command.args(args).status()
}

/// The lines of the file about functions.
fn known(file: &Path) -> Vec<String> {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().filter(|line| {
        let kind = line.split(' ').next();
        matches!(kind, Some(kind) if KINDS.contains(&kind))
    });
    lines.map(str::to_owned).collect()
}

fn tell(number: u32, took: Duration, known: &[String]) {
    let of = |kind: &str| -> Vec<&String> {
        let lines = known.iter().filter(|line| line.starts_with(kind));
        lines.collect()
    };
    let (native, open, ended) = (of("native"), of("open"), of("settled"));
    let tried = [open, ended.clone()].concat();
    let changed = tried.iter().filter(|line| !line.contains(" plain #"));
    let stay = native.iter().filter(|line| line.contains(" stays #"));
    let of_native = match native.len() {
        0 => String::new(),
        compared => format!(
            "; {compared} beside native code, {} of them stay native",
            stay.count()
        ),
    };
    uruk_files::say!(
        "uruk tune: run {number}: {:.2} s; {} functions tried, {} of them to the end, {} are compiled another way{of_native}",
        took.as_secs_f64(),
        tried.len(),
        ended.len(),
        changed.count(),
    );
}
