//! The controller: inputs in, decisions out.
//!
//! It has no clock, no lock and no thread. The runtime keeps it behind a mutex, passes it events
//! with their times, and calls [`next`](Controller::next) until it returns `None`.
//!
//! | input | cost | may lead to |
//! |---|---|---|
//! | [`on_compiled`](Controller::on_compiled) | O(1) | a shorter poll interval |
//! | [`on_counters`](Controller::on_counters), [`on_samples`](Controller::on_samples) | O(1); O(log queue) for a candidate | a candidate |
//! | [`finished`](Controller::finished) | O(jobs) | better code for the policy to measure |
//! | [`replaced`](Controller::replaced), [`pin`](Controller::pin), [`request`](Controller::request) | O(jobs + log queue) | a cancellation, a request |
//!
//! # Invariants
//! - At most `jobs` compiles are outstanding; each ends with one `finished`.
//! - A function is in at most one [`Place`]; it is in the queue if and only if its place
//!   is `Queued`, and at most one compile of its present body is outstanding.
//! - The result of a compile whose function was replaced changes nothing.
//! - Nothing here walks all functions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::activity::{Activity, Place, Wish};
use crate::config::Config;
use crate::costs::Costs;
use crate::ids::{FunctionId, Nanos, Tier, VersionId, VersionIds};
use crate::leaders::Leaders;
use crate::learn::{Calibration, Load, Speedups};
use crate::policy::{Measured, correction};
use crate::polls::Polls;
use crate::queue::{Heat, Queue};
use crate::stats::{Learned, Stats};
use crate::stream::Input;

mod callers;
mod chance;
mod diary;
mod overhead;
mod pages;
mod results;
mod steer;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod walk;
mod words;

pub use words::{Decision, FirstCode, FunctionView, Outcome, Reason};

use callers::Callers;
use chance::Chance;
use diary::Diary;
use overhead::Overhead;
use pages::Pages;
use results::VersionTrial;

#[derive(Clone, Copy, Debug)]
struct Job {
    version: VersionId,
    function: FunctionId,
    tier: Tier,
    /// Its expected time, in ns.
    cost: f64,
    /// The function's body was replaced since.
    stale: bool,
    /// The runtime was told to cancel it.
    cancelled: bool,
}

/// Logarithm of the score below which no earlier poll is worthwhile.
const LOWEST_NOTED: f64 = -3.0;

/// The controller; see the module.
#[derive(Debug)]
pub struct Controller {
    config: Config,
    ids: Arc<VersionIds>,
    functions: Pages,
    queue: Queue,
    /// Waiting requests in their order; `wanted` has their contents.
    requests: VecDeque<FunctionId>,
    /// Requests, also those that wait for a compile of their function to end.
    wanted: HashMap<FunctionId, (Tier, Reason)>,
    outstanding: Vec<Job>,
    /// Decisions to return next: reverts and cancellations.
    orders: VecDeque<Decision>,
    trials: HashMap<FunctionId, VersionTrial>,
    costs: Costs,
    speedups: Speedups,
    calibration: Calibration,
    leaders: Leaders,
    callers: Callers,
    /// Time to make the compiler of tier 2 ready, by which the next compile takes longer.
    opening: Nanos,
    load: Load,
    overhead: Overhead,
    /// Whether processor time is reported, and up to which time (`load_at`).
    load_measured: bool,
    load_at: Nanos,
    polls: Polls,
    paused: bool,
    /// No compile begins before this time, after one found no memory.
    hold_until: Nanos,
    memory_failures: u32,
    stats: Stats,
    diary: Diary,
}

