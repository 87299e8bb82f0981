//! Short windows of one program with and without sampling, in a process of their own.
//!
//! The program is a guest that repeats an iteration (`steady.h`) and asks the clock before
//! and after each; here the answer comes from [`clock_gettime`], so that every iteration is
//! a window, taken in a running program whose code, heap and tier stay what they are.
//! Windows come in fours: with, without, without, with, or the other way round, at random,
//! so that what changes steadily cancels out; every second four compares without and
//! without. Before each window sampling is switched twice, whatever the window's kind, so
//! switching is no difference either.
//!
//! A window costs what all threads of the process used of the processor meanwhile: kernels
//! count an interrupt for the thread it falls on, and the reader of the samples is one of
//! the threads. It reads in running time only, that is within windows with sampling.

use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use parking_lot::{Mutex, MutexGuard};
use uruk::{Event, Jit, PolicyConfig, SamplingSettings};
use uruk_tiering::Nanos;

use super::estimate::Estimate;
use crate::clock;

/// Seconds before the first window: code is at its last tier by then.
const WARM_UP: f64 = 2.0;

/// Fours of each kind at least, and seconds of windows at most.
const FEWEST: usize = 60;
const LONGEST: f64 = 70.0;

/// Per cent: windows go on until both standard errors are below.
const PRECISION: f64 = 0.06;

/// Iterations that the guest has room for.
pub const ITERATIONS: usize = 1_000_000;

/// How often is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// The rate of a program after the start.
    Steady,
    /// The rate of a program at the start.
    Burst,
    /// Ten times [`Rate::Burst`], to see that this measures.
    Tenfold,
}

impl Rate {
    /// All.
    pub const ALL: [Rate; 3] = [Rate::Steady, Rate::Burst, Rate::Tenfold];

    /// As in the command line.
    pub fn name(self) -> &'static str {
        match self {
            Rate::Steady => "steady",
            Rate::Burst => "burst",
            Rate::Tenfold => "tenfold",
        }
    }

    /// The profiler's own settings, but for the burst's length: none, or all the time.
    fn settings(self) -> SamplingSettings {
        let usual = SamplingSettings::default();
        match self {
            Rate::Steady => SamplingSettings {
                burst_ns: 0,
                ..usual
            },
            Rate::Burst => SamplingSettings {
                burst_ns: u64::MAX,
                ..usual
            },
            Rate::Tenfold => SamplingSettings {
                burst_ns: u64::MAX,
                burst_hz: 10 * usual.burst_hz,
                // No limit: what it costs is to be seen.
                burst_budget: 100.0,
                ..usual
            },
        }
    }
}

/// The results of a process.
#[derive(Clone, Debug)]
pub struct Found {
    /// Per cent that sampling adds, by four windows.
    pub sampled: Vec<f64>,
    /// The same of no sampling over no sampling.
    pub nothing: Vec<f64>,
    /// Samples in a second of windows with sampling.
    pub samples_per_second: f64,
    /// The part of what sampling adds that other threads than the program's use, per cent
    /// of the program's: the reader's.
    pub reader: f64,
    /// The overhead that the session tells of itself, per cent.
    pub told: f64,
    /// Samples that were lost.
    pub lost: u64,
    /// The source of the samples.
    pub source: String,
}

impl Found {
    /// Lines that [`Found::parse`] reads.
    fn text(&self) -> String {
        let list = |name: &str, figures: &[f64]| {
            let words: Vec<String> = figures.iter().map(f64::to_string).collect();
            format!("{name} {}\n", words.join(" "))
        };
        format!(
            "{}{}{}{}{}lost {}\nsource {}\n",
            list("sampled", &self.sampled),
            list("nothing", &self.nothing),
            list("rate", &[self.samples_per_second]),
            list("reader", &[self.reader]),
            list("told", &[self.told]),
            self.lost,
            self.source,
        )
    }

    /// Reads what a process printed.
    ///
    /// # Errors
    /// A line is missing.
    pub fn parse(text: &str) -> Result<Found> {
        let line = |name: &str| {
            let found = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            found.with_context(|| format!("no line `{name}` in what a process of windows printed"))
        };
        let list = |name: &str| -> Result<Vec<f64>> {
            let words = line(name)?.split_whitespace().map(str::parse);
            Ok(words.collect::<Result<_, _>>()?)
        };
        let number = |name: &str| -> Result<f64> { Ok(line(name)?.parse()?) };
        Ok(Found {
            sampled: list("sampled")?,
            nothing: list("nothing")?,
            samples_per_second: number("rate")?,
            reader: number("reader")?,
            told: number("told")?,
            lost: line("lost")?.parse()?,
            source: line("source")?.to_owned(),
        })
    }
}

/// A kind of window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sampled,
    Without,
    /// As [`Kind::Without`], to compare with it.
    WithoutAgain,
}

