//! How soon a caller on another core runs code that was published.
//!
//! One thread calls a function without end and notes the time stamp counter when the
//! answer changes; another stores new code into the function's slot and notes when it
//! began. Both are pinned to processors of their own; the counters of the cores are
//! one timeline (`constant_tsc`, `nonstop_tsc`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use uruk_heap::{Heap, HeapConfig};
use uruk_stubs::{EntryAddress, StubTable, call_ptr};

use crate::bench::Bench;
use crate::row::{Figure, Row, Target, Unit};
use crate::{clock, stubs};

/// Publications of one round.
const PUBLICATIONS: usize = 2_000;
/// The limit that the issue asks for, in microseconds.
const LIMIT_US: f64 = 2.0;
/// How long the caller is left alone between publications, so that it is deep in its
/// loop and the branch predictor is sure of the old target.
const PAUSE: Duration = Duration::from_micros(20);
/// The longest wait for a publication to be seen.
const PATIENCE: Duration = Duration::from_secs(30);

/// From before the publishing call to after the first call of the new code returned.
///
/// # Errors
/// No memory for code, one processor only, or a publication that is never seen.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("a caller on another core needs another core");
    }
    let heap = Heap::new(HeapConfig::default())?;
    let table = StubTable::new(&heap)?;
    let function = table.allocate()?;
    let entries = [stubs::returning(&heap, 0)?, stubs::returning(&heap, 1)?];
    table.publish(function, EntryAddress(entries[0]));
    let stub = table.stub_address(function).0;
    let mut delays = Vec::new();
    for _ in 0..bench.rounds(20) {
        let publish = |number: usize| {
            table.publish(function, EntryAddress(entries[number % 2]));
        };
        delays.extend(round(stub, publish)?);
    }
    delays.sort_by(f64::total_cmp);
    let quantile = |q: f64| delays[((delays.len() - 1) as f64 * q) as usize];
    let late = delays.iter().filter(|us| **us > LIMIT_US).count();
    let note = format!(
        "{} publications; 99 of 100 within {:.2} us, 999 of 1000 within {:.2} us; {late} took more \
         than {LIMIT_US} us (a thread that others pushed off its processor counts too)",
        delays.len(),
        quantile(0.99),
        quantile(0.999)
    );
    let row = Row::new(
        "publication seen by a caller on another core",
        Unit::Us,
        Figure::of(delays),
    );
    Ok(vec![row.target(Target::AtMost(LIMIT_US)).note(note)])
}

/// The messages of the caller to the publisher.
struct Seen {
    /// Looks and changes so far. Written with `Release` after `ticks`, read with `Acquire`.
    count: AtomicU64,
    /// When the last one was seen.
    ticks: AtomicU64,
    /// Relaxed: nothing is handed over by it.
    stop: AtomicBool,
}

/// Microseconds of each publication.
fn round(stub: u64, publish: impl Fn(usize)) -> Result<Vec<f64>> {
    let seen = Seen {
        count: AtomicU64::new(0),
        ticks: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        scope.spawn(|| call_on(stub, &seen));
        let _pinned = clock::pin(0);
        let result = publish_all(&publish, &seen);
        seen.stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Calls the function until told to stop.
fn call_on(stub: u64, seen: &Seen) {
    let _pinned = clock::pin(1);
    // SAFETY: the stub of a function without arguments, bound before.
    let answer = || unsafe { call_ptr(stub) };
    let mut last = answer();
    // The publisher waits for this one.
    seen.count.fetch_add(1, Ordering::Release);
    while !seen.stop.load(Ordering::Relaxed) {
        let now = answer();
        if now != last {
            last = now;
            seen.ticks.store(clock::ticks(), Ordering::Relaxed);
            seen.count.fetch_add(1, Ordering::Release);
        }
    }
}

fn publish_all(publish: &impl Fn(usize), seen: &Seen) -> Result<Vec<f64>> {
    let (began, first_ticks) = (Instant::now(), clock::ticks());
    wait_beyond(0, seen)?;
    let mut spans = Vec::new();
    for number in 1..=PUBLICATIONS {
        spin(PAUSE);
        let count = seen.count.load(Ordering::Acquire);
        let start = clock::ticks();
        publish(number);
        wait_beyond(count, seen)?;
        spans.push(seen.ticks.load(Ordering::Relaxed).saturating_sub(start));
    }
    let ticks_per_us = (clock::ticks() - first_ticks) as f64 / began.elapsed().as_secs_f64() / 1e6;
    Ok(spans
        .into_iter()
        .map(|ticks| ticks as f64 / ticks_per_us)
        .collect())
}

/// Until the caller has counted further.
fn wait_beyond(count: u64, seen: &Seen) -> Result<()> {
    let start = Instant::now();
    while seen.count.load(Ordering::Acquire) == count {
        if start.elapsed() > PATIENCE {
            bail!("the caller saw nothing of a publication for {PATIENCE:?}");
        }
        std::hint::spin_loop();
    }
    Ok(())
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
