//! Ready lookups: by name, by symbol, in batches, in the last of ten dylibs; by one thread and
//! by two.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use uruk::{Jit, Symbol};

use super::super::readings::Meter;
use super::{answers, target};
use crate::clock::{self, Moment};

/// Symbols that are looked up in turn.
const READY: usize = 1_000;
/// How many a batch has.
const BATCH: usize = 20;
/// How many dylibs are searched.
const DEEP: usize = 10;

/// Races of all kinds, `rounds` times.
///
/// # Errors
/// What the library reports; an address that is another's.
pub fn run(meter: &mut Meter, rounds: usize, count: usize) -> Result<()> {
    let names: Vec<String> = (0..READY).map(|n| format!("function_{n}")).collect();
    let jit = Jit::new()?;
    // Ten libraries, of which the first searches the others.
    let front = jit.create_dylib("front")?;
    for n in 0..DEEP {
        let dylib = jit.create_dylib(&format!("dylib_{n}"))?;
        // SAFETY: a function of this program.
        unsafe { dylib.define_address(&format!("own_{n}"), target(n) as *const ())? };
        for (at, name) in names.iter().enumerate().filter(|_| n + 1 == DEEP) {
            // SAFETY: as above.
            unsafe { dylib.define_address(name, target(at) as *const ())? };
        }
        front.add_to_link_order(&dylib)?;
    }
    for (n, name) in names.iter().enumerate() {
        // SAFETY: a function of this program.
        unsafe { jit.main().define_address(name, target(n) as *const ())? };
        answers(jit.lookup(name)?, n)?;
        answers(front.lookup(name)?, n)?;
    }
    let main = jit.main();
    let symbols: Vec<Symbol> = names.iter().map(|name| jit.intern(name)).collect();
    for (n, symbol) in symbols.iter().enumerate() {
        answers(main.lookup_symbol(*symbol)?, n)?;
    }
    // Every READY symbol is in a batch that begins where it stands.
    let twice: Vec<Symbol> = symbols.iter().chain(&symbols).copied().collect();
    meter.phase("setup", 1);
    let by_name = |n: usize| jit.lookup(&names[n % READY]).unwrap_or(0);
    let deep = |n: usize| front.lookup_symbol(symbols[n % READY]).unwrap_or(0);
    let by_symbol = |n: usize| main.lookup_symbol(symbols[n % READY]).unwrap_or(0);
    // Every BATCH-th call looks that many up.
    let in_batches = |n: usize| {
        if !n.is_multiple_of(BATCH) {
            return 0;
        }
        let batch = &twice[n % READY..n % READY + BATCH];
        let found = main.lookup_symbols(batch).unwrap_or_default();
        found.into_iter().fold(0, u64::wrapping_add)
    };
    // Some milliseconds each: longer ones are never alone on a machine with other work.
    for _ in 0..rounds {
        for threads in [1, 2] {
            let name = |kind: &str| format!("{kind}_{threads}");
            race(meter, &name("name"), threads, count, &by_name)?;
            race(meter, &name("symbol"), threads, 4 * count, &by_symbol)?;
            race(meter, &name("batch"), threads, 2 * count, &in_batches)?;
            race(meter, &name("deep"), threads, count, &deep)?;
        }
    }
    meter.phase("races", 1);
    Ok(())
}

/// `count` calls on each of some threads that start together.
fn race(
    meter: &Meter,
    name: &str,
    threads: usize,
    count: usize,
    once: &(impl Fn(usize) -> u64 + Sync),
) -> Result<()> {
    let arrived = AtomicUsize::new(0);
    let total = AtomicU64::new(0);
    let run = &|index: usize| {
        let _pinned = clock::pin(index);
        // Spinning, so that all have a processor when they start; relaxed, as nothing but the
        // count is handed over.
        arrived.fetch_add(1, Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < threads {
            std::hint::spin_loop();
        }
        let start = Moment::now();
        let sum = (0..count).fold(0, |sum: u64, n| sum.wrapping_add(once(n)));
        let end_ns = clock::wall_ns();
        let end = Moment::now();
        total.fetch_add(sum, Ordering::Relaxed);
        (start, end, end_ns)
    };
    let runs: Vec<(Moment, Moment, f64)> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|index| scope.spawn(move || run(index)))
            .collect();
        let ended = all.into_iter().filter_map(|thread| thread.join().ok());
        ended.collect()
    });
    ensure!(runs.len() == threads, "a thread panicked");
    let expected = (0..count).fold(0, |sum: u64, n| sum.wrapping_add(target(n % READY)));
    let sum = total.into_inner();
    ensure!(
        sum == expected.wrapping_mul(threads as u64),
        "a lookup gave another address"
    );
    let starts = runs.iter().map(|run| run.0.wall_ns());
    let ends = runs.iter().map(|run| run.2);
    let wall_ns = ends.fold(0.0, f64::max) - starts.fold(f64::INFINITY, f64::min);
    let delays = runs.iter().map(|(start, end, _)| end.delay_since(*start));
    let disturbed = delays.fold(0.0, f64::max) / wall_ns;
    meter.race(name, threads * count, wall_ns, disturbed);
    Ok(())
}
