//! Running one program under uruk and its peers.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use uruk_guests::execute::{Ending, Job, Outcome};
use uruk_guests::{Guest, Run};

/// How long anybody may take; `lli` is known to hang on threads.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A way to run the program.
pub struct Peer {
    /// The column's title.
    pub name: &'static str,
    program: PathBuf,
    words: Vec<OsString>,
    separator: bool,
}

/// The results of one program under all peers.
pub struct Row {
    /// The program.
    pub guest: Guest,
    /// The run it was asked for.
    pub run: &'static str,
    /// The statistics that uruk reports of the run.
    pub stats: Stats,
    /// Best times, in the order of the peers; `None` where it failed.
    pub times: Vec<(&'static str, Option<Duration>)>,
    /// The output of the program under uruk.
    pub output: String,
    /// How uruk's run differs from the native one, if it does.
    pub problem: Option<String>,
}

/// The part of `--stats=json` that the demo shows.
#[derive(Clone, Copy, Default)]
pub struct Stats {
    /// Functions in the program.
    pub functions: u64,
    /// Functions that were compiled.
    pub compiled: u64,
    /// Time spent compiling, all workers together.
    pub compile_ms: f64,
}

impl Peer {
    /// `uruk run`, lazily, with statistics.
    pub fn uruk(program: &Path, bitcode: &OsStr) -> Self {
        Self {
            name: "uruk",
            program: program.to_owned(),
            words: vec!["run".into(), "--stats=json".into(), bitcode.to_owned()],
            separator: true,
        }
    }

    /// The command that keeps all at tier 1: what tiering wins is the difference.
    pub fn tier_1(program: &Path, bitcode: &OsStr) -> Self {
        let words = ["run", "--tiers", "1"].map(OsString::from);
        Self {
            name: "tier 1 only",
            program: program.to_owned(),
            words: words.into_iter().chain([bitcode.to_owned()]).collect(),
            separator: true,
        }
    }

    /// Another runner with its arguments before the program's own.
    pub fn other(name: &'static str, program: &Path, words: Vec<OsString>) -> Self {
        Self {
            name,
            program: program.to_owned(),
            words,
            separator: false,
        }
    }

    fn job(&self, run: &Run) -> Job {
        let mut job = Job::new(&self.program, TIME_LIMIT);
        job.args.clone_from(&self.words);
        if self.separator {
            job.arg("--");
        }
        job.args.extend(run.args.iter().map(OsString::from));
        job
    }

    /// The quickest of some runs.
    fn best(&self, run: &Run, repeat: usize, scratch: &Path) -> anyhow::Result<Outcome> {
        let job = self.job(run);
        let start = || {
            job.run(scratch)
                .with_context(|| format!("cannot run {}", self.name))
        };
        let mut best = start()?;
        for _ in 1..repeat {
            // A run of several seconds is not worth repeating.
            if best.wall > Duration::from_secs(2) {
                break;
            }
            let next = start()?;
            if next.wall < best.wall {
                best = next;
            }
        }
        Ok(best)
    }
}

impl Row {
    /// Runs the program under everybody; the first two are uruk and native.
    pub fn measure(
        guest: Guest,
        run: &Run,
        peers: &[Peer],
        repeat: usize,
        scratch: &Path,
        progress: &dyn Fn(&str),
    ) -> anyhow::Result<Self> {
        let mut outcomes = Vec::new();
        for peer in peers {
            progress(&format!("running {guest} {} under {}", run.name, peer.name));
            outcomes.push((peer.name, peer.best(run, repeat, scratch)?));
        }
        let ours = &outcomes[0].1;
        let native = &outcomes[1].1;
        Ok(Self {
            guest,
            run: run.name,
            stats: Stats::parse(&ours.stderr),
            output: String::from_utf8_lossy(&ours.stdout).into_owned(),
            problem: problem(native, ours),
            times: outcomes
                .iter()
                .map(|(name, outcome)| {
                    let good = outcome.ending == Ending::Status(run.status);
                    (*name, good.then_some(outcome.wall))
                })
                .collect(),
        })
    }
}

/// The fault of uruk's run, with the last line that it printed.
fn problem(native: &Outcome, ours: &Outcome) -> Option<String> {
    if ours.ending == native.ending && ours.stdout == native.stdout {
        return None;
    }
    let text = String::from_utf8_lossy(&ours.stderr);
    let said = text
        .trim_end()
        .lines()
        .last()
        .unwrap_or("nothing on stderr");
    Some(match ours.ending == native.ending {
        true => "its output differs from the native run's".to_owned(),
        false => format!("{:?}, natively {:?}: {said}", ours.ending, native.ending),
    })
}

impl Stats {
    /// Reads the last line of standard error; what is missing counts as nothing.
    fn parse(stderr: &[u8]) -> Self {
        let text = String::from_utf8_lossy(stderr);
        let line = text.trim_end().lines().last().unwrap_or_default();
        let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else {
            return Self::default();
        };
        Self {
            functions: value["functions"].as_u64().unwrap_or_default(),
            compiled: value["compiled"].as_u64().unwrap_or_default(),
            compile_ms: value["compile_ms"].as_f64().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stats;

    #[test]
    fn statistics_are_the_last_line() {
        let text =
            b"the program's own words\n{\"functions\":10,\"compiled\":4,\"compile_ms\":1.5}\n";
        let stats = Stats::parse(text);
        assert_eq!((stats.functions, stats.compiled), (10, 4));
        assert_eq!(Stats::parse(b"nothing").functions, 0);
    }
}
