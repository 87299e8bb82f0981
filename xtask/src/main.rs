//! The project's own commands: `cargo xtask demo | test | bench | abi | csmith | operations |
//! programs | stress | lint | house | model | mutate | sanitize | setup | package | install`.
//!
//! Each makes sure that LLVM 22 is there, installs it where that is the custom of
//! the system, and calls cargo with the environment that finds it. This package
//! itself needs neither LLVM nor any other package of the workspace.

mod cargo;
mod install;
mod layout;
mod llvm;
mod model;
mod mutate;
mod mutations;
mod packages;
mod programs;
mod sanitize;
mod system;
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cargo::Cargo;
use crate::install::Purpose;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "Uruk's own commands")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run Lua and a Rust program lazily, beside their peers; `demo live`: a native server that gets
    /// faster, gets a fix, and loses it.
    Demo {
        /// Passed on to the demo (`--help` shows what it takes).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run every test, in processes as `xtask/src/tests` says.
    Test {
        /// Run each case in each flavor and mode, instead of in pairs of them that meet once, and the
        /// tests of the benches.
        #[arg(long)]
        full: bool,
        /// Run everything ten times, and list the tests that failed in some runs.
        #[arg(long)]
        flaky_report: bool,
        /// Run a test process that failed once more, alone: if it passes then, it is listed as
        /// wavering, and does not fail the run.
        #[arg(long)]
        again: bool,
        /// Packages and targets as for `cargo build`; after `--`, arguments of the test binaries.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure, beside the peers.
    Bench {
        /// Passed on to the benchmarks (`--only NAME`, ...).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Compare how both compilers pass arguments and results, of random signatures.
    Abi {
        /// How many seeds.
        #[arg(long, default_value_t = 20_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
    },
    /// Compare random programs with their native runs.
    Csmith {
        /// How many seeds.
        #[arg(long, default_value_t = 2000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
    },
    /// Compare random functions of all operations of IR between the compilers and `clang -O0`.
    Operations {
        /// How many seeds; each is a function.
        #[arg(long, default_value_t = 2000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
    },
    /// Repeat the cases whose faults show in some runs only; with `--library`, call functions of a
    /// session while others change them.
    Stress {
        /// Eight threads call, and four change what they call.
        #[arg(long, conflicts_with_all = ["minutes", "names"])]
        library: bool,
        /// Seconds that the stress of the library takes.
        #[arg(long, default_value_t = 7200, requires = "library")]
        seconds: u64,
        /// The seed of the stress of the library, which decides what its threads do.
        #[arg(long, default_value_t = 1, requires = "library")]
        seed: u64,
        /// For how long.
        #[arg(long, default_value_t = 60.0)]
        minutes: f64,
        /// Parts of case names or of hazards; all cases with a hazard otherwise.
        names: Vec<String>,
    },
    /// Build whole programs from Debian's sources, and run their own tests: natively, under
    /// `uruk run`, with `--tune`, and under `uruk live`.
    Programs {
        /// Only these; all otherwise.
        names: Vec<String>,
    },
    /// Check formatting and run clippy, where the toolchain has them.
    Lint,
    /// Print the counts of structure and language that may only fall.
    House {
        /// Write them where they have fallen.
        #[arg(long)]
        lower: bool,
    },
    /// Run the models of the lock-free parts under loom.
    Model,
    /// Take one ordering or check at a time out of the lock-free parts, and see that a model
    /// fails.
    Mutate {
        /// Only mutations whose names, files or packages contain one of these.
        #[arg(long)]
        only: Vec<String>,
        /// Where the model that should fail passes, run all others of its package.
        #[arg(long)]
        search: bool,
        /// Bring back faults that were fixed instead, and see that their ordinary tests fail.
        #[arg(long)]
        fixes: bool,
    },
    /// Run the tests that can run under AddressSanitizer.
    Sanitize {
        /// Passed on to `cargo test`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Only make sure that everything the tests need is installed.
    Setup,
    /// Package what embedders need, in dependency order, as for a registry.
    Package {
        /// Build each from its package, too.
        #[arg(long)]
        verify: bool,
    },
    /// Build in release mode and install: command, libraries, headers, `pkg-config`'s file.
    Install {
        /// Where to: `bin`, `lib`, `include` and `share` are made there.
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
        /// Only the libraries with their headers.
        #[arg(long)]
        libraries: bool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    let purpose = match task {
        Task::Demo { .. } => Purpose::Run,
        Task::Test { .. }
        | Task::Abi { .. }
        | Task::Csmith { .. }
        | Task::Operations { .. }
        | Task::Programs { .. }
        | Task::Stress { .. }
        | Task::Setup => Purpose::Test,
        Task::Bench { .. }
        | Task::House { .. }
        | Task::Lint
        | Task::Model
        | Task::Mutate { .. }
        | Task::Sanitize { .. }
        | Task::Install { .. }
        | Task::Package { .. } => Purpose::Run,
    };
    let cargo = Cargo::new(install::ensure(purpose)?)?;
    match task {
        Task::Demo { args } => demo(&cargo, &args),
        Task::Test {
            full,
            flaky_report,
            again,
            args,
        } => test(&cargo, [full, flaky_report, again], &args),
        Task::Bench { args } => bench(&cargo, &args),
        Task::Abi { seeds, first } => abi(&cargo, seeds, first),
        Task::Csmith { seeds, first } => csmith(&cargo, seeds, first),
        Task::Operations { seeds, first } => operations(&cargo, seeds, first),
        Task::Stress {
            library: true,
            seconds,
            seed,
            ..
        } => stress_library(&cargo, seconds, seed),
        Task::Stress { minutes, names, .. } => stress(&cargo, minutes, &names),
        Task::Programs { names } => programs::run(&cargo, &names),
        Task::Lint => lint(&cargo),
        Task::House { lower } => house(&cargo, lower),
        Task::Model => model::run(&cargo),
        Task::Mutate {
            only, fixes: true, ..
        } => mutate::fixes::run(&cargo, &only),
        Task::Mutate { only, search, .. } => mutate::run(&cargo, &only, search),
        Task::Sanitize { args } => sanitize::run(&cargo, &args),
        Task::Setup => Ok(()),
        Task::Package { verify } => package(&cargo, verify),
        Task::Install { prefix, libraries } => install_into(&cargo, &prefix, libraries),
    }
}

/// All in one call: cargo takes each package's dependencies from those that it has packaged before.
fn package(cargo: &Cargo, verify: bool) -> anyhow::Result<()> {
    let mut words = vec!["--allow-dirty"];
    words.extend((!verify).then_some("--no-verify"));
    for (_, name) in packages::PACKAGES {
        words.extend(["-p", name]);
    }
    cargo.run("package", &words)
}

fn install_into(cargo: &Cargo, prefix: &Path, libraries: bool) -> anyhow::Result<()> {
    let mut words = vec!["--release", "-p", "uruk-c"];
    if !libraries {
        words.extend(["-p", "uruk-command", "-p", "uruk-preload"]);
        words.extend(["-p", "uruk-locals"]);
    }
    cargo.run("build", &words)?;
    let shared = cargo.built("release", "liburuk_c.so");
    let folder = shared.parent().unwrap_or(&shared);
    let built = layout::Built {
        llvm: layout::Built::llvm_of(&shared, folder),
        shared: shared.clone(),
        archive: cargo.built("release", "liburuk_c.a"),
        command: (!libraries).then(|| layout::Command {
            program: cargo.built("release", "uruk"),
            preload: cargo.built("release", "liburuk_preload.so"),
            plugin: cargo.built("release", "liburuk_locals.so"),
        }),
    };
    let version = env!("CARGO_PKG_VERSION");
    for file in layout::install(cargo.root(), &built, prefix, version)? {
        println!("{}", file.display());
    }
    Ok(())
}

fn demo(cargo: &Cargo, args: &[String]) -> anyhow::Result<()> {
    cargo.run(
        "build",
        &[
            "--release",
            "-p",
            "uruk-command",
            "-p",
            "uruk-preload",
            "-p",
            "uruk-locals",
            "-p",
            "uruk-demos",
        ],
    )?;
    cargo.run_built("release", "uruk-demos", args)
}

/// One build for everything, then the tests, which find the command under test
/// by `URUK_BIN` instead of building it once more.
fn test(
    cargo: &Cargo,
    [full, flaky_report, again]: [bool; 3],
    args: &[String],
) -> anyhow::Result<()> {
    let built = cargo.built("debug", "uruk");
    let mut cargo = cargo.with_env("URUK_BIN", built);
    let mut packages = vec!["--workspace"];
    match full {
        true => cargo = cargo.with_env("URUK_TEST_FULL", "1"),
        // The benches take a tenth of the build, and no test of the product needs them.
        false => packages.extend(["--exclude", "uruk-benches"]),
    }
    let mut halves = args.splitn(2, |arg| arg == "--");
    let words = halves.next().unwrap_or_default();
    let arguments = halves.next().unwrap_or_default();
    let starts = |starts: &[&str]| {
        let any = |arg: &String| starts.iter().any(|start| arg.starts_with(start));
        words.iter().any(any)
    };
    // Examples are left out: clippy checks them, and tests include those that they run.
    let products = ["--lib", "--bins"];
    let mut targets = Vec::new();
    let named = starts(&["--lib", "--bin", "--test", "--example", "--bench"]);
    if !named {
        targets.push("--tests");
    }
    // A package named on the command line replaces the whole workspace, of which its tests may need
    // the programs.
    if starts(&["-p", "--package"]) || named {
        cargo.run("build", &[&packages[..], &products].concat())?;
    } else {
        targets.extend(products);
    }
    if starts(&["-p", "--package"]) {
        packages.clear();
    }
    let given = words.iter().map(String::as_str);
    match named {
        true => targets.extend(given),
        false => packages.extend(given),
    }
    let owned = |words: Vec<&str>| words.into_iter().map(String::from).collect();
    let selection = tests::Selection {
        tests_only: false,
        documents: !named,
        unlimited: full,
        arguments: arguments.to_vec(),
        packages: owned(packages),
        targets: owned(targets),
    };
    match flaky_report {
        true => tests::report_flaky(&cargo, &selection),
        false => tests::run(&cargo, &[selection], again),
    }
}

fn bench(cargo: &Cargo, args: &[String]) -> anyhow::Result<()> {
    cargo.run(
        "build",
        &[
            "--release",
            "-p",
            "uruk-command",
            "-p",
            "uruk-benches",
            "--features",
            "uruk-benches/cranelift",
        ],
    )?;
    let built = cargo.built("release", "uruk");
    let cargo = cargo.with_env("URUK_BIN", built);
    cargo.run_built("release", "uruk-benches", args)
}

fn abi(cargo: &Cargo, seeds: u64, first: u64) -> anyhow::Result<()> {
    let cargo = cargo
        .with_env("URUK_ABI_SEEDS", seeds.to_string())
        .with_env("URUK_ABI_FIRST", first.to_string());
    let words = ["-p", "uruk", "--test", "generated", "--", "abi::"];
    cargo.run("test", &[&words[..], &["--nocapture"]].concat())
}

fn csmith(cargo: &Cargo, seeds: u64, first: u64) -> anyhow::Result<()> {
    cargo.run("build", &["--release", "-p", "uruk-command"])?;
    let cargo = cargo
        .with_env("URUK_BIN", cargo.built("release", "uruk"))
        .with_env("URUK_CSMITH_SEEDS", seeds.to_string())
        .with_env("URUK_CSMITH_FIRST", first.to_string());
    // The gate may still be closed for the ordinary tests.
    let words = [
        "-p",
        "uruk-e2e",
        "--test",
        "random_programs",
        "--",
        "--include-ignored",
    ];
    cargo.run("test", &words)
}

fn operations(cargo: &Cargo, seeds: u64, first: u64) -> anyhow::Result<()> {
    let cargo = cargo
        .with_env("URUK_OPERATIONS_SEEDS", seeds.to_string())
        .with_env("URUK_OPERATIONS_FIRST", first.to_string());
    // Its figures are printed by the test.
    let words = ["-p", "uruk", "--test", "generated", "--", "operations::"];
    cargo.run("test", &[&words[..], &["--nocapture"]].concat())
}

fn stress(cargo: &Cargo, minutes: f64, names: &[String]) -> anyhow::Result<()> {
    cargo.run(
        "build",
        &["--release", "-p", "uruk-command", "-p", "uruk-e2e"],
    )?;
    let cargo = cargo
        .with_env("URUK_BIN", cargo.built("release", "uruk"))
        .with_env("URUK_STRESS_MINUTES", minutes.to_string());
    cargo.run_built("release", "uruk-stress", names)
}

/// Without `--release`: the checks of arithmetic and our own assertions are part of it.
fn stress_library(cargo: &Cargo, seconds: u64, seed: u64) -> anyhow::Result<()> {
    let (seconds, seed) = (seconds.to_string(), seed.to_string());
    let example = ["-p", "uruk", "--example", "stress_library", "--"];
    let words = [&example[..], &["--seconds", &seconds, "--seed", &seed]].concat();
    cargo.run("run", &words)
}

/// Prints the counts of structure and language, and lowers the list of those that are allowed.
fn house(cargo: &Cargo, lower: bool) -> anyhow::Result<()> {
    let cargo = cargo.with_env("URUK_HOUSE", if lower { "lower" } else { "print" });
    let words = ["-q", "-p", "xtask", "--test", "house", "--", "table"];
    cargo.run(
        "test",
        &[&words[..], &["--ignored", "--nocapture"]].concat(),
    )
}

fn lint(cargo: &Cargo) -> anyhow::Result<()> {
    if cargo.has("fmt") {
        cargo.run("fmt", &["--all", "--check"])?;
    } else {
        eprintln!("rustfmt is not installed: formatting is not checked");
    }
    if cargo.has("clippy") {
        let words = ["--workspace", "--all-targets", "--", "-D", "warnings"];
        cargo.run("clippy", &words)?;
    } else {
        eprintln!("clippy is not installed: lints are not checked");
    }
    Ok(())
}
