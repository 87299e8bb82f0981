//! `uruk-guests list | build [GUEST...] [--level FLAVOR]...`: compiles guest
//! programs and prints where the results are.

use std::io::{IsTerminal, Write, stderr};
use std::thread;

use clap::{Parser, Subcommand};
use uruk_guests::{Cache, Flavor, Guest, GuestError, Toolchain};

#[derive(Parser)]
#[command(about = "Compiles guest programs to bitcode and natively")]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Print the guests and their runs.
    List,
    /// Compile and print one line per guest and flavor: name, flavor, bitcode,
    /// native executable (tab-separated).
    Build {
        /// Which guests; all if none is named.
        guests: Vec<String>,
        /// LEVEL[+g][+pic|+nopic]; LEVEL is O0, O0-no-optnone, O1-no-passes,
        /// O2 or O3-no-passes.
        #[arg(long = "level", default_value = "O0")]
        flavors: Vec<Flavor>,
        /// How many compilers run at a time.
        #[arg(long, short)]
        jobs: Option<usize>,
        /// Print every bitcode part instead of the linked file.
        #[arg(long)]
        parts: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Action::List => {
            list();
            Ok(())
        }
        Action::Build {
            guests,
            flavors,
            jobs,
            parts,
        } => build(&guests, &flavors, jobs, parts),
    }
}

fn list() {
    for guest in Guest::ALL {
        for run in guest.runs() {
            println!("{guest}\t{}\t{}", run.name, run.args.join(" "));
        }
    }
}

fn build(
    names: &[String],
    flavors: &[Flavor],
    jobs: Option<usize>,
    parts: bool,
) -> anyhow::Result<()> {
    let guests = if names.is_empty() {
        Guest::ALL.to_vec()
    } else {
        let named = names.iter().map(|name| Guest::named(name));
        named.collect::<Result<Vec<_>, GuestError>>()?
    };
    let tools = Toolchain::find()?;
    let cache = Cache::in_target();
    let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    for guest in guests {
        for &flavor in flavors {
            let built = guest.build(&tools, &cache, flavor, jobs, &|done, all| {
                show(&format!("{guest} {flavor}: {done} of {all} files"));
            });
            clear();
            let built = built?;
            let native = built.native.display();
            if parts {
                for part in &built.parts {
                    println!("{guest}\t{flavor}\t{}\t{native}", part.display());
                }
            } else {
                println!("{guest}\t{flavor}\t{}\t{native}", built.bitcode.display());
            }
        }
    }
    Ok(())
}

/// Shows progress on a terminal only: one line that overwrites itself.
fn show(line: &str) {
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K{line}");
    }
}

fn clear() {
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}
