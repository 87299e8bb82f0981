//! How functions move through the tiers: the state that threads of the session share.
//!
//! | file | does |
//! |---|---|
//! | [`settings`] | settings of tiers and of tuning |
//! | [`background`] | the controller's thread, and workers that compile in the background |
//! | [`jobs`], [`outcome`](self::outcome) | jobs of the workers, and outcomes of their compiles |
//! | [`sampling`] | samples, from the profiler's source to the controller |
//! | [`guided`] | profiles for tier 3 |
//! | [`eviction`] | the budget for code |
//! | [`warmth`](self::warmth) | a first compile at tier 2 before there is a job for it |
//! | [`watched`](self::watched) | functions whose published version counts |
//! | [`churn`](self::churn), [`diary`] | functions moved through all tiers, for tests; the policy's input as text |
//!
//! All locks below are taken under a pass of the gate (`fork::gate`), so that no fork happens while
//! one is held.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `TierState::control` | the controller is told or asked something | `Counts`, `Versions`, `Continuations` (`loops`), `PolicyText` |
//! | `TierState::jobs` | a job is put or taken | nothing |
//! | `TierState::churned` | a function is put or taken | nothing |

pub(crate) mod background;
mod churn;
pub(crate) mod diary;
pub(crate) mod eviction;
mod guided;
pub(crate) mod jobs;
mod outcome;
pub(crate) mod sampling;
mod warmth;
mod watched;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_base::{FunctionId, Nanos, Tier, Tiers, VersionId};
use uruk_codegen::warm;
use uruk_tiering::{Controller, FirstCode};

use crate::fork::gate;
use crate::host::clock::{nanos, process_time};
use crate::speculation::Speculation;
use crate::tiers::eviction::Eviction;
use crate::tiers::guided::Profiles;
use crate::tiers::jobs::Jobs;
use crate::tiers::sampling::Sampling;
use crate::tiers::settings::TierSettings;
use crate::tiers::watched::CountedFunctions;
use crate::version::counts::Count;
use crate::version::request::Made;
use std::ops::Deref;

/// The tiering state of a session.
pub(crate) struct TierState {
    settings: TierSettings,
    pub(crate) eviction: Eviction,
    pub(crate) sampling: Sampling,
    pub(crate) profiles: Profiles,
    control: Mutex<Control, ranks::TierStateControl>,
    jobs: Mutex<Jobs>,
    /// When the controller's thread looks again, in ns since the session was made; `u64::MAX` while
    /// it is awake. A hint: a thread that sees too late a time wakes it in vain.
    asleep_until: AtomicU64,
    thread: Mutex<Option<Thread>>,
    /// Under [`Tiers::Churn`], the functions with code and their tiers; next in turn first.
    churned: Mutex<VecDeque<(FunctionId, Tier)>>,
    /// The layer below, which holds all layers below it.
    pub(crate) speculation: Arc<Speculation>,
    end: gate::End,
}

/// The layer below.
impl Deref for TierState {
    type Target = Arc<Speculation>;

    fn deref(&self) -> &Arc<Speculation> {
        &self.speculation
    }
}

/// Takes a pass: the fields take locks of the session when they are dropped.
impl Drop for TierState {
    fn drop(&mut self) {
        self.end.begin();
    }
}

pub(crate) struct Control {
    pub(crate) controller: Controller,
    /// Functions whose published version counts, and the counts last seen.
    pub(crate) watched: CountedFunctions,
    /// Entries counted so far.
    pub(crate) entries: HashMap<FunctionId, u64>,
    /// Processor time of the process that the controller knows of, without time spent aside.
    pub(crate) processor: Duration,
    /// When the counters were last read.
    pub(crate) looked: Nanos,
}

impl Control {
    /// Watches the counts of `id` from `seen` on, or no longer.
    pub(crate) fn watch(&mut self, id: FunctionId, counts: bool, seen: Count) {
        match counts {
            true => self.watched.set(id, seen),
            false => self.watched.remove(id),
        }
    }
}

