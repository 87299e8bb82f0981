//! The threads behind the tiers: one that reads counters and samples, and workers that compile in
//! the background.
//!
//! The controller's thread reports counts and samples to `uruk_tiering`'s controller and puts its
//! decisions into the list of jobs. Workers have low priority and are made when the first job or
//! warm-up needs one. No caller of a function waits for any of them.
//!
//! Everything here that takes a lock does so under a pass of the gate (`fork::gate`), so
//! that no fork happens meanwhile; sleeping threads are parked, which holds no lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::{debug, error, warn};
use uruk_base::locks::MutexGuard;
use uruk_base::{FunctionId, Nanos, Tier, VersionId};
use uruk_codegen::{Cancellation, Counters, fatal};
use uruk_reclaim::IdMap;
use uruk_tiering::{Decision, Outcome, Purpose, RevertError};

use crate::code::unit_body::UnitBody;
use crate::error::Error;
use crate::events::Event;
use crate::fork::panics;
use crate::fork::{self, gate, thread, threads};
use crate::host::clock::{WorkTime, nanos, process_time, thread_time};
use crate::host::room::REST;
use crate::tiers::Control;
use crate::tiers::TierState;
use crate::tiers::guided::JobStep;
use crate::tiers::jobs::{Job, Jobs};
use crate::tiers::warmth::{self, WorkerStep};
use crate::version::calls;
use crate::version::request::Made;
use crate::version::request::Request;

/// How long the controller does nothing after it panicked.
const AFTER_PANIC: Duration = Duration::from_millis(100);

/// Starts the controller's thread, if functions move between tiers.
pub(crate) fn start(tiers: &Arc<TierState>) -> Result<(), Error> {
    if !tiers.choices.is_auto() {
        return Ok(());
    }
    thread::spawn(
        String::from("uruk-tiers"),
        tiers.serving.work(tiers, tiers.engines(), control),
    )
}

/// A version that was published in the background.
pub(super) struct Runs {
    pub(super) request: Request,
    /// Whether the code counts its entries and back edges.
    pub(super) counters: bool,
}

/// The controller's thread.
fn control(tiers: &Arc<TierState>) {
    {
        let _pass = gate::enter();
        tiers.control_here();
    }
    let mut slept = false;
    let mut rested = tiers.events.now();
    let mut panics = 0;
    while !tiers.is_stopping() && panics < panics::LIMIT {
        if tiers.events.now() - rested >= REST {
            rested = tiers.events.now();
            tiers.heap.rest();
        }
        let mut interval = AFTER_PANIC;
        let panic = {
            let _pass = gate::enter();
            panics::contained(|| {
                // Not in a process that has ended by then, nor in a fork's child that has.
                if std::mem::replace(&mut slept, true) {
                    tiers.prepare_worker();
                }
                interval = tiers.look();
            })
        };
        if let Some(panic) = panic {
            panics += 1;
            error!(panic, "a look at the counters panicked");
        }
        let until = nanos(tiers.events.now() + interval).0;
        tiers.asleep_until.store(until, Ordering::Relaxed);
        std::thread::park_timeout(interval);
        tiers.asleep_until.store(u64::MAX, Ordering::Relaxed);
    }
}

/// A background worker: waits for jobs until the session ends.
fn work(tiers: &Arc<TierState>) {
    {
        let _pass = gate::enter();
        calls::widen_heap();
    }
    let mut lowered = false;
    while !tiers.is_stopping() {
        let pass = gate::enter_after_forks();
        let turn = WorkerStep::next(&mut tiers.jobs());
        if !lowered && !matches!(turn, WorkerStep::Wait) {
            tiers.before_first(&turn);
            lowered = true;
        }
        let published = matches!(turn, WorkerStep::Compile(_));
        let panic = match turn {
            WorkerStep::Compile(job) => tiers.run_job(job),
            WorkerStep::WarmUp => tiers.warm_up(),
            // A worker that is woken without a job waits in line again; it is in line once.
            WorkerStep::Wait => {
                drop(pass);
                // If the session ends before this thread is in line, it is not woken.
                if !tiers.is_stopping() {
                    std::thread::park();
                }
                let _pass = gate::enter();
                let me = std::thread::current().id();
                tiers.jobs().idle.retain(|idle| idle.id() != me);
                continue;
            }
        };
        if let Some(panic) = panic {
            // LLVM's objects of this thread may be half changed.
            return tiers.replace_background_worker(&panic);
        }
        drop(pass);
        if published {
            tiers.pay_for_reclaim();
        }
    }
}

