//! Tries the policy on a made-up program or on a recorded stream and prints its decisions and their
//! effect.
//!
//! `cargo run -p uruk-tiering --example simulate -- hot-function --decisions`

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use std::path::Path;

use anyhow::Context;
use clap::Parser;
use simulator::{Machine, Replay, Truth, Workload, parse, scenarios};
use uruk_tiering::{Config, Nanos, Tier};

/// Tries the tiering policy on a simulated machine.
#[derive(Parser)]
struct Arguments {
    /// A scenario, a file with a recorded stream, or `list`.
    what: String,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulated time after which to stop, in ms.
    #[arg(long, default_value_t = 10_000)]
    limit_ms: u64,
    /// A setting, as `name=value`; `--print-config` shows all.
    #[arg(long = "config", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Part of the compiles that fail.
    #[arg(long, default_value_t = 0.0)]
    failures: f64,
    /// Prints every decision.
    #[arg(long)]
    decisions: bool,
    /// Prints the settings and ends.
    #[arg(long)]
    print_config: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut config = Config::default();
    for setting in &arguments.settings {
        let (name, value) = setting
            .split_once('=')
            .with_context(|| format!("{setting:?} has no '='"))?;
        config.set(name, value)?;
    }
    if arguments.print_config {
        print!("{config}");
        return Ok(());
    }
    if arguments.what == "list" {
        for (name, meaning) in scenarios::ALL {
            println!("{name:<14} {meaning}");
        }
        return Ok(());
    }
    let program = scenarios::named(&arguments.what, arguments.seed);
    match program {
        Some(program) => {
            let machine = simulate(&arguments, &config, program);
            let (wall, work) = (machine.now(), machine.workload().worked());
            let running = wall - machine.first_time();
            println!("work at tier 1      {:>10.1} ms", work.as_ms());
            println!("running             {:>10.1} ms", running.as_ms());
            println!(
                "first compiles      {:>10.1} ms",
                machine.first_time().as_ms()
            );
        }
        None => {
            let text = std::fs::read_to_string(Path::new(&arguments.what))
                .with_context(|| format!("no scenario and no file: {:?}", arguments.what))?;
            let inputs = parse(&text).with_context(|| arguments.what.clone())?;
            simulate(&arguments, &config, Replay::new(inputs));
        }
    }
    Ok(())
}

fn simulate<W: Workload>(arguments: &Arguments, config: &Config, workload: W) -> Machine<W> {
    let truth = Truth {
        failures: arguments.failures,
        ..Truth::default()
    };
    let mut machine = Machine::new(config, truth, workload, arguments.seed);
    machine.run(Nanos::from_ms(arguments.limit_ms));
    if arguments.decisions {
        for line in &machine.log {
            println!("{line}");
        }
    }
    let stats = machine.controller.stats();
    println!("wall                {:>10.1} ms", machine.now().as_ms());
    println!(
        "background compiles {:>10.1} ms",
        stats.compile_ns as f64 / 1e6
    );
    println!(
        "wasted of them      {:>10.1} ms",
        stats.wasted_ns as f64 / 1e6
    );
    for tier in Tier::ALL {
        let index = usize::from(tier.number() - 1);
        println!(
            "{tier}: first {}, promoted {}",
            stats.first[index], stats.promoted[index]
        );
    }
    println!(
        "failed {}, cancelled {}, late {}, dropped: full {}, stale {}, unworthy {}",
        stats.failed,
        stats.cancelled,
        stats.late,
        stats.dropped_full,
        stats.dropped_stale,
        stats.dropped_unworthy
    );
    println!(
        "longest queue {}, polls {}",
        machine.longest_queue, machine.polls
    );
    print!("{}", machine.controller.learned());
    machine
}
