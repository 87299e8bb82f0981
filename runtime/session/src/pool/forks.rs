//! The two sides of a `fork`: tasks are kept from starting, and threads out of the locks.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use super::parts::Task;
use super::{DEPTH, Pool, WORKER};
use crate::sync::{Mutex, Parker};

impl Pool {
    /// Waits until no task runs (except those that call this) and keeps new ones from starting,
    /// then keeps all threads out of the locks: for `fork`. Threads that wait in a lookup stay
    /// there.
    ///
    /// Between this and `resume` (parent) or `after_fork_child` (child) the
    /// calling thread must not use the session.
    pub fn quiesce(&self) {
        let own = usize::from(DEPTH.with(Cell::get) > 0);
        let parker = Arc::new(Parker::new());
        loop {
            let quiet = self.inner(|inner| {
                self.hold(inner, true);
                let quiet = self.0.running.threads() <= own;
                if !quiet {
                    inner.quiet.push(Arc::clone(&parker));
                }
                quiet
            });
            if quiet {
                break;
            }
            parker.park();
        }
        self.0.gate.close();
    }

    /// Whether a task runs or waits on another thread.
    pub fn runs_elsewhere(&self) -> bool {
        self.0.running.threads() > usize::from(DEPTH.with(Cell::get) > 0)
    }

    /// Like [`Pool::quiesce`], but waits for no task: for a task that will never end, if the caller
    /// knows that no other runs.
    pub fn quiesce_but_for_tasks(&self) {
        self.inner(|inner| self.hold(inner, true));
        self.0.gate.close();
    }

    /// Like [`Pool::quiesce`], in a child of a `fork` without a preceding `quiesce`, to be followed
    /// by [`Pool::after_fork_child`]. False, and nothing changed, if a thread that is not in this
    /// process was inside a lock.
    pub fn quiesce_in_child(&self) -> bool {
        let empty = self.0.gate.try_close();
        if empty {
            self.0.gate.open();
            self.quiesce_but_for_tasks();
        }
        empty
    }

    /// Lets tasks run again after `quiesce`.
    pub fn resume(&self) {
        self.0.gate.open();
        let jobs = self.0.config.jobs;
        let (wake, start, quiet) = self.inner(|inner| {
            self.hold(inner, false);
            let wake = std::mem::take(&mut inner.idle);
            let mut start = Vec::new();
            for _ in wake.len()..inner.queue.len().min(jobs) {
                start.extend(inner.new_thread(jobs));
            }
            (wake, start, std::mem::take(&mut inner.quiet))
        });
        wake.iter().for_each(|idle| idle.parker.unpark());
        quiet.iter().for_each(|parker| parker.unpark());
        for number in start {
            self.start(Some(number));
        }
    }

    /// Restarts the pool in the child of a `fork` after `quiesce`: no other thread exists any more;
    /// new ones start when there is work.
    pub fn after_fork_child(&self) {
        self.0.gate.open();
        let idle = self.inner(|inner| {
            inner.quiet.clear();
            inner.threads = 0;
            inner.waiting = 0;
            inner.nested_waits = 0;
            inner.deep_waits = 0;
            std::mem::take(&mut inner.idle)
        });
        // A handler that interrupted a wait may have forked: that wait is not in the list any more,
        // so it looks for tasks again. The others are not in the child.
        idle.iter().for_each(|idle| idle.parker.unpark());
        let own = DEPTH.with(Cell::get) > 0;
        self.0.running.set(usize::from(own));
        WORKER.with(|worker| worker.set(false));
        self.resume();
    }

    /// Starts a task for a worker. Without workers it waits in the queue, for
    /// [`Pool::run_waiting`], for a thread that starts another task, or for one that waits: the
    /// calling thread must not run it.
    pub fn put_off(&self, work: impl FnOnce() + Send + 'static) {
        if self.0.config.jobs > 0 {
            return self.spawn(work);
        }
        let task = Arc::new(Task {
            work: Mutex::new(Some(Box::new(work))),
            sake: Weak::new(),
        });
        let idle = self.inner(|inner| {
            inner.queue_up(&task);
            inner.idle.pop()
        });
        if let Some(idle) = idle {
            idle.parker.unpark();
        }
    }

    /// Whether tasks wait in the queue of a pool without workers.
    pub fn has_waiting(&self) -> bool {
        self.0.config.jobs == 0 && self.inner(|inner| inner.has_task())
    }

    /// Runs the tasks that wait in the queue of a pool without workers, on the calling thread.
    pub fn run_waiting(&self) {
        if self.0.config.jobs == 0 {
            self.drain();
        }
    }
}