impl Controller {
    /// A controller without functions. A setting out of range is replaced by the nearest one in
    /// range.
    pub fn new(config: &Config, ids: Arc<VersionIds>) -> Controller {
        let config = config.clamped();
        Controller {
            functions: Pages::new(config.max_functions),
            queue: Queue::new(config.queue_capacity),
            requests: VecDeque::new(),
            wanted: HashMap::new(),
            outstanding: Vec::new(),
            orders: VecDeque::new(),
            trials: HashMap::new(),
            costs: Costs::new(&config),
            speedups: Speedups::new(&config),
            calibration: Calibration::new(),
            leaders: Leaders::default(),
            callers: Callers::default(),
            opening: Nanos::ZERO,
            load: Load::new(),
            overhead: Overhead::default(),
            load_measured: false,
            load_at: Nanos::ZERO,
            polls: Polls::new(&config),
            paused: false,
            hold_until: Nanos::ZERO,
            memory_failures: 0,
            stats: Stats::default(),
            diary: Diary::default(),
            ids,
            config,
        }
    }

    /// The settings in use.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes that the allocator took for the records of functions.
    pub fn bytes(&self) -> usize {
        self.functions.bytes()
    }

    /// The tier at which a function without code is compiled: the one it is pinned to, or the
    /// lowest, even if it has loops. A loop that is entered once gets better code by OSR when it
    /// has run for long enough.
    pub fn start_tier(&self, function: FunctionId) -> Tier {
        match self.functions.get(function).map(|activity| activity.wish) {
            Some(Wish::Pinned(tier)) => tier,
            _ => Tier::Baseline,
        }
    }

    /// Records that a function got its first code, of this body, and that it is published.
    /// Afterwards [`poll_interval`](Self::poll_interval) is short: wake a thread that sleeps for
    /// longer.
    ///
    /// If other code was published and reported meanwhile, only the facts are used.
    pub fn on_compiled(&mut self, now: Nanos, function: FunctionId, first: &FirstCode) {
        self.diary.note(now, || Input::Compiled(function, *first));
        self.add_load(now, first.compile.as_f64());
        self.costs.learn(first.tier, &first.facts, first.compile);
        self.stats.first[first.tier.index()] += 1;
        self.polls.note(now);
        let Some(activity) = self.functions.make(function) else {
            self.stats.untracked += 1;
            return;
        };
        activity.set_facts(&first.facts);
        if activity.version.is_none() {
            activity.run(now, first.version, first.tier, first.counters);
        }
        if let Wish::Pinned(tier) = activity.wish {
            self.want(function, tier, Reason::Pinned);
        }
    }

    /// Adds to the counters of a function.
    pub fn on_counters(&mut self, now: Nanos, function: FunctionId, entries: u64, loops: u64) {
        self.diary
            .note(now, || Input::Counters(function, entries, loops));
        let config = &self.config;
        let Some(activity) = self.functions.get_mut(function) else {
            self.stats.untracked += 1;
            return;
        };
        let (Some(tier), true) = (activity.tier(), activity.counters) else {
            self.stats.stray_counts += 1;
            return;
        };
        if self.calibration.period().is_some() {
            activity.enter(entries);
        }
        if tier != Tier::Baseline {
            // Time at this tier comes from samples alone; entries serve the comparison.
            return;
        }
        let work = activity.event_time(entries as f64 + loops as f64, config);
        let common = self.calibration.common().value;
        let corrected = match self.calibration.period() {
            Some(period) => {
                activity.measure(0, 0.0, work);
                let measured = activity.measured();
                let Measured {
                    sampled, counted, ..
                } = measured;
                correction(common, period.as_f64(), sampled, counted)
            }
            None => common,
        };
        // An estimate is at most the time of all processors.
        let elapsed = activity.unheard(now) + config.poll_min;
        let most = elapsed.as_f64() * f64::from(config.cpus);
        let time = (work * corrected).min(most);
        self.calibration.counted(work);
        self.spend(now, function, time, entries as f64);
    }

    /// The processor time of all threads since the last call. Call it before the counters of the
    /// same poll. From the first call on the load is measured. Before, it is summed up from
    /// counters, which are wrong by a factor until samples correct them.
    pub fn on_processor_time(&mut self, now: Nanos, used: Nanos) {
        self.diary.note(now, || Input::ProcessorTime(used));
        let compiling = (now - self.load_at).as_f64() * self.outstanding.len() as f64;
        let used = (used.as_f64() - compiling).max(0.0);
        if !std::mem::replace(&mut self.load_measured, true) {
            self.load = Load::new();
        }
        self.load.add(now, self.config.window, used);
        self.load_at = now;
    }

