//! What a gate costs: `cargo run --release -p uruk-stubs --example gate`.
//!
//! Prints the time from close to open for sets nobody calls, and what two callers of
//! one function lose while it is replaced about 1,000 times a second by a gate: their
//! processor time for a call in slices with and without replacements, in turn, and how
//! often they slept. Processor time, because a machine that does other things too says
//! nothing by the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uruk_heap::{Heap, HeapConfig, Pool};
use uruk_stubs::{FunctionId, StubTable, Target, call_ptr};

const SLICE: Duration = Duration::from_millis(50);
const ROUNDS: usize = 20;
const PERIOD: Duration = Duration::from_millis(1);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// `mov eax, value; ret`
fn returns(heap: &Heap, value: u8) -> Result<u64> {
    let mut draft = heap.allocate(Pool::Code, 6, 16)?;
    draft.write(0, &[0xb8, value, 0, 0, 0, 0xc3])?;
    Ok(draft.seal()?.address())
}

fn main() -> Result<()> {
    let heap = Heap::new(HeapConfig::default())?;
    let table = StubTable::new(&heap)?;
    let codes = [returns(&heap, 1)?, returns(&heap, 2)?];
    let functions: Vec<FunctionId> = table.allocate_many(1000)?.collect();
    for &f in &functions {
        table.publish(f, codes[0]);
    }
    for size in [1, 100, 1000] {
        let set = &functions[..size];
        let new: Vec<_> = set.iter().map(|&f| (f, Target::Code(codes[1]))).collect();
        let mut times = Vec::new();
        for _ in 0..201 {
            let started = Instant::now();
            let gate = table.close_gate(set)?;
            gate.open(&new)?;
            times.push(started.elapsed());
        }
        times.sort();
        println!("{size:5} functions, close to open: {:?} median", times[100]);
    }
    loss(&table, functions[0], codes)
}

/// What a caller has done so far.
#[derive(Default)]
struct Done {
    calls: AtomicU64,
    cpu_ns: AtomicU64,
    sleeps: AtomicU64,
}

/// Processor time of this thread in ns, and how often it slept.
fn usage() -> (u64, u64) {
    // SAFETY: zero is a value of both plain structs, which the calls fill in.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        (ns, usage.ru_nvcsw as u64)
    }
}

/// Calls until it is told to stop.
fn call(stub: u64, stop: &AtomicBool, done: &Done) {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            // SAFETY: a function without arguments.
            unsafe { call_ptr(stub) };
        }
        done.calls.fetch_add(10_000, Ordering::Relaxed);
        let (cpu, sleeps) = usage();
        done.cpu_ns.store(cpu, Ordering::Relaxed);
        done.sleeps.store(sleeps, Ordering::Relaxed);
    }
}

fn loss(table: &Arc<StubTable>, f: FunctionId, codes: [u64; 2]) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let done: Arc<[Done; 2]> = Arc::default();
    let stub = table.stub_address(f);
    let callers = [0, 1].map(|i| {
        let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
        thread::spawn(move || call(stub, &stop, &done[i]))
    });
    let sum = |field: fn(&Done) -> &AtomicU64| -> u64 {
        done.iter()
            .map(|done| field(done).load(Ordering::Relaxed))
            .sum()
    };
    let now = || [sum(|d| &d.calls), sum(|d| &d.cpu_ns), sum(|d| &d.sleeps)];
    // Without and with: calls, time and sleeps; and replacements.
    let (mut totals, mut flips) = ([[0; 3]; 2], 0);
    for slice in 0..2 * ROUNDS {
        let (before, started) = (now(), Instant::now());
        while started.elapsed() < SLICE {
            thread::sleep(PERIOD);
            if slice % 2 == 1 {
                let new = [(f, Target::Code(codes[flips % 2]))];
                table.close_gate(&[f])?.open(&new)?;
                flips += 1;
            }
        }
        for (total, (after, before)) in totals[slice % 2]
            .iter_mut()
            .zip(now().into_iter().zip(before))
        {
            *total += after - before;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.join().expect("callers do not panic");
    }
    let [without, with] = totals.map(|[calls, cpu, _]| cpu as f64 / calls as f64);
    let extra = (with - without) * totals[1][0] as f64 / flips as f64;
    println!("a call: {without:.3} ns without, {with:.3} ns with replacements");
    println!("a replacement: {extra:.0} ns of the callers' time");
    // Two callers have 2 ms between two replacements.
    println!("at 1,000 a second: {:.2} % of it", 100.0 * extra / 2e6);
    let slept = totals[1][2] as f64 / flips as f64;
    println!("a replacement: {slept:.3} sleeps, of {flips}");
    Ok(())
}
