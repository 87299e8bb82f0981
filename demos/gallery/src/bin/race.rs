//! The same module under this library and under inkwell's own engine, MCJIT: how long the
//! first result takes from IR in memory, and how long later ones take.
//!
//! Usage: `race [DEFINITION.. VALUE]`, lines of the language of `embed`. MCJIT runs no
//! passes over the IR, so it is measured with and without `default<O2>`. All run in this
//! process, so libraries are loaded already when an engine starts.

use std::env::args;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use uruk::Jit;
use uruk::inkwell::context::Context;
use uruk::inkwell::module::Module;
use uruk::inkwell::passes::PassBuilderOptions;
use uruk::inkwell::targets::{CodeModel, InitializationConfig, RelocMode, Target, TargetMachine};
use uruk::inkwell::{OptimizationLevel, support::LLVMString};
use uruk_gallery::{VALUE, compile};

const PROGRAM: [&str; 2] = [
    "fib(n) = if n < 2 then n else fib(n - 1) + fib(n - 2)",
    "fib(30)",
];

/// Rounds in which the engines take turns; the best times of all are shown, as those
/// that others on the machine had least to do with.
const ROUNDS: usize = 3;
/// How long each engine runs in a round after its first result.
const WARM: Duration = Duration::from_millis(300);

/// First result, median of the later half of the results after it, and the value.
type Times = (Duration, Duration, f64);
type Engine = fn(&Module) -> Result<Times>;

const ENGINES: [(&str, Engine); 3] = [
    ("uruk", under_uruk),
    ("MCJIT", |module| under_mcjit(module, None)),
    ("default<O2>, MCJIT", |module| {
        under_mcjit(module, Some("default<O2>"))
    }),
];

fn main() -> Result<()> {
    let mut program: Vec<String> = args().skip(1).collect();
    if program.is_empty() {
        program = PROGRAM.map(str::to_owned).to_vec();
    }
    let mut best = [None; ENGINES.len()];
    for round in 0..ROUNDS * ENGINES.len() {
        let context = Context::create();
        let module = context.create_module("race");
        for line in &program {
            compile(&module, line)?;
        }
        let at = round % ENGINES.len();
        let (first, later, value) = ENGINES[at].1(&module)?;
        let (least, less, _) = best[at].unwrap_or((first, later, value));
        best[at] = Some((first.min(least), later.min(less), value));
    }
    println!(
        "{:<20}{:>14}{:>14}    value",
        "", "first result", "later ones"
    );
    for ((name, _), (first, later, value)) in ENGINES.iter().zip(best.into_iter().flatten()) {
        let [first, later] = [first, later].map(|time| time.as_secs_f64() * 1e3);
        println!("{name:<20}{first:>11.2} ms{later:>11.3} ms    {value}");
    }
    Ok(())
}

fn under_uruk(module: &Module) -> Result<Times> {
    let start = Instant::now();
    let jit = Jit::new()?;
    jit.main().add_module(module)?;
    // SAFETY: `compile` wrote a function without parameters, which computes.
    let function = unsafe { jit.function::<extern "C" fn() -> f64>(VALUE)? };
    Ok(measure(start, || function.call()))
}

fn under_mcjit(module: &Module, passes: Option<&str>) -> Result<Times> {
    let start = Instant::now();
    let level = OptimizationLevel::Default;
    if let Some(passes) = passes {
        Target::initialize_native(&InitializationConfig::default())
            .map_err(|told| anyhow!(told))?;
        let triple = TargetMachine::get_default_triple();
        let cpu = TargetMachine::get_host_cpu_name();
        let features = TargetMachine::get_host_cpu_features();
        let (relocation, model) = (RelocMode::Default, CodeModel::JITDefault);
        let (cpu, features) = (cpu.to_str()?, features.to_str()?);
        let machine = Target::from_triple(&triple)
            .map_err(told)?
            .create_target_machine(&triple, cpu, features, level, relocation, model);
        let machine = machine.context("no target machine")?;
        let options = PassBuilderOptions::create();
        module.run_passes(passes, &machine, options).map_err(told)?;
    }
    let engine = module.create_jit_execution_engine(level).map_err(told)?;
    // SAFETY: as for the other engine.
    let function = unsafe { engine.get_function::<unsafe extern "C" fn() -> f64>(VALUE)? };
    // SAFETY: as above.
    Ok(measure(start, || unsafe { function.call() }))
}

fn told(message: LLVMString) -> anyhow::Error {
    anyhow!("{message}")
}

fn measure(start: Instant, function: impl Fn() -> f64) -> Times {
    let value = function();
    let first = start.elapsed();
    let (warm, mut later) = (Instant::now(), Vec::new());
    while warm.elapsed() < WARM || later.len() < 2 {
        let called = Instant::now();
        function();
        later.push(called.elapsed());
    }
    let mut settled = later.split_off(later.len() / 2);
    settled.sort_unstable();
    (first, settled[settled.len() / 2], value)
}
