//! `uruk live`: runs a native program with the library that compiles its functions again.
//!
//! The program replaces this process. Obstacles to loading the library are reported before: the dynamic
//! loader reports nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use uruk::{EXIT_FAILURE, StatsFormat};
use uruk_live::program::headers::{carries_bitcode, examine, has_capabilities, is_dynamic};
use uruk_live::program::image::ImageError;
use uruk_live::settings::{Force, OVERHEAD, Settings, VARIABLE};
use uruk_live::start::PRELOADED_BEFORE;
use uruk_live::tunables::{TUNABLES, with_ours};

use super::StatsChoice;

/// The library's file.
const LIBRARY: &str = "liburuk_preload.so";

#[derive(clap::Args)]
pub(super) struct Live {
    /// Print a table of functions and what became of them when the program ends.
    #[arg(long)]
    explain: bool,
    /// Print what was done, and a table about the run, when the program ends.
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    stats: Option<StatsChoice>,
    /// Write a page about the run to a file when the program ends: tiers, hottest functions, what
    /// was tried on them.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write a timeline of compiles, publications and samples to a file, in Chrome's trace format.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Start from what a file says that earlier runs learned, so that code that was faster comes
    /// sooner, and native code that was stays; the file is written anew when the program ends.
    #[arg(long, value_name = "FILE", conflicts_with = "no_tune")]
    tuning: Option<PathBuf>,
    /// Percent of the program's processor time that trials may take which win nothing [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "no_tune", value_parser = clap::value_parser!(u8).range(1..=100))]
    tuning_percent: Option<u8>,
    /// Keep what report and timeline tell, for `uruk swap PID --report FILE` while the program runs.
    #[arg(long)]
    record: bool,
    /// Write perf-PID.map, from which `perf report` takes the names of functions.
    #[arg(long)]
    perf_map: bool,
    /// Compile hot functions in one way only, and never compare with native code.
    #[arg(long)]
    no_tune: bool,
    /// Say what is done when it is.
    #[arg(short, long)]
    verbose: bool,
    /// Processor time of the program, in milliseconds, before its bitcode is read [default: until
    /// reading it is a small part of the run, as `--overhead` says].
    #[arg(long, value_name = "MS")]
    after: Option<u64>,
    /// Percent of the program's processor time that compiling may take, beside what it gains; 0: no
    /// limit.
    #[arg(long, value_name = "N", default_value_t = OVERHEAD, value_parser = clap::value_parser!(u16).range(0..=1000))]
    overhead: u16,
    /// Threads that compile for first calls.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Do not allow `uruk swap` to attach.
    #[arg(long)]
    no_control: bool,
    /// Compile every function before the program starts; or do that, and take each back and publish
    /// it again, for ever; or that by guided code.
    #[arg(long, value_name = "HOW", value_enum, hide = true)]
    force: Option<ForceChoice>,
    /// The program, looked for as a shell does.
    #[arg(required = true)]
    program: PathBuf,
    /// Its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<OsString>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ForceChoice {
    All,
    Flip,
    Guided,
}

pub(super) fn main(live: &Live) -> i32 {
    let fail = |message: &str| {
        uruk_files::say!("uruk live: {message}");
        EXIT_FAILURE
    };
    let Some(program) = find(&live.program) else {
        // A name without a folder is looked up in `PATH`.
        let is_path = live.program.components().count() > 1;
        let why = match is_path && live.program.exists() {
            true => "not a regular file",
            false => "not found",
        };
        return fail(&format!("{}: {why}", live.program.display()));
    };
    if let Err(message) = check(&program) {
        return fail(&message);
    }
    let Some(library) = library() else {
        return fail(&format!(
            "{LIBRARY} is not beside this command\n  tip: $URUK_LIVE_LIBRARY names its place"
        ));
    };
    let files = match written_files(live, &program) {
        Ok(files) => files,
        Err(message) => return fail(&message),
    };
    let cause = start(live, &program, library, &settings(live, files));
    fail(&format!("{}: {cause}", program.display()))
}

/// Files that the session in the program writes.
struct WrittenFiles {
    report: Option<PathBuf>,
    trace: Option<PathBuf>,
    tuning: Option<PathBuf>,
}

/// The files to write, checked: none of them is a file that the program is made of.
fn written_files(live: &Live, program: &Path) -> Result<WrittenFiles, String> {
    // The program may change its working directory before it ends.
    let absolute = |file: &Option<PathBuf>| {
        let file = file.as_ref().map(std::path::absolute);
        file.transpose().map_err(|cause| cause.to_string())
    };
    let files = WrittenFiles {
        report: absolute(&live.report)?,
        trace: absolute(&live.trace)?,
        tuning: absolute(&live.tuning)?,
    };
    let written = files.report.iter().chain(&files.trace);
    let written: Vec<&PathBuf> = written.chain(&files.tuning).collect();
    if !written.is_empty() {
        let libraries = libraries(program);
        let mut inputs: Vec<&Path> = libraries.iter().map(PathBuf::as_path).collect();
        inputs.insert(0, program);
        super::outputs::check(written, &inputs)?;
    }
    Ok(files)
}

