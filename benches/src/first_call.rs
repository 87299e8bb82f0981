//! From a first call to running code, for the functions of a real module.
//!
//! The functions are really called, through their stubs, one after the other: each begins with a
//! look at a variable, and returns at once while that says so. Wall-clock time is what the caller
//! waits; the processor time of all threads over the same calls is what compiling, linking and
//! publishing take with all that goes on beside. A further round, which reads clocks at each step
//! and so takes a little longer, says what of it is spent on which. The round trip between the caller and the
//! thread that answers is measured by itself, too (a stub whose code is ready).
//!
//! Nothing is compiled before it is called: that would take from these figures.

use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use uruk::inkwell::attributes::AttributeLoc;
use uruk::inkwell::builder::Builder;
use uruk::inkwell::context::Context;
use uruk::inkwell::memory_buffer::MemoryBuffer;
use uruk::inkwell::module::{Linkage, Module};
use uruk::inkwell::values::{FunctionValue, GlobalValue, InstructionOpcode};
use uruk::inkwell::{AddressSpace, IntPredicate, attributes};
use uruk::{Baseline, Jit, Part};
use uruk_guests::Guest;
use uruk_heap::{Heap, HeapConfig, Pool};
use uruk_stubs::{EntryAddress, StubTable, call_ptr, seat};

use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// Round trips that are timed together.
const TRIPS: usize = 200;

/// The compilers of tier 1: the words in rows, the session's setting, and the limit of a call in
/// microseconds.
const WAYS: [(&str, Baseline, f64); 2] = [
    ("", Baseline::Off, 450.0),
    (", baseline compiler", Baseline::On, 80.0),
];

/// The variable that functions read first.
const RETURNS: &str = "bench_returns_at_once";

/// A median function of sqlite, by LLVM and by the baseline compiler.
///
/// # Errors
/// It cannot be built, or does not compile.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let round_trip = wake_up(bench.rounds(40))?;
    let mut rows = Vec::new();
    for &level in bench.levels() {
        let built = bench.guest(Guest::Sqlite, level)?;
        let bytes = std::fs::read(&built.bitcode)
            .with_context(|| format!("reading {}", built.bitcode.display()))?;
        let (bytes, names) = returning(&bytes)?;
        let mut times = WAYS.map(|_| (Vec::new(), Vec::new(), Vec::new()));
        for round in 0..bench.rounds(4) {
            for ((way, baseline, _), (waited, took, _)) in WAYS.iter().zip(&mut times) {
                progress(&format!(
                    "sqlite function by function {}{way}, round {}",
                    level.name(),
                    round + 1
                ));
                for call in call_each(&bytes, &names, *baseline, false)? {
                    waited.push(call.waited);
                    took.push(call.processor);
                }
            }
        }
        for ((_, baseline, _), (.., made)) in WAYS.iter().zip(&mut times) {
            let calls = call_each(&bytes, &names, *baseline, true)?;
            made.extend(calls.iter().map(|call| call.made));
        }
        for ((way, baseline, target), (waited, took, made)) in WAYS.into_iter().zip(times) {
            let name = format!("first call of a median sqlite function{way}");
            let row = Row::new(name, Unit::Us, Figure::of(waited))
                .target(Target::AtMost(target))
                .note("wall-clock time of the call; the spread is that of the functions");
            rows.push(row.level(level.name()));
            let name = "  processor time of all threads meanwhile";
            let row = Row::new(name, Unit::Us, Figure::of(took))
                .note("reading the body, compiling, linking, publishing, and what goes on beside");
            rows.push(row.level(level.name()));
            let name = "  of which compiling, linking and publishing";
            let row = Row::new(name, Unit::Us, Figure::of(made))
                .note("processor time between clocks that are read at each step");
            let row = match baseline {
                Baseline::Off => row,
                _ => row.target(Target::AtMost(40.0)),
            };
            rows.push(row.level(level.name()));
        }
    }
    let row = Row::new(
        "  of which waking the compile thread and back",
        Unit::Us,
        round_trip,
    );
    rows.push(row.note("wall-clock time of a stub's request to a thread that only publishes"));
    Ok(rows)
}

/// A first call; microseconds.
struct Call {
    /// The time the caller waits.
    waited: f64,
    /// Processor time of all threads meanwhile.
    processor: f64,
    /// Of which everything from the body to published code, if that is measured.
    made: f64,
}

/// The first call of each function, in a fresh session.
fn call_each(bytes: &[u8], names: &[String], baseline: Baseline, parts: bool) -> Result<Vec<Call>> {
    let jit = Jit::builder()
        .baseline(baseline)
        .time_parts(parts)
        .build()?;
    jit.main().add_bitcode("sqlite", bytes)?;
    let mut stubs = Vec::new();
    for name in names {
        stubs.push(jit.lookup(name)?);
    }
    let mut calls = Vec::new();
    let mut before_it = made(&jit);
    for stub in stubs {
        let (before, start) = (clock::process_ns(), Instant::now());
        // SAFETY: whatever the function's arguments are, it looks at none before it returns.
        std::hint::black_box(unsafe { call_ptr(stub) });
        let waited = start.elapsed().as_secs_f64() * 1e6;
        let processor = (clock::process_ns() - before) / 1e3;
        let until_it = made(&jit);
        calls.push(Call {
            waited,
            processor,
            made: until_it - before_it,
        });
        before_it = until_it;
    }
    drop(jit);
    clock::until_one_thread();
    Ok(calls)
}