impl TierState {
    /// The tiering state of a session.
    pub(crate) fn new(settings: TierSettings, speculation: Arc<Speculation>) -> Arc<TierState> {
        settings.samples().prepare();
        let sampling = Sampling::new(&settings);
        let mut policy = settings.policy.clone();
        if settings.tuning.on {
            // Versions are compared where they take turns, not by the controller's samples.
            policy.slower = f64::MAX;
        }
        let mut controller = Controller::new(&policy, Arc::clone(&speculation.versions.ids));
        controller.ask_callers(speculation.knows_callers());
        Arc::new(TierState {
            eviction: Eviction::new(settings.code_budget),
            settings,
            sampling,
            profiles: Profiles::default(),
            control: Mutex::new(Control {
                controller,
                watched: CountedFunctions::default(),
                entries: HashMap::new(),
                processor: process_time(),
                looked: Nanos::ZERO,
            }),
            jobs: Mutex::default(),
            asleep_until: AtomicU64::new(u64::MAX),
            thread: Mutex::new(None),
            churned: Mutex::default(),
            speculation,
            end: gate::End::default(),
        })
    }

    /// Background compiles at the same time.
    pub(crate) fn background_jobs(&self) -> usize {
        self.settings.background_jobs()
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock()
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock()
    }

    /// The tier at which the entry point starts.
    pub(crate) fn start_tier(&self, id: FunctionId) -> Tier {
        match self.settings.tiers {
            Tiers::Auto => self.control().controller.start_tier(id),
            Tiers::Fixed(tier) => tier,
            Tiers::Churn | Tiers::Leave(_) => Tier::Baseline,
        }
    }

    /// The next function in turn that is to change its tier, and the tier it goes to;
    /// `None` unless functions are churned.
    fn next_churned(&self) -> Option<(FunctionId, Tier)> {
        if self.settings.tiers != Tiers::Churn {
            return None;
        }
        let mut churned = self.churned();
        let (id, tier) = churned.pop_front()?;
        let next = tier.above().unwrap_or(Tier::Baseline);
        churned.push_back((id, next));
        Some((id, next))
    }

    /// Removes a function from the churned ones: it was removed.
    fn end_churn_of(&self, id: FunctionId) {
        self.churned().retain(|&(churned, _)| churned != id);
    }

    fn churned_functions(&self) -> usize {
        self.churned().len()
    }

