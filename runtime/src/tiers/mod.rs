//! How functions move through the tiers: the settings, and the state that threads of
//! the session share (see `background` for those that act on it).
//!
//! Everything below is locked under a pass of the gate (`fork::gate`), so that no fork
//! happens meanwhile.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `TierState::control` | the controller is told or asked something | `Counts`, `Versions`, `Continuations` (`loops`), `PolicyText` |
//! | `TierState::jobs` | a job is put or taken | nothing |
//! | `TierState::under_way` | a version is begun, asked for, ended or cancelled | nothing |
//! | `TierState::churned` | a function is put or taken | nothing |

pub(crate) mod background;
mod churn;
pub(crate) mod counts;
pub(crate) mod diary;
pub(crate) mod eviction;
pub(crate) mod guided;
pub(crate) mod jobs;
mod outcome;
pub(crate) mod sampling;
mod warmth;
mod watched;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, Nanos, Tier, Tiers, Variant, VersionId};
use uruk_codegen::{Compile, Counters, warm};
use uruk_profiler::{Choice, Settings, Sizes};
use uruk_tiering::{Config, Controller, FirstCode};

use crate::host::clock::{nanos, process_time};
use crate::tiers::counts::{Count, Counts};
use crate::tiers::guided::Profiles;
use crate::tiers::jobs::{Jobs, UnderWay};
use crate::tiers::sampling::Sampling;
use crate::tiers::watched::Watched;
use crate::tuning::TuneSettings;
use crate::version::Made;
use crate::version::records::Versions;

/// Settings of [`TierState`].
#[derive(Debug, Clone, Default)]
pub(crate) struct TierSettings {
    pub(crate) tiers: Tiers,
    /// Under [`Tiers::Auto`], whether first code is of tier 2.
    pub(crate) over_native: bool,
    /// The compiler of tier 1.
    pub(crate) baseline: crate::version::baseline::Baseline,
    /// Whether tiers 2 and 3 may contract floating-point operations; whether nothing is inlined
    /// across modules; whether functions are compiled ahead of their calls.
    pub(crate) contract: bool,
    pub(crate) apart: bool,
    pub(crate) speculate: bool,
    pub(crate) policy: Config,
    pub(crate) tuning: TuneSettings,
    /// The variant for compiles above tier 1, unless tuning finds a better one.
    pub(crate) variant: Variant,
    /// Bytes of code of functions above which cold code is evicted.
    pub(crate) code_budget: Option<u64>,
    pub(crate) sampling: Choice,
    pub(crate) sizes: Sizes,
    pub(crate) rates: Settings,
}

/// The tiering state of a session.
pub(crate) struct TierState {
    settings: TierSettings,
    pub(crate) counts: Counts,
    pub(crate) versions: Versions,
    pub(crate) sampling: Sampling,
    pub(crate) profiles: Profiles,
    control: Mutex<Control>,
    jobs: Mutex<Jobs>,
    pub(crate) under_way: UnderWay,
    /// When the controller's thread looks again, in ns since the session was made; `u64::MAX` while
    /// it is awake. A hint: a thread that sees too late a time wakes it in vain.
    pub(crate) asleep_until: AtomicU64,
    pub(crate) thread: Mutex<Option<Thread>>,
    /// The function the program starts at: index plus one; 0 for none.
    entry_point: AtomicUsize,
    /// Processor time, in ns, of threads that compile ahead of requests: they give way,
    /// and are no load. Each adds its time at the end of a compile.
    aside: AtomicU64,
    /// Under [`Tiers::Churn`], the functions with code and their tiers; next in turn first.
    churned: Mutex<VecDeque<(FunctionId, Tier)>>,
}

pub(crate) struct Control {
    pub(crate) controller: Controller,
    /// Functions whose published version counts, and the counts last seen.
    pub(crate) watched: Watched,
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
    /// The state of a session whose code lies in `code`.
    pub(crate) fn new(settings: TierSettings, code: Range<u64>) -> TierState {
        let sampling = Sampling::new(&settings, code);
        let versions = Versions::default();
        let mut policy = settings.policy.clone();
        if settings.tuning.on {
            // Versions are compared where they take turns, not by the controller's samples.
            policy.slower = f64::MAX;
        }
        let controller = Controller::new(&policy, Arc::clone(&versions.ids));
        TierState {
            settings,
            counts: Counts::default(),
            versions,
            sampling,
            profiles: Profiles::default(),
            control: Mutex::new(Control {
                controller,
                watched: Watched::default(),
                entries: HashMap::new(),
                processor: process_time(),
                looked: Nanos::ZERO,
            }),
            jobs: Mutex::default(),
            under_way: UnderWay::default(),
            asleep_until: AtomicU64::new(u64::MAX),
            thread: Mutex::new(None),
            entry_point: AtomicUsize::new(0),
            aside: AtomicU64::new(0),
            churned: Mutex::default(),
        }
    }

    /// True if functions move between tiers.
    pub(crate) fn is_auto(&self) -> bool {
        self.settings.tiers == Tiers::Auto
    }

    /// The variant for code above tier 1, by default.
    pub(crate) fn variant(&self) -> Variant {
        self.settings.variant
    }

    /// True if nothing is inlined across modules.
    pub(crate) fn is_apart(&self) -> bool {
        self.settings.apart
    }

