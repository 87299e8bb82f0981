//! Jobs of background workers: waiting jobs, running jobs, and how they are cancelled.
//!
//! A compile checks its token between its stages (`uruk_codegen::cancel`) and then ends with an
//! error for cancellation. The function is not counted as failed, and may be compiled again.
//!
//! | cancelled by | which jobs | what follows |
//! |---|---|---|
//! | the controller: another pin, a demotion, a replacement | the job it asked for | it is told `Outcome::Cancelled` |
//! | a commit, a rollback, a removal | versions under way of the functions, on any thread | a first call begins again with the new body |
//! | the end of the session, or of the process | all jobs, finally | workers end |
//! | `fork` that has waited for [`PATIENCE`](crate::fork::gate) | jobs that run, each once in its life | the job is put back first in the queue, and begins after the fork |
//!
//! A pause cancels nothing, nor does a first call: work under way is paid for already. A fork waits
//! for a job that it has interrupted once, so that a program which forks all the time gets better
//! code all the same, for twice the price at most.
//!
//! Threads that wait for the version of a unit are woken, whatever the unit does; its later answer
//! has no waiter.
//!
//! A token is set before the function's versions are told, and the result of a cancelled compile is
//! late then: in either order, nothing is published afterwards.
//!
//! # Why
//! - The threads of the tiers are parked, not waiting on a condition: a parked thread holds no
//!   lock that a child of `fork` could inherit. They lock only under a pass of the gate.
//! - Background workers have niceness 5. With 10 they got a tenth of a busy processor and a
//!   tier-up of an interpreter's loop took seconds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, VersionId};
use uruk_codegen::{Cancellation, CodegenError};
use uruk_session::Tracker;
use uruk_tiering::Outcome;

use crate::core::Core;
use crate::error::Error;
use crate::tiers::warmth::Warmth;
use crate::version::Request;

/// A compile in the background.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) request: Request,
    /// The controller's request: a guided version has a number of its own.
    pub(crate) decided: VersionId,
    pub(crate) queued: Duration,
    /// Whether the code counts its entries.
    pub(crate) counters: bool,
    pub(crate) cancel: Cancellation,
    /// A fork has interrupted it.
    pub(crate) again: bool,
}

/// A job that a worker is doing.
struct Running {
    decided: VersionId,
    cancel: Cancellation,
    again: bool,
    /// The job was cancelled, but only to let a fork go on.
    interrupted: bool,
}

/// The waiting jobs, the running jobs, and the background workers.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) waiting: VecDeque<Job>,
    running: Vec<Running>,
    pub(crate) idle: Vec<Thread>,
    pub(crate) workers: usize,
    pub(crate) warmth: Warmth,
    /// Nothing begins any more.
    over: bool,
}

impl Jobs {
    /// The next job, for the calling worker.
    pub(crate) fn take(&mut self) -> Option<Job> {
        let job = self.waiting.pop_front()?;
        self.running.push(Running {
            decided: job.decided,
            cancel: job.cancel.clone(),
            again: job.again,
            interrupted: false,
        });
        Some(job)
    }

    /// Removes a job that ended; true if a fork interrupted it.
    pub(crate) fn ended(&mut self, cancel: &Cancellation) -> bool {
        let found = self.running.iter().position(|one| one.cancel.is(cancel));
        found.is_some_and(|index| self.running.swap_remove(index).interrupted)
    }

    /// Cancels the controller's request `decided`; returns the job, if it was waiting.
    fn cancel(&mut self, decided: VersionId) -> Option<Job> {
        for running in &mut self.running {
            if running.decided == decided {
                running.interrupted = false;
                running.cancel.cancel();
            }
        }
        let mut waiting = self.waiting.iter();
        let index = waiting.position(|job| job.decided == decided)?;
        self.waiting.remove(index)
    }

