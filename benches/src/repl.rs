//! What a line costs in a loop that reads, evaluates and prints: a function is defined again, and a
//! line that calls it is added, run and removed, from IR in memory to the value.
//!
//! The time is wall-clock time of the thread that waits; what others of the session do for it
//! meanwhile is in the row of processor time.

use anyhow::{Context as _, Result, anyhow, ensure};
use uruk::inkwell::context::Context;
use uruk::inkwell::memory_buffer::MemoryBuffer;
use uruk::inkwell::module::Module;
use uruk::{Jit, Replacement};

use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// Lines before the first that counts.
const BEFORE: usize = 20;

/// A definition and a line that uses it, again and again in one session.
///
/// # Errors
/// What the library reports, another value.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    progress("lines of a read-eval-print loop");
    let jit = Jit::new()?;
    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    for line in 0..BEFORE + bench.rounds(400) {
        let context = Context::create();
        let defined = module(
            &context,
            &format!(
                "define double @f(double %x) {{\n  %y = fadd double %x, {line}.0\n  ret double %y\n}}\n"
            ),
        )?;
        let used = module(
            &context,
            "declare double @f(double)\ndefine double @value() {\n  \
             %v = call double @f(double 0.5)\n  ret double %v\n}\n",
        )?;
        let (start, before) = (clock::wall_ns(), clock::process_ns());
        let value = evaluate(&jit, line, &defined, &used)?;
        let (took, used) = (clock::wall_ns() - start, clock::process_ns() - before);
        ensure!(value == line as f64 + 0.5, "line {line} is {value}");
        if line >= BEFORE {
            wall.push(took / 1e3);
            processor.push(used / 1e3);
        }
    }
    let row = Row::new(
        "a definition again, and a line that calls it",
        Unit::Us,
        Figure::of(wall),
    );
    let part = Row::new(
        "  processor time, all threads",
        Unit::Us,
        Figure::of(processor),
    );
    Ok(vec![
        row.target(Target::AtMost(150.0))
            .note("replace, add, call, remove; from modules in memory, no peer: MCJIT and ORC replace nothing"),
        part,
    ])
}

fn evaluate(jit: &Jit, line: usize, defined: &Module, used: &Module) -> Result<f64> {
    if line == 0 {
        jit.add_module(defined)?;
    } else {
        jit.main().replace(Replacement::module(defined))?;
    }
    let tracker = jit.main().create_tracker()?;
    tracker.add_module(used)?;
    // SAFETY: the function above, which computes.
    let function = unsafe { jit.function::<extern "C" fn() -> f64>("value")? };
    let value = function.call();
    // SAFETY: nobody keeps its address.
    unsafe { tracker.remove()? };
    Ok(value)
}

fn module<'ctx>(context: &'ctx Context, text: &str) -> Result<Module<'ctx>> {
    // Text ends with a zero there.
    let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "line");
    let module = context.create_module_from_ir(buffer);
    module
        .map_err(|told| anyhow!("{}", told.to_string()))
        .context("a line's IR")
}