/// The windows of a comparison, the compared kind and [`Kind::Without`] in an order in
/// which both lie as early as late.
fn four(compared: Kind, inside: bool) -> [Kind; 4] {
    match inside {
        true => [Kind::Without, compared, compared, Kind::Without],
        false => [compared, Kind::Without, Kind::Without, compared],
    }
}

/// Per cent that the compared kind takes more, of the windows' times.
fn per_cent(kinds: [Kind; 4], times: [f64; 4]) -> f64 {
    let sum = |without: bool| -> f64 {
        let both = kinds.iter().zip(times);
        both.filter(|(kind, _)| (**kind == Kind::Without) == without)
            .map(|(_, time)| time)
            .sum()
    };
    (sum(false) / sum(true) - 1.0) * 100.0
}

/// Processor time, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// Of all threads.
    process: f64,
    /// Of the program's.
    thread: f64,
}

impl Used {
    fn now() -> Used {
        Used {
            thread: clock::thread_ns(),
            process: clock::process_ns(),
        }
    }

    fn since(self, earlier: Used) -> Used {
        Used {
            process: self.process - earlier.process,
            thread: self.thread - earlier.thread,
        }
    }

    fn add(&mut self, more: Used) {
        self.process += more.process;
        self.thread += more.thread;
    }

    /// The processor time of other threads than the program's, over the program's.
    fn others(self) -> f64 {
        (self.process - self.thread) / self.thread.max(1.0)
    }
}

/// The process's windows so far.
struct Windows {
    jit: Jit,
    began: Instant,
    warm: bool,
    /// Whether the clock is asked at the end of an iteration next.
    inside: bool,
    random: u64,
    kinds: [Kind; 4],
    times: Vec<f64>,
    start: Used,
    /// With and without sampling, so far.
    sampled: Used,
    without: Used,
    samples_before: u64,
    found: Found,
}

static WINDOWS: OnceLock<Mutex<Windows>> = OnceLock::new();

/// The values of the last event: the source of the samples, and the overhead in per cent.
static TOLD: Mutex<(String, f64)> = Mutex::new((String::new(), 0.0));

fn told() -> MutexGuard<'static, (String, f64)> {
    TOLD.lock()
}

impl Windows {
    fn new(jit: Jit) -> Windows {
        Windows {
            jit,
            began: Instant::now(),
            warm: false,
            inside: false,
            random: 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()),
            kinds: four(Kind::Sampled, false),
            times: Vec::new(),
            start: Used::default(),
            sampled: Used::default(),
            without: Used::default(),
            samples_before: 0,
            found: Found {
                sampled: Vec::new(),
                nothing: Vec::new(),
                samples_per_second: 0.0,
                reader: 0.0,
                told: 0.0,
                lost: 0,
                source: String::new(),
            },
        }
    }

    /// The program is between two pieces of work: an iteration begins or ends.
    fn at_boundary(&mut self) {
        if !self.warm {
            if self.began.elapsed().as_secs_f64() < WARM_UP || self.inside {
                self.inside = !self.inside;
                return;
            }
            self.warm = true;
            // The code stays the same, independent of the samples.
            self.jit.pause_tiers();
            self.began = Instant::now();
            self.samples_before = self.jit.stats().samples.0;
        }
        match self.inside {
            false => self.begin(),
            true => self.end(),
        }
        self.inside = !self.inside;
    }

    fn begin(&mut self) {
        if self.times.is_empty() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let compared = match self.found.sampled.len() > self.found.nothing.len() {
                true => Kind::WithoutAgain,
                false => Kind::Sampled,
            };
            self.kinds = four(compared, self.random >> 40 & 1 == 1);
        }
        match self.kinds[self.times.len()] {
            Kind::Sampled => {
                self.jit.pause_sampling();
                self.jit.resume_sampling();
            }
            Kind::Without | Kind::WithoutAgain => {
                self.jit.resume_sampling();
                self.jit.pause_sampling();
            }
        }
        self.start = Used::now();
    }

    fn end(&mut self) {
        let took = Used::now().since(self.start);
        match self.kinds[self.times.len()] {
            Kind::Sampled => self.sampled.add(took),
            Kind::Without | Kind::WithoutAgain => self.without.add(took),
        }
        self.times.push(took.process);
        let Ok(times) = <[f64; 4]>::try_from(self.times.as_slice()) else {
            return;
        };
        self.times.clear();
        let per_cent = per_cent(self.kinds, times);
        match self.kinds.contains(&Kind::Sampled) {
            true => self.found.sampled.push(per_cent),
            false => self.found.nothing.push(per_cent),
        }
        if self.is_enough() {
            self.tell();
        }
    }

    fn is_enough(&self) -> bool {
        if self.found.nothing.len() < FEWEST || self.kinds.contains(&Kind::Sampled) {
            return false;
        }
        let precise = |figures: &[f64]| {
            Estimate::of(figures).is_some_and(|estimate| estimate.error <= PRECISION)
        };
        self.began.elapsed().as_secs_f64() > LONGEST
            || precise(&self.found.sampled) && precise(&self.found.nothing)
    }

    /// Prints what was found and ends the process, in the middle of the program.
    fn tell(&mut self) -> ! {
        let (samples, lost) = self.jit.stats().samples;
        let samples = (samples - self.samples_before) as f64;
        self.found.samples_per_second = samples / (self.sampled.process / 1e9);
        self.found.reader = (self.sampled.others() - self.without.others()) * 100.0;
        self.found.lost = lost;
        (self.found.source, self.found.told) = told().clone();
        print!("{}", self.found.text());
        let _ = std::io::Write::flush(&mut std::io::stdout());
        // SAFETY: ends the process; nothing is left to be done.
        unsafe { libc::_exit(0) }
    }
}

