//! A small function at tier 2 in a process that has compiled before, beside LLVM's own way: passes as
//! `opt -O2` has them, and emission as `llc` does it, in this process, too.
//!
//! The functions are those of the kernels that call nothing but intrinsics. Both sides compile each
//! many times, in turns, and the time is that of all threads. Uruk's includes reading the body,
//! linking, publication and the retirement of the version before; LLVM gets a module in memory that
//! has nothing but the function, made anew outside of the time.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, ensure};
use uruk::inkwell::OptimizationLevel;
use uruk::inkwell::context::Context;
use uruk::inkwell::memory_buffer::MemoryBuffer;
use uruk::inkwell::module::{Linkage, Module};
use uruk::inkwell::passes::PassBuilderOptions;
use uruk::inkwell::support::LLVMString;
use uruk::inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as Machines, TargetMachine,
};
use uruk::inkwell::values::{FunctionValue, InstructionOpcode};
use uruk::{Jit, Tier};
use uruk_guests::{Kernel, Level, Tongue, Workload};

use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};
use crate::tiers::steady;

/// IR instructions of a function, at least and at most.
const SIZES: std::ops::RangeInclusive<usize> = 10..=200;

/// Compiles of each function by each side; the first are not counted.
const ROUNDS: usize = 24;
const FIRST: usize = 4;

/// The geometric mean of the ratios may be this.
const TARGET: f64 = 1.1;

/// Each small function.
///
/// # Errors
/// A kernel cannot be built or read, or does not compile.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let machine = machine()?;
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for kernel in Kernel::ALL {
        let workload = Workload::Kernel(Tongue::C, kernel);
        let bitcode = steady::bitcode(bench, workload, Level::O3NoPasses)?;
        let visible = bench.directory.join("visible.bc");
        for name in leaves(&bitcode, &visible)? {
            progress(&format!("{}: {name}", workload.name()));
            let alone = alone(bench, &visible, &name)?;
            let row = compare(bench, &machine, &visible, &alone, &name)?;
            ratios.extend(row.ratio());
            rows.push(row);
        }
    }
    ensure!(!ratios.is_empty(), "no function of the kernels is small");
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let mean = (logs / ratios.len() as f64).exp();
    let name = "a small function at tier 2, warm, over LLVM's -O2: geometric mean";
    let row = Row::new(name, Unit::Times, Figure::of([mean])).target(Target::AtMost(TARGET));
    rows.push(row.note(format!("processor time, {} functions", ratios.len())));
    Ok(rows)
}

/// One function, by both sides.
fn compare(
    bench: &Bench,
    machine: &TargetMachine,
    bitcode: &Path,
    alone: &[u8],
    name: &str,
) -> Result<Row> {
    let jit = Jit::builder().build()?;
    jit.pause_tiers();
    let bytes = std::fs::read(bitcode).context("reading bitcode")?;
    jit.main().add_bitcode("kernel", bytes)?;
    let context = Context::create();
    let module = read(&context, alone)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..FIRST + bench.rounds(ROUNDS) {
        jit.compile_at(name, Tier::Baseline)?;
        let start = clock::process_ns();
        jit.compile_at(name, Tier::Optimized)?;
        ours.push((clock::process_ns() - start) / 1e3);
        let module = module.clone();
        let start = clock::process_ns();
        let options = PassBuilderOptions::create();
        module
            .run_passes("default<O2>", machine, options)
            .map_err(told)?;
        let object = machine.write_to_memory_buffer(&module, FileType::Object);
        let size = object.map_err(told)?.get_size();
        theirs.push((clock::process_ns() - start) / 1e3);
        ensure!(size > 0, "no object");
    }
    let [ours, theirs] = [ours, theirs].map(|all| Figure::of(all.into_iter().skip(FIRST)));
    Ok(Row::new(format!("tier 2, warm: {name}"), Unit::Us, ours).peer("opt -O2, llc", theirs))
}

/// A machine for this processor, as `llc -O2 -mcpu=native` has it.
fn machine() -> Result<TargetMachine> {
    Machines::initialize_native(&InitializationConfig::default()).map_err(|told| anyhow!(told))?;
    let triple = TargetMachine::get_default_triple();
    let (cpu, features) = (
        TargetMachine::get_host_cpu_name(),
        TargetMachine::get_host_cpu_features(),
    );
    let level = OptimizationLevel::Default;
    let made = Machines::from_triple(&triple)
        .map_err(told)?
        .create_target_machine(
            &triple,
            cpu.to_str()?,
            features.to_str()?,
            level,
            RelocMode::PIC,
            CodeModel::Default,
        );
    made.context("no target machine")
}

/// The functions of a module that call nothing but intrinsics. The module is written to `visible` with
/// names that can be looked up.
fn leaves(bitcode: &Path, visible: &Path) -> Result<Vec<String>> {
    let context = Context::create();
    let bytes = std::fs::read(bitcode).context("reading bitcode")?;
    let module = read(&context, &bytes)?;
    for function in module.get_functions() {
        function.set_linkage(Linkage::External);
    }
    ensure!(module.write_bitcode_to_path(visible), "writing bitcode");
    let small = module.get_functions().filter(|function| is_leaf(*function));
    let names = small.map(|function| function.get_name().to_string_lossy().into_owned());
    Ok(names.collect())
}

fn is_leaf(function: FunctionValue<'_>) -> bool {
    let blocks = function.get_basic_block_iter();
    let mut size = 0;
    for instruction in blocks.flat_map(|block| block.get_instructions()) {
        size += 1;
        if instruction.get_opcode() != InstructionOpcode::Call {
            continue;
        }
        let callee = instruction.get_operands().last().flatten();
        let is_intrinsic = callee.and_then(|it| it.value()).is_some_and(|it| {
            let function = it.into_pointer_value();
            function.get_name().to_bytes().starts_with(b"llvm.")
        });
        if !is_intrinsic {
            return false;
        }
    }
    SIZES.contains(&size)
}

/// The bitcode of one function.
fn alone(bench: &Bench, bitcode: &Path, name: &str) -> Result<Vec<u8>> {
    let extract =
        uruk_guests::toolchain::find("llvm-extract").context("llvm-extract is not there")?;
    let out = bench.directory.join("alone.bc");
    let mut command = Command::new(extract);
    command
        .arg(format!("--func={name}"))
        .arg(bitcode)
        .arg("-o")
        .arg(&out);
    let status = command.status().context("starting llvm-extract")?;
    ensure!(status.success(), "llvm-extract failed");
    std::fs::read(out).context("reading what llvm-extract wrote")
}

fn read<'c>(context: &'c Context, bytes: &[u8]) -> Result<Module<'c>> {
    let buffer = MemoryBuffer::create_from_memory_range_copy(bytes, "module");
    Module::parse_bitcode_from_buffer(&buffer, context).map_err(told)
}

fn told(message: LLVMString) -> anyhow::Error {
    anyhow!("{message}")
}
