//! Threads that call one function without end, and what replacing it costs them.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use uruk::{Replacement, Tier};
use uruk_reclaim::Config;
use uruk_stubs::call_ptr;

use super::program::{HOT, program};
use super::world::{Reclaimer, World, body};
use crate::bench::{Bench, progress};
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};
use crate::tiny_object::functions_object;

/// Threads that call.
pub const CALLERS: usize = 2;
/// A function of a set with the hot one.
const BESIDE: &str = "f0";
/// Calls between two looks at the clock.
const BATCH: u64 = 1_000;
/// Turns of a call's loop: a call takes about 20 ns.
pub const TURNS: u32 = 32;
/// Bytes of a version.
pub const BYTES: usize = 256;
/// Replacements a second.
const PACE: f64 = 1_000.0;
/// With or without replacements, at a time.
const WINDOW: Duration = Duration::from_millis(60);
/// Per cent.
const LIMIT: f64 = 5.0;

/// The counters that callers write. Statistics only: every access is relaxed.
#[derive(Default)]
pub struct Callers {
    stop: AtomicBool,
    lines: [Line; CALLERS],
}

/// Of one caller; no other writes its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    calls: AtomicU64,
    cpu_ns: AtomicU64,
    /// An answer was older than the one before it.
    back: AtomicBool,
    /// The kernel's id of the thread.
    tid: AtomicI32,
}

/// The work of all callers so far.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Calls of each.
    calls: [f64; CALLERS],
    /// Processor time of each, in nanoseconds.
    cpu: [f64; CALLERS],
    /// How long each was ready while others had its processor, in nanoseconds.
    delay: [f64; CALLERS],
    at: Instant,
}

/// The part of a call's time that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Of the processor.
    Processor,
    /// By the clock on the wall, but for the time in which the caller was ready and others
    /// had its processor: of the processor, and asleep.
    Own,
}

/// Nanoseconds of a call, the mean of the callers.
#[derive(Clone, Copy, Debug)]
struct Taken {
    processor: f64,
    /// Ready, without a processor.
    queued: f64,
    wall: f64,
}

impl Taken {
    fn of(self, of: Of) -> f64 {
        match of {
            Of::Processor => self.processor,
            Of::Own => self.wall - self.queued,
        }
    }
}

impl Done {
    /// Processor time of all callers since `earlier`, in nanoseconds.
    pub fn cpu_since(&self, earlier: &Done) -> f64 {
        self.cpu.iter().sum::<f64>() - earlier.cpu.iter().sum::<f64>()
    }

    fn call_since(&self, earlier: &Done) -> Taken {
        let calls = |one: usize| self.calls[one] - earlier.calls[one];
        let wall = self.at.duration_since(earlier.at).as_nanos() as f64;
        let mean = |of: &dyn Fn(usize) -> f64| {
            let each = (0..CALLERS).map(|one| of(one) / calls(one));
            each.sum::<f64>() / CALLERS as f64
        };
        Taken {
            processor: mean(&|one| self.cpu[one] - earlier.cpu[one]),
            queued: mean(&|one| self.delay[one] - earlier.delay[one]),
            wall: mean(&|_| wall),
        }
    }
}

impl Callers {
    /// Calls the function at `stub` on threads of their own while `work` runs. Its answers
    /// must not fall: versions answer by their number.
    ///
    /// # Errors
    /// Those of `work`, and an answer of old code after one of new code.
    pub fn during<T>(stub: u64, work: impl FnOnce(&Callers) -> Result<T>) -> Result<T> {
        let callers = Callers::default();
        let result = thread::scope(|scope| {
            for line in &callers.lines {
                let stop = &callers.stop;
                scope.spawn(move || call(stub, line, stop));
            }
            let ready = |line: &Line| line.calls.load(Ordering::Relaxed) > 0;
            while !callers.lines.iter().all(ready) {
                thread::yield_now();
            }
            let result = work(&callers);
            callers.stop.store(true, Ordering::Relaxed);
            result
        });
        let back = |line: &Line| line.back.load(Ordering::Relaxed);
        ensure!(
            !callers.lines.iter().any(back),
            "a caller reached an old version after a newer one"
        );
        result
    }

