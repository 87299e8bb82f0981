//! Jobs put into the queue, put back, and cancelled.

use crate::tiers::TierState;
use crate::tiers::jobs::Job;
use crate::tiers::warmth::Warmth;
use crate::version::request::Request;
use std::sync::Arc;
use uruk_base::{FunctionId, VersionId};
use uruk_codegen::Cancellation;
use uruk_tiering::Outcome;

impl TierState {
    /// Puts a job into the queue, and makes sure that a worker takes it.
    pub(in crate::tiers) fn put_job(
        self: &Arc<Self>,
        request: Request,
        decided: VersionId,
        counters: bool,
    ) {
        let job = Job {
            request,
            decided,
            queued: self.events.now(),
            counters,
            cancel: Cancellation::new(),
            again: false,
        };
        let mut jobs = self.jobs();
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
    pub(in crate::tiers) fn put_again(&self, request: Request, job: Job) {
        let mut jobs = self.jobs();
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
        let waited = self.jobs().cancel(version);
        self.under_way.cancel(&[version]);
        if let Some(id) = self.stubs.function(function.0) {
            // A version that is ready by now is late, and dropped.
            self.versions.seen(id).cancel(version);
        }
        if let Some(job) = &waited {
            // It may have been a guided one.
            self.profiles.decided(job.request.version);
        }
        if self.profiles.cancel(version) || waited.is_some() {
            self.job_ended(version, Outcome::Cancelled, None);
        }
    }

    /// Interrupts the compiles in the background; they begin again once a fork is over.
    pub(crate) fn interrupt_jobs(&self) {
        self.jobs().interrupt();
    }
}
