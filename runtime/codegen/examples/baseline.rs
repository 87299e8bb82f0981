//! What reading functions for the baseline compiler costs, and what of a file is covered:
//! `cargo run --release -p uruk-codegen --example baseline -- FILE.bc..`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use uruk_baseline::ir;
use uruk_codegen::fuzz::plan_alone;
use uruk_codegen::{Bitcode, Compile, Counters, Placement, Reader, SymbolId};

fn main() {
    for file in std::env::args().skip(1) {
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(cause) => {
                eprintln!("{file}: {cause}");
                continue;
            }
        };
        measure(&file, &bytes);
    }
}

/// Times that each function is read.
const ROUNDS: u32 = 9;

/// How a file was read.
#[derive(Default)]
struct Found {
    functions: u32,
    covered: u32,
    instructions: u32,
    heads: usize,
    reading: Duration,
    reasons: BTreeMap<&'static str, u32>,
}

fn measure(file: &str, bytes: &[u8]) {
    let bitcode = Bitcode::new(file, bytes);
    let mut reader = Reader::new(&bitcode).expect("bitcode");
    let summary = reader.summary().clone();
    let plan = plan_alone(&summary);
    let mut how = Compile::baseline().counting(Counters::Entry);
    for (leaves, what) in [(false, "plain"), (true, "with loops that are left")] {
        how.leaves = leaves;
        let mut found = Found::default();
        for (index, symbol) in summary.symbols.iter().enumerate() {
            if symbol.placement != Placement::Own {
                continue;
            }
            found.functions += 1;
            let function = SymbolId(index as u32);
            // The first time a body is made available.
            match reader.baseline(&plan, function, &how) {
                Ok(Ok(read)) => {
                    if let Err(broken) = ir::check(&read.function) {
                        println!("{}: {broken}\n{}", symbol.name, read.function);
                    }
                    if std::env::var_os("COMPARE").is_some() {
                        compare(&mut reader, &plan, function, &how, &read.compiled);
                    }
                    found.covered += 1;
                    found.heads += read.compiled.heads.counted.len();
                    found.instructions += read.compiled.instructions;
                    // Somebody else may use the processor meanwhile.
                    let times = (0..ROUNDS).map(|_| {
                        let start = Instant::now();
                        let _ = reader.baseline(&plan, function, &how);
                        start.elapsed()
                    });
                    found.reading += times.min().unwrap_or_default();
                }
                Ok(Err(reason)) => *found.reasons.entry(reason.what).or_default() += 1,
                Err(cause) => println!("{}: {cause}", symbol.name),
            }
        }
        report(file, what, &found);
    }
}

fn report(file: &str, what: &str, found: &Found) {
    let nanos = found.reading.as_nanos() as f64;
    println!(
        "{file}, {what}: {} of {} functions, {} heads, {:.0} ns an instruction, {:.1} us a function of {}",
        found.covered,
        found.functions,
        found.heads,
        nanos / f64::from(found.instructions.max(1)),
        nanos / 1000.0 / f64::from(found.covered.max(1)),
        found.instructions / found.covered.max(1),
    );
    let mut reasons: Vec<_> = found.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (reason, count) in reasons {
        println!("  {count:5} {reason}");
    }
}

/// Prints where a copy is said to be something else.
fn compare(
    reader: &mut Reader,
    plan: &uruk_codegen::ModulePlan,
    function: SymbolId,
    how: &Compile,
    read: &uruk_codegen::Compiled,
) {
    let copied = reader.compile(plan, function, how).expect("compiles");
    let facts = |it: &uruk_codegen::Compiled| {
        format!(
            "{} {} {} {} {:?} {} {} {:?} {:?}",
            it.instructions,
            it.loops,
            it.nested,
            it.calls,
            it.labels,
            it.keeps_stack,
            it.counts,
            it.heads,
            it.depends
        )
    };
    let (read, copied) = (facts(read), facts(&copied));
    if read != copied {
        println!(
            "{}:\n  {read}\n  {copied}",
            reader.summary().symbols[function.index()].name
        );
    }
}