    /// So far.
    pub fn done(&self) -> Done {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        Done {
            calls: std::array::from_fn(|one| get(&self.lines[one].calls)),
            cpu: std::array::from_fn(|one| get(&self.lines[one].cpu_ns)),
            delay: std::array::from_fn(|one| {
                clock::delay_ns_of(self.lines[one].tid.load(Ordering::Relaxed))
            }),
            at: Instant::now(),
        }
    }
}

fn call(stub: u64, line: &Line, stop: &AtomicBool) {
    let mut newest = 0;
    line.tid.store(clock::thread_id(), Ordering::Relaxed);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            // SAFETY: the stub of a function without arguments that has code.
            let answer = unsafe { call_ptr(stub) } & u64::from(u32::MAX);
            if answer < newest {
                line.back.store(true, Ordering::Relaxed);
            }
            newest = answer;
        }
        line.cpu_ns
            .store(clock::thread_ns() as u64, Ordering::Relaxed);
        line.calls.fetch_add(BATCH, Ordering::Relaxed);
    }
}

/// Slowdown of callers at 1,000 replacements a second, of linked code, with a compile
/// each, and of sets.
///
/// # Errors
/// No memory for code, or a compile fails.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    Ok(vec![
        linked(bench)?,
        compiled(bench)?,
        replaced(bench, &[HOT])?,
        replaced(bench, &[HOT, BESIDE])?,
    ])
}

fn linked(bench: &Bench) -> Result<Row> {
    let world = World::new([body(0, TURNS, BYTES)])?;
    let reclaimer = Reclaimer::new(&world, &Config::default())?;
    let stop = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        scope.spawn(|| reclaimer.run(&stop));
        let measured = Callers::during(world.stub(0), |callers| {
            compare(bench, callers, Of::Processor, |number| {
                world.replace(0, &body(number as u32, TURNS, BYTES))
            })
        });
        stop.store(true, Ordering::Relaxed);
        measured
    })?;
    Ok(measured.row("callers' slowdown by replacements of linked code", ""))
}

fn compiled(bench: &Bench) -> Result<Row> {
    let jit = program(0)?;
    jit.compile_at(HOT, Tier::Baseline)?;
    let stub = jit.lookup(HOT)?;
    let measured = Callers::during(stub, |callers| {
        compare(bench, callers, Of::Processor, |_| {
            Ok(jit.compile_at(HOT, Tier::Baseline)?)
        })
    })?;
    let row = measured.row("  with a compile each", "");
    drop(jit);
    clock::until_one_thread();
    Ok(row)
}

/// Sets from object files, by `Dylib::replace`. One function is exchanged by a store into
/// its slot; at the gate before several, callers wait.
fn replaced(bench: &Bench, set: &[&str]) -> Result<Row> {
    let jit = program(1)?;
    jit.compile_at(HOT, Tier::Baseline)?;
    let stub = jit.lookup(HOT)?;
    let mut closed = Vec::new();
    let measured = Callers::during(stub, |callers| {
        compare(bench, callers, Of::Own, |number| {
            let code = body(7 + number as u32, TURNS, 16);
            let object = functions_object(set, &code)?;
            let new = Replacement::object("hot.o", object);
            let replaced = jit.main().replace(new)?;
            closed.push(replaced.closed.as_secs_f64() * 1e6);
            Ok(())
        })
    })?;
    closed.sort_by(f64::total_cmp);
    let of = |part: f64| closed[((closed.len() - 1) as f64 * part) as usize];
    let gate = format!(
        "; the gate is closed for {:.1} us (median), {:.1} us (99 of 100), over {} sets",
        of(0.5),
        of(0.99),
        closed.len()
    );
    let name = match set.len() {
        1 => "  by `replace`, one function",
        _ => "  by `replace`, two functions: callers wait at the gate",
    };
    let row = measured.row(name, &gate);
    drop(jit);
    clock::until_one_thread();
    Ok(row)
}

