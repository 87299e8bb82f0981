//! Whether threads answer the first calls of a session.
//!
//! A worker may be missing: the child of a fork could start none (`RLIMIT_NPROC`, a limit of address
//! space), or the last one was lost and no other could be started. Then first calls fail with the
//! cause, and each tries first to start a worker ([`fork::attend_call`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk_base::locks::Mutex;
use uruk_stubs::StubTable;

use crate::error::Error;
use crate::fork;

/// See the module text.
#[derive(Default)]
pub(crate) struct CallService {
    /// Number of workers. Relaxed: counted where a thread is started, before it runs, and by the
    /// thread itself.
    workers: AtomicUsize,
    /// Why there is no worker.
    cause: Mutex<Option<Arc<Error>>>,
}

impl CallService {
    /// Counts a worker that is about to start.
    pub(crate) fn begin_worker(&self) {
        self.workers.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts a worker.
    pub(crate) fn end_worker(&self) {
        self.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there is no worker.
    pub(crate) fn has_none(&self) -> bool {
        self.workers.load(Ordering::Relaxed) == 0
    }

    /// In the child of a fork, which has no worker.
    pub(crate) fn after_fork_child(&self) {
        self.workers.store(0, Ordering::Relaxed);
        *self.cause.lock() = None;
    }

    /// Makes first calls fail, as no worker could be started. Under a pass.
    pub(crate) fn lose(&self, stubs: &StubTable, cause: Error) {
        // Locked until the calls fail: a thread that starts a worker for them comes after that.
        let mut held = self.cause.lock();
        *held = Some(Arc::new(cause));
        // Before a call fails, whose caller may call again.
        fork::note_unserved();
        stubs.set_unserved(true);
    }

    /// Makes first calls wait for workers again, after one was started.
    pub(crate) fn regain(&self, stubs: &StubTable) {
        let mut held = self.cause.lock();
        if self.has_none() {
            // It was lost already.
            return;
        }
        stubs.set_unserved(false);
        *held = None;
    }

    /// Why no worker answers; `None` if one does.
    pub(crate) fn cause(&self) -> Option<Arc<Error>> {
        self.cause.lock().clone()
    }
}
