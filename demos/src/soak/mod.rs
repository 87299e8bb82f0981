//! Programs under `uruk live` that are exchanged thousands of times, at both levels, by two clients at
//! once, with tuning, rollbacks, forks and signals, while their answers are checked.
//!
//! - `server` ([`server`]): sockets, worker threads, and answers that carry the versions that computed
//!   them. An answer is wrong if its version was not possible between the request and the answer
//!   ([`window`]), or if its numbers are of two versions of functions that are exchanged together.
//! - `sqlite` ([`sqlite`]): four threads with databases of their own, whose sums are known.
//!
//! Memory, descriptors, mappings and the time of an exchange at the end are printed over those at the
//! hundredth exchange. The demo fails where anything is wrong; gaps are printed, since they depend on
//! the machine.

mod answers;
mod drive;
mod edits;
mod program;
mod random;
mod report;
mod server;
mod sqlite;
mod tally;
mod window;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use uruk_guests::{Cache, execute::Ending, execute::Job};

use self::drive::Run;
use self::program::{Figures, Program};
use self::sqlite::Edited;
use self::tally::Tally;

/// How `cargo xtask demo live-soak` runs.
#[derive(clap::Args)]
pub struct Arguments {
    /// Minutes that each program is exchanged for.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Exchanges of each program, shared out over that time.
    #[arg(long, default_value_t = 10_000)]
    swaps: usize,
    /// The questions of the clients, and their order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this program; both, one after the other, otherwise.
    #[arg(long)]
    only: Option<Which>,
}

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    Server,
    Sqlite,
}

/// How long, how often, and in which order.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    minutes: f64,
    swaps: usize,
    seed: u64,
}

/// The parts from which a program is built and run.
pub struct Stage<'a> {
    uruk: &'a Path,
    cache: &'a Cache,
    folder: &'a Path,
    plan: Plan,
}

/// The outcome of a program.
pub struct Outcome {
    name: &'static str,
    tally: Tally,
    /// The program at the end.
    last: Option<Figures>,
    edits: Vec<Edited>,
}

impl Outcome {
    fn new(name: &'static str, tally: Tally, last: Option<Figures>, edits: Vec<Edited>) -> Outcome {
        Outcome {
            name,
            tally,
            last,
            edits,
        }
    }
}

/// How long a compile may take: SQLite is one file.
const LIMIT: Duration = Duration::from_secs(600);

/// Seconds without exchanges, at most a tenth of the run's.
const CALM: f64 = 10.0;

impl Stage<'_> {
    /// A source of ours.
    fn source(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("live/soaked")
            .join(name)
    }

    /// `uruk cc -O2`.
    fn compile(&self, flags: &[&str], sources: &[&Path], to: &Path) -> anyhow::Result<()> {
        let mut job = Job::new(self.uruk, LIMIT);
        job.args.extend(["cc", "-O2", "-pthread"].map(Into::into));
        job.args.extend(flags.iter().map(Into::into));
        job.args.extend(sources.iter().map(Into::into));
        job.arg("-o").arg(to);
        let outcome = job.run(&self.folder.join("command"))?;
        if outcome.ending != Ending::Status(0) {
            let said = String::from_utf8_lossy(&outcome.stderr);
            bail!("{}: {:?}: {said}", job.command_line(), outcome.ending);
        }
        Ok(())
    }

    fn start(&self, program: &Path, name: &str) -> anyhow::Result<Program> {
        let socket = self.folder.join(format!("{name}.socket"));
        Program::start(self.uruk, program, socket)
    }

    /// Lets the program run without exchanges, for the longest gap that the machine brings.
    fn calm(&self, run: &Run<'_>) {
        let seconds = CALM.min(self.plan.minutes * 6.0);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        run.with(|tally| {
            tally.calm = tally.gaps.first().map_or(0.0, |it| it.0);
            tally.gaps.clear();
            tally.long = 0;
        });
    }
}

/// Runs the demo.
///
/// # Errors
/// Something could not be built or started, or was wrong.
pub fn run(uruk: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let cache = Cache::in_target();
    let folder = cache.directory().join("live-soak");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let stage = Stage {
        uruk,
        cache: &cache,
        folder: &folder.canonicalize()?,
        plan: Plan {
            minutes: arguments.minutes,
            swaps: arguments.swaps,
            seed: arguments.seed,
        },
    };
    let mut outcomes = Vec::new();
    let wanted = |which| arguments.only.is_none_or(|only| only == which);
    if wanted(Which::Server) {
        outcomes.push(server::run(&stage)?);
    }
    if wanted(Which::Sqlite) {
        outcomes.push(sqlite::run(&stage)?);
    }
    for outcome in &outcomes {
        println!("\n{}", report::text(outcome));
    }
    for outcome in &outcomes {
        println!("{}", report::json(outcome));
    }
    match outcomes.iter().find(|it| it.tally.wrong > 0) {
        Some(it) => bail!(
            "{}: {} wrong: {}",
            it.name,
            it.tally.wrong,
            it.tally.examples[0]
        ),
        None => Ok(()),
    }
}