    /// Records the processor time of the program's threads, and of the runtime's, since the process
    /// began. Compiles in the background wait until the limit of the setting `overhead` allows them.
    pub fn on_times(&mut self, program: Nanos, runtime: Nanos) {
        self.diary
            .note(Nanos::ZERO, || Input::Times(program, runtime));
        self.overhead.set(program, runtime);
    }

    /// Adds samples of a version, and the time they stand for. Call it before the counters of the
    /// same poll: counts without their samples look like time that did not pass.
    pub fn on_samples(
        &mut self,
        now: Nanos,
        function: FunctionId,
        version: VersionId,
        samples: u32,
        time: Nanos,
    ) {
        self.diary
            .note(now, || Input::Samples(function, version, samples, time));
        let Some(activity) = self.functions.get_mut(function) else {
            self.stats.untracked += 1;
            return;
        };
        let running = activity.version.filter(|&(running, _)| running == version);
        let Some((_, tier)) = running else {
            self.stats.stray_samples += u64::from(samples);
            return;
        };
        activity.measure(samples, time.as_f64(), 0.0);
        self.overhead.save(time.as_f64(), activity.gained);
        if tier == Tier::Baseline && activity.counters {
            // The time itself comes from the counters, which the samples correct.
            return self.calibration.sampled(samples, time.as_f64());
        }
        self.spend(now, function, time.as_f64(), 0.0);
        self.judge(function);
    }

    /// Records how long the next compile at tier 2 takes to make its compiler ready; zero if it is.
    pub fn on_opening(&mut self, time: Nanos) {
        if time != self.opening {
            self.diary.note(Nanos::ZERO, || Input::Opening(time));
        }
        self.opening = time;
    }

    /// Records that sampling was switched on, with the time one sample stands for, or off (`None`),
    /// or that its rate changed.
    pub fn on_sampling(&mut self, period: Option<Nanos>) {
        if period != self.calibration.period() {
            self.diary.note(Nanos::ZERO, || Input::Sampling(period));
        }
        self.calibration.set_period(period);
    }

    /// The next decision. Call it after inputs, after a compile ended, and with every poll, until
    /// it returns `None`.
    pub fn next(&mut self, now: Nanos) -> Option<Decision> {
        if let Some(order) = self.orders.pop_front() {
            return Some(order);
        }
        self.drop_stale(now);
        if self.outstanding.len() >= self.config.jobs as usize || now < self.hold_until {
            return None;
        }
        if let Some(decision) = self.next_request() {
            return Some(decision);
        }
        if self.paused {
            return None;
        }
        while let Some(function) = self.queue.pop() {
            let busy = self.outstanding.len() as f64;
            let Some(activity) = self.functions.get_mut(function) else {
                continue;
            };
            activity.place = Place::Idle;
            let (functions, queue) = (&mut self.functions, &mut self.queue);
            let leading = self
                .callers
                .leading(functions, queue, &self.config, function);
            let Some(function) = leading else {
                continue;
            };
            let Some(activity) = self.functions.get(function) else {
                continue;
            };
            let share = activity.share(&self.config);
            if let Some(Chance {
                tier, score, heat, ..
            }) = self.chance(now, function, busy)
                && score >= self.config.keep
            {
                let from = self.functions.get(function).and_then(Activity::tier);
                let waits = from != Some(Tier::Baseline);
                if waits && !self.may_cost(now, self.cost(function, tier)) {
                    self.wait_for_budget(function, heat);
                    return None;
                }
                return Some(self.compile(function, tier, Reason::Hot { score, share }));
            }
            self.stats.dropped_unworthy += 1;
        }
        None
    }

    /// The time until the next poll of the counters.
    pub fn poll_interval(&self, now: Nanos) -> Nanos {
        self.polls.interval(now, &self.config)
    }

    /// The time without news: no first code, no candidate, no publication.
    pub fn quiet(&self, now: Nanos) -> Nanos {
        self.polls.quiet(now)
    }

