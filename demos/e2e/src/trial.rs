//! A program compiled, run natively and under test, and compared.
//!
//! Work is shared through [`OnceLock`]s, because the trials of a test binary run
//! side by side and in no order: a [`Building`] is compiled by the first trial
//! that needs it, a [`Reference`] run natively by the first.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use uruk_guests::execute::{self, Ending, Job, Outcome};
use uruk_guests::{Built, Cache, Flavor, Program, Toolchain};

use crate::subject::{Mode, Subject};
use crate::verdict;

/// The default time limit of a program.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// How many times longer it may take where functions are compiled again and again.
const TIERED_FACTOR: u32 = 6;

/// The state that all trials of a test binary share.
pub struct Bench {
    /// The compilers.
    pub tools: Toolchain,
    /// Where compiled programs are kept.
    pub cache: Cache,
    /// The command under test.
    pub subject: Subject,
}

/// How a program runs, and how it must end natively.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names the program in the list of trials.
    pub name: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its standard input.
    pub stdin: Option<Vec<u8>>,
    /// Variables for it.
    pub env: Vec<(String, String)>,
    /// How it ends natively; `None` if it may end in any way.
    pub ending: Option<Ending>,
    /// Whether standard error is compared.
    pub with_stderr: bool,
    /// Whether the runtime gets one file of bitcode instead of the parts.
    pub as_one_file: bool,
    /// More options for `uruk run`.
    pub options: Vec<String>,
    /// Further options, with each of which it runs once more.
    pub variations: Vec<Vec<String>>,
    /// The lines that the runtime must, or must not, write to standard error.
    pub log: Vec<LogLine>,
    /// How often it runs under test.
    pub repeat: usize,
    /// How long it may take.
    pub limit: Duration,
}

/// A line of standard error that is looked for.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// The pieces that the line contains, in this order.
    pub pieces: Vec<String>,
    /// Whether it must be there, or must not.
    pub present: bool,
}

impl LogLine {
    /// One that must be there: its pieces with ` .. ` between them.
    #[must_use]
    pub fn expected(text: &str) -> Self {
        Self {
            pieces: text.split(" .. ").map(str::to_owned).collect(),
            present: true,
        }
    }
}

/// A program in one flavor, compiled once.
pub struct Building {
    /// The program that is compiled.
    pub program: Program,
    /// How.
    pub flavor: Flavor,
    built: OnceLock<Result<Built, String>>,
}

/// A plan and its program, run natively once.
pub struct Reference {
    plan: Plan,
    building: Arc<Building>,
    native: OnceLock<Result<Outcome, String>>,
}

impl Bench {
    /// Finds the compilers and the command under test; `None` where trials are
    /// only listed, which must not need either.
    ///
    /// # Errors
    /// One of them is missing; the text says what to do.
    pub fn set_up(arguments: &Arguments) -> Result<Option<Arc<Self>>, String> {
        if arguments.list {
            return Ok(None);
        }
        Ok(Some(Arc::new(Self {
            tools: Toolchain::find().map_err(|error| error.to_string())?,
            cache: Cache::in_target(),
            subject: Subject::find()?,
        })))
    }

    /// A directory for one run's files.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.cache.directory().join("runs").join(name)
    }
}

/// The body of a test binary's `main`: reads the arguments, has the trials made,
/// runs them. Half of the time a trial waits, for timers or for the other process, so there
/// are two for each processor unless the arguments say otherwise.
pub fn run(trials: impl FnOnce(&Arguments) -> Result<Vec<Trial>, String>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.test_threads.is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        arguments.test_threads = Some(2 * processors);
    }
    execute::forbid_core_files();
    match trials(&arguments) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(1)
        }
    }
}

impl Plan {
    /// A program without arguments that ends with status 0.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            args: Vec::new(),
            stdin: None,
            env: Vec::new(),
            ending: Some(Ending::Status(0)),
            with_stderr: false,
            as_one_file: false,
            options: Vec::new(),
            variations: Vec::new(),
            log: Vec::new(),
            repeat: 1,
            limit: TIME_LIMIT,
        }
    }
}

impl Building {
    /// A program that is not compiled yet.
    pub fn new(program: Program, flavor: Flavor) -> Arc<Self> {
        Arc::new(Self {
            program,
            flavor,
            built: OnceLock::new(),
        })
    }

    fn built(&self, bench: &Bench) -> Result<&Built, String> {
        let result = self.built.get_or_init(|| {
            // Trials already run side by side: one compiler at a time in each.
            self.program
                .build(&bench.tools, &bench.cache, self.flavor, 1, &|_, _| {})
                .map_err(|error| error.to_string())
        });
        result.as_ref().map_err(Clone::clone)
    }
}

impl Reference {
    /// A plan that has not run yet.
    pub fn new(plan: Plan, building: Arc<Building>) -> Arc<Self> {
        Arc::new(Self {
            plan,
            building,
            native: OnceLock::new(),
        })
    }