    fn churned(&self) -> MutexGuard<'_, VecDeque<(FunctionId, Tier)>> {
        self.churned.lock()
    }

    /// Reports the first code of a function.
    pub(crate) fn on_compiled(&self, now: Duration, id: FunctionId, tier: Tier, made: &Made) {
        if self.versions.is_fixed(id) {
            return;
        }
        if self.settings.tiers == Tiers::Churn {
            self.churned().push_back((id, tier));
        }
        if !self.choices.is_auto() {
            return;
        }
        if made.facts.loops != 0 && self.settings.policy.cpus > 1 {
            warmth::want(&mut self.jobs(), warm::is_cold(), now);
        }
        let mut control = self.control();
        if !self.versions.has(id) {
            return;
        }
        let published = self.versions.seen(id).published();
        let other = published.filter(|other| other.id != made.version);
        let known = control.controller.view(id);
        if other.is_some_and(|it| it.tier == tier) && known.is_none_or(|it| it.version.is_none()) {
            // Two threads made first code: the other one reports what runs.
            return;
        }
        let (version, tier, counters) = match other {
            // Better code was published meanwhile.
            Some(other) => (other.id, other.tier, false),
            None => (made.version, tier, made.counts),
        };
        let first = FirstCode {
            version,
            tier,
            facts: made.facts,
            compile: nanos(made.compiling + made.linking),
            counters,
        };
        control.controller.on_compiled(nanos(now), id, &first);
        // The counters of another version are watched if its own report says so.
        if other.is_none() {
            control.watch(id, counters, Count::default());
        }
        let soon = nanos(now) + control.controller.poll_interval(nanos(now));
        drop(control);
        // A wake-up costs more than a delay by the length of a look.
        let until = self.asleep_until.load(Ordering::Relaxed);
        if until != u64::MAX && until > soon.0 + self.settings.policy.poll_min.0 {
            self.wake();
        }
    }

    fn on_samples(
        &self,
        now: Nanos,
        id: FunctionId,
        version: VersionId,
        samples: u32,
        time: Nanos,
    ) {
        let mut control = self.control();
        control
            .controller
            .on_samples(now, id, version, samples, time);
    }

    /// Time since the last new fact that moves functions between tiers.
    pub(crate) fn quiet(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.control().controller.quiet(nanos(now)).0)
    }

    fn on_sampling(&self, period: Option<Nanos>) {
        self.control().controller.on_sampling(period);
    }

    /// Pauses or resumes the automatic start of better versions.
    pub(crate) fn pause(&self, paused: bool) {
        let mut control = self.control();
        match paused {
            true => control.controller.pause(),
            false => control.controller.resume(),
        }
        drop(control);
        self.wake();
    }

    /// Pins a function to a tier, or leaves it to the policy again.
    pub(crate) fn pin(&self, id: FunctionId, tier: Option<Tier>) {
        // False if the function is not watched yet: the pin holds for its first version.
        self.control().controller.pin(id, tier);
        self.wake();
    }

    /// Reports a published version that the controller did not ask for.
    pub(crate) fn on_published(&self, now: Duration, id: FunctionId, tier: Tier, made: &Made) {
        let mut control = self.control();
        let published = self.versions.seen(id).published();
        if published.is_some_and(|other| other.id != made.version) {
            // The thread that published over it reports.
            return;
        }
        control.watch(id, made.counts, self.counts.now(id));
        control
            .controller
            .reverted(nanos(now), id, made.version, tier, made.counts);
    }

    /// Entries of functions whose code counted them, up to now.
    pub(crate) fn entries(&self) -> Vec<(FunctionId, u64)> {
        let mut control = self.control();
        let Control {
            watched, entries, ..
        } = &mut *control;
        // The controller misses the increments read here, at the end of a run.
        self.counts.read(watched.list(), |id, added| {
            *entries.entry(id).or_default() += u64::from(added.entries);
        });
        entries.iter().map(|(&id, &count)| (id, count)).collect()
    }

    /// The choice of tiers as a word.
    pub(crate) fn describe(&self) -> String {
        match self.settings.tiers {
            Tiers::Auto => String::from("auto"),
            Tiers::Fixed(tier) => tier.number().to_string(),
            Tiers::Churn => String::from("churn"),
            Tiers::Leave(passes) => format!("leave {passes}"),
        }
    }

    /// Cancels all jobs, at the end of the process.
    pub(crate) fn drop_jobs(&self) {
        self.jobs().close();
    }

    /// Functions that wait for a better version.
    pub(crate) fn queue_length(&self) -> usize {
        let stats = self.control().controller.stats();
        stats.queued + stats.requested
    }

    /// Names the calling thread as the controller's. Under a pass.
    fn control_here(&self) {
        *self.thread.lock() = Some(std::thread::current());
    }

    /// Makes the controller look at once.
    pub(crate) fn wake(&self) {
        let thread = self.thread.lock();
        if let Some(thread) = &*thread {
            thread.unpark();
        }
    }

    /// Ends the threads and their compiles; they are woken to see it.
    pub(crate) fn stop(&self) {
        self.wake();
        let mut jobs = self.jobs();
        jobs.close();
        for worker in &jobs.idle {
            worker.unpark();
        }
    }

    /// Drops the records of a function that was removed.
    pub(crate) fn forget(&self, id: FunctionId) {
        let mut control = self.control();
        control.controller.removed(id);
        control.watch(id, false, Count::default());
        control.entries.remove(&id);
        // The stub may become another function's.
        self.counts.clear(id);
        drop(control);
        self.profiles.forget(id);
    }

    /// In the child of a fork: the session's threads are gone, no version under way will end.
    pub(crate) fn after_fork_child(&self) {
        *self.jobs() = Jobs::default();
        for (function, version) in self.under_way.after_fork_child() {
            self.versions.seen(function).cancel(version);
        }
        *self.thread.lock() = None;
        self.asleep_until.store(u64::MAX, Ordering::Relaxed);
        {
            let mut control = self.control();
            control.controller.abandon();
            // The clock of the process starts again.
            control.processor = Duration::ZERO;
        }
        self.sampling.after_fork_child();
        self.profiles.after_fork_child();
    }
}

pub(crate) mod settings;
#[cfg(test)]
mod tests;
