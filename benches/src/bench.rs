//! The environment of every experiment: tools, directories, how long to measure.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use uruk_guests::{Cache, Flavor, Guest, Level, Once, Toolchain, Workload};

use crate::process::Runner;

/// The surroundings of a run of the benchmarks.
#[derive(Clone)]
pub struct Bench {
    /// clang, lli and the others.
    pub tools: Toolchain,
    /// Compiled guests.
    pub cache: Cache,
    /// The `uruk` command.
    pub uruk: PathBuf,
    /// Starts processes.
    pub runner: Runner,
    /// Where generated files and results go.
    pub directory: PathBuf,
    /// Fewer repetitions, fewer levels.
    pub quick: bool,
    /// How long the contenders of one program are repeated, in all.
    pub repeat_budget: Duration,
    /// A peer that takes this many times the fastest peer's time is stopped.
    pub patience: f64,
    /// Only the workloads whose name contains one of these; all, if there is none.
    pub only_workloads: Vec<String>,
}

impl Bench {
    /// Finds the tools and builds the `uruk` command in release mode; the variable
    /// `URUK_BIN` names another one.
    ///
    /// # Errors
    /// A tool is missing, or the command does not build.
    pub fn new(quick: bool, only_workloads: Vec<String>) -> Result<Bench> {
        let target = target_directory()?;
        let directory = target.join("bench");
        Ok(Bench {
            tools: Toolchain::find()?,
            cache: Cache::at(target.join("guests")),
            uruk: match env::var_os("URUK_BIN") {
                Some(path) => PathBuf::from(path),
                None => build_uruk(&target)?,
            },
            runner: Runner::new(&directory).context("making the output directory")?,
            directory,
            quick,
            repeat_budget: Duration::from_secs(if quick { 2 } else { 8 }),
            patience: if quick { 1.5 } else { 4.0 },
            only_workloads,
        })
    }

    /// The levels at which whole programs are compared.
    pub fn levels(&self) -> &'static [Level] {
        if self.quick {
            &[Level::O0]
        } else {
            &[Level::O0, Level::O2]
        }
    }

    /// The workloads that one process repeats, as far as they were asked for.
    pub fn workloads(&self) -> Vec<Workload> {
        let mut all = Workload::all();
        all.retain(|one| self.is_asked_for(&one.name()));
        all
    }

    /// The workloads for native programs, as far as they were asked for.
    pub fn native_workloads(&self) -> Vec<Workload> {
        let mut all = Workload::native();
        all.retain(|one| self.is_asked_for(&one.name()));
        all
    }

    /// Programs whose loops are entered once, as far as they were asked for.
    pub fn once(&self) -> Vec<Once> {
        let mut all = Once::all();
        all.retain(|one| self.is_asked_for(one.name()));
        all
    }

    /// Whether a workload of that name was asked for.
    pub fn is_asked_for(&self, name: &str) -> bool {
        let mut parts = self.only_workloads.iter();
        self.only_workloads.is_empty() || parts.any(|part| name.contains(part))
    }

    /// `full`, or a part of it in a quick run; at least one.
    pub fn rounds(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(4) } else { full }
    }

    /// The bitcode of a guest at a level.
    ///
    /// # Errors
    /// Those of building it.
    pub fn guest(&self, guest: Guest, level: Level) -> Result<uruk_guests::Built> {
        let flavor = Flavor::plain(level);
        progress(&format!("compiling {guest} {flavor}, unless it is there"));
        let built = guest.build(&self.tools, &self.cache, flavor, 2, &|_, _| {});
        Ok(built?)
    }

    /// The command line `uruk run MODE FILE -- ARGS`.
    pub fn uruk_run(&self, mode: &str, bitcode: &Path, args: &[String]) -> Vec<OsString> {
        self.uruk_run_with(&[mode], bitcode, args)
    }

    /// The command line `uruk run OPTIONS FILE -- ARGS`.
    pub fn uruk_run_with(
        &self,
        options: &[&str],
        bitcode: &Path,
        args: &[String],
    ) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![self.uruk.clone().into(), "run".into()];
        command.extend(options.iter().map(OsString::from));
        command.extend([bitcode.into(), "--".into()]);
        command.extend(args.iter().map(OsString::from));
        command
    }

    /// The command line `lli FLAGS FILE ARGS`, if there is an `lli`.
    pub fn lli(&self, flags: &[&str], bitcode: &Path, args: &[String]) -> Option<Vec<OsString>> {
        let mut command: Vec<OsString> = vec![self.tools.lli.clone()?.into()];
        command.extend(flags.iter().map(OsString::from));
        command.push(bitcode.into());
        command.extend(args.iter().map(OsString::from));
        Some(command)
    }
}

/// Says on standard error what is going on.
pub fn progress(line: &str) {
    eprintln!("bench: {line}");
}

/// The directory cargo put this executable's profile directory in.
fn target_directory() -> Result<PathBuf> {
    let executable = env::current_exe().context("finding this executable")?;
    let target = executable.parent().and_then(Path::parent);
    target
        .map(Path::to_owned)
        .context("this executable is not in a target directory")
}

fn build_uruk(target: &Path) -> Result<PathBuf> {
    progress("building the uruk command");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let status = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--quiet",
            "-p",
            "uruk-command",
            "--manifest-path",
        ])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target)
        .status()
        .context("starting cargo")?;
    if !status.success() {
        bail!("the uruk command does not build");
    }
    Ok(target.join("release/uruk"))
}