/// The settings of the session in the program.
fn settings(live: &Live, files: WrittenFiles) -> Settings {
    Settings {
        after: live.after.map(Duration::from_millis),
        overhead: live.overhead,
        force: match live.force {
            None => Force::No,
            Some(ForceChoice::All) => Force::All,
            Some(ForceChoice::Flip) => Force::Flip,
            Some(ForceChoice::Guided) => Force::Guided,
        },
        explain: live.explain,
        stats: live.stats.map(|choice| match choice {
            StatsChoice::Table => StatsFormat::Table,
            StatsChoice::Json => StatsFormat::Json,
        }),
        report: files.report,
        trace: files.trace,
        tuning: files.tuning,
        tuning_percent: live.tuning_percent,
        record: live.record,
        perf_map: live.perf_map,
        tune: !live.no_tune,
        verbose: live.verbose,
        control: !live.no_control,
        jobs: live.jobs,
    }
}

/// Runs the program in place of this process, with the library loaded first; returns the reason why
/// it cannot be run.
fn start(live: &Live, program: &Path, library: PathBuf, settings: &Settings) -> std::io::Error {
    let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let mut preload = library.into_os_string();
    if !before.is_empty() {
        preload.push(":");
        preload.push(&before);
    }
    let mut command = Command::new(program);
    if let Some(tunables) = with_ours(std::env::var_os(TUNABLES).as_deref()) {
        command.env(TUNABLES, tunables);
    }
    if ignores_closed_pipes() {
        // SAFETY: `signal` may be called anywhere.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                Ok(())
            });
        }
    }
    command
        .arg0(&live.program)
        .args(&live.args)
        .env(VARIABLE, settings.to_string())
        .env(PRELOADED_BEFORE, before)
        .env("LD_PRELOAD", preload)
        .exec()
}

/// Whether this process was started with `SIGPIPE` ignored, which the program must inherit. The standard
/// library, which ignores it in most programs, would reset it.
fn ignores_closed_pipes() -> bool {
    // SAFETY: all zeros are an action, which the kernel fills.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only, with a valid out pointer.
    let failed = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) } != 0;
    !failed && action.sa_sigaction == libc::SIG_IGN
}

/// Whether a file is a native program for the dynamic loader, which does not need `uruk run`.
pub(super) fn is_native(program: &Path) -> bool {
    find(program).is_some_and(|file| is_dynamic(&file))
}

/// The file that a shell would run.
fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let paths = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&paths).map(|folder| folder.join(program));
    files.find(|file| {
        let permissions = file.metadata().map(|data| data.permissions().mode());
        file.is_file() && permissions.is_ok_and(|mode| mode & 0o111 != 0)
    })
}

/// Checks that the library can be used in the program.
fn check(program: &Path) -> Result<(), String> {
    let shown = program.display();
    let unreadable = |cause: std::io::Error| format!("{shown}: {cause}");
    let mode = program.metadata().map_err(unreadable)?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Err(format!(
            "{shown}: runs with rights of its own (setuid): nothing may be loaded into it"
        ));
    }
    if has_capabilities(program) {
        return Err(format!(
            "{shown}: runs with rights of its own (file capabilities): nothing may be loaded into it"
        ));
    }
    let is_dynamic = is_dynamic(program);
    match examine(program) {
        Ok(()) if !is_dynamic => Err(format!(
            "{shown}: is linked statically: no library can be loaded into it"
        )),
        Err(ImageError::NotElf { .. }) if is_script(program) => Err(format!(
            "{shown}: is a script; its interpreter would be the program"
        )),
        Err(cause @ (ImageError::Unreadable { .. } | ImageError::NotElf { .. })) => {
            Err(cause.to_string())
        }
        Err(_) if is_dynamic && libraries(program).iter().any(|file| is_of_use(file)) => Ok(()),
        Err(cause) => Err(cause.to_string()),
        Ok(()) => Ok(()),
    }
}

/// Whether a library's functions can be compiled again.
fn is_of_use(library: &Path) -> bool {
    carries_bitcode(library) && examine(library).is_ok()
}

/// The shared libraries that a program with a dynamic loader begins with, as the loader lists them; none
/// if the loader cannot be asked.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let mut command = Command::new(program);
    // The loader prints the libraries, instead of starting the program.
    command.env("LD_TRACE_LOADED_OBJECTS", "1");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(output) = command.output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    // `name => file (address)`, or `file (address)`.
    let files = text.lines().filter_map(|line| {
        let line = line.split(" => ").last()?.trim();
        Some(PathBuf::from(
            line.rsplit_once(" (").map_or(line, |it| it.0),
        ))
    });
    files.filter(|file| file.is_file()).collect()
}

fn is_script(file: &Path) -> bool {
    let mut begin = [0; 2];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == *b"#!"
}

/// The library: the file that the environment names, or beside this command, or in the folder for
/// libraries beside that.
fn library() -> Option<PathBuf> {
    if let Some(own) = std::env::var_os("URUK_LIVE_LIBRARY") {
        return Some(PathBuf::from(own));
    }
    let command = std::env::current_exe().ok()?;
    let folder = command.parent()?;
    let places = [
        folder.join(LIBRARY),
        folder.join("../lib").join(LIBRARY),
        folder.join("../lib/uruk").join(LIBRARY),
    ];
    places.into_iter().find(|file| file.is_file())
}
