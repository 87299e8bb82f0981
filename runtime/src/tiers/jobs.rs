//! Jobs of background workers: waiting jobs, running jobs, and how they are cancelled.
//!
//! A compile checks its token between its stages (`uruk_codegen::cancel`) and then ends with an
//! error for cancellation. The function is not counted as failed, and may be compiled again.
//!
//! | cancelled by | which jobs | what follows |
//! |---|---|---|
//! | the controller: another pin, a replacement | the job it asked for | it is told `Outcome::Cancelled` |
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

mod orders;

use std::collections::VecDeque;
use std::thread::Thread;
use std::time::Duration;

use uruk_base::VersionId;
use uruk_codegen::Cancellation;

use crate::tiers::warmth::Warmth;
use crate::version::request::Request;

/// A compile in the background.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) request: Request,
    /// The controller's request: a guided version has a number of its own.
    pub(super) decided: VersionId,
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
    pub(super) warmth: Warmth,
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
    use crate::version::request::Request;

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
