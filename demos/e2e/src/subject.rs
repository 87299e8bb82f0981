//! The command under test, and what it promises about its own exit statuses.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use uruk_guests::execute::Job;

/// Exit status of `uruk` for a command line that makes no sense (clap's own).
pub const STATUS_USAGE: i32 = 2;

/// Exit status of `uruk` when the program could not be loaded, linked or
/// compiled.
pub const STATUS_FAILURE: i32 = 125;

/// How functions get compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each when it is first called.
    Lazy,
    /// All before the program starts.
    Eager,
    /// Each when it is first called, and then again and again at other tiers: all by LLVM.
    Tiered,
    /// As tiered; whatever lives moves to other addresses all the time, and what was
    /// left is closed at once: who executes freed code dies of it.
    Moving,
    /// Each when it is first called; every loop is left for a continuation at one of its first
    /// passes, the same every time. A half of them count in code of the baseline compiler.
    Leaving,
    /// Each when it is first called, by the baseline compiler wherever it covers it, and no more.
    Baseline,
    /// As moving, with a half of the functions at tier 1 by the baseline compiler: its code and
    /// LLVM's call each other, and throw through each other.
    Mixed,
}

/// The command under test.
#[derive(Clone, Debug)]
pub struct Subject {
    program: PathBuf,
}

impl Mode {
    /// The ways to load a program, which differ in what is refused and when.
    pub const LOADING: [Self; 2] = [Self::Lazy, Self::Eager];

    /// All modes.
    pub const ALL: [Self; 7] = [
        Self::Lazy,
        Self::Eager,
        Self::Tiered,
        Self::Moving,
        Self::Leaving,
        Self::Baseline,
        Self::Mixed,
    ];

    /// The ways in which functions get code again and again.
    pub const CHANGING: [Self; 2] = [Self::Tiered, Self::Moving];

    /// The mode's name in directives and trial names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Eager => "eager",
            Self::Tiered => "tiered",
            Self::Moving => "moving",
            Self::Leaving => "leaving",
            Self::Baseline => "baseline",
            Self::Mixed => "mixed",
        }
    }

    /// The options for it.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Lazy => &["--lazy"],
            Self::Eager => &["--eager"],
            Self::Tiered => &["--lazy", "--tiers=churn", "--baseline=off"],
            Self::Leaving => &["--lazy", "--osr-loops=1000", "--baseline=41"],
            Self::Baseline => &["--lazy", "--tiers=1", "--baseline=on"],
            Self::Moving => &MOVING,
            Self::Mixed => &MIXED,
        }
    }
}

const MOVING: [&str; 10] = [
    "--lazy",
    "--tiers=churn",
    "--freed=protect",
    "--set=reclaim.evacuate_every=8",
    "--set=reclaim.sweep_floor=0",
    "--set=reclaim.sweep_fraction=0",
    "--set=reclaim.interval=0ns",
    "--set=reclaim.cpu_fraction=1",
    "--set=reclaim.backoff_min=1ms",
    "--set=reclaim.backoff_max=20ms",
];

/// As [`MOVING`], and what follows.
const MIXED: [&str; 11] = {
    let mut options = ["--baseline=23"; 11];
    let mut at = 0;
    while at < MOVING.len() {
        options[at] = MOVING[at];
        at += 1;
    }
    options
};

impl Subject {
    /// `URUK_BIN`, or the workspace's `uruk` in the profile these tests were
    /// built in, brought up to date by cargo first.
    ///
    /// # Errors
    /// Cargo cannot build it; the text is what to tell the user.
    pub fn find() -> Result<Self, String> {
        if let Some(program) = env::var_os("URUK_BIN") {
            return Ok(Self {
                program: program.into(),
            });
        }
        // Test binaries live in <target>/<profile>/deps.
        let here = env::current_exe().map_err(|error| error.to_string())?;
        let profile = here
            .parent()
            .and_then(Path::parent)
            .ok_or("this test runs outside of a target directory")?;
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args([
            "build",
            "--quiet",
            "--package",
            "uruk-command",
            // The library that `uruk live` loads into programs, and the plugin that `uruk cc` loads into
            // compilers.
            "--package",
            "uruk-preload",
            "--package",
            "uruk-locals",
        ]);
        if profile.ends_with("release") {
            command.arg("--release");
        }
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        if let Some(target) = profile.parent() {
            command.env("CARGO_TARGET_DIR", target);
        }
        match command.status() {
            Ok(status) if status.success() => Ok(Self {
                program: profile.join("uruk"),
            }),
            Ok(status) => Err(format!("cargo could not build uruk ({status})")),
            Err(error) => Err(format!("cannot start cargo: {error}")),
        }
    }

    /// The subject, or a message on stderr and the status to end with.
    ///
    /// # Errors
    /// As [`Subject::find`].
    pub fn find_or_report() -> Result<Self, ExitCode> {
        Self::find().map_err(|problem| {
            eprintln!("{problem}");
            ExitCode::from(1)
        })
    }

    /// The command's file.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The command with arbitrary arguments.
    pub fn job(&self, limit: Duration) -> Job {
        Job::new(&self.program, limit)
    }

    /// `uruk run MODE OPTIONS FILES -- ARGS`.
    pub fn run(
        &self,
        mode: Mode,
        options: &[String],
        files: &[PathBuf],
        args: &[String],
        limit: Duration,
    ) -> Job {
        let mut job = self.job(limit);
        job.arg("run");
        job.args.extend(mode.options().iter().map(OsString::from));
        job.args.extend(options.iter().map(OsString::from));
        job.args.extend(files.iter().map(OsString::from));
        if !args.is_empty() {
            job.arg("--");
            job.args.extend(args.iter().map(OsString::from));
        }
        job
    }
}
