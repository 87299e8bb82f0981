//! Events of a session as values: for embedders' listeners, `tracing`, traces and reports.
//!
//! An event is reported on the thread on which it happens: a compile worker, the controller, or a
//! thread that called into the library; never a thread in the middle of a first call. A session
//! without listeners pays one relaxed load per event.

pub(crate) mod baseline;
pub(crate) mod evictions;
pub(crate) mod memory;
pub(crate) mod recording;
pub(crate) mod staying;
pub(crate) mod tier_stats;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use uruk_base::Tier;
use uruk_base::locks::{RwLock, ranks};
use uruk_base::{FunctionId, Variant};
use uruk_report::Recorder;
use uruk_tiering::tuning::{Interval, Verdict};

use crate::fork::threads;
use uruk_base::CompiledBy;
use uruk_base::Level;

/// An event of a session. Times count from the start of the session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A version was compiled and linked.
    Compiled {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// Number of the version, unique in the session.
        version: u64,
        /// How it was compiled.
        tier: Tier,
        /// The compiler that made it.
        by: CompiledBy,
        /// Whether it is a continuation of a loop of another function: see
        /// [`Dylib::osr_loops`](crate::Dylib::osr_loops).
        continues: bool,
        /// Name of the thread that compiled it.
        worker: String,
        /// When it was queued, if it waited in the queue of the controller.
        queued: Option<Duration>,
        /// When compiling began.
        started: Duration,
        /// Time to extract, optimize and emit.
        compiling: Duration,
        /// Time to link and to register it.
        linking: Duration,
        /// IR instructions of the function before optimization.
        instructions: u32,
        /// Bytes of code.
        bytes: u64,
    },
    /// Native code of the program became a version of a function: see
    /// [`Dylib::adopt`](crate::Dylib::adopt).
    Adopted {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// Number of the version, unique in the session; it is of tier 0.
        version: u64,
        /// Bytes of its code.
        bytes: u64,
        /// When.
        at: Duration,
    },
    /// A first call was answered: its callers go on.
    Answered {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// Name of the thread that answered.
        worker: String,
        /// When it took the request.
        taken: Duration,
        /// When the code was published.
        at: Duration,
    },
    /// The slot of a function was stored to: calls run this version from now on.
    Published {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// The version that runs now.
        version: u64,
        /// Its tier.
        tier: Tier,
        /// The version that ran before, and its tier.
        replaced: Option<(u64, Tier)>,
        /// When.
        at: Duration,
    },
    /// A version could not be compiled; the earlier version still runs.
    Failed {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// The tier that was tried.
        tier: Tier,
        /// Why.
        message: String,
        /// When.
        at: Duration,
    },
    /// A version was ready too late: its function had been changed meanwhile.
    Dropped {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// The version.
        version: u64,
        /// When.
        at: Duration,
    },
    /// A compile was ended early: its function was replaced, removed, or is compiled for another
    /// tier instead; the session ends; or a fork could not wait, and it begins again.
    Cancelled {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// The version.
        version: u64,
        /// How it was to be compiled.
        tier: Tier,
        /// When.
        at: Duration,
    },
    /// A version turned out worse than the one before, which runs again.
    Reverted {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// The version that runs again.
        version: u64,
        /// Its tier.
        tier: Tier,
        /// When.
        at: Duration,
    },
    /// Functions were replaced, all at one instant: see [`Dylib::replace`](crate::Dylib::replace).
    /// Their new versions were reported before, each by an event of its own.
    Replaced {
        /// The replacement's number, which its rollback has, too.
        number: u64,
        /// Functions whose code was exchanged.
        functions: Vec<String>,
        /// Functions that are new.
        added: Vec<String>,
        /// Functions that were compiled again, because their code relied on a body that was
        /// replaced.
        dependents: Vec<String>,
        /// The level of the replacement.
        level: Level,
        /// Time from its turn until everything was exchanged.
        took: Duration,
        /// How long no call of the functions could begin.
        closed: Duration,
        /// When it was done.
        at: Duration,
    },
    /// A replacement was rolled back: its functions run their earlier code again. See
    /// [`Replaced::rollback`](crate::Replaced::rollback).
    RolledBack {
        /// The number of the replacement.
        number: u64,
        /// Functions whose former code runs again, without those that were removed meanwhile.
        functions: Vec<String>,
        /// Functions that were compiled again, because their code relied on a body that was
        /// withdrawn.
        dependents: Vec<String>,
        /// Time from its turn until everything was exchanged.
        took: Duration,
        /// How long no call of the functions could begin.
        closed: Duration,
        /// When it was done.
        at: Duration,
    },
    /// Two versions of a function were compared while they took turns: see
    /// [`JitBuilder::tune`](crate::JitBuilder::tune).
    Tuned {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// The version that was tried.
        candidate: u64,
        /// Its tier.
        tier: Tier,
        /// How it was compiled.
        variant: Variant,
        /// The result of the comparison.
        verdict: Verdict,
        /// Its speed relative to the earlier version.
        ratio: Interval,
        /// Pairs of slices that were measured.
        pairs: u32,
        /// The version that stays.
        version: u64,
        /// When.
        at: Duration,
    },
    /// The time that a tuned function takes has changed: its versions are compared again.
    Drifted {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// When.
        at: Duration,
    },
    /// Unused code of a function was evicted; its next call compiles it again.
    Evicted {
        /// The function.
        id: FunctionId,
        /// Its name.
        function: &'static str,
        /// The version that was evicted.
        version: u64,
        /// Bytes of its code.
        bytes: u64,
        /// When.
        at: Duration,
    },
    /// Sampling began, or could not begin.
    Sampling {
        /// The source in use; `None` if there is none.
        source: Option<String>,
        /// Sources that were tried before it, and the reason of each refusal.
        rejected: Vec<(String, String)>,
        /// When.
        at: Duration,
    },
    /// Samples were taken since the last event of this kind.
    Samples {
        /// When.
        at: Duration,
        /// The samples, in the order of time.
        hits: Vec<Hit>,
        /// Samples that were dropped for want of room.
        lost: u64,
        /// Threads that cannot be sampled now: they block the signal, or a limit is reached.
        uncovered: usize,
        /// Requested samples per second of a thread's processor time. Without news they are an
        /// eighth of the usual ones, and each counts as eight in `hits`.
        rate: u32,
        /// Share of the process's processor time that sampling took so far.
        overhead: f64,
        /// Functions that wait to be compiled at a higher tier.
        queue: usize,
    },
    /// The program has code that may go to unregistered stacks. From now on all memory is searched
    /// for them before code is freed.
    StacksSearched {
        /// The code, or how it was detected.
        cause: String,
        /// When.
        at: Duration,
    },
    /// Unused code is not freed, from now on or as long as a system call is refused. Each reason is
    /// reported once; [`MemoryStats::stays`](crate::MemoryStats::stays) has the present one.
    CodeStays {
        /// Why.
        cause: String,
        /// When.
        at: Duration,
    },
    /// LLVM reported a fatal error, or a compile panicked; the worker was given up and another one
    /// started.
    WorkerLost {
        /// LLVM's message, or the panic's text.
        message: String,
        /// When.
        at: Duration,
    },
}

