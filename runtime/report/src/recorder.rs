//! Takes down what happens while a program runs.
//!
//! Invariants:
//! - A recorder that is off costs one relaxed load per call and holds no memory.
//! - One that is on takes a lock and may allocate: it is for workers, the controller
//!   and the profiler's thread, never for a guest's stack inside the resolver.
//! - The lock is `std`'s, one futex word. A forked child calls
//!   [`Recorder::forget`] before anything else, which takes no lock: the recording
//!   belongs to the parent, and the lock may be held by a thread the child has not.
//! - A version is told compiled before it is told published, sampled or dropped; of
//!   one that was not, events and totals are kept and nothing else.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | `on` | `new`, `finish`, `forget` | relaxed: only says whether to take the lock |
//! | `state` | all others | under the lock |

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use uruk_base::locks::{Mutex, MutexGuard};

use crate::draft::Draft;
use crate::limits::Limits;
use crate::recording::{
    Compile, Exchange, FunctionId, Link, Lookup, Nanos, Recording, Run, Sampling, Tier, Variant,
    VersionId,
};

/// What the profiler's thread found since the last time.
#[derive(Debug, Clone, Copy)]
pub struct Drain<'a> {
    /// Now.
    pub time: Nanos,
    /// Samples, those in the same code at about the same time together.
    pub hits: &'a [Hit],
    /// Samples the source has lost since the last time.
    pub lost: u64,
    /// Threads the source cannot sample now.
    pub uncovered: u64,
    /// Samples per second that are asked for.
    pub rate_hz: f64,
    /// Measured cost of sampling so far, as a part of the program's CPU time so far.
    pub overhead: f64,
    /// Length of the compile queue.
    pub queue: u64,
}

/// Samples in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// When they were taken.
    pub time: Nanos,
    /// The version, or none for code that is not the runtime's.
    pub code: Option<(VersionId, Tier)>,
    /// How many.
    pub count: u32,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// Now.
    pub time: Nanos,
    /// CPU time of the whole process.
    pub cpu: Nanos,
    /// The exit status, if the program came to an end by itself.
    pub exit: Option<i32>,
    /// Functions the program defines.
    pub defined: u64,
}

/// Takes down what happens. Times are of one monotonic clock of the caller's choice.
#[derive(Debug)]
pub struct Recorder {
    on: AtomicBool,
    state: Mutex<Option<Box<Draft>>>,
}

impl Recorder {
    /// One that records nothing.
    pub const fn off() -> Recorder {
        Recorder {
            on: AtomicBool::new(false),
            state: Mutex::new(None),
        }
    }

    /// One that records a run which began at `origin`.
    pub fn new(run: Run, origin: Nanos, limits: Limits) -> Recorder {
        let recording = Recording {
            run,
            ..Recording::default()
        };
        Recorder {
            on: AtomicBool::new(true),
            state: Mutex::new(Some(Box::new(Draft::new(recording, origin, limits)))),
        }
    }

    /// Whether anything is recorded. Callers that would have to gather data first ask.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Turns the recorder off in a forked child. Takes no lock.
    pub fn forget(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    #[inline]
    fn with(&self, change: impl FnOnce(&mut Draft)) {
        if self.is_on()
            && let Some(draft) = self.lock().as_mut()
        {
            change(draft);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Draft>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where samples come from, once that is known.
    pub fn sampling(&self, sampling: &Sampling) {
        self.with(|draft| draft.recording.sampling = sampling.clone());
    }

    /// A lookup was answered.
    pub fn looked_up(&self, lookup: &Lookup) {
        self.with(|draft| draft.looked_up(lookup));
    }

    /// A version was compiled and linked. `name` is the function's.
    pub fn compiled(&self, name: &str, compile: &Compile) {
        self.with(|draft| draft.compiled(name, compile));
    }

    /// Something was linked.
    pub fn linked(&self, link: &Link) {
        self.with(|draft| draft.linked(link));
    }

    /// Native code is a version of a function from now on, of so many bytes; it is to be
    /// [published](Recorder::published) like any other.
    pub fn adopted(&self, name: &str, function: FunctionId, version: VersionId, bytes: u64) {
        self.with(|draft| draft.adopted(name, function, version, bytes));
    }

    /// A version went into its function's slot; the one that was there is retired.
    pub fn published(&self, time: Nanos, function: FunctionId, version: VersionId, tier: Tier) {
        self.with(|draft| draft.published(time, function, version, tier));
    }

    /// A compile of the function called `name` failed.
    pub fn failed(&self, time: Nanos, name: &str, function: FunctionId, tier: Tier, reason: &str) {
        self.with(|draft| draft.failed(time, name, function, tier, reason));
    }

    /// A compiled version will not be published.
    pub fn dropped(&self, time: Nanos, function: FunctionId, version: VersionId, reason: &str) {
        self.with(|draft| draft.dropped(time, function, version, reason));
    }

    /// Functions were replaced; their versions are told [published](Recorder::published), too.
    pub fn replaced(&self, time: Nanos, exchange: &Exchange) {
        self.with(|draft| draft.exchanged(time, exchange, false));
    }

    /// A replacement was taken back.
    pub fn rolled_back(&self, time: Nanos, exchange: &Exchange) {
        self.with(|draft| draft.exchanged(time, exchange, true));
    }

    /// The controller decided something, or anything else of note happened.
    pub fn noted(&self, time: Nanos, function: Option<FunctionId>, text: &str) {
        self.with(|draft| draft.noted(time, function, text));
    }

    /// Another way to compile a function was compared with what ran.
    pub fn tried(&self, function: FunctionId, variant: &Variant) {
        self.with(|draft| draft.tried(function, variant));
    }

    /// What the profiler's thread found.
    pub fn drained(&self, drain: &Drain<'_>) {
        self.with(|draft| draft.drained(drain));
    }

    /// How often a function was called so far, as far as that was counted.
    pub fn entries(&self, function: FunctionId, count: u64) {
        self.with(|draft| draft.entries(function, count));
    }

    /// The versions of the `functions` functions with the most samples (or, where
    /// nothing was sampled, the longest compiles): whose disassembly is worth having.
    pub fn hottest(&self, functions: usize) -> Vec<(FunctionId, Vec<VersionId>)> {
        let mut hottest = Vec::new();
        self.with(|draft| hottest = draft.hottest(functions));
        hottest
    }

    /// The machine code of a version as text.
    pub fn disassembled(&self, version: VersionId, text: &str) {
        self.with(|draft| draft.disassembled(version, text));
    }

    /// The recording as it would be if it ended now; it goes on. `listings` are machine code of
    /// versions as text, which only this copy gets. None if the recorder is off.
    pub fn so_far(&self, ending: Ending, listings: &[(VersionId, String)]) -> Option<Recording> {
        let mut copy = None;
        self.with(|draft| copy = Some(draft.clone()));
        let mut draft = copy?;
        for (version, text) in listings {
            draft.disassembled(*version, text);
        }
        Some(draft.finish(ending))
    }

    /// Ends the recording and turns the recorder off; none if it was off.
    pub fn finish(&self, ending: Ending) -> Option<Recording> {
        if !self.is_on() {
            return None;
        }
        let draft = self.lock().take();
        self.on.store(false, Ordering::Relaxed);
        draft.map(|draft| draft.finish(ending))
    }
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
