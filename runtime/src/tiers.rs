//! How functions move through the tiers: settings, the controller, its thread and the
//! background compiles.
//!
//! One thread looks at the counters, reports them to `uruk_tiering`'s [`Controller`],
//! and hands its decisions to background workers of low priority, which are made when
//! there is first something to do. Nobody who calls a function waits for any of them.
//!
//! Everything below is locked under a pass of the gate (`service`), so that no fork
//! happens meanwhile; sleeping threads are parked, which holds no lock.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `TierState::control` | the controller is told or asked something | `Counts` |
//! | `TierState::jobs` | a job is put or taken | nothing |

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use uruk_codegen::{Compile, Counters, fatal};
use uruk_profiler::Choice;
use uruk_stubs::FunctionId;
use uruk_tiering::{
    Config, Controller, Decision, FirstCode, Nanos, Outcome, Publication, Purpose, Tier, VersionId,
};

use crate::core::Core;
use crate::counts::{Count, Counts};
use crate::error::Error;
use crate::event::Event;
use crate::sampling::Sampling;
use crate::service;
use crate::versions::{Made, Request, Versions};

/// Niceness of background workers: a first call's compile goes before them.
const NICENESS: i32 = 10;

/// How functions are compiled over their life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tiers {
    /// At tier 1 when first called; what turns out to be hot moves up in the
    /// background.
    #[default]
    Auto,
    /// All at one tier, when first called; none moves.
    Fixed(Tier),
}

/// Settings of [`TierState`].
#[derive(Debug, Clone, Default)]
pub(crate) struct TierSettings {
    pub(crate) tiers: Tiers,
    /// Whether tiers 2 and 3 may contract floating-point operations.
    pub(crate) contract: bool,
    pub(crate) policy: Config,
    pub(crate) sampling: Choice,
}

/// What a session knows of tiers.
pub(crate) struct TierState {
    settings: TierSettings,
    pub(crate) counts: Counts,
    pub(crate) versions: Versions,
    pub(crate) sampling: Sampling,
    control: Mutex<Control>,
    jobs: Mutex<Jobs>,
    /// When the controller's thread looks again, in ns since the session was made;
    /// `u64::MAX` while it is awake. A hint: who sees too late a time wakes it in vain.
    asleep_until: AtomicU64,
    thread: Mutex<Option<Thread>>,
    /// The function the program starts at: index plus one; 0 for none.
    entry_point: AtomicUsize,
}

struct Control {
    controller: Controller,
    /// Functions whose published version counts, and the counts last seen.
    watched: Vec<(FunctionId, Count)>,
    /// Entries counted so far.
    entries: HashMap<FunctionId, u64>,
}

/// What waits for background workers, and who they are.
#[derive(Default)]
struct Jobs {
    waiting: VecDeque<(Request, Duration)>,
    idle: Vec<Thread>,
    workers: usize,
}

impl TierState {
    /// Of a session whose code lies in `code`.
    pub(crate) fn new(settings: TierSettings, code: Range<u64>) -> TierState {
        let choice = match settings.tiers {
            Tiers::Auto => settings.sampling,
            Tiers::Fixed(_) => Choice::Off,
        };
        let versions = Versions::default();
        let controller = Controller::new(&settings.policy, Arc::clone(&versions.ids));
        TierState {
            settings,
            counts: Counts::default(),
            versions,
            sampling: Sampling::new(choice, code.start, code.end - code.start),
            control: Mutex::new(Control {
                controller,
                watched: Vec::new(),
                entries: HashMap::new(),
            }),
            jobs: Mutex::default(),
            asleep_until: AtomicU64::new(u64::MAX),
            thread: Mutex::new(None),
            entry_point: AtomicUsize::new(0),
        }
    }

    /// True if functions move between tiers.
    pub(crate) fn is_auto(&self) -> bool {
        self.settings.tiers == Tiers::Auto
    }

    /// Background compiles at the same time.
    pub(crate) fn background_jobs(&self) -> usize {
        match self.is_auto() {
            true => self.settings.policy.jobs as usize,
            false => 0,
        }
    }

    /// The tier of a function's first version.
    pub(crate) fn first(&self) -> Tier {
        match self.settings.tiers {
            Tiers::Auto => Tier::Baseline,
            Tiers::Fixed(tier) => tier,
        }
    }

