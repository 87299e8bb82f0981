//! Measures the cost of reading functions for the baseline compiler from bitcode, without LLVM, and
//! the coverage of a file: `cargo run --release -p uruk-codegen --example plain -- FILE.bc..`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use uruk_codegen::plan::plan_alone;
use uruk_codegen::{Bitcode, Compile, Counters, Numbered, Plain, Reader, SymbolId};

fn main() {
    for file in std::env::args().skip(1) {
        match std::fs::read(&file) {
            Ok(bytes) => measure(&file, &bytes),
            Err(cause) => eprintln!("{file}: {cause}"),
        }
    }
}

/// Times that each function is read.
const ROUNDS: u32 = 9;

fn measure(file: &str, bytes: &[u8]) {
    let bitcode = Bitcode::new(file, bytes);
    let reader = Reader::new(&bitcode).expect("bitcode");
    let summary = reader.summary().clone();
    let start = Instant::now();
    let Some(numbered) = Numbered::read(&bitcode, &summary) else {
        println!("{file}: for LLVM only");
        return;
    };
    let module = start.elapsed();
    let plan = plan_alone(&summary);
    let how = Compile::baseline().counting(Counters::Entry);
    let mut leaving_how = how.clone();
    leaving_how.leaves = true;
    let mut plain = Plain::default();
    let (mut reading, mut lowering, mut leaving) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut with_loops, mut slowest) = (0u32, Duration::ZERO);
    let (mut functions, mut covered, mut instructions) = (0u32, 0u32, 0u32);
    let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
    for index in 0..summary.symbols.len() as u32 {
        let function = SymbolId(index);
        if numbered.body(function).is_none() {
            continue;
        }
        functions += 1;
        // Other processes may use the processor meanwhile, so the minimum of all rounds counts.
        let (mut to_read, mut to_lower, mut to_leave) =
            (Duration::MAX, Duration::MAX, Duration::MAX);
        let (mut done, mut has_loops) = (None, false);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let read = numbered.read_into(function, &mut plain);
            to_read = to_read.min(start.elapsed());
            let start = Instant::now();
            let read = read.and_then(|()| numbered.baseline(&plan, function, &how, &mut plain));
            to_lower = to_lower.min(start.elapsed());
            done = Some(read.map(|read| {
                let found = read.compiled.instructions;
                has_loops = read.compiled.loops != 0;
                plain.take_back(read.function);
                found
            }));
        }
        if has_loops {
            for _ in 0..ROUNDS {
                let start = Instant::now();
                let read = numbered.baseline(&plan, function, &leaving_how, &mut plain);
                to_leave = to_leave.min(start.elapsed());
                if let Ok(read) = read {
                    plain.take_back(read.function);
                }
            }
        }
        match done {
            Some(Ok(found)) => {
                if has_loops {
                    with_loops += 1;
                    let more = to_leave.saturating_sub(to_lower);
                    leaving += more;
                    slowest = slowest.max(more);
                }
                covered += 1;
                instructions += found;
                reading += to_read;
                lowering += to_lower;
            }
            Some(Err(refused)) => *reasons.entry(refused.to_string()).or_default() += 1,
            None => {}
        }
    }
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    let each = |time| micros(time) / f64::from(covered.max(1));
    println!(
        "{file}: {covered} of {functions} functions, {:.1} us to read and {:.1} us to lower one of {} instructions; the module {:.0} us",
        each(reading),
        each(lowering),
        instructions / covered.max(1),
        micros(module),
    );
    println!(
        "  {with_loops} with loops, {:.1} us more for one to find how they can be left, {:.0} at most",
        micros(leaving) / f64::from(with_loops.max(1)),
        micros(slowest),
    );
    let mut reasons: Vec<_> = reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (reason, count) in reasons {
        println!("  {count:5} {reason}");
    }
}
