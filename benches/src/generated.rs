//! Generated modules: many functions of which few are called, and what a first
//! call costs in modules of different sizes.
//!
//! Each function looks like what `clang -O0` makes of a short C function with a
//! loop: variables on the stack, a global, a call that never happens.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use uruk::{Func, Jit};

use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// Calls made before measuring, and calls measured.
const WARM: usize = 10;
const TIMED: usize = 100;
const SIZES: [usize; 3] = [1_000, 10_000, 50_000];

type Generated = extern "C" fn(i32) -> i32;

/// A file of bitcode: `functions` functions and a `main` that calls `called` of
/// them, evenly spaced.
///
/// # Errors
/// The file cannot be written.
pub fn bitcode_file(bench: &Bench, functions: usize, called: usize) -> Result<PathBuf> {
    let path = bench
        .directory
        .join(format!("generated-{functions}-{called}.bc"));
    std::fs::write(&path, bitcode(functions, called)?)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// First calls in modules of three sizes, interleaved.
///
/// # Errors
/// What the library reports.
pub fn measure_first_calls(bench: &Bench) -> Result<Vec<Row>> {
    let modules = SIZES.map(|size| Ok((size, bitcode(size, 1)?)));
    let modules = modules.into_iter().collect::<Result<Vec<_>>>()?;
    let mut figures: [Vec<f64>; 3] = Default::default();
    let mut loads: [Vec<f64>; 3] = Default::default();
    // The first compiles of a process also set LLVM up.
    first_calls(modules[0].0, &modules[0].1)?;
    for round in 0..bench.rounds(12) {
        progress(&format!(
            "first calls in large modules, round {}",
            round + 1
        ));
        for (index, (size, bytes)) in modules.iter().enumerate() {
            let (load_us, call_us) = first_calls(*size, bytes)?;
            loads[index].push(load_us / *size as f64);
            figures[index].push(call_us);
        }
    }
    let [small, medium, large] = figures.map(Figure::of);
    let note = format!(
        "processor time of caller and compile thread, mean of {TIMED} first calls after {WARM}"
    );
    let row = |size: usize, figure: Figure| {
        Row::new(format!("first call, module of {size}"), Unit::Us, figure)
            .level("O0")
            .peer(format!("module of {}", SIZES[0]), small.clone())
            .target(Target::RatioAtMost(1.2))
            .note(note.clone())
    };
    let [_, _, load] = loads.map(Figure::of);
    Ok(vec![
        row(SIZES[1], medium),
        row(SIZES[2], large),
        Row::new(
            format!("  adding a module of {}, per function", SIZES[2]),
            Unit::Us,
            load,
        )
        .level("O0"),
    ])
}

/// Microseconds of adding the module, and of a first call.
fn first_calls(size: usize, bytes: &[u8]) -> Result<(f64, f64)> {
    let jit = Jit::builder().jobs(1).build()?;
    let start = clock::process_ns();
    jit.add_bitcode("generated", bytes)?;
    let load_us = (clock::process_ns() - start) / 1e3;
    let step = size / (WARM + TIMED);
    let functions = (0..WARM + TIMED).map(|n| {
        // SAFETY: generated below with this type; it computes and does nothing else.
        Ok(unsafe { jit.function::<Generated>(&format!("f{}", n * step))? })
    });
    let functions: Vec<Func<Generated>> = functions.collect::<Result<_>>()?;
    let (warm, timed) = functions.split_at(WARM);
    call_each(warm);
    let start = clock::process_ns();
    call_each(timed);
    let call_us = (clock::process_ns() - start) / 1e3 / TIMED as f64;
    drop(functions);
    drop(jit);
    clock::until_one_thread();
    Ok((load_us, call_us))
}

fn call_each(functions: &[Func<Generated>]) {
    for function in functions {
        std::hint::black_box(function.call(3));
    }
}

fn bitcode(functions: usize, called: usize) -> Result<Vec<u8>> {
    let module = uruk_codegen::Bitcode::from_ir_text("generated", &ir(functions, called))?;
    Ok(module.bytes().to_vec())
}

fn ir(functions: usize, called: usize) -> String {
    let mut text = String::from(
        "target triple = \"x86_64-unknown-linux-gnu\"\n\
         @total = global i64 0\n@table = internal global [64 x i32] zeroinitializer\n",
    );
    for n in 0..functions {
        let _ = write!(
            text,
            "define i32 @f{n}(i32 %n) #0 {{
  %i = alloca i32
  %sum = alloca i32
  %arg = alloca i32
  store i32 %n, ptr %arg
  store i32 0, ptr %i
  store i32 {n}, ptr %sum
  br label %head
head:
  %i1 = load i32, ptr %i
  %n1 = load i32, ptr %arg
  %more = icmp slt i32 %i1, %n1
  br i1 %more, label %body, label %done
body:
  %s1 = load i32, ptr %sum
  %k = and i32 %i1, 63
  %k64 = sext i32 %k to i64
  %at = getelementptr [64 x i32], ptr @table, i64 0, i64 %k64
  %v = load i32, ptr %at
  %p = mul i32 %s1, 31
  %q = add i32 %p, %v
  store i32 %q, ptr %sum
  %odd = icmp eq i32 %q, 123456789
  br i1 %odd, label %rare, label %next
rare:
  %r = call i32 @f{other}(i32 %q)
  store i32 %r, ptr %sum
  br label %next
next:
  %i2 = add i32 %i1, 1
  store i32 %i2, ptr %i
  br label %head
done:
  %s2 = load i32, ptr %sum
  %s64 = sext i32 %s2 to i64
  %t = load i64, ptr @total
  %t1 = add i64 %t, %s64
  store i64 %t1, ptr @total
  ret i32 %s2
}}
",
            other = (n + 1) % functions,
        );
    }
    text.push_str("define i32 @main() #0 {\n");
    for n in 0..called {
        let _ = writeln!(
            text,
            "  %c{n} = call i32 @f{}(i32 3)",
            n * (functions / called)
        );
    }
    text.push_str("  ret i32 0\n}\nattributes #0 = { noinline nounwind optnone uwtable }\n");
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_ir_is_accepted() {
        let bytes = super::bitcode(3, 2).expect("valid IR");
        assert!(bytes.starts_with(b"BC"));
    }
}