    /// The settings of a compile at `tier`.
    pub(crate) fn how(&self, tier: Tier) -> Compile {
        let codegen_tier = match tier {
            Tier::Baseline => uruk_codegen::Tier::Baseline,
            Tier::Optimized => uruk_codegen::Tier::Optimized,
            Tier::Guided => uruk_codegen::Tier::Guided,
        };
        let counters = match (self.is_auto(), tier) {
            (true, Tier::Baseline) => Counters::Entry,
            _ => Counters::None,
        };
        Compile::at(codegen_tier)
            .counting(counters)
            .contracting(self.settings.contract)
    }

    /// Says at which function the program starts: it is called once.
    pub(crate) fn set_entry_point(&self, id: FunctionId) {
        self.entry_point
            .store(id.index() as usize + 1, Ordering::Relaxed);
    }

    pub(crate) fn is_entry_point(&self, id: FunctionId) -> bool {
        self.entry_point.load(Ordering::Relaxed) == id.index() as usize + 1
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At which tier a function of these facts starts.
    pub(crate) fn start_tier(&self, id: FunctionId, facts: &uruk_tiering::Facts) -> Tier {
        match self.settings.tiers {
            Tiers::Auto => self.control().controller.start_tier(key(id), facts),
            Tiers::Fixed(tier) => tier,
        }
    }

    /// A function got its first code.
    pub(crate) fn on_compiled(&self, now: Duration, id: FunctionId, tier: Tier, made: &Made) {
        if !self.is_auto() {
            return;
        }
        let first = FirstCode {
            version: made.version,
            tier,
            facts: made.facts,
            compile: nanos(made.compiling + made.linking),
            counters: made.counts,
        };
        let mut control = self.control();
        control.controller.on_compiled(nanos(now), key(id), &first);
        if made.counts {
            control.watched.push((id, Count::default()));
        }
        let soon = nanos(now) + control.controller.poll_interval(nanos(now));
        drop(control);
        // Waking costs more than being late by the length of a look.
        let until = self.asleep_until.load(Ordering::Relaxed);
        if until != u64::MAX && until > soon.0 + self.settings.policy.poll_min.0 {
            self.wake();
        }
    }

    pub(crate) fn on_samples(
        &self,
        now: Nanos,
        id: uruk_tiering::FunctionId,
        version: VersionId,
        samples: u32,
        time: Nanos,
    ) {
        let mut control = self.control();
        control
            .controller
            .on_samples(now, id, version, samples, time);
    }

    pub(crate) fn on_sampling(&self, period: Option<Nanos>) {
        self.control().controller.on_sampling(period);
    }

    /// Entries of functions whose code counted them, up to now.
    pub(crate) fn entries(&self) -> Vec<(FunctionId, u64)> {
        let mut control = self.control();
        let Control {
            watched, entries, ..
        } = &mut *control;
        // The controller misses what is read here, at the end of a run.
        self.counts.read(watched, |id, added| {
            *entries.entry(id).or_default() += u64::from(added.entries);
        });
        entries.iter().map(|(&id, &count)| (id, count)).collect()
    }

    /// The choice of tiers in a word.
    pub(crate) fn describe(&self) -> String {
        match self.settings.tiers {
            Tiers::Auto => String::from("auto"),
            Tiers::Fixed(tier) => tier.number().to_string(),
        }
    }

    /// Functions that wait for a better version.
    pub(crate) fn queue_length(&self) -> usize {
        let stats = self.control().controller.stats();
        stats.queued + stats.requested
    }

    /// Has the controller look at once.
    fn wake(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            thread.unpark();
        }
    }

    /// Tells the threads to end; they are woken to see it.
    pub(crate) fn stop(&self) {
        self.wake();
        for worker in &self.jobs().idle {
            worker.unpark();
        }
    }

    /// In the child of a fork: no thread of ours is left, nothing under way will end.
    pub(crate) fn after_fork_child(&self) {
        *self.jobs() = Jobs::default();
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.asleep_until.store(u64::MAX, Ordering::Relaxed);
        self.control().controller.abandon();
        self.sampling.after_fork_child();
    }
}

/// Starts the controller's thread, if functions move between tiers.
pub(crate) fn start(core: &Arc<Core>) -> Result<(), Error> {
    if !core.tiers.is_auto() {
        return Ok(());
    }
    let core = Arc::clone(core);
    service::spawn_thread(String::from("uruk-tiers"), move || control(&core))
}