    /// Interrupts running jobs that were not interrupted before.
    fn interrupt(&mut self) {
        for running in &mut self.running {
            if !running.again && !running.cancel.is_cancelled() {
                running.interrupted = true;
                running.cancel.cancel();
            }
        }
    }

    /// Cancels all jobs; nothing begins from here on.
    pub(crate) fn close(&mut self) {
        self.over = true;
        self.waiting.clear();
        for running in &mut self.running {
            running.interrupted = false;
            running.cancel.cancel();
        }
    }
}

/// The tokens of all versions under way, also of first calls. Those of threads that LLVM
/// took down stay: some words each.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<Vec<Going>>);

/// A version under way.
struct Going {
    function: FunctionId,
    version: VersionId,
    cancel: Cancellation,
    /// The request to a unit: the requesting thread waits for an embedder's code, which need not
    /// check a token.
    asked: Option<Tracker>,
}

/// A version is under way as long as this lives.
pub(crate) struct Entered<'a> {
    list: &'a UnderWay,
    version: VersionId,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let gone = {
            let mut list = self.list.lock();
            let gone = list.iter().position(|one| one.version == self.version);
            gone.map(|at| list.swap_remove(at))
        };
        // A handle of the session is dropped without the lock.
        drop(gone);
    }
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, Vec<Going>> {
        self.0.lock()
    }

    /// Enters a version whose compile begins; `cancel` ends it early.
    pub(crate) fn enter(&self, request: &Request, cancel: &Cancellation) -> Entered<'_> {
        let (function, version) = (request.function, request.version);
        self.lock().push(Going {
            function,
            version,
            cancel: cancel.clone(),
            asked: None,
        });
        Entered {
            list: self,
            version,
        }
    }

    /// Notes that a unit was asked for `version`, which is under `tracker`.
    pub(crate) fn asks(&self, version: VersionId, tracker: &Tracker) {
        let mut list = self.lock();
        let mut going = list.iter_mut();
        if let Some(one) = going.find(|one| one.version == version) {
            one.asked = Some(tracker.clone());
        }
    }

    /// Ends the compiles of `versions`, and the waits for requests to units.
    pub(crate) fn cancel(&self, versions: &[VersionId]) {
        if versions.is_empty() {
            return;
        }
        let mut asked = Vec::new();
        for one in &*self.lock() {
            if versions.contains(&one.version) {
                one.cancel.cancel();
                asked.extend(one.asked.clone());
            }
        }
        for tracker in asked {
            // It fails only if it is gone already.
            let _ = tracker.remove();
        }
    }

    /// In the child of a fork, no thread compiles. Returns the requests to units, whose code runs
    /// without a pass: no thread will answer them.
    #[must_use]
    pub(crate) fn after_fork_child(&self) -> Vec<(FunctionId, VersionId)> {
        let lost = std::mem::take(&mut *self.lock());
        lost.into_iter()
            .map(|one| (one.function, one.version))
            .collect()
    }
}

impl Core {
    /// Puts a job into the queue, and makes sure that a worker takes it.
    pub(crate) fn put_job(self: &Arc<Self>, request: Request, decided: VersionId, counters: bool) {
        let job = Job {
            request,
            decided,
            queued: self.events.now(),
            counters,
            cancel: Cancellation::new(),
            again: false,
        };
        let mut jobs = self.tiers.jobs();
        if jobs.over {
            return;
        }
        jobs.waiting.push_back(job);
        if let Some(worker) = jobs.idle.pop() {
            worker.unpark();
            return;
        }
        // Another worker would repeat the work of the one that warms up, and both would take
        // longer.
        if jobs.warmth == Warmth::Warming && jobs.waiting.len() == 1 {
            return;
        }
        self.add_worker(jobs);
    }

    /// Puts a job back that a fork interrupted, for the calling worker or one that is free before:
    /// it comes first. `request` is the step that it had reached.
    pub(crate) fn put_again(&self, request: Request, job: Job) {
        let mut jobs = self.tiers.jobs();
        if !jobs.over {
            jobs.waiting.push_front(Job {
                request,
                cancel: Cancellation::new(),
                again: true,
                ..job
            });
        }
    }

