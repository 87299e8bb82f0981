//! The same module under this library and under inkwell's own engine, MCJIT: how long
//! the first result takes from IR in memory, and how long later ones take.
//!
//! MCJIT runs no passes over the IR, so it is measured with and without `default<O2>`.
//! All run in this process, so libraries are loaded already when an engine starts.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use uruk::inkwell::context::Context;
use uruk::inkwell::module::Module;
use uruk::inkwell::passes::PassBuilderOptions;
use uruk::inkwell::targets::{CodeModel, InitializationConfig, RelocMode, Target, TargetMachine};
use uruk::inkwell::{OptimizationLevel, support::LLVMString};

use crate::language::{self, Names};
use crate::stack;

/// Rounds in which the engines take turns; the best times of all are shown, as those
/// that others on the machine had least to do with.
const ROUNDS: usize = 3;
/// How long each engine runs in a round after its first result.
const WARM: Duration = Duration::from_millis(300);

/// First result, median of the later half of the results after it, and the value.
type Times = (Duration, Duration, f64);
type Engine = fn(&Module, &str) -> Result<Times>;

const ENGINES: [(&str, Engine); 3] = [
    ("uruk", under_uruk),
    ("MCJIT", |module, symbol| under_mcjit(module, symbol, None)),
    ("default<O2>, MCJIT", |module, symbol| {
        under_mcjit(module, symbol, Some("default<O2>"))
    }),
];

/// Runs a value and all definitions under each engine: a table.
pub fn run(definitions: &[(usize, String)], (number, value): (usize, &str)) -> Result<String> {
    let mut best = [None; ENGINES.len()];
    for round in 0..ROUNDS * ENGINES.len() {
        let context = Context::create();
        let module = context.create_module("race");
        let mut names = Names::new();
        for (number, line) in definitions {
            language::compile(&module, &mut names, line, *number)?;
        }
        let symbol = language::compile(&module, &mut names, value, number)?;
        let at = round % ENGINES.len();
        let (first, later, value) = ENGINES[at].1(&module, &symbol)?;
        let (least, less, _) = best[at].unwrap_or((first, later, value));
        best[at] = Some((first.min(least), later.min(less), value));
    }
    let mut table = format!(
        "{:<20}{:>14}{:>14}    value",
        "", "first result", "later ones"
    );
    for ((name, _), (first, later, value)) in ENGINES.iter().zip(best.into_iter().flatten()) {
        let [first, later] = [first, later].map(|time: Duration| time.as_secs_f64() * 1e3);
        write!(
            table,
            "\n{name:<20}{first:>11.2} ms{later:>11.3} ms    {value}"
        )?;
    }
    Ok(table)
}

fn under_uruk(module: &Module, symbol: &str) -> Result<Times> {
    let start = Instant::now();
    let jit = crate::new_jit()?;
    jit.add_module(module)?;
    // SAFETY: `compile` wrote a function without parameters, which computes.
    let function = unsafe { jit.function::<extern "C" fn() -> f64>(symbol)? };
    measure(start, || function.call())
}

fn under_mcjit(module: &Module, symbol: &str, passes: Option<&str>) -> Result<Times> {
    let start = Instant::now();
    let level = OptimizationLevel::Default;
    let told = |message: LLVMString| anyhow!("{message}");
    if let Some(passes) = passes {
        Target::initialize_native(&InitializationConfig::default())
            .map_err(|told| anyhow!(told))?;
        let triple = TargetMachine::get_default_triple();
        let (cpu, features) = (
            TargetMachine::get_host_cpu_name(),
            TargetMachine::get_host_cpu_features(),
        );
        let machine = Target::from_triple(&triple)
            .map_err(told)?
            .create_target_machine(
                &triple,
                &cpu.to_string(),
                &features.to_string(),
                level,
                RelocMode::Default,
                CodeModel::JITDefault,
            );
        let machine = machine.context("no target machine")?;
        module
            .run_passes(passes, &machine, PassBuilderOptions::create())
            .map_err(told)?;
    }
    let engine = module.create_jit_execution_engine(level).map_err(told)?;
    if let Some(limit) = module.get_global(stack::SYMBOL) {
        engine.add_global_mapping(&limit, stack::LIMIT.as_ptr() as usize);
    }
    // SAFETY: as for the other engine.
    let function = unsafe { engine.get_function::<unsafe extern "C" fn() -> f64>(symbol)? };
    // SAFETY: as above.
    measure(start, || unsafe { function.call() })
}

fn measure(start: Instant, function: impl Fn() -> f64) -> Result<Times> {
    let value = stack::guarded(&function)?;
    let first = start.elapsed();
    let (warm, mut later) = (Instant::now(), Vec::new());
    while warm.elapsed() < WARM || later.len() < 2 {
        let called = Instant::now();
        stack::guarded(&function)?;
        later.push(called.elapsed());
    }
    let mut settled = later.split_off(later.len() / 2);
    settled.sort_unstable();
    Ok((first, settled[settled.len() / 2], value))
}