/// The controller's thread.
fn control(core: &Arc<Core>) {
    {
        let _pass = service::enter();
        let mut thread = core
            .tiers
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *thread = Some(std::thread::current());
    }
    while !core.is_stopping() {
        let interval = {
            let _pass = service::enter();
            core.look()
        };
        let until = nanos(core.events.now() + interval).0;
        core.tiers.asleep_until.store(until, Ordering::Relaxed);
        std::thread::park_timeout(interval);
        core.tiers.asleep_until.store(u64::MAX, Ordering::Relaxed);
    }
}

/// A background worker: waits for jobs until the session ends.
fn work(core: &Arc<Core>) {
    lower_priority();
    while !core.is_stopping() {
        let job = {
            let _pass = service::enter();
            let mut jobs = core.tiers.jobs();
            let job = jobs.waiting.pop_front();
            if job.is_none() {
                jobs.idle.push(std::thread::current());
            }
            job
        };
        match job {
            Some((request, queued)) => core.run_job(request, queued),
            // Woken for nothing it lines up again; it is in line once.
            None => {
                std::thread::park();
                let _pass = service::enter();
                let me = std::thread::current().id();
                core.tiers.jobs().idle.retain(|idle| idle.id() != me);
            }
        }
    }
}

impl Core {
    /// Looks at the counters once and starts what the controller wants; when to look
    /// again.
    fn look(self: &Arc<Self>) -> Duration {
        // Samples first: counts that no sample could follow yet look like time that
        // did not pass.
        self.drain_samples();
        let start = Instant::now();
        let now = nanos(self.events.now());
        let mut decisions = Vec::new();
        let interval = {
            let mut control = self.tiers.control();
            let Control {
                controller,
                watched,
                entries: totals,
            } = &mut *control;
            self.tiers.counts.read(watched, |id, added| {
                let (entries, loops) = (u64::from(added.entries), u64::from(added.loops));
                *totals.entry(id).or_default() += entries;
                controller.on_counters(now, key(id), entries, loops);
            });
            while let Some(decision) = controller.next(now) {
                decisions.push(decision);
            }
            controller.polled(nanos(start.elapsed()));
            controller.poll_interval(now)
        };
        for decision in decisions {
            self.carry_out(decision);
        }
        Duration::from_nanos(interval.0)
    }

    fn carry_out(self: &Arc<Self>, decision: Decision) {
        debug!(?decision, "the controller decides");
        match decision {
            Decision::Compile {
                function,
                version,
                tier,
                ..
            } => match self.stubs.function(function.0) {
                Some(id) => self.put_job(Request {
                    function: id,
                    version,
                    tier,
                    purpose: Purpose::Change,
                }),
                None => self.job_ended(version, Outcome::Cancelled, None),
            },
            Decision::Cancel { function, version } => self.cancel(function, version),
            Decision::Revert { function, version } => {
                if let Some(id) = self.stubs.function(function.0) {
                    self.revert(id, version);
                }
            }
            _ => warn!(?decision, "not a decision this runtime knows"),
        }
    }

    fn put_job(self: &Arc<Self>, request: Request) {
        let mut jobs = self.tiers.jobs();
        jobs.waiting.push_back((request, self.events.now()));
        if let Some(worker) = jobs.idle.pop() {
            worker.unpark();
            return;
        }
        if jobs.workers >= self.tiers.background_jobs() {
            return;
        }
        jobs.workers += 1;
        let name = format!("uruk-opt-{}", jobs.workers - 1);
        drop(jobs);
        if let Err(cause) = self.spawn_worker(name) {
            warn!(%cause, "no background worker: functions stay where they are");
            self.tiers.jobs().workers -= 1;
        }
    }

    fn spawn_worker(self: &Arc<Self>, name: String) -> Result<(), Error> {
        let core = Arc::clone(self);
        service::spawn_thread(name, move || work(&core))
    }