/// The function that the guest calls in place of the C library's function of that name.
extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // A moment is three clocks, this one first.
    if clock == libc::CLOCK_MONOTONIC
        && let Some(windows) = WINDOWS.get()
    {
        let mut windows = windows.lock();
        windows.at_boundary();
    }
    // SAFETY: the guest's arguments, as it meant them.
    unsafe { libc::clock_gettime(clock, time) }
}

/// Runs a guest under `rate` and prints a [`Found`]; what `--windows RATE FILE ARGS` does.
///
/// # Errors
/// No such rate, no session, or a guest that ends before there were enough windows.
pub fn run(words: &[String]) -> Result<()> {
    let [rate, file, args @ ..] = words else {
        bail!("--windows takes a rate, a file and arguments");
    };
    let rate = Rate::ALL.into_iter().find(|one| one.name() == rate);
    let rate = rate.context("no such rate")?;
    let policy = PolicyConfig {
        // Looks at counters, and so drains, often enough to fall into windows of their kind.
        poll_max: Nanos::from_ms(10),
        ..PolicyConfig::default()
    };
    // Before there are threads, which inherit it. Where it is refused, others disturb more.
    // SAFETY: a plain call about this thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    let jit = Jit::builder()
        .policy(policy)
        .sampling_settings(rate.settings())
        .on_event(|event| match event {
            Event::Sampling { source, .. } => told().0 = source.clone().unwrap_or_default(),
            Event::Samples { overhead, .. } => told().1 = overhead * 100.0,
            _ => {}
        })
        .build()?;
    let hook = clock_gettime as *const () as usize;
    jit.add_ir(
        "clock",
        &format!(
            "define i32 @clock_gettime(i32 %clock, ptr %time) noinline {{\n\
             \x20 %result = call i32 inttoptr (i64 {hook} to ptr)(i32 %clock, ptr %time)\n\
             \x20 ret i32 %result\n}}\n"
        ),
    )?;
    let path = PathBuf::from(file);
    jit.main().add_file(&path)?;
    let main = jit.lookup("main")?;
    let mut argv = Vec::new();
    for word in std::iter::once(file).chain(args) {
        argv.push(CString::new(word.as_str())?.into_raw().cast_const());
    }
    argv.push(std::ptr::null());
    let _ = WINDOWS.set(Mutex::new(Windows::new(jit.clone())));
    // SAFETY: a guest of ours, whose constructors may run here; `main` has this type. The
    // arguments live for ever.
    let status = unsafe {
        jit.initialize()?;
        let main: extern "C" fn(c_int, *const *const c_char) -> c_int =
            std::mem::transmute(main as usize);
        main((argv.len() - 1) as c_int, argv.as_ptr())
    };
    bail!("the guest ended with status {status} before there were enough windows")
}

#[cfg(test)]
mod tests {
    use super::{Found, Kind, four, per_cent};

    #[test]
    fn what_changes_steadily_cancels_out() {
        for inside in [false, true] {
            let kinds = four(Kind::Sampled, inside);
            // Each window takes 1 more than the one before, and 2 per cent more if sampled.
            let times = std::array::from_fn(|at| match kinds[at] {
                Kind::Sampled => (100.0 + at as f64) * 1.02,
                _ => 100.0 + at as f64,
            });
            assert!((per_cent(kinds, times) - 2.0).abs() < 1e-9, "{inside}");
        }
        let times = [10.0, 10.0, 10.0, 10.0];
        assert_eq!(per_cent(four(Kind::WithoutAgain, true), times), 0.0);
    }

    #[test]
    fn what_is_printed_is_read() {
        let found = Found {
            sampled: vec![1.5, -0.25],
            nothing: vec![0.0],
            samples_per_second: 97.5,
            reader: 0.5,
            told: 0.25,
            lost: 3,
            source: "perf cpu-clock".to_owned(),
        };
        let read = Found::parse(&format!("noise\n{}", found.text())).expect("its own lines");
        assert_eq!((read.sampled, read.nothing), (found.sampled, found.nothing));
        assert_eq!((read.lost, read.source), (3, found.source));
        assert_eq!((read.samples_per_second, read.reader), (97.5, 0.5));
        assert_eq!(read.told, 0.25);
        assert!(Found::parse("sampled 1").is_err());
    }
}
