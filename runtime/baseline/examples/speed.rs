//! Measures compile time: nanoseconds an instruction, of functions in text form or of a generated
//! one: `speed [FILE...]`. A file may have several functions, after lines with `==== name`.

#[path = "../tests/ir/mod.rs"]
mod ir;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use uruk_baseline::{Compiler, Options};

/// Rounds of one measurement, the best of which counts.
const ROUNDS: usize = 20;

/// A function as an unoptimizing front end emits it: variables in allocas, a loop with branches and
/// calls.
fn made() -> String {
    let mut text = String::from(
        "function(i64 %p, i32 %n) -> i32\nsymbol @f indirect\nb0:\n  %pa = alloca 8 align 8\n  \
         %na = alloca 4 align 4\n  %i = alloca 4 align 4\n  store i64 %p to %pa align 8\n  \
         store i32 %n to %na align 4\n  store i32 0 to %i align 4\n  jump b1\n",
    );
    for at in 0..10 {
        let block = 1 + 2 * at;
        let _ = write!(
            text,
            "b{block}:\n  %a{at} = load i32 %i align 4\n  %b{at} = load i32 %na align 4\n  \
             %c{at} = icmp slt i32 %a{at}, %b{at}\n  branch %c{at} b{}, b{}\nb{}:\n  \
             %d{at} = load i64 %pa align 8\n  %e{at} = load i32 %i align 4\n  \
             %f{at} = sext i32 %e{at} to i64\n  %g{at} = offset %d{at} [%f{at} i64 4] 0\n  \
             %h{at} = load i32 %g{at} align 4\n  %k{at} = call @f(i32 %h{at}) -> i32\n  \
             %l{at} = add i32 %k{at}, %h{at}\n  store i32 %l{at} to %g{at} align 4\n  \
             %m{at} = load i32 %i align 4\n  %o{at} = add i32 %m{at}, 1\n  \
             store i32 %o{at} to %i align 4\n  jump b{}\n",
            block + 1,
            block + 2,
            block + 1,
            block + 2,
        );
    }
    text += "b21:\n  %q = load i32 %i align 4\n  return %q\n";
    text
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let mut texts = Vec::new();
    for file in &files {
        texts.push((file.clone(), std::fs::read_to_string(file)?));
    }
    if texts.is_empty() {
        texts.push((String::from("made here"), made()));
    }
    for (name, text) in &texts {
        measure(name, text)?;
    }
    Ok(())
}

fn measure(name: &str, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut compiler = Compiler::new(Options::default());
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    let mut times = Vec::new();
    let (mut count, mut size, mut total) = (0, 0, 0.0);
    for part in text.split("==== ") {
        // The first line is the name.
        let body = match text.starts_with("==== ") {
            true => part.split_once('\n').map_or("", |(_, body)| body),
            false => part,
        };
        if body.trim().is_empty() {
            continue;
        }
        let function = ir::parse(body)?;
        let code = match compiler.compile(&function) {
            Ok(code) => code,
            Err(uncovered) => {
                *reasons.entry(uncovered.what).or_default() += 1;
                continue;
            }
        };
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let _ = compiler.compile(&function);
            best = best.min(start.elapsed().as_secs_f64());
        }
        count += function.instructions.len();
        size += code.size;
        total += best;
        times.push(best);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{name}: {} functions, {count} instructions, {size} bytes, {:.2} ms, median {:.1} us, \
         {:.0} ns an instruction",
        times.len(),
        total * 1e3,
        times.get(times.len() / 2).unwrap_or(&0.0) * 1e6,
        total * 1e9 / count as f64
    );
    for (what, count) in reasons {
        println!("{count:6} {what}");
    }
    Ok(())
}