    /// Compiles and publishes one version in the background.
    fn run_job(self: &Arc<Self>, request: Request, queued: Duration) {
        let on_fatal = {
            let core = Arc::clone(self);
            move |message: &str| {
                core.lose_worker();
                service::leave_lost();
                let _pass = service::enter();
                let versions = core.tiers.versions.of(request.function);
                versions.fail(request.version);
                core.tell_failed(request, &core.fatal(request.function, message));
                core.tell_lost(message);
                let compile = Nanos::ZERO;
                core.job_ended(request.version, Outcome::Failed { compile }, None);
                let name = String::from("uruk-opt");
                if let Err(cause) = core.spawn_worker(name) {
                    warn!(%cause, "no background worker in place of the one LLVM took down");
                    core.tiers.jobs().workers -= 1;
                }
            }
        };
        fatal::guard(on_fatal, || {
            let _busy = service::enter();
            let before = thread_time();
            let result = self.make(request, Some(queued));
            let compile = nanos(thread_time().saturating_sub(before));
            let (outcome, counts) = match result {
                Ok(made) => match made.publication {
                    Publication::Published { .. } => {
                        let counters = made.counts;
                        (Outcome::Published { compile, counters }, Some(counters))
                    }
                    Publication::Dropped(_) => (Outcome::Late { compile }, None),
                },
                Err(Error::Heap(_)) => (Outcome::NoMemory, None),
                Err(Error::Version { late: true, .. }) => (Outcome::Late { compile }, None),
                Err(cause) => {
                    debug!(%cause, "a background compile failed");
                    (Outcome::Failed { compile }, None)
                }
            };
            let watch = counts.map(|counts| (request.function, counts));
            self.job_ended(request.version, outcome, watch);
        });
    }

    /// Tells the controller that a compile it asked for has ended; `published` is the
    /// function that runs it now and whether it counts. Starts what comes next.
    fn job_ended(
        self: &Arc<Self>,
        version: VersionId,
        outcome: Outcome,
        published: Option<(FunctionId, bool)>,
    ) {
        let now = nanos(self.events.now());
        let mut next = Vec::new();
        {
            let mut control = self.tiers.control();
            if let Some((function, counts)) = published {
                control.watched.retain(|(id, _)| *id != function);
                if counts {
                    control.watched.push((function, Count::default()));
                }
            }
            control.controller.finished(now, version, outcome);
            while let Some(decision) = control.controller.next(now) {
                next.push(decision);
            }
        }
        for decision in next {
            self.carry_out(decision);
        }
    }

    fn cancel(self: &Arc<Self>, function: uruk_tiering::FunctionId, version: VersionId) {
        let waited = {
            let mut jobs = self.tiers.jobs();
            let before = jobs.waiting.len();
            jobs.waiting.retain(|(job, _)| job.version != version);
            jobs.waiting.len() != before
        };
        if let Some(id) = self.stubs.function(function.0) {
            // One that is being compiled is late then, and dropped.
            self.tiers.versions.of(id).cancel(version);
        }
        if waited {
            self.job_ended(version, Outcome::Cancelled, None);
        }
    }

    /// Goes back to the version before `version`.
    fn revert(&self, id: FunctionId, version: VersionId) {
        let versions = self.tiers.versions.of(id);
        match versions.revert(version, |entry| self.stubs.publish(id, entry.0)) {
            Ok(reverted) => {
                let at = self.events.now();
                let restored = reverted.restored;
                let tier = self.tier_of(id, restored).unwrap_or(Tier::Baseline);
                let counts = tier == Tier::Baseline && self.tiers.is_auto();
                self.tiers.control().controller.reverted(
                    nanos(at),
                    key(id),
                    restored,
                    tier,
                    counts,
                );
                self.events.tell(|| Event::Reverted {
                    id,
                    function: self.name_of(id),
                    version: restored.0,
                    tier,
                    at,
                });
            }
            Err(cause) => debug!(%cause, "nothing to go back to"),
        }
    }
}

/// The controller's name of a function.
pub(crate) fn key(id: FunctionId) -> uruk_tiering::FunctionId {
    uruk_tiering::FunctionId(id.index())
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Processor time of the calling thread.
fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of the process.
pub(crate) fn process_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid out pointer; the clock always exists.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lets everybody else go first. Only the calling thread, as Linux has it.
fn lower_priority() {
    // SAFETY: plain calls about the calling thread; a refusal leaves it as it is.
    unsafe {
        let id = libc::gettid() as libc::id_t;
        libc::setpriority(libc::PRIO_PROCESS, id, NICENESS);
    }
}
