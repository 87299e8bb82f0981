//! From a first call to running code, for the functions of a real module.
//!
//! Two parts are measured and added: compiling, linking and publishing the body,
//! in processor time of the process (`Jit::compile` leaves some of the work to a
//! thread of the session, and waits for it), and the round trip between
//! the caller, which sleeps, and the thread that answers (a stub whose code is
//! ready, published by a service thread), in wall-clock time.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use uruk::inkwell::memory_buffer::MemoryBuffer;
use uruk::inkwell::module::{Linkage, Module};
use uruk::{Baseline, Jit, inkwell};
use uruk_guests::Guest;
use uruk_heap::{Heap, HeapConfig};
use uruk_stubs::{EntryAddress, StubTable, call_ptr};

use crate::bench::{Bench, progress};
use crate::row::{Figure, Row, Target, Unit};
use crate::{clock, stubs};

/// Round trips that are timed together.
const TRIPS: usize = 200;

/// Who compiles at tier 1: what rows say, the session's setting, and what the whole is to take at
/// most.
const WAYS: [(&str, Baseline, f64); 2] = [
    ("", Baseline::Off, 450.0),
    (", baseline compiler", Baseline::On, 80.0),
];

/// A median function of sqlite, by LLVM and by the baseline compiler.
///
/// # Errors
/// It cannot be built, or does not compile.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let round_trip = wake_up(bench.rounds(40))?;
    let trip_us = round_trip.median().unwrap_or(f64::NAN);
    let mut rows = Vec::new();
    for &level in bench.levels() {
        let built = bench.guest(Guest::Sqlite, level)?;
        let bytes = std::fs::read(&built.bitcode)
            .with_context(|| format!("reading {}", built.bitcode.display()))?;
        let mut times = WAYS.map(|_| Vec::new());
        for round in 0..bench.rounds(4) {
            for ((way, baseline, _), times) in WAYS.iter().zip(&mut times) {
                progress(&format!(
                    "sqlite function by function {}{way}, round {}",
                    level.name(),
                    round + 1
                ));
                times.extend(compile_each(&bytes, *baseline)?);
            }
        }
        for ((way, _, target), times) in WAYS.into_iter().zip(times) {
            let compile = Figure::of(times);
            let whole = match compile.sample() {
                Some(sample) => Figure::Measured(sample.map(|us| us + trip_us)),
                None => compile.clone(),
            };
            let name = format!("first call of a median sqlite function{way}");
            let row = Row::new(name, Unit::Us, whole)
                .target(Target::AtMost(target))
                .note(
                    "compile, link, publish (processor time of all threads) plus the wake-up \
                     (wall-clock); the spread is that of the functions",
                );
            let part = Row::new("  of which compile, link, publish", Unit::Us, compile);
            rows.extend([row.level(level.name()), part.level(level.name())]);
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

/// Microseconds of each function in a fresh session.
fn compile_each(bytes: &[u8], baseline: Baseline) -> Result<Vec<f64>> {
    let (bytes, names) = with_all_visible(bytes)?;
    let jit = Jit::builder().jobs(1).baseline(baseline).build()?;
    jit.add_bitcode("sqlite", bytes)?;
    let mut times = Vec::new();
    for name in &names {
        let start = clock::process_ns();
        jit.compile(name)?;
        times.push((clock::process_ns() - start) / 1e3);
    }
    drop(jit);
    clock::until_one_thread();
    Ok(times)
}

/// The module with its local functions made visible, so that the session can be
/// asked for them by name, and the names of all. A session reaches local and
/// visible functions the same way, so their code is the same.
fn with_all_visible(bytes: &[u8]) -> Result<(Vec<u8>, Vec<String>)> {
    let context = inkwell::context::Context::create();
    let buffer = MemoryBuffer::create_from_memory_range_copy(bytes, "sqlite");
    let module = Module::parse_bitcode_from_buffer(&buffer, &context)
        .map_err(|error| anyhow::anyhow!("sqlite's bitcode: {}", error.to_string()))?;
    let mut names = Vec::new();
    for function in module
        .get_functions()
        .filter(|function| function.count_basic_blocks() > 0)
    {
        if function.get_linkage() == Linkage::Internal {
            function.set_linkage(Linkage::External);
        }
        names.push(function.get_name().to_string_lossy().into_owned());
    }
    Ok((module.write_bitcode_to_memory().as_slice().to_vec(), names))
}

/// Microseconds from a call of an unbound stub, through a sleeping service thread
/// that publishes a trivial function, to the return.
fn wake_up(rounds: usize) -> Result<Figure> {
    let heap = Heap::new(HeapConfig::default())?;
    let table = StubTable::new(&heap)?;
    let entry = stubs::trivial(&heap)?;
    let service = thread::spawn({
        let table = table.clone();
        move || {
            while let Some(function) = table.wait_request(None) {
                table.publish(function, EntryAddress(entry));
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
