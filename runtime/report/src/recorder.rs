//! Records events while a program runs.
//!
//! Invariants:
//! - A recorder that is off costs one relaxed load per call and holds no memory.
//! - One that is on takes a lock and may allocate. It is for workers, the controller and the
//!   profiler's thread; it must not run on a guest's stack inside the resolver.
//! - The lock is `std`'s, one futex word. A forked child calls [`Recorder::forget`] before any
//!   other method, which takes no lock: the recording belongs to the parent, and a thread that does
//!   not exist in the child may hold the lock.
//! - A version is reported as compiled before it is reported as published, sampled or dropped; for
//!   other versions only events and totals are kept.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | `on` | `new`, `finish`, `forget` | relaxed: only tells whether to take the lock |
//! | `state` | all others | under the lock |

use std::sync::atomic::{AtomicBool, Ordering};

use uruk_base::locks::{Mutex, MutexGuard};

use crate::draft::Draft;
use crate::limits::Limits;
use crate::recording::{
    Compile, Exchange, FunctionId, Link, Lookup, Nanos, Recording, Run, Sampling, Tier, Variant,
    VersionId,
};

/// The data of the profiler's thread since its last report.
#[derive(Debug, Clone, Copy)]
pub struct Drain<'a> {
    /// The present time.
    pub time: Nanos,
    /// Samples, grouped by code and approximate time.
    pub hits: &'a [Hit],
    /// Samples that the source has lost since the last report.
    pub lost: u64,
    /// Threads that the source cannot sample at present.
    pub uncovered: u64,
    /// Requested samples per second.
    pub rate_hz: f64,
    /// Measured cost of sampling so far, as a share of the program's CPU time so far.
    pub overhead: f64,
    /// Length of the compile queue.
    pub queue: u64,
}

/// Samples in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// The time of the samples.
    pub time: Nanos,
    /// The version; none for code that is not the runtime's.
    pub code: Option<(VersionId, Tier)>,
    /// Number of samples.
    pub count: u32,
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// The present time.
    pub time: Nanos,
    /// CPU time of the whole process.
    pub cpu: Nanos,
    /// The exit status, if the program ended by itself.
    pub exit: Option<i32>,
    /// Functions the program defines.
    pub defined: u64,
}

/// Records events. Times are of one monotonic clock of the caller's choice.
#[derive(Debug)]
pub struct Recorder {
    on: AtomicBool,
    state: Mutex<Option<Box<Draft>>>,
}

impl Recorder {
    /// Creates a recorder that is off.
    pub const fn off() -> Recorder {
        Recorder {
            on: AtomicBool::new(false),
            state: Mutex::new(None),
        }
    }

    /// Creates a recorder of a run that began at `origin`.
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

    /// Whether the recorder is on. Callers that would have to gather data check it first.
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
        self.state.lock()
    }

    /// Records the source of samples, once it is known.
    pub fn sampling(&self, sampling: &Sampling) {
        self.with(|draft| draft.recording.sampling = sampling.clone());
    }

    /// Records a lookup.
    pub fn looked_up(&self, lookup: &Lookup) {
        self.with(|draft| draft.looked_up(lookup));
    }

    /// Records that a version was compiled and linked. `name` is the function's.
    pub fn compiled(&self, name: &str, compile: &Compile) {
        self.with(|draft| draft.compiled(name, compile));
    }

    /// Records a link.
    pub fn linked(&self, link: &Link) {
        self.with(|draft| draft.linked(link));
    }

    /// Records native code as a version of a function, of `bytes` bytes;
    /// [publish](Recorder::published) it like any other version.
    pub fn adopted(&self, name: &str, function: FunctionId, version: VersionId, bytes: u64) {
        self.with(|draft| draft.adopted(name, function, version, bytes));
    }

    /// Records that a version was stored in its function's slot; the previous one is retired.
    pub fn published(&self, time: Nanos, function: FunctionId, version: VersionId, tier: Tier) {
        self.with(|draft| draft.published(time, function, version, tier));
    }

    /// Records that a compile of the function `name` failed.
    pub fn failed(&self, time: Nanos, name: &str, function: FunctionId, tier: Tier, reason: &str) {
        self.with(|draft| draft.failed(time, name, function, tier, reason));
    }

    /// Records that a compiled version will not be published.
    pub fn dropped(&self, time: Nanos, function: FunctionId, version: VersionId, reason: &str) {
        self.with(|draft| draft.dropped(time, function, version, reason));
    }

    /// Records a replacement of functions; also report their versions as
    /// [published](Recorder::published).
    pub fn replaced(&self, time: Nanos, exchange: &Exchange) {
        self.with(|draft| draft.exchanged(time, exchange, false));
    }

    /// Records the rollback of a replacement.
    pub fn rolled_back(&self, time: Nanos, exchange: &Exchange) {
        self.with(|draft| draft.exchanged(time, exchange, true));
    }

    /// Records a decision of the controller, or another note.
    pub fn noted(&self, time: Nanos, function: Option<FunctionId>, text: &str) {
        self.with(|draft| draft.noted(time, function, text));
    }

    /// Records the comparison of a compile variant with the running version.
    pub fn tried(&self, function: FunctionId, variant: &Variant) {
        self.with(|draft| draft.tried(function, variant));
    }

    /// Records the data of the profiler's thread.
    pub fn drained(&self, drain: &Drain<'_>) {
        self.with(|draft| draft.drained(drain));
    }

    /// Records the number of counted calls of a function so far.
    pub fn entries(&self, function: FunctionId, count: u64) {
        self.with(|draft| draft.entries(function, count));
    }

    /// The versions of the `functions` functions with the most samples (without samples: the
    /// longest compiles). Their disassembly is worth recording.
    pub fn hottest(&self, functions: usize) -> Vec<(FunctionId, Vec<VersionId>)> {
        let mut hottest = Vec::new();
        self.with(|draft| hottest = draft.hottest(functions));
        hottest
    }

    /// Records the disassembly of a version.
    pub fn disassembled(&self, version: VersionId, text: &str) {
        self.with(|draft| draft.disassembled(version, text));
    }

    /// A copy of the recording up to now; the recording continues. `listings` are disassemblies of
    /// versions, which only this copy gets. None if the recorder is off.
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