/// Microseconds of processor time that a session spent on making code so far, from reading bodies
/// to publishing code. Zero if the session does not measure it.
fn made(jit: &Jit) -> f64 {
    let steps = [
        Part::Planning,
        Part::Copying,
        Part::Optimizing,
        Part::Emitting,
        Part::Lowering,
        Part::Assembling,
        Part::Linking,
        Part::Writing,
        Part::Publishing,
    ];
    let spent = |parts: uruk::PartStats| steps.map(|step| parts.of(step).cpu.as_secs_f64());
    let each = jit.stats().parts.map(spent);
    each.map_or(0.0, |each| each.iter().sum::<f64>() * 1e6)
}

/// The module with functions that return at once, made visible, so that the session can be asked
/// for them by name, and their names. Those that never return are left out.
fn returning(bytes: &[u8]) -> Result<(Vec<u8>, Vec<String>)> {
    let context = Context::create();
    let buffer = MemoryBuffer::create_from_memory_range_copy(bytes, "sqlite");
    let module = Module::parse_bitcode_from_buffer(&buffer, &context)
        .map_err(|error| anyhow::anyhow!("sqlite's bitcode: {}", error.to_string()))?;
    let flag = module.add_global(context.i32_type(), Some(AddressSpace::default()), RETURNS);
    flag.set_initializer(&context.i32_type().const_int(1, false));
    flag.set_externally_initialized(true);
    let builder = context.create_builder();
    let never = attributes::Attribute::get_named_enum_kind_id("noreturn");
    let mut names = Vec::new();
    for function in module
        .get_functions()
        .filter(|function| function.count_basic_blocks() > 0)
    {
        if function
            .get_enum_attribute(AttributeLoc::Function, never)
            .is_some()
        {
            continue;
        }
        if function.get_linkage() == Linkage::Internal {
            function.set_linkage(Linkage::External);
        }
        return_at_once(&context, &builder, function, flag)?;
        names.push(function.get_name().to_string_lossy().into_owned());
    }
    module
        .verify()
        .map_err(|error| anyhow::anyhow!("sqlite with returns: {}", error.to_string()))?;
    Ok((module.write_bitcode_to_memory().as_slice().to_vec(), names))
}

/// Has a function look at `flag` before anything else.
fn return_at_once<'ctx>(
    context: &'ctx Context,
    builder: &Builder<'ctx>,
    function: FunctionValue<'ctx>,
    flag: GlobalValue<'ctx>,
) -> Result<()> {
    let body = function.get_first_basic_block().context("it has a body")?;
    let look = context.prepend_basic_block(body, "look");
    let leave = context.insert_basic_block_after(look, "leave");
    builder.position_at_end(look);
    // The first block of a function declares the contents of its frame.
    let allocas = body
        .get_instructions()
        .filter(|it| it.get_opcode() == InstructionOpcode::Alloca);
    for alloca in allocas.collect::<Vec<_>>() {
        alloca.remove_from_basic_block();
        builder.insert_instruction(&alloca, None);
    }
    let value = builder.build_load(context.i32_type(), flag.as_pointer_value(), "returns")?;
    let zero = context.i32_type().const_zero();
    let compared =
        builder.build_int_compare(IntPredicate::NE, value.into_int_value(), zero, "now")?;
    builder.build_conditional_branch(compared, leave, body)?;
    builder.position_at_end(leave);
    match function.get_type().get_return_type() {
        None => builder.build_return(None)?,
        Some(it) => builder.build_return(Some(&it.const_zero()))?,
    };
    Ok(())
}
/// Microseconds from a call of an unbound stub, through a sleeping service thread
/// that publishes a trivial function, to the return.
fn wake_up(rounds: usize) -> Result<Figure> {
    let heap = Heap::new(HeapConfig::default())?;
    let table = StubTable::new(&heap)?;
    let entry = trivial(&heap)?;
    let service = thread::spawn({
        let table = table.clone();
        move || {
            while let Some(function) = table.wait_request_on(None, seat::processor()) {
                table.publish(function, EntryAddress(entry));
                // As the runtime's workers do.
                if let Some(caller) = table.last_caller() {
                    seat::take(caller);
                }
            }
        }
    });
    let mut figures = Vec::new();
    for _ in 0..rounds {
        let functions: Vec<_> = table.allocate_many(TRIPS)?.collect();
        let start = Instant::now();
        for function in functions {
            // SAFETY: what is published there is a function without arguments.
            std::hint::black_box(unsafe { call_ptr(table.stub_address(function).0) });
        }
        figures.push(start.elapsed().as_secs_f64() * 1e6 / TRIPS as f64);
    }
    table.stop_service();
    service
        .join()
        .map_err(|_| anyhow::anyhow!("the service thread panicked"))?;
    Ok(Figure::of(figures))
}

/// Places `mov eax, 42; ret`; its address.
fn trivial(heap: &Heap) -> Result<u64> {
    let bytes = [0xb8, 42, 0, 0, 0, 0xc3];
    let mut draft = heap.allocate(Pool::Code, bytes.len(), 64)?;
    draft.write(0, &bytes)?;
    Ok(draft.seal()?.address())
}
