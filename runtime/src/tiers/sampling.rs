//! Samples: from the profiler's source to the controller and to statistics.
//!
//! Sampling starts once the program's own threads have used some processor time: for a short run,
//! opening a source takes too long (milliseconds), and entry counters already find hot functions by
//! then. While many functions are called first, most of the process's time is compiles, and the
//! program runs for some 20 us between two of them: an event costs a timer of the kernel at each
//! switch, and takes hardly a sample. The controller's thread and the reclaiming thread drain
//! samples. Any thread may pause and resume them, under a lock and a pass of the gate.
//!
//! A pause stops the clock of the drains as well: one that was due in `left` is due in `left` after
//! the pause. Samples from before a pause are drained once it has lasted for `REST_AFTER`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_profiler::{Choice, Sampler, Settings, Sizes, Summary};
use uruk_reclaim::Edge;

mod clock;
mod drain;
mod heap;
mod shared;
#[cfg(test)]
mod tests;

use crate::code::sampled::untag;
use clock::{Clock, Rarer};
use heap::Heap;
use shared::SharedCode;

use crate::events::{Events, Hit};
use crate::fork::threads;
use crate::host::clock::thread_time;
use crate::tiers::settings::TierSettings;

/// Processor time of the program's threads after which sampling starts. At 60 ms of the process,
/// compiles included, short runs of SQLite took 1.04 to 1.11 of the time and of zstd 1.15 to 1.20; two
/// samples were taken in SQLite's. 150 ms gained no more, and bzip2 used more processor time.
const START_AFTER: Duration = Duration::from_millis(100);

/// Largest number of neighbour pairs, and of threads, that are kept.
const NEIGHBOURS: usize = 1 << 14;

/// Time between two [`Event::Samples`].
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Samples in the same code that were taken within such a time are reported together.
const TOGETHER_NS: u64 = 1_000_000;

/// The sampling state of a session.
pub(crate) struct Sampling {
    choice: Choice,
    sizes: Sizes,
    rates: Settings,
    /// Samples in functions of the session.
    taken: AtomicU64,
    /// The same, with those elsewhere, scaled to the usual rate.
    usual: AtomicU64,
    state: Mutex<SamplingState, ranks::SamplingState>,
}

#[derive(Default)]
struct SamplingState {
    source: SampleSource,
    /// The process is a fork's child since.
    forked: bool,
    clock: Clock,
    /// Factor by which samples are rarer than usual.
    rarer: Rarer,
    told: Duration,
    /// Report all samples at the next drain.
    tell_now: bool,
    /// Samples that were not reported yet.
    hits: Vec<Hit>,
    /// Lost samples that were reported.
    lost: u64,
    /// Threads that are not sampled though they should be, as reported.
    uncovered: usize,
    /// The function last seen, by thread; emptied when it grows.
    last: HashMap<i32, u32>,
    /// How often one function was seen after another in a thread, the lesser first.
    neighbours: HashMap<(u32, u32), u64>,
    /// Native code of several functions.
    shared: SharedCode,
    /// Samples in native code that calls no longer reach, by function: of threads that are in a loop
    /// since before. The first look at each does not count.
    stayed: HashMap<u32, u64>,
}

/// The source of samples.
#[derive(Default)]
pub(in crate::tiers) enum SampleSource {
    /// Not opened yet.
    #[default]
    Later,
    /// A thread is opening one.
    Opening,
    Open(Box<Sampler>),
    /// No source works here.
    Nothing,
}

impl SampleSource {
    fn sampler(&self) -> Option<&Sampler> {
        match self {
            SampleSource::Open(sampler) => Some(sampler),
            SampleSource::Later | SampleSource::Opening | SampleSource::Nothing => None,
        }
    }
}

impl Sampling {
    /// The state of a session.
    pub(crate) fn new(settings: &TierSettings) -> Sampling {
        Sampling {
            choice: settings.samples(),
            sizes: settings.sizes,
            rates: settings.rates,
            taken: AtomicU64::new(0),
            usual: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SamplingState> {
        self.state.lock()
    }

    /// Functions that were sampled one after the other.
    pub(crate) fn neighbours(&self) -> Vec<Edge<FunctionId>> {
        let state = self.lock();
        let edge = |(&(a, b), &weight): (&(u32, u32), &u64)| Edge {
            from: FunctionId(a),
            to: FunctionId(b),
            weight,
        };
        state.neighbours.iter().map(edge).collect()
    }

    /// Ends sampling. Under a pass.
    pub(crate) fn close(&self) {
        self.lock().source = SampleSource::Nothing;
    }

    /// In the child of a fork.
    pub(crate) fn after_fork_child(&self) {
        self.lock().forked = true;
    }

    /// Samples that were taken in functions of the session so far. The statistics of functions are
    /// scaled to the usual rate.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Samples so far, those elsewhere included, scaled to the usual rate.
    pub(crate) fn usual(&self) -> u64 {
        self.usual.load(Ordering::Relaxed)
    }

    /// The part of all samples that were in native code of a function while calls reached other code.
    pub(crate) fn stayed(&self, function: FunctionId) -> f64 {
        let state = self.lock();
        let stayed = state.stayed.get(&function.index()).copied().unwrap_or(0);
        stayed as f64 / self.usual().max(1) as f64
    }

    /// The counts and the cost of sampling so far; `None` if nothing is sampled.
    pub(crate) fn summary(&self) -> Option<Summary> {
        Some(self.lock().source.sampler()?.summary())
    }
}

impl SamplingState {
    /// In the child of a fork, starts over before anything else.
    fn follow_fork(&mut self) {
        if !std::mem::take(&mut self.forked) {
            return;
        }
        self.rarer = Rarer::default();
        match &mut self.source {
            // The thread that was opening a source is not in the child.
            SampleSource::Opening => self.source = SampleSource::Later,
            SampleSource::Open(sampler) => {
                if let Err(cause) = sampler.restart_in_child() {
                    tracing::debug!(%cause, "no samples in the child of a fork");
                    self.source = SampleSource::Nothing;
                }
            }
            SampleSource::Later | SampleSource::Nothing => {}
        }
    }

    /// Makes the source that a thread opened the session's, paused if the session is.
    fn opened(&mut self, source: SampleSource) {
        self.source = source;
        if self.clock.is_paused()
            && let SampleSource::Open(sampler) = &mut self.source
        {
            sampler.pause();
        }
    }

    fn pause(&mut self, now: Duration) {
        self.follow_fork();
        self.clock.pause(now);
        if let SampleSource::Open(sampler) = &mut self.source {
            sampler.pause();
        }
    }

    fn resume(&mut self, now: Duration) {
        self.follow_fork();
        self.clock.resume(now);
        if let SampleSource::Open(sampler) = &mut self.source {
            sampler.resume();
        }
    }
}
