//! How fast tier 1 compiles, and how large its code is: all functions of sqlite, IR in memory.
//!
//! The peer is LLVM at -O0 with its fast instruction selection, whole module to object file in
//! memory, the module parsed before the clock starts: the fairest setting, as nothing is paid per
//! function. Ours begins one step earlier, from bitcode, and ends with machine code and fix-ups.

use anyhow::{Context, Result, anyhow};
use object::{Object, ObjectSection, SectionKind};
use uruk::inkwell;
use uruk::inkwell::OptimizationLevel;
use uruk::inkwell::memory_buffer::MemoryBuffer;
use uruk::inkwell::module::Module;
use uruk::inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine,
};
use uruk_baseline::{Compiler, Options};
use uruk_codegen::plan::plan_alone;
use uruk_codegen::{Bitcode, Compile, Counters, Numbered, Plain, Reader, SymbolId};
use uruk_guests::Guest;

use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

const PEER: &str = "LLVM -O0, module parsed";

/// Milliseconds of one round, and what it came to.
#[derive(Default)]
struct Ours {
    reading: f64,
    lowering: f64,
    assembling: f64,
    functions: u32,
    uncovered: u32,
    bytes: u64,
}

/// All of sqlite, by the baseline compiler and by LLVM, in turns.
///
/// # Errors
/// It cannot be built, or LLVM does not compile it.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &level in bench.levels() {
        let built = bench.guest(Guest::Sqlite, level)?;
        let bytes = std::fs::read(&built.bitcode)
            .with_context(|| format!("reading {}", built.bitcode.display()))?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..bench.rounds(9) {
            progress(&format!(
                "all of sqlite {}, round {}",
                level.name(),
                round + 1
            ));
            ours.push(by_baseline(&bytes)?);
            theirs.push(by_llvm(&bytes)?);
        }
        rows.extend(compare(&ours, &theirs).map(|row| row.level(level.name())));
    }
    Ok(rows)
}

fn compare(ours: &[Ours], theirs: &[(f64, u64)]) -> [Row; 6] {
    let all = |of: fn(&Ours) -> f64| Figure::of(ours.iter().map(of));
    let peer = Figure::of(theirs.iter().map(|(time, _)| *time));
    let part = |name: &str, of| Row::new(format!("  of which {name}"), Unit::CpuMs, all(of));
    let (functions, uncovered) = ours
        .last()
        .map_or((0, 0), |one| (one.functions, one.uncovered));
    [
        Row::new(
            "all of sqlite compiled, from bodies in memory",
            Unit::CpuMs,
            all(|one| one.lowering + one.assembling),
        )
        .peer(PEER, peer.clone())
        .target(Target::RatioAtMost(1.0 / 8.0))
        .note(format!(
            "{functions} functions, and {uncovered} that are left to LLVM and not in ours"
        )),
        Row::new(
            "all of sqlite compiled, from bitcode",
            Unit::CpuMs,
            all(|one| one.reading + one.lowering + one.assembling),
        )
        .peer(PEER, peer),
        part("reading bitcode", |one| one.reading),
        part("lowering", |one| one.lowering),
        part("analysis, places, machine code", |one| one.assembling),
        Row::new(
            "code of all of sqlite at tier 1",
            Unit::Bytes,
            all(|one| one.bytes as f64),
        )
        .peer(
            PEER,
            Figure::of(theirs.iter().map(|(_, bytes)| *bytes as f64)),
        )
        .target(Target::RatioAtMost(1.3))
        .note("ours counts calls and passes of loops; LLVM's are sections of code"),
    ]
}

fn by_baseline(bytes: &[u8]) -> Result<Ours> {
    let bitcode = Bitcode::new("sqlite", bytes);
    let reader = Reader::new(&bitcode)?;
    let summary = reader.summary().clone();
    let numbered =
        Numbered::read(&bitcode, &summary).ok_or_else(|| anyhow!("bitcode that is LLVM's only"))?;
    let plan = plan_alone(&summary);
    let how = Compile::baseline().counting(Counters::Entry);
    let mut plain = Plain::default();
    let mut compiler = Compiler::new(Options::default());
    let mut done = Ours::default();
    for function in (0..summary.symbols.len() as u32).map(SymbolId) {
        if numbered.body(function).is_none() {
            continue;
        }
        let start = clock::thread_ns();
        let read = numbered.read_into(function, &mut plain);
        let is_read = clock::thread_ns();
        let lowered = read.and_then(|()| numbered.baseline(&plan, function, &how, &mut plain));
        let is_lowered = clock::thread_ns();
        let Ok(lowered) = lowered else {
            done.uncovered += 1;
            continue;
        };
        let code = compiler.compile(&lowered.function);
        let is_compiled = clock::thread_ns();
        let Ok(code) = code else {
            done.uncovered += 1;
            continue;
        };
        done.functions += 1;
        done.bytes += u64::from(code.size);
        done.reading += (is_read - start) / 1e6;
        done.lowering += (is_lowered - is_read) / 1e6;
        done.assembling += (is_compiled - is_lowered) / 1e6;
        plain.take_back(lowered.function);
    }
    Ok(done)
}

/// Milliseconds of processor time, and bytes of sections of code.
fn by_llvm(bytes: &[u8]) -> Result<(f64, u64)> {
    let failed = |what: inkwell::support::LLVMString| anyhow!("LLVM: {}", what.to_string());
    LlvmTarget::initialize_x86(&InitializationConfig::default());
    let triple = TargetMachine::get_default_triple();
    let target = LlvmTarget::from_triple(&triple).map_err(failed)?;
    let machine = target.create_target_machine(
        &triple,
        "x86-64",
        "",
        OptimizationLevel::None,
        RelocMode::PIC,
        CodeModel::Small,
    );
    let machine = machine.ok_or_else(|| anyhow!("LLVM has no machine for {triple}"))?;
    let context = inkwell::context::Context::create();
    let buffer = MemoryBuffer::create_from_memory_range_copy(bytes, "sqlite");
    let module = Module::parse_bitcode_from_buffer(&buffer, &context).map_err(failed)?;
    let start = clock::thread_ns();
    let emitted = machine.write_to_memory_buffer(&module, FileType::Object);
    let time = (clock::thread_ns() - start) / 1e6;
    let emitted = emitted.map_err(failed)?;
    let object = object::File::parse(emitted.as_slice())?;
    let code = object
        .sections()
        .filter(|section| section.kind() == SectionKind::Text);
    Ok((time, code.map(|section| section.size()).sum()))
}