struct Compared {
    of: Of,
    slowdown: Vec<f64>,
    noise: Vec<f64>,
    /// Of the processor, asleep, ready without a processor, and all of it.
    parts: [Vec<f64>; 4],
    rate: f64,
}

/// Windows without, with, and without replacements, in turns.
fn compare(
    bench: &Bench,
    callers: &Callers,
    of: Of,
    mut replace: impl FnMut(usize) -> Result<()>,
) -> Result<Compared> {
    progress("callers beside replacements, window by window");
    let mut compared = Compared {
        of,
        slowdown: Vec::new(),
        noise: Vec::new(),
        parts: Default::default(),
        rate: 0.0,
    };
    let (mut number, mut busy) = (0, 0.0);
    for _ in 0..bench.rounds(60) {
        let (before, _) = window(callers, |_| Ok(()))?;
        let (with, took) = window(callers, |_| {
            number += 1;
            replace(number)
        })?;
        busy += took;
        let (after, _) = window(callers, |_| Ok(()))?;
        let without = |part: &dyn Fn(&Taken) -> f64| (part(&before) + part(&after)) / 2.0;
        let slowdown = (with.of(of) / without(&|taken| taken.of(of)) - 1.0) * 100.0;
        compared.slowdown.push(slowdown);
        compared
            .noise
            .push((after.of(of) / before.of(of) - 1.0) * 100.0);
        let whole = without(&|taken| taken.wall);
        let parts: [&dyn Fn(&Taken) -> f64; 4] = [
            &|taken| taken.processor,
            &|taken| taken.wall - taken.queued - taken.processor,
            &|taken| taken.queued,
            &|taken| taken.wall,
        ];
        for (part, figures) in parts.iter().zip(&mut compared.parts) {
            figures.push((part(&with) - without(part)) / whole * 100.0);
        }
    }
    compared.rate = number as f64 / busy;
    Ok(compared)
}

/// Does `work` at the pace for one window: what a call took meanwhile, and seconds.
fn window(callers: &Callers, mut work: impl FnMut(usize) -> Result<()>) -> Result<(Taken, f64)> {
    let (start, earlier) = (Instant::now(), callers.done());
    let mut done = 0;
    while start.elapsed() < WINDOW {
        // A machine that cannot keep the pace ends the window, too.
        while start.elapsed() < WINDOW && done as f64 <= start.elapsed().as_secs_f64() * PACE {
            work(done)?;
            done += 1;
        }
        let due = Duration::from_secs_f64(done as f64 / PACE);
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
    let taken = callers.done().call_since(&earlier);
    Ok((taken, start.elapsed().as_secs_f64()))
}

impl Compared {
    fn row(self, name: &str, more: &str) -> Row {
        let parts = self
            .parts
            .map(|figures| Figure::of(figures).median().unwrap_or(f64::NAN));
        let note = format!(
            "{} of a call on {CALLERS} threads, windows of {} ms with {:.0} replacements a \
             second between windows without, in which the same thread wakes as often; `A and A`: the window \
             after over the one before; of the clock's time {:+.1} % are the caller's processor, {:+.1} % \
             asleep, {:+.1} % ready while others had the processor, {:+.1} % all of it{more}",
            match self.of {
                Of::Processor => "processor time",
                Of::Own => "processor time and sleep",
            },
            WINDOW.as_millis(),
            self.rate,
            parts[0],
            parts[1],
            parts[2],
            parts[3],
        );
        Row::new(name, Unit::PerCent, Figure::of(self.slowdown))
            .peer("A and A", Figure::of(self.noise))
            .target(Target::AtMost(LIMIT))
            .note(note)
    }
}
