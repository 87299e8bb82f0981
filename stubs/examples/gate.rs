//! Measures the cost of a gate: `cargo run --release -p uruk-stubs --example gate`.
//!
//! Prints the time from close to open for sets without callers. Then two callers of one function
//! run while it is replaced about 1,000 times a second by a gate that stays closed for some time.
//! Printed are their own time for a call in slices with and without replacements, in turn, and how
//! often they slept. Own time is processor time and sleep. Time in the run queue is left out,
//! because wall-clock time is not meaningful on a busy machine.
//!
//! `same code` opens to the former code: only the cost of the gate remains. With other code, each
//! call takes half a nanosecond more for long after a change: the processor predicts a jump that
//! had two targets by its history. A store into the slot without a gate costs the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uruk_heap::{Heap, HeapConfig, Pool};
use uruk_stubs::{EntryAddress, FunctionId, StubTable, Target, call_ptr};

const SLICE: Duration = Duration::from_millis(50);
const ROUNDS: usize = 20;
const PERIOD: Duration = Duration::from_millis(1);
/// Times for which the gate stays closed, in microseconds.
const CLOSED_US: [u64; 4] = [0, 2, 10, 40];
/// Calls between two readings of the clocks.
const BATCH: u64 = 50_000;

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
        table.publish(f, EntryAddress(codes[0]));
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
    for us in CLOSED_US {
        for (what, codes) in [("same code", [codes[0]; 2]), ("other code", codes)] {
            println!("gate closed for {us} us, {what}");
            loss(&table, functions[0], codes, Duration::from_micros(us))?;
        }
    }
    Ok(())
}

/// The work of a caller so far.
#[derive(Default)]
struct Done {
    calls: AtomicU64,
    cpu_ns: AtomicU64,
    /// Wall-clock time, less the time in the run queue.
    own_ns: AtomicU64,
    sleeps: AtomicU64,
}

/// Processor time of this thread, its time in the run queue, both in ns, and the number of its
/// sleeps.
fn usage() -> (u64, u64, u64) {
    // SAFETY: zero is a value of both plain structs, which the calls fill in.
    let (cpu, sleeps) = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        (ns, usage.ru_nvcsw as u64)
    };
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let queued = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    (cpu, queued.unwrap_or(0), sleeps)
}

/// Calls the stub until `stop` is set.
fn call(stub: u64, stop: &AtomicBool, done: &Done) {
    let began = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            // SAFETY: a function without arguments.
            unsafe { call_ptr(stub) };
        }
        let (cpu, queued, sleeps) = usage();
        let own = (began.elapsed().as_nanos() as u64).saturating_sub(queued);
        done.calls.fetch_add(BATCH, Ordering::Relaxed);
        done.cpu_ns.store(cpu, Ordering::Relaxed);
        done.own_ns.store(own, Ordering::Relaxed);
        done.sleeps.store(sleeps, Ordering::Relaxed);
    }
}

fn loss(table: &Arc<StubTable>, f: FunctionId, codes: [u64; 2], closed: Duration) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let done: Arc<[Done; 2]> = Arc::default();
    let stub = table.stub_address(f).0;
    let callers = [0, 1].map(|i| {
        let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
        thread::spawn(move || call(stub, &stop, &done[i]))
    });
    let sum = |field: fn(&Done) -> &AtomicU64| -> u64 {
        done.iter()
            .map(|done| field(done).load(Ordering::Relaxed))
            .sum()
    };
    let now = || {
        [
            sum(|d| &d.calls),
            sum(|d| &d.cpu_ns),
            sum(|d| &d.own_ns),
            sum(|d| &d.sleeps),
        ]
    };
    // Without and with replacements: calls, times and sleeps; and the number of replacements.
    let (mut totals, mut flips) = ([[0; 4]; 2], 0);
    for slice in 0..2 * ROUNDS {
        let (before, started) = (now(), Instant::now());
        while started.elapsed() < SLICE {
            thread::sleep(PERIOD);
            if slice % 2 == 1 {
                let new = [(f, Target::Code(codes[flips % 2]))];
                let gate = table.close_gate(&[f])?;
                let since = Instant::now();
                while !closed.is_zero() && since.elapsed() < closed {}
                gate.open(&new)?;
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
    for (what, field) in [("processor time", 1), ("own time", 2)] {
        let [without, with] = totals.map(|total| total[field] as f64 / total[0] as f64);
        let extra = (with - without) * totals[1][0] as f64 / flips as f64;
        // Two callers have 2 ms between two replacements.
        println!(
            "  {what}: a call {without:.3} ns without, {with:.3} ns with replacements; a replacement \
             {extra:.0} ns of both callers; at 1,000 a second {:.2} %",
            100.0 * extra / 2e6
        );
    }
    let slept = totals[1][3] as f64 / flips as f64;
    println!("  a replacement: {slept:.3} sleeps, of {flips}");
    Ok(())
}