impl TierState {
    /// Reads the counters once and starts the compiles that the controller decided; returns the
    /// time until the next look.
    fn look(self: &Arc<Self>) -> Duration {
        // Samples first: counts without the samples of the same time would look like time that did
        // not pass.
        self.open_samples();
        self.drain_samples();
        // Processor time of the look: waiting for a processor is no cost.
        let before = thread_time();
        let now = nanos(self.events.now());
        let busy = self.speculation.is_busy(self.events.now());
        warmth::look(&mut self.jobs(), self.events.now(), busy);
        let mut decisions = Vec::new();
        let (interval, asked, loops) = {
            let mut control = self.control();
            let Control {
                controller,
                watched,
                entries: totals,
                processor,
                looked,
            } = &mut *control;
            let used = process_time().saturating_sub(self.counters.aside());
            let used = used.max(*processor);
            let known = std::mem::replace(processor, used);
            controller.on_processor_time(now, nanos(used.saturating_sub(known)));
            controller.on_opening(nanos(warmth::opens_in()));
            if controller.config().overhead > 0.0 {
                let runtime = threads::own_time();
                let program = process_time().saturating_sub(runtime);
                controller.on_times(nanos(program), nanos(runtime));
            }
            let between = now - std::mem::replace(looked, now);
            let mut counted: IdMap<u32, (FunctionId, u64, u64)> = IdMap::default();
            self.counts.read(watched.list(), |id, added| {
                let (entries, loops) = (u64::from(added.entries), u64::from(added.loops));
                *totals.entry(id).or_default() += entries;
                counted.insert(id.index(), (id, entries, loops));
            });
            let between = Duration::from_nanos(between.0);
            let loops = self.watch_loops(controller, between, &mut counted);
            for (id, entries, loops) in counted.into_values() {
                controller.on_counters(now, id, entries, loops);
            }
            while let Some(decision) = controller.next(now) {
                decisions.push(decision);
            }
            controller.polled(now, nanos(thread_time().saturating_sub(before)));
            let interval = controller.poll_interval(now);
            (interval, controller.questions(), loops)
        };
        for decision in decisions {
            self.carry_out(decision);
        }
        self.answer_questions(now, asked);
        for (request, decided) in self.profiles.due(self.events.now()) {
            self.put_job(request, decided, false);
        }
        loops.iter().for_each(|loops| loops.ask_to_count());
        Duration::from_nanos(interval.0)
    }

    /// Tells the controller the callers of small functions that are hot. What it knows of one may
    /// lead to the next question.
    fn answer_questions(self: &Arc<Self>, now: Nanos, mut asked: Vec<FunctionId>) {
        while !asked.is_empty() {
            let callers = |id| (id, self.speculation.callers(id));
            let answers: Vec<_> = asked.into_iter().map(callers).collect();
            let mut decisions = Vec::new();
            asked = {
                let controller = &mut self.control().controller;
                for (id, callers) in answers {
                    for caller in callers {
                        controller.on_caller(id, caller);
                    }
                    controller.callers_told(id);
                }
                while let Some(decision) = controller.next(now) {
                    decisions.push(decision);
                }
                controller.questions()
            };
            for decision in decisions {
                self.carry_out(decision);
            }
        }
    }