    /// Cancels the controller's request `version`, as early as possible.
    pub(crate) fn cancel(self: &Arc<Self>, function: FunctionId, version: VersionId) {
        let waited = self.tiers.jobs().cancel(version);
        self.tiers.under_way.cancel(&[version]);
        if let Some(id) = self.stubs.function(function.0) {
            // A version that is ready by now is late, and dropped.
            self.tiers.versions.seen(id).cancel(version);
        }
        if let Some(job) = &waited {
            // It may have been a guided one.
            self.tiers.profiles.decided(job.request.version);
        }
        if self.tiers.profiles.cancel(version) || waited.is_some() {
            self.job_ended(version, Outcome::Cancelled, None);
        }
    }

    /// Interrupts the compiles in the background; they begin again once a fork is over.
    pub(crate) fn interrupt_jobs(&self) {
        self.tiers.jobs().interrupt();
    }

    /// The error of a job that was cancelled between two compiles.
    pub(crate) fn cancelled(&self, id: FunctionId) -> Error {
        let function = self.function(id);
        let module = function.map(|f| f.module.readers.bitcode().name().to_owned());
        Error::Codegen(CodegenError::Cancelled {
            module: module.unwrap_or_default(),
            unit: self.name_of(id).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uruk_base::FunctionId;
    use uruk_base::{Tier, VersionId};
    use uruk_codegen::Cancellation;
    use uruk_heap::{Heap, HeapConfig};
    use uruk_stubs::StubTable;
    use uruk_tiering::Purpose;

    use super::{Job, Jobs};
    use crate::version::Request;

    fn job(function: FunctionId, number: u64) -> Job {
        Job {
            request: Request {
                ahead: false,
                function,
                version: VersionId(number + 100),
                tier: Tier::Optimized,
                purpose: Purpose::Change,
            },
            decided: VersionId(number),
            queued: Duration::ZERO,
            counters: false,
            cancel: Cancellation::new(),
            again: number == 3,
        }
    }

    #[test]
    fn forks_interrupt_once_and_others_for_good() {
        // Other tests have sessions, and locks are checked from then on.
        let _pass = crate::fork::gate::enter();
        let heap = Heap::new(HeapConfig::default()).expect("a heap");
        let table = StubTable::new(&heap).expect("stubs");
        let id = table.allocate().expect("room");
        let mut jobs = Jobs::default();
        jobs.waiting.extend((0..6).map(|number| job(id, number)));
        let [a, b, c, again]: [Job; 4] = std::array::from_fn(|_| jobs.take().expect("a job"));

        // A waiting job is taken out, by the number of the controller's request.
        assert!(jobs.cancel(VersionId(104)).is_none());
        let waited = jobs.cancel(VersionId(4)).expect("it waited");
        assert_eq!(waited.request.version, VersionId(104));
        assert_eq!(jobs.waiting.len(), 1);

        // A running job gets a token, and the controller's cancellation counts for more than a
        // fork's.
        assert!(jobs.cancel(VersionId(0)).is_none() && a.cancel.is_cancelled());
        jobs.interrupt();
        assert!(b.cancel.is_cancelled() && c.cancel.is_cancelled());
        assert!(!again.cancel.is_cancelled(), "once in its life");
        assert!(jobs.cancel(VersionId(2)).is_none());
        let ended = [&a, &b, &c, &again].map(|job| jobs.ended(&job.cancel));
        assert_eq!(ended, [false, true, false, false]);
        assert!(!jobs.ended(&b.cancel), "it is not there any more");

        let last = jobs.take().expect("the fifth was cancelled");
        jobs.close();
        assert!(last.cancel.is_cancelled() && !jobs.ended(&last.cancel));
    }
}
