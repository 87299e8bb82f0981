//! Command line of `uruk`: parsing, and the subcommands.

mod cc;
mod compare;
mod coverage;
mod launcher;
mod libraries;
mod live;
mod log;
mod mangled;
mod missing;
mod outputs;
mod run;
mod settings;
mod swap;
mod thread_locals;
mod tune;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use uruk::{CodegenError, EXIT_FAILURE, Error, Freed, Program, SamplingChoice, Tier, Tiers};

use crate::stack;

/// A lazy JIT runtime with hot patching for LLVM IR.
#[derive(Parser)]
#[command(name = "uruk", version, disable_version_flag = true)]
struct Cli {
    /// Print the versions of uruk and of LLVM.
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program that was compiled to LLVM bitcode, LLVM IR or ELF objects.
    Run(Box<Run>),
    /// Run a program at each tier, tiered, and compiled by clang, and compare the times.
    Compare(compare::Compare),
    /// Compile and link C as clang does, for programs that `uruk live` can compile again.
    Cc(cc::Driver),
    /// As `uruk cc`, for C++.
    #[command(name = "c++")]
    Cxx(cc::Driver),
    /// Run a native program that `uruk cc` built; what is hot is compiled again while it runs.
    Live(live::Live),
    /// Run a program again and again, and write down how its functions are best compiled.
    Tune(tune::Tune),
    /// Exchange functions of a program that runs under `uruk live`.
    Swap(swap::Swap),
    /// Measure the coverage of the baseline compiler, which compiles at tier 1 without LLVM.
    Baseline(coverage::Coverage),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page: of the command, or of a subcommand.
    Man {
        /// The subcommand.
        of: Option<String>,
    },
}