    fn carry_out(self: &Arc<Self>, decision: Decision) {
        debug!(?decision, "the controller decides");
        match decision {
            Decision::Compile {
                function,
                version,
                tier,
                counters,
                ..
            } => match self.stubs.function(function.0) {
                Some(id) => {
                    let continues = self.function(id).is_some_and(|it| it.origin.is_some());
                    let runs = self.versions.seen(id).published().is_some();
                    let request = Request {
                        ahead: false,
                        function: id,
                        version,
                        tier,
                        // A continuation is not called before it is offered.
                        purpose: match continues && !runs {
                            true => Purpose::First,
                            false => Purpose::Change,
                        },
                    };
                    self.put_job(request, version, counters);
                }
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

    /// Starts a first worker before there is a job. A program that runs for longer than the first
    /// interval between looks will have one. Its hot function then need not wait for a thread to
    /// start, nor for LLVM's first compile at tier 2 if there are loops.
    fn prepare_worker(self: &Arc<Self>) {
        let running = !self.control().watched.is_empty();
        let jobs = self.jobs();
        if jobs.workers == 0 && running {
            self.add_worker(jobs);
        }
    }

    /// Starts a worker if there may be another.
    pub(super) fn add_worker(self: &Arc<Self>, mut jobs: MutexGuard<'_, Jobs>) {
        if jobs.workers >= self.background_jobs() {
            return;
        }
        fork::wait_at_exit();
        jobs.workers += 1;
        let name = format!("uruk-opt-{}", jobs.workers - 1);
        drop(jobs);
        if let Err(cause) = self.spawn_worker(name) {
            warn!(%cause, "no background worker: functions stay where they are");
            self.jobs().workers -= 1;
        }
    }

    fn spawn_worker(self: &Arc<Self>, name: String) -> Result<(), Error> {
        thread::spawn(name, self.serving.work(self, self.engines(), work))
    }

    /// Starts another background worker in place of the calling one, which ends. Under a pass.
    fn replace_background_worker(self: &Arc<Self>, message: &str) {
        // A listener may panic.
        panics::contained(|| self.tell_lost(message));
        if let Err(cause) = self.spawn_worker(String::from("uruk-opt")) {
            warn!(%cause, message, "no background worker in place of one that was lost");
            self.jobs().workers -= 1;
        }
    }

    /// Ends a job whose worker panicked.
    fn give_up_job(self: &Arc<Self>, request: Request, cancel: &Cancellation, cause: &Error) {
        self.jobs().ended(cancel);
        let versions = self.versions.seen(request.function);
        versions.fail(request.version);
        panics::contained(|| self.tell_failed(request, cause));
        let function = self.name_of(request.function);
        warn!(function, %cause, "a background worker is lost; the function runs on as it is");
        let compile = Nanos::ZERO;
        let decided = self.profiles.decided(request.version);
        self.job_ended(decided.version, Outcome::Failed { compile }, None);
    }

    /// Compiles and publishes one version in the background, under a pass; returns the text of a
    /// panic.
    fn run_job(self: &Arc<Self>, job: Job) -> Option<String> {
        let request = job.request;
        let cancel = job.cancel.clone();
        let on_fatal = {
            let tiers = Arc::clone(self);
            let cancel = cancel.clone();
            move |message: &str| {
                let cause = tiers.fatal(request.function, message);
                tiers.give_up_job(request, &cancel, &cause);
                tiers.replace_background_worker(message);
                gate::leave_lost();
            }
        };
        fatal::guard(on_fatal, || {
            let result = panics::caught(|| Ok(self.do_job(job)));
            result.unwrap_or_else(|cause| {
                self.give_up_job(request, &cancel, &cause);
                cause.panic().map(str::to_owned)
            })
        })
    }

    /// Does the job; returns the text of a panic in the compile.
    fn do_job(self: &Arc<Self>, job: Job) -> Option<String> {
        if let Some(unit) = self.unit_of(job.request.function) {
            self.hand_over(job, unit);
            return None;
        }
        let Job {
            request, queued, ..
        } = job;
        let cancel = job.cancel.clone();
        let before = WorkTime::now();
        // A version with probes has hardly been sampled when it has counted enough.
        let counts = self.engines().counts_for_tuning(request.function) || job.counters;
        let first = self.profile_first(request, queued, &cancel);
        let (request, result) = match first {
            Ok(JobStep::Later) => {
                self.jobs().ended(&cancel);
                let spent = before.elapsed();
                self.profiles.charge(request.version, spent);
                return None;
            }
            Ok(JobStep::Now(request)) if counts => {
                let mut how = self.choices.how(request.tier).counting(Counters::Entry);
                if request.tier == Tier::Guided {
                    how = self.guide(request.function, how);
                }
                let how = self.engines().tuned(request.function, how);
                (request, self.make_as(request, how, Some(queued), &cancel))
            }
            Ok(JobStep::Now(request)) => (request, self.make(request, Some(queued), &cancel)),
            Err(cause) => (request, Err(cause)),
        };
        let spent = before.elapsed();
        self.end_job(job, request, result, spent)
    }

    /// Hands a job for a unit to a thread for code of embedders.
    fn hand_over(self: &Arc<Self>, job: Job, unit: UnitBody) {
        let (tiers, engines) = (Arc::clone(self), self.engines());
        self.hands.start_late(move || {
            let _pass = gate::enter();
            // These may be the last handles of the session: they are dropped before the pass.
            let (engines, tiers, unit) = (engines, tiers, unit);
            let (request, queued) = (job.request, job.queued);
            let result = Arc::clone(&engines).improve(request, &unit, Some(queued), &job.cancel);
            // The time of other compilers says nothing about this session's compiles.
            tiers.end_job(job, request, result, Duration::ZERO);
        });
    }

    /// Ends a job that took this much processor time; returns the text of a panic.
    pub(super) fn end_job(
        self: &Arc<Self>,
        job: Job,
        request: Request,
        result: Result<Made, Error>,
        spent: Duration,
    ) -> Option<String> {
        let interrupted = self.jobs().ended(&job.cancel);
        if interrupted && matches!(&result, Err(cause) if cause.is_cancelled()) {
            self.put_again(request, job);
            return None;
        }
        let panic = result.as_ref().err().and_then(Error::panic);
        let panic = panic.map(str::to_owned);
        let decided = self.profiles.decided(request.version);
        let compile = nanos(spent + decided.spent);
        let (outcome, runs) = self.outcome(request, result, compile);
        let published = runs.is_some();
        // Before the outcome is reported: the loop runs on meanwhile.
        if published || matches!(outcome, Outcome::Failed { .. }) {
            self.continuation_made(request.function, published);
        }
        self.job_ended(decided.version, outcome, runs);
        panic
    }

    /// Tells the controller that the compile it asked for as `decided` has ended, and the version
    /// that runs now, if it was published. Starts the jobs that follow.
    pub(super) fn job_ended(
        self: &Arc<Self>,
        decided: VersionId,
        outcome: Outcome,
        runs: Option<Runs>,
    ) {
        let now = nanos(self.events.now());
        let mut next = Vec::new();
        {
            let mut control = self.control();
            // Another version may have been published over it since, and reported already.
            let runs = runs.filter(|runs| {
                self.versions
                    .runs(runs.request.function, runs.request.version)
            });
            let outcome = match outcome {
                Outcome::Published { compile, .. } if runs.is_none() => Outcome::Late { compile },
                outcome => outcome,
            };
            control.controller.finished(now, decided, outcome);
            if let Some(Runs { request, counters }) = runs {
                let Request {
                    function,
                    version,
                    tier,
                    ..
                } = request;
                let seen = self.counts.now(function);
                control.watch(function, counters, seen);
                if version != decided {
                    let controller = &mut control.controller;
                    controller.reverted(now, function, version, tier, counters);
                }
            }
            while let Some(decision) = control.controller.next(now) {
                next.push(decision);
            }
        }
        for decision in next {
            self.carry_out(decision);
        }
    }

    /// Reverts to the version before `version`.
    fn revert(self: &Arc<Self>, id: FunctionId, version: VersionId) {
        let versions = self.versions.seen(id);
        match versions.revert(version, |entry| self.stubs.publish(id, entry)) {
            Ok(reverted) => {
                let at = self.events.now();
                self.retire_version(id, reverted.retired);
                let restored = reverted.restored;
                let tier = self.tier_of(id, restored).unwrap_or(Tier::Baseline);
                let of_ir = self.function(id).is_some();
                let counts = tier == Tier::Baseline && self.choices.is_auto() && of_ir;
                let mut control = self.control();
                control.watch(id, counts, self.counts.now(id));
                let controller = &mut control.controller;
                controller.reverted(nanos(at), id, restored, tier, counts);
                drop(control);
                self.events.tell(|| Event::Reverted {
                    id,
                    function: self.name_of(id),
                    version: restored.0,
                    tier,
                    at,
                });
            }
            // The version before was freed meanwhile: its tier is compiled again.
            Err(RevertError::NoFallback(_)) => {
                let tier = self.tier_of(id, version);
                if let Some(below) = tier.and_then(Tier::below) {
                    self.control().controller.request(id, below);
                }
            }
            Err(cause) => debug!(%cause, "nothing to go back to"),
        }
    }
}
