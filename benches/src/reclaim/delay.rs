//! The longest delay that a scan of its stack means to a thread.
//!
//! Threads run deep in their stacks and look at their own processor clock: a gap between
//! two looks is what the kernel and the handler of the handshake took of their time, and
//! nothing that other processes took of the machine.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use uruk_heap::{Heap, HeapConfig, Pool};
use uruk_roots::{Config, How, Roots, Wanted};

use crate::bench::Bench;
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};
use crate::stubs;

/// Threads that are looked at.
const THREADS: usize = 2;
/// Bytes of stack below their first frame.
const DEPTH: usize = 256 << 10;
/// Microseconds.
const LIMIT: f64 = 50.0;
/// After a scan, until its delays are known.
const SETTLE: Duration = Duration::from_micros(500);
const WITHIN: Duration = Duration::from_millis(100);

/// The longest gap of a thread since the last reading, in nanoseconds. Statistics only: every
/// access is relaxed.
#[derive(Default)]
#[repr(align(128))]
struct Gap(AtomicU64);

/// Scans of running threads with deep stacks.
///
/// # Errors
/// Threads cannot be looked at here.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let heap = Heap::new(HeapConfig::default())?;
    let code = stubs::trivial(&heap)?;
    let mut config = Config::default();
    config.time_work = true;
    let roots = Roots::new(heap.pool_range(Pool::Code), config)?;
    let wanted = Wanted::new(std::iter::once(code..code + 16).collect())?;
    let stop = AtomicBool::new(false);
    let gaps: [Gap; THREADS] = Default::default();
    let mut scans = Scans::default();
    thread::scope(|scope| -> Result<()> {
        for gap in &gaps {
            let builder = thread::Builder::new().stack_size(4 * DEPTH);
            let stop = &stop;
            builder.spawn_scoped(scope, move || {
                let top = 0_u8;
                deep(&raw const top as usize, gap, stop);
            })?;
        }
        let running = |gap: &Gap| gap.0.load(Ordering::Relaxed) > 0;
        while !gaps.iter().all(running) {
            thread::yield_now();
        }
        let result = (0..bench.rounds(400)).try_for_each(|_| scans.take(&roots, &wanted, &gaps));
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    scans.rows()
}

/// Figures of all scans, in microseconds.
#[derive(Default)]
struct Scans {
    gaps: Vec<f64>,
    quiet: Vec<f64>,
    handlers: Vec<f64>,
    worked: Vec<f64>,
    deliveries: Vec<f64>,
    scanned: u64,
    blocked: usize,
}

impl Scans {
    fn take(&mut self, roots: &Roots, wanted: &Wanted, gaps: &[Gap]) -> Result<()> {
        longest(gaps);
        let report = roots.scan(wanted, WITHIN);
        thread::sleep(SETTLE);
        self.gaps.push(longest(gaps));
        ensure!(report.trouble.is_none(), "a scan failed: {report:?}");
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        for thread in report.threads {
            match thread.how {
                How::Running {
                    delivered_in,
                    answered_in,
                    worked_for,
                    scanned,
                    ..
                } => {
                    self.handlers.push(us(answered_in));
                    self.worked.extend(worked_for.map(us));
                    self.deliveries.push(us(delivered_in));
                    self.scanned = self.scanned.max(scanned);
                }
                How::Blocked { .. } => self.blocked += 1,
                _ => {}
            }
        }
        // As long again without a scan.
        longest(gaps);
        thread::sleep(report.took + SETTLE);
        self.quiet.push(longest(gaps));
        Ok(())
    }

    fn rows(mut self) -> Result<Vec<Row>> {
        ensure!(!self.handlers.is_empty(), "no thread was caught running");
        ensure!(
            self.scanned >= DEPTH as u64,
            "stacks of {} bytes only",
            self.scanned
        );
        let figures = [
            &mut self.gaps,
            &mut self.quiet,
            &mut self.handlers,
            &mut self.worked,
            &mut self.deliveries,
        ];
        for figures in figures {
            figures.sort_by(f64::total_cmp);
        }
        let quantile = |of: &[f64], q: f64| of[((of.len() - 1) as f64 * q) as usize];
        let spread = |of: &[f64]| {
            let at = [0.5, 0.9, 0.99, 1.0].map(|q| format!("{:.1}", quantile(of, q)));
            at.join(", ")
        };
        let note = format!(
            "{} scans of {THREADS} running threads with {} KiB of stack, by their own processor clock, the \
             kernel's delivery included; half, 9 of 10, 99 of 100 and all within {} us, without a scan {} us",
            self.gaps.len(),
            self.scanned >> 10,
            spread(&self.gaps),
            spread(&self.quiet),
        );
        let longest = Figure::of([quantile(&self.gaps, 0.99)]);
        let quiet = Figure::of([quantile(&self.quiet, 0.99)]);
        let wall = format!(
            "wall-clock time, others' use of the processors included: half, 9 of 10, 99 of 100 and all \
             within {} us",
            spread(&self.handlers)
        );
        let worked = format!(
            "the same by the thread's own processor clock: within {} us",
            spread(&self.worked)
        );
        let delivery = format!("the same, within {} us", spread(&self.deliveries));
        Ok(vec![
            Row::new(
                "longest delay by a scan, 99 of 100 in the handler",
                Unit::Us,
                Figure::of([quantile(&self.handlers, 0.99)]),
            )
            .target(Target::AtMost(LIMIT))
            .note(wall),
            Row::new(
                "  of that, work",
                Unit::Us,
                Figure::of([quantile(&self.worked, 0.99)]),
            )
            .target(Target::AtMost(LIMIT))
            .note(worked),
            Row::new("  with the kernel's delivery", Unit::Us, longest)
                .peer("without a scan", quiet)
                .note(note),
            Row::new(
                "  from the request to the handler: the kernel's part",
                Unit::Us,
                Figure::of(self.deliveries),
            )
            .note(delivery),
        ])
    }
}

/// The longest gap of any thread since the last call, in microseconds.
fn longest(gaps: &[Gap]) -> f64 {
    let each = gaps.iter().map(|gap| gap.0.swap(0, Ordering::Relaxed));
    each.max().unwrap_or(0) as f64 / 1e3
}

/// Goes down to `DEPTH` bytes below `top`, then looks at the clock.
fn deep(top: usize, gap: &Gap, stop: &AtomicBool) {
    let mark = 0_u8;
    let here = black_box(&raw const mark) as usize;
    if top - here < DEPTH {
        deep(top, gap, stop);
    } else {
        look(gap, stop);
    }
    // The frame stays: what follows the call is no tail call.
    black_box(&mark);
}

fn look(gap: &Gap, stop: &AtomicBool) {
    let mut last = clock::thread_ns();
    while !stop.load(Ordering::Relaxed) {
        let now = clock::thread_ns();
        gap.0.fetch_max((now - last) as u64, Ordering::Relaxed);
        last = now;
    }
}
