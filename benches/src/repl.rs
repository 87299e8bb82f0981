//! The cost of a line in a loop that reads, evaluates and prints: a function is defined again, and
//! a line that calls it is added, run and removed. The cost is taken from IR in memory to the
//! value. IR is modules of LLVM, which have to be written as bitcode first, or bitcode.
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
    let mut kinds = [Times::default(), Times::default()];
    for line in 0..BEFORE + bench.rounds(800) {
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
        let of_bitcode = line % 2 == 1;
        let [defined, used] = [defined, used].map(|module| match of_bitcode {
            true => Input::Bitcode(module.write_bitcode_to_memory().as_slice().to_vec()),
            false => Input::Module(module),
        });
        let (start, before) = (clock::wall_ns(), clock::process_ns());
        let value = evaluate(&jit, line, defined, used)?;
        let (took, used) = (clock::wall_ns() - start, clock::process_ns() - before);
        ensure!(value == line as f64 + 0.5, "line {line} is {value}");
        if line >= BEFORE {
            let times = &mut kinds[usize::from(of_bitcode)];
            times.wall.push(took / 1e3);
            times.processor.push(used / 1e3);
        }
    }
    let rows = ["from modules", "from bitcode"].into_iter().zip(kinds);
    let rows = rows.flat_map(|(from, times)| {
        let name = format!("a definition again, and a line that calls it, {from}");
        let wall = Row::new(&name, Unit::Us, Figure::of(times.wall)).target(Target::AtMost(150.0));
        let part = "  processor time, all threads";
        [
            wall.note("replace, add, call, remove; no peer: MCJIT and ORC replace nothing"),
            Row::new(part, Unit::Us, Figure::of(times.processor)),
        ]
    });
    Ok(rows.collect())
}

/// In microseconds.
#[derive(Default)]
struct Times {
    wall: Vec<f64>,
    processor: Vec<f64>,
}

/// The form of a line's input.
enum Input<'ctx> {
    Module(Module<'ctx>),
    Bitcode(Vec<u8>),
}

fn evaluate(jit: &Jit, line: usize, defined: Input<'_>, used: Input<'_>) -> Result<f64> {
    let replacement = match defined {
        Input::Module(module) if line == 0 => {
            jit.main().add_module(&module)?;
            None
        }
        Input::Module(module) => Some(Replacement::module(&module)),
        Input::Bitcode(bytes) => Some(Replacement::bitcode("line", bytes)),
    };
    if let Some(replacement) = replacement {
        jit.main().replace(replacement)?;
    }
    let tracker = jit.main().create_tracker()?;
    match used {
        Input::Module(module) => tracker.add_module(&module)?,
        Input::Bitcode(bytes) => tracker.add_bitcode("line", bytes)?,
    }
    // SAFETY: the function above, which computes.
    let function = unsafe { jit.function::<extern "C" fn() -> f64>("value")? };
    let value = function.call();
    // SAFETY: its address is not kept.
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