#[derive(clap::Args)]
#[command(
    // Of an option given twice the later counts, so that a script's can be overruled.
    args_override_self = true,
    after_help = "Exit status: the program's own; 125 if it could not be loaded, \
compiled or linked; 2 for a wrong command line. A fatal signal ends uruk by the same signal."
)]
struct Run {
    /// Compile each function when it is first called (default).
    #[arg(long, conflicts_with = "eager")]
    lazy: bool,
    /// Compile everything before the program starts.
    #[arg(long)]
    eager: bool,
    /// Threads that compile for first calls, at most; default: the number of CPUs. As many
    /// again, but for half of the CPUs at most, compile better versions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Compile nothing before it is called. By default, processors without work compile what
    /// is likely to be called next while the program starts.
    #[arg(long)]
    no_speculate: bool,
    /// Keep the order of first calls in a file at the end, and compile ahead in the order that
    /// is there at the beginning.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_speculate", "eager"])]
    first_calls: Option<PathBuf>,
    /// Compile hot functions in several ways, and keep the fastest.
    #[arg(long)]
    tune: bool,
    /// As `--tune`, from what a file says that an earlier run learned; at the end it is written
    /// anew.
    #[arg(long, value_name = "FILE")]
    tuning: Option<PathBuf>,
    /// Percent of the program's processor time that trials may take which win nothing [default: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    tuning_percent: Option<u8>,
    /// How functions are compiled at tiers 2 and 3: words such as `inline=none`, `vectors=256`,
    /// `no-unroll`, `no-slp`, `thorough`.
    #[arg(long, value_name = "WORDS", value_parser = clap::value_parser!(uruk::Variant), default_value = "plain", hide_default_value = true)]
    variant: uruk::Variant,
    /// The files may have been damaged, or made to do harm to LLVM: a process apart reads
    /// them first, and what it crashes or hangs on is refused. What the program does when it
    /// runs is not looked at.
    #[arg(long)]
    untrusted: bool,
    /// The function to start at.
    #[arg(long, value_name = "NAME", default_value = "main")]
    entry: String,
    /// The program's name (`argv[0]`), instead of its first file.
    #[arg(long, value_name = "NAME")]
    argv0: Option<OsString>,
    /// Write an executable file that runs the program with these options, and start it: for
    /// programs that start themselves again by their name or by /proc/self/exe. Its arguments are
    /// the program's.
    #[arg(long, value_name = "FILE", conflicts_with = "untrusted")]
    launcher: Option<PathBuf>,
    /// Print a table about the run, and where its time went, on standard error when the program
    /// ends.
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    stats: Option<StatsChoice>,
    /// Write a timeline of compiles, publications and samples to a file, in Chrome's
    /// trace format (Perfetto opens it).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page about the run to a file: time to peak, tiers, hottest functions.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write what the tiering policy is told to a file, which `cargo run -p uruk-tiering
    /// --example simulate -- FILE` replays under other settings.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// How functions are compiled: `auto` begins at tier 1 and moves what is hot to
    /// tiers 2 and 3; a number compiles every function at that tier when it is first
    /// called.
    #[arg(long, value_name = "TIERS", value_enum, default_value_t = TiersChoice::Auto)]
    tiers: TiersChoice,
    /// Whether the baseline compiler compiles at tier 1 what it covers; for tests, a number seeds a
    /// half of the functions.
    #[arg(long, value_name = "off|on", value_parser = settings::baseline, default_value = "on")]
    baseline: uruk::Baseline,
    /// Tier 1, unless another is asked for, and every loop is left for a continuation after so
    /// many passes; a number above 50 seeds one from 1 to 50 for each.
    #[arg(long, hide = true, value_name = "PASSES")]
    osr_loops: Option<u32>,
    /// Let a multiplication and an addition be fused at tiers 2 and 3, which changes
    /// floating-point results.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ContractChoice::Off)]
    fp_contract: ContractChoice,
    /// Inline no function of one file into another.
    #[arg(long)]
    modules_apart: bool,
    /// Where samples come from that rank functions, with `--tiers auto`; `auto` takes the first that works, `perf`
    /// cycles where there are any, else the software clock.
    #[arg(long, value_name = "SOURCE", value_enum, default_value_t = SamplingSource::Auto)]
    sampling: SamplingSource,
    /// Write perf-PID.map, from which `perf report` takes the names of functions.
    #[arg(long)]
    perf_map: bool,
    /// Write jit-PID.dump into a folder, for `perf record -k 1` and `perf inject --jit`.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = ".")]
    jitdump: Option<PathBuf>,
    /// Register compiled functions with debuggers.
    #[arg(long)]
    gdb: bool,
    /// A setting of the tiering policy or of reclaim, as `--print-config` shows them.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Treatment of freed code: used again, filled with traps, or closed.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = FreedChoice::Reuse, hide = true)]
    freed: FreedChoice,
    /// Bytes of code that functions may have, as `64M`: beyond, the code that was not called for
    /// longest goes, and is compiled again by its next call.
    #[arg(long, value_name = "SIZE", value_parser = settings::size)]
    code_budget: Option<u64>,
    /// Have code count its passes at entries and loops, as sessions do whose calls have fuel: to
    /// see what that costs.
    #[arg(long)]
    count_fuel: bool,
    /// Print all settings with their meaning, and end.
    #[arg(long)]
    print_config: bool,
    /// Print the disassembly of a function on standard error once it is compiled.
    #[arg(long, value_name = "NAME")]
    dump_asm: Vec<String>,
    /// Replace functions of the running program by those of a bitcode, IR or object file whenever
    /// the file changes, and say so on standard error. May be given several times.
    #[arg(long, value_name = "FILE", conflicts_with = "eager")]
    watch: Vec<PathBuf>,
    /// Place the program below 2 GiB, as code of the small non-PIC model needs. Done by itself
    /// for object files that show it; bitcode with such inline assembly does not.
    #[arg(long)]
    low_addresses: bool,
    /// A library the program needs besides those of C, C++ and Rust: a name as a linker takes it
    /// (`z`), a path, or a name as the dynamic loader takes it (`libz.so.1`). May be given several
    /// times.
    #[arg(short, long, value_name = "NAME")]
    library: Vec<String>,
    /// A folder to look for libraries in, before those of the system.
    #[arg(short = 'L', long = "library-path", value_name = "FOLDER")]
    library_path: Vec<PathBuf>,
    /// Have a name count as mentioned, so that an archive gives the member that defines it, as a
    /// linker's -u does. May be given several times.
    #[arg(short, long, value_name = "NAME")]
    undefined: Vec<String>,
    /// Leave shared libraries the functions they would call without the program, where it
    /// defines some of the same names.
    #[arg(long)]
    no_preempt: bool,
    /// Log what happens on standard error; twice for more.
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Bitcode (.bc), IR text (.ll) and object files (.o), archives of them (.a), of which the
    /// program gets what it needs, and shared libraries (.so); together one program.
    #[arg(required_unless_present = "print_config", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Arguments of the program.
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TiersChoice {
    Auto,
    #[value(name = "1")]
    Baseline,
    #[value(name = "2")]
    Optimized,
    #[value(name = "3")]
    Guided,
    #[value(hide = true)]
    Churn,
}

impl From<TiersChoice> for Tiers {
    fn from(choice: TiersChoice) -> Tiers {
        match choice {
            TiersChoice::Auto => Tiers::Auto,
            TiersChoice::Baseline => Tiers::Fixed(Tier::Baseline),
            TiersChoice::Optimized => Tiers::Fixed(Tier::Optimized),
            TiersChoice::Guided => Tiers::Fixed(Tier::Guided),
            TiersChoice::Churn => Tiers::Churn,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum SamplingSource {
    Auto,
    Perf,
    CpuClock,
    Timers,
    Off,
}

impl From<SamplingSource> for SamplingChoice {
    fn from(source: SamplingSource) -> SamplingChoice {
        match source {
            SamplingSource::Auto => SamplingChoice::Auto,
            SamplingSource::Perf => SamplingChoice::Perf,
            SamplingSource::CpuClock => SamplingChoice::CpuClock,
            SamplingSource::Timers => SamplingChoice::Timers,
            SamplingSource::Off => SamplingChoice::Off,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum FreedChoice {
    Reuse,
    Poison,
    Protect,
}

/// Freed code that [`FreedChoice::Protect`] keeps closed, in bytes.
const QUARANTINE: usize = 64 << 20;

impl From<FreedChoice> for Freed {
    fn from(choice: FreedChoice) -> Freed {
        match choice {
            FreedChoice::Reuse => Freed::Reuse,
            FreedChoice::Poison => Freed::Poison,
            FreedChoice::Protect => Freed::Protect {
                quarantine: QUARANTINE,
            },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ContractChoice {
    Off,
    Fast,
}

#[derive(Clone, Copy, ValueEnum)]
enum StatsChoice {
    Table,
    Json,
}

impl Run {
    /// The shared libraries of the program, and its other files.
    fn libraries(&self) -> (Vec<String>, Vec<PathBuf>) {
        let (libraries, mut files): (Vec<PathBuf>, _) = self
            .files
            .iter()
            .cloned()
            .partition(|file| libraries::is_shared(file));
        let paths = libraries.iter();
        let mut shared: Vec<String> = paths
            .map(|file| match file.is_relative() {
                // The dynamic loader searches for a name without a slash.
                true => format!("./{}", file.display()),
                false => file.display().to_string(),
            })
            .collect();
        for name in &self.library {
            for library in libraries::find(name, &self.library_path) {
                match library {
                    libraries::Library::Shared(name) => shared.push(name),
                    libraries::Library::Archive(file) => files.push(file),
                }
            }
        }
        (shared, files)
    }
}

/// Exit status of a wrong command line.
const USAGE: i32 = 2;

/// Parses the command line and runs it; the exit status.
pub fn main() -> i32 {
    match stack::roomy(begin) {
        Begun::Done(status) => status,
        // SAFETY: running the program is what the caller of the command asked for;
        // it may do whatever a native one may.
        Begun::Loaded(program, args) => unsafe { program.run(&args) },
    }
}

/// The result of the command line's first part.
enum Begun {
    Done(i32),
    /// A program, which is to have the main thread's own stack, and its arguments.
    Loaded(Box<Program>, Vec<OsString>),
}

fn begin() -> Begun {
    let cli = match Cli::try_parse_from(launcher::arguments()) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed standard stream does not change the exit status.
            match error.use_stderr() {
                // The message quotes arguments.
                true => uruk_files::Messages.text(&error.render().to_string()),
                false => drop(error.print()),
            }
            let is_command = error.kind() == clap::error::ErrorKind::InvalidSubcommand;
            if is_command && let Some(word) = std::env::args().nth(1) {
                uruk_files::say!("  tip: to run a program: `uruk run {word}`");
            }
            return Begun::Done(error.exit_code());
        }
    };
    if cli.version {
        println!(
            "uruk {} (LLVM {})",
            env!("CARGO_PKG_VERSION"),
            uruk::llvm_version()
        );
        return Begun::Done(0);
    }
    Begun::Done(match cli.command {
        Some(Command::Run(run)) => return run::load_program(*run),
        Some(Command::Compare(compare)) => compare::main(&compare),
        Some(Command::Cc(driver)) => cc::main(&driver, cc::Language::C),
        Some(Command::Cxx(driver)) => cc::main(&driver, cc::Language::Cxx),
        Some(Command::Live(live)) => live::main(&live),
        Some(Command::Tune(tune)) => tune::main(&tune),
        Some(Command::Swap(swap)) => swap::main(&swap),
        Some(Command::Baseline(asked)) => coverage::main(&asked),
        Some(Command::Completions { shell }) => {
            clap_complete::generate(shell, &mut Cli::command(), "uruk", &mut std::io::stdout());
            0
        }
        Some(Command::Man { of }) => print_manual(of.as_deref()),
        None => {
            let _ = Cli::command().print_help();
            USAGE
        }
    })
}

fn print_manual(of: Option<&str>) -> i32 {
    let mut command = Cli::command();
    // Gives each subcommand its whole name, `uruk run`.
    command.build();
    let asked = match of {
        None => Some(&command),
        Some(name) => command.find_subcommand(name),
    };
    let Some(asked) = asked else {
        let names = command.get_subcommands().map(clap::Command::get_name);
        let names: Vec<&str> = names.filter(|name| *name != "help").collect();
        let name = of.unwrap_or_default();
        uruk_files::say!(
            "uruk: no subcommand `{name}`; there are {}",
            names.join(", ")
        );
        return USAGE;
    };
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(asked.clone()).render(&mut text);
    match rendered.and_then(|()| std::io::Write::write_all(&mut std::io::stdout(), &text)) {
        Ok(()) => 0,
        Err(error) => fail(&error),
    }
}

/// A hint about the likely mistake that led to an error.
fn tip(error: &Error, files: &[PathBuf]) -> Option<&'static str> {
    match error {
        Error::File { file, .. } if files.first().is_some_and(|first| first != Path::new(file)) => {
            Some("arguments of the program come after `--`")
        }
        Error::Codegen(CodegenError::Syntax { module, .. }) if !module.ends_with(".ll") => Some(
            "neither bitcode nor an ELF object, so it was read as IR text; bitcode is made by `clang -c -emit-llvm`",
        ),
        Error::MissingSymbols { missing } => Some(missing::tip(missing)),
        _ if error.wants_static_data().is_some() => Some(
            "variables in sections of their own, those that objects define, and all that do not begin as zeros have 1.9 GB at most; what is larger can be allocated",
        ),
        Error::ExecutableStacks { .. } => {
            Some("glibc from 2.41 on allows it where GLIBC_TUNABLES has glibc.rtld.execstack=2")
        }
        Error::NoEntry { .. } => Some("`--entry NAME` starts at another function"),
        _ => None,
    }
}

/// Like [`fail`], for a program: mangled names are shown demangled.
fn fail_of_program(error: &Error) -> i32 {
    if let Error::MissingSymbols { missing } = error
        && let Some(list) = missing::list(missing)
    {
        uruk_files::say!("uruk: {list}");
        return EXIT_FAILURE;
    }
    fail(error)
}

fn fail(error: &dyn std::error::Error) -> i32 {
    uruk_files::say!("uruk: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        uruk_files::say!("  caused by: {cause}");
        source = cause.source();
    }
    EXIT_FAILURE
}