    /// Records that a poll of the counters, until `now`, took so long; long polls are done less
    /// often.
    pub fn polled(&mut self, now: Nanos, took: Nanos) {
        self.diary.flush();
        self.polls.looked(now, took, &self.config);
    }

    /// The counts so far.
    pub fn stats(&self) -> Stats {
        Stats {
            queued: self.queue.len(),
            requested: self.requests.len(),
            outstanding: self.outstanding.len(),
            ..self.stats
        }
    }

    /// The learned numbers of the policy.
    pub fn learned(&self) -> Learned {
        let none = crate::learn::Estimate {
            value: 1.0,
            observed: 0,
        };
        let step = |tier| self.speedups.step(tier).unwrap_or(none);
        Learned {
            cost: Tier::ALL.map(|tier| self.costs.factor(tier)),
            speedup: [step(Tier::Optimized), step(Tier::Guided)],
            calibration: self.calibration.common(),
        }
    }

    /// The controller's view of a function; `None` without a record.
    pub fn view(&self, function: FunctionId) -> Option<FunctionView> {
        let activity = self.functions.get(function)?;
        Some(FunctionView {
            version: activity.version,
            share: activity.share(&self.config),
            spent: Nanos::from_f64(activity.spent()),
            samples: activity.measured().samples,
            in_progress: activity.place != Place::Idle,
            pinned: match activity.wish {
                Wish::Free => None,
                Wish::Pinned(tier) => Some(tier),
            },
        })
    }

    /// Adds time and entries to a function and checks whether it is a candidate now.
    fn spend(&mut self, now: Nanos, function: FunctionId, time: f64, entries: f64) {
        self.add_load(now, time);
        let Some(activity) = self.functions.get_mut(function) else {
            return;
        };
        activity.spend(now, time, entries, &self.config);
        self.leaders.note(now, function, activity, &self.config);
        let place = activity.place;
        if matches!(place, Place::Compiling | Place::Requested) {
            return;
        }
        let Some(chance) = self.chance(now, function, 0.0) else {
            return;
        };
        let Chance { score, heat, .. } = chance;
        if score < 1.0 {
            self.polls.expect(chance.worth_at);
        }
        if let Some(activity) = self.functions.get_mut(function) {
            let log = score.log2().floor();
            if log >= LOWEST_NOTED && log > f64::from(activity.noted) {
                activity.noted = log.min(f64::from(i8::MAX)) as i8;
                self.polls.note(now);
            }
            if place == Place::Queued || score >= 1.0 {
                activity.place = Place::Queued;
                self.enqueue(function, heat);
            }
        }
    }

    /// Adds time of the program to the load, unless that is measured.
    fn add_load(&mut self, now: Nanos, time: f64) {
        if !self.load_measured {
            self.load.add(now, self.config.window, time);
        }
    }

    fn enqueue(&mut self, function: FunctionId, heat: Heat) {
        if let Some(loser) = self.queue.put(function, heat) {
            self.stats.dropped_full += 1;
            if let Some(activity) = self.functions.get_mut(loser) {
                activity.place = Place::Idle;
            }
        }
    }

    /// Keeps a candidate that was taken from the queue until its compile may begin.
    fn wait_for_budget(&mut self, function: FunctionId, heat: Heat) {
        if let Some(activity) = self.functions.get_mut(function) {
            activity.place = Place::Queued;
            self.enqueue(function, heat);
        }
    }

    fn compile(&mut self, function: FunctionId, tier: Tier, reason: Reason) -> Decision {
        let version = self.ids.next();
        let cost = self.cost(function, tier);
        let mut counters = false;
        if let Some(activity) = self.functions.make(function) {
            activity.place = Place::Compiling;
            let dear = |time: f64| time >= self.config.trial_entry.as_f64();
            counters = tier == Tier::Optimized && activity.own_time().is_some_and(dear);
        }
        self.outstanding.push(Job {
            version,
            function,
            tier,
            cost,
            stale: false,
            cancelled: false,
        });
        Decision::Compile {
            function,
            version,
            tier,
            counters,
            reason,
        }
    }
}