/// Samples that were taken within a millisecond in the same code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hit {
    /// When, counted from the start of the session.
    pub at: Duration,
    /// Number and tier of the version; `None` outside of the program's compiled functions.
    pub code: Option<(u64, Tier)>,
    /// Their number.
    pub count: u32,
}

/// Called with each event, on the thread on which it happens; must not call into the session, nor
/// fork, nor wait for a thread that does. Signals are held back meanwhile. If it panics, the
/// compile of which the event tells fails.
pub(crate) type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// The listeners of a session, the recorder among them.
pub(crate) struct Events {
    /// When the session was made, on the sampler's clock.
    start_ns: u64,
    recorder: OnceLock<Recorder>,
    any: AtomicBool,
    listeners: RwLock<Vec<Listener>, ranks::EventsListeners>,
}

impl Default for Events {
    fn default() -> Events {
        Events {
            start_ns: uruk_profiler::now(),
            recorder: OnceLock::new(),
            any: AtomicBool::new(false),
            listeners: RwLock::default(),
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Time since the session was made.
    pub(crate) fn now(&self) -> Duration {
        self.at(uruk_profiler::now())
    }

    /// The session's time at a time of the sampler's clock. Both are one clock, so a pause of a
    /// thread between two readings does not separate them.
    pub(crate) fn at(&self, sampler_ns: u64) -> Duration {
        Duration::from_nanos(sampler_ns.saturating_sub(self.start_ns))
    }

    pub(crate) fn listen(&self, listener: Listener) {
        self.listeners.write().push(listener);
        // Relaxed: a new listener may miss events from before.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Records everything from now on. The first recorder stays.
    pub(crate) fn record(&self, recorder: Recorder) {
        let _ = self.recorder.set(recorder);
        self.any.store(true, Ordering::Relaxed);
    }

    /// The recorder, if there is one.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.get()
    }

    /// In the child of a fork: the recording is the parent's.
    pub(crate) fn after_fork_child(&self) {
        if let Some(recorder) = self.recorder.get() {
            recorder.forget();
        }
    }

    /// Reports the event that `make` returns, if there is a listener.
    pub(crate) fn tell(&self, make: impl FnOnce() -> Event) {
        let traced = tracing::enabled!(target: "uruk", tracing::Level::DEBUG);
        if !traced && !self.any.load(Ordering::Relaxed) {
            return;
        }
        let event = make();
        tracing::debug!(target: "uruk", ?event);
        if let Some(recorder) = self.recorder.get() {
            recording::take_down(recorder, &event);
        }
        let listeners = self.listeners.read();
        if listeners.is_empty() {
            return;
        }
        threads::as_guest(|| {
            for listener in &*listeners {
                listener(&event);
            }
        });
    }
}