    /// The trial of this plan in one mode. With a known failure, the trial passes
    /// if the comparison does not, and the other way round.
    pub fn trial(
        self: &Arc<Self>,
        bench: Option<&Arc<Bench>>,
        mode: Mode,
        known_failure: Option<&str>,
    ) -> Trial {
        let name = format!(
            "{}::{}::{}",
            self.plan.name,
            self.building.flavor,
            mode.name()
        );
        let (reference, bench) = (Arc::clone(self), bench.cloned());
        let reason = known_failure.map(str::to_owned);
        let kind = if reason.is_some() {
            "known failure"
        } else {
            ""
        };
        let body = move || match bench {
            Some(bench) => reference.judge(&bench, mode, reason.as_deref()),
            None => Ok(()),
        };
        Trial::test(name, body).with_kind(kind)
    }

    fn judge(&self, bench: &Bench, mode: Mode, reason: Option<&str>) -> Result<(), Failed> {
        // A case that does not even work natively is never a known failure.
        self.native(bench)?;
        match (reason, self.compare(bench, mode)) {
            (None, result) => result.map_err(Failed::from),
            (Some(_), Err(_)) => Ok(()),
            (Some(reason), Ok(())) => Err(Failed::from(format!(
                "passes although it is a known failure ({reason}): remove the directive"
            ))),
        }
    }

    /// The outcome of the native run, once it is known to match the plan.
    ///
    /// # Errors
    /// It does not compile, or does something else.
    pub fn native(&self, bench: &Bench) -> Result<&Outcome, String> {
        let result = self.native.get_or_init(|| self.run_natively(bench));
        result.as_ref().map_err(Clone::clone)
    }

    fn run_natively(&self, bench: &Bench) -> Result<Outcome, String> {
        let built = self.building.built(bench)?;
        let mut job = Job::new(&built.native, self.plan.limit);
        job.args.extend(self.plan.args.iter().map(Into::into));
        job.args.extend(built.opened.iter().map(Into::into));
        let native = self.execute(bench, job.clone(), "native")?;
        let Some(expected) = self.plan.ending else {
            return Ok(native);
        };
        if native.ending == expected {
            return Ok(native);
        }
        Err(format!(
            "the case itself is wrong: natively it ended with {}, not {}\n{}\nstdout:\n{}\nstderr:\n{}",
            verdict::ending(native.ending),
            verdict::ending(expected),
            job.command_line(),
            verdict::excerpt(&native.stdout),
            verdict::excerpt(&native.stderr)
        ))
    }

    /// Runs the program under test and compares.
    ///
    /// # Errors
    /// What differs, and how to run both sides by hand.
    pub fn compare(&self, bench: &Bench, mode: Mode) -> Result<(), String> {
        self.compare_as(bench, mode, 0)
    }

    /// As [`Reference::compare`], for trials that run several times at once: each of these
    /// has a number of its own.
    ///
    /// # Errors
    /// As [`Reference::compare`].
    pub fn compare_as(&self, bench: &Bench, mode: Mode, number: usize) -> Result<(), String> {
        let (plan, native) = (&self.plan, self.native(bench)?);
        let built = self.building.built(bench)?;
        let whole = [built.bitcode.clone()];
        let files = if plan.as_one_file {
            &whole[..]
        } else {
            &built.parts
        };
        let limit = match mode {
            Mode::Tiered | Mode::Moving | Mode::Leaving | Mode::Mixed => plan.limit * TIERED_FACTOR,
            _ => plan.limit,
        };
        let mut args = plan.args.clone();
        let shown = |path: &PathBuf| path.display().to_string();
        args.extend(built.opened.iter().map(shown));
        let libraries = built.libraries.iter();
        let libraries: Vec<String> = libraries
            .flat_map(|path| [String::from("--library"), shown(path)])
            .collect();
        let variations = plan.variations.iter().map(Vec::as_slice);
        for more in std::iter::once(&[][..]).chain(variations) {
            let options = [&plan.options, more, &libraries].concat();
            let job = bench.subject.run(mode, &options, files, &args, limit);
            for round in 1..=plan.repeat {
                let who = format!("{}-{number}", mode.name());
                let ours = self.execute(bench, job.clone(), &who)?;
                let text = verdict::difference(native, &ours, plan.with_stderr);
                if let Some(text) = text.or_else(|| verdict::unsaid(&ours, &plan.log)) {
                    let line = job.command_line();
                    let native = built.native.display();
                    return Err(format!("run {round}: {text}{line}\nnatively: {native}"));
                }
            }
        }
        Ok(())
    }

    fn execute(&self, bench: &Bench, mut job: Job, who: &str) -> Result<Outcome, String> {
        job.stdin.clone_from(&self.plan.stdin);
        job.env.clone_from(&self.plan.env);
        let name = format!("{}-{}-{who}", self.plan.name, self.building.flavor);
        let scratch = bench.scratch(&name.replace(['/', ' '], "-"));
        job.run(&scratch)
            .map_err(|error| format!("cannot run {}: {error}", job.command_line()))
    }
}
