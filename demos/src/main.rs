//! The demo behind `cargo xtask demo`: compiles Lua and a Rust program to bitcode,
//! runs them lazily under `uruk`, natively and under LLVM's `lli`, and shows what
//! was compiled, what was never needed, and how long everything took.
//!
//! Wall times are those of whole processes, the best of a few runs; what uruk says
//! of itself is read from the JSON that `--stats=json` prints as its last line on
//! standard error.
//!
//! `cargo xtask demo live` is another one: a native server under `uruk live` ([`live`]), and
//! `cargo xtask demo live-soak` exchanges functions of running programs for an hour ([`soak`]).

mod live;
mod measure;
mod soak;
mod table;

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, thread};

use anyhow::{Context, bail};
use clap::Parser;
use uruk_guests::{Built, Cache, Flavor, Guest, Toolchain, execute};

use crate::measure::{Peer, Row};

#[derive(Parser)]
#[command(about = "Runs Lua and a Rust program lazily, beside their peers")]
struct Arguments {
    /// The uruk command; `URUK_BIN`, or the one beside this program, if absent.
    #[arg(long, global = true)]
    uruk: Option<PathBuf>,
    #[command(subcommand)]
    other: Option<Other>,
    /// The flavor of the bitcode: LEVEL[+g][+pic|+nopic].
    #[arg(long, default_value = "O2")]
    level: Flavor,
    /// How often each program runs; the best time is shown.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
}

/// The demos that are shown instead.
#[derive(clap::Subcommand)]
enum Other {
    /// A native server under load gets faster, then gets a fix, then has it taken back
    Live(live::Arguments),
    /// A server and SQLite are exchanged thousands of times while they work, and checked
    LiveSoak(soak::Arguments),
}

/// The programs that the demo runs.
const PROGRAMS: [(Guest, &[&str]); 2] = [
    (Guest::Lua, &["hello", "strings", "fib", "binary-trees"]),
    (Guest::Rust, &["hello", "collections", "threads", "unwind"]),
];

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let uruk = find_uruk(arguments.uruk)?;
    execute::forbid_core_files();
    match &arguments.other {
        Some(Other::Live(arguments)) => return live::run(&uruk, arguments),
        Some(Other::LiveSoak(arguments)) => return soak::run(&uruk, arguments),
        None => {}
    }
    let tools = Toolchain::find()?;
    let cache = Cache::in_target();
    let mut rows = Vec::new();
    for (guest, names) in PROGRAMS {
        let built = build(guest, &tools, &cache, arguments.level)?;
        for name in names {
            let run = guest.run_named(name)?;
            let peers = peers(&uruk, &tools, &built);
            let scratch = cache.directory().join("demo");
            let row = Row::measure(guest, &run, &peers, arguments.repeat, &scratch, &stage)?;
            clear();
            println!("{} {}:", guest, run.name);
            for line in row.output.lines() {
                println!("  | {line}");
            }
            if let Some(problem) = &row.problem {
                println!("  ! {problem}");
            }
            rows.push(row);
        }
    }
    println!(
        "\nBitcode at {}; whole processes, best of {} runs, milliseconds.\n",
        arguments.level, arguments.repeat
    );
    print!("{}", table::render(&rows));
    println!("\n{}", table::explain(&rows));
    match rows.iter().find(|row| row.problem.is_some()) {
        Some(row) => bail!(
            "{} {} did not do what the native program did",
            row.guest,
            row.run
        ),
        None => Ok(()),
    }
}

/// The command under demonstration.
fn find_uruk(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given.or_else(|| env::var_os("URUK_BIN").map(PathBuf::from)) {
        return Ok(path);
    }
    let here = env::current_exe().context("cannot find this program's own directory")?;
    let beside = here.with_file_name("uruk");
    if !beside.is_file() {
        bail!(
            "{} is not there; `cargo xtask demo` builds it",
            beside.display()
        );
    }
    Ok(beside)
}

fn build(guest: Guest, tools: &Toolchain, cache: &Cache, flavor: Flavor) -> anyhow::Result<Built> {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    stage(&format!("compiling {guest} to bitcode at {flavor}"));
    let built = guest.build(tools, cache, flavor, jobs, &|done, all| {
        progress(&format!(
            "compiling {guest} to bitcode at {flavor}: {done} of {all} files"
        ));
    });
    clear();
    let built = built?;
    let size = built.bitcode.metadata().map_or(0, |data| data.len());
    println!("{guest}: {} KiB of bitcode", size / 1024);
    Ok(built)
}

/// The ways to run the program: uruk first, then those it is compared with.
fn peers(uruk: &Path, tools: &Toolchain, built: &Built) -> Vec<Peer> {
    let bitcode = built.bitcode.as_os_str().to_owned();
    let mut peers = vec![
        Peer::uruk(uruk, &bitcode),
        Peer::tier_1(uruk, &bitcode),
        Peer::other("native", &built.native, Vec::new()),
    ];
    if let Some(lli) = &tools.lli {
        peers.push(Peer::other("lli", lli, vec![bitcode.clone()]));
        let words = vec!["--jit-kind=mcjit".into(), "-O0".into(), bitcode];
        peers.push(Peer::other("lli mcjit -O0", lli, words));
    }
    peers
}

/// Shows the current work on a terminal: a line that the next one overwrites.
fn progress(line: &str) {
    if stderr().is_terminal() {
        // A failure to write progress is no reason to stop.
        let _ = write!(stderr(), "\r\x1b[K{line}");
    }
}

/// Announces the next stage, also where the output goes to a file.
fn stage(line: &str) {
    if stderr().is_terminal() {
        progress(line);
    } else {
        eprintln!("{line}");
    }
}

fn clear() {
    progress("");
}