    /// Background compiles at the same time.
    pub(crate) fn background_jobs(&self) -> usize {
        match self.is_auto() {
            true => self.settings.policy.jobs as usize,
            false => 0,
        }
    }

    /// Whether functions have native code, which runs until there is a better version.
    pub(crate) fn is_over_native(&self) -> bool {
        self.settings.over_native
    }

    /// The tier of a function's first version.
    pub(crate) fn first(&self) -> Tier {
        match self.settings.tiers {
            Tiers::Auto if self.settings.over_native => Tier::Optimized,
            Tiers::Auto | Tiers::Churn | Tiers::Leave(_) => Tier::Baseline,
            // Nothing is compiled as native code.
            Tiers::Fixed(tier) => tier.max(Tier::Baseline),
        }
    }

    /// The tier of a version that is never replaced, where others start at `tier`.
    pub(crate) fn only(&self, tier: Tier) -> Tier {
        match self.settings.tiers {
            Tiers::Auto => tier.max(Tier::Optimized),
            Tiers::Fixed(_) | Tiers::Churn | Tiers::Leave(_) => tier,
        }
    }

    /// The settings of a compile at `tier`.
    pub(crate) fn how(&self, tier: Tier) -> Compile {
        let counters = match (self.settings.tiers, tier) {
            (Tiers::Auto | Tiers::Churn | Tiers::Leave(_), Tier::Baseline) => Counters::Entry,
            _ => Counters::None,
        };
        let mut how = Compile::at(tier)
            .counting(counters)
            .contracting(self.settings.contract);
        if tier > Tier::Baseline {
            how = how.varied(self.settings.variant);
        }
        how.leaves = matches!(self.settings.tiers, Tiers::Auto | Tiers::Leave(_));
        how
    }

    /// Number of passes after which a loop is left, if every loop is left.
    pub(crate) fn leaves_after(&self) -> Option<impl Fn(FunctionId, usize) -> u32 + use<>> {
        let Tiers::Leave(passes) = self.settings.tiers else {
            return None;
        };
        Some(move |id: FunctionId, place: usize| match passes {
            0..=50 => passes,
            seed => {
                let mixed = (u64::from(seed) << 32 | u64::from(id.index())) ^ (place as u64) << 20;
                let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                match mixed >> 32 & 3 {
                    0 => 1,
                    1 => 2,
                    _ => (mixed >> 40) as u32 % 50 + 1,
                }
            }
        })
    }

    /// True if code of tier 1 counts.
    pub(crate) fn counts_at_baseline(&self) -> bool {
        self.how(Tier::Baseline).counters == Counters::Entry
    }

    /// Adds processor time that a thread spent on compiles that no caller requested.
    pub(crate) fn spent_aside(&self, time: Duration) {
        self.aside.fetch_add(nanos(time).0, Ordering::Relaxed);
    }

    /// Processor time spent on compiles that no caller requested.
    fn aside(&self) -> Duration {
        Duration::from_nanos(self.aside.load(Ordering::Relaxed))
    }

    /// Sets the function at which the program starts: it is called once.
    pub(crate) fn set_entry_point(&self, id: FunctionId) {
        self.entry_point
            .store(id.index() as usize + 1, Ordering::Relaxed);
    }

    pub(crate) fn is_entry_point(&self, id: FunctionId) -> bool {
        self.entry_point.load(Ordering::Relaxed) == id.index() as usize + 1
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
    pub(crate) fn next_churned(&self) -> Option<(FunctionId, Tier)> {
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
    pub(crate) fn end_churn_of(&self, id: FunctionId) {
        self.churned().retain(|&(churned, _)| churned != id);
    }

    pub(crate) fn churned_functions(&self) -> usize {
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
        if !self.is_auto() {
            return;
        }
        if made.facts.loops != 0 && self.settings.policy.cpus > 1 {
            warmth::want(&mut self.jobs(), warm::is_cold(), now);
        }
        let mut control = self.control();
        if !self.versions.has(id) {
            return;
        }
        // A better version may have been published meanwhile, and reported before.
        let (version, tier, counters) = match self.versions.seen(id).published() {
            Some(other) if other.id != made.version => (other.id, other.tier, false),
            _ => (made.version, tier, made.counts),
        };
        let first = FirstCode {
            version,
            tier,
            facts: made.facts,
            compile: nanos(made.compiling + made.linking),
            counters,
        };
        control.controller.on_compiled(nanos(now), id, &first);
        control.watch(id, counters, Count::default());
        let soon = nanos(now) + control.controller.poll_interval(nanos(now));
        drop(control);
        // A wake-up costs more than a delay by the length of a look.
        let until = self.asleep_until.load(Ordering::Relaxed);
        if until != u64::MAX && until > soon.0 + self.settings.policy.poll_min.0 {
            self.wake();
        }
    }

    pub(crate) fn on_samples(
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

    pub(crate) fn on_sampling(&self, period: Option<Nanos>) {
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

    /// In the child of a fork: the session's threads are gone, no version under way will end.
    pub(crate) fn after_fork_child(&self) {
        *self.jobs() = Jobs::default();
        for (function, version) in self.under_way.after_fork_child() {
            self.versions.seen(function).cancel(version);
        }
        *self.thread.lock() = None;
        self.asleep_until.store(u64::MAX, Ordering::Relaxed);
        self.control().controller.abandon();
        self.sampling.after_fork_child();
        self.profiles.after_fork_child();
    }
}

#[cfg(test)]
mod tests;
