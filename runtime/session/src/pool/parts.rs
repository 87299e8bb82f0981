//! Parts of a pool: tasks, waits, and the state under its lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use uruk_base::locks::ranks;

use super::{MAX_SPARES, Work};
use crate::sync::{AtomicBool, Mutex, Parker};

/// Work that is taken at most once, by whichever list comes first.
pub(super) struct Task {
    pub(super) work: Mutex<Option<Work>>,
    /// The wait it was started for. Weak, for that wait lists the task.
    pub(super) sake: Weak<Waiter>,
}

impl Task {
    pub(super) fn take(&self) -> Option<(Work, Option<Arc<Waiter>>)> {
        let work = self.work.lock().take()?;
        Some((work, self.sake.upgrade()))
    }

    fn is_taken(&self) -> bool {
        self.work.lock().is_none()
    }
}

/// One wait: done or not, and the tasks that were started for its sake.
///
/// `done` is stored with release by `finish` and loaded with acquire by the waiting thread, which
/// then sees all earlier writes.
pub struct Waiter {
    pub(super) done: AtomicBool,
    pub(super) parker: Parker,
    pub(super) own: Mutex<VecDeque<Arc<Task>>, ranks::WaiterOwn>,
    /// Number of threads that wait, and run tasks of their own meanwhile.
    pub(super) helpers: AtomicUsize,
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Waiter {
    /// A wait that is not over.
    pub fn new() -> Self {
        Self {
            done: AtomicBool::new(false),
            parker: Parker::new(),
            own: Mutex::new(VecDeque::new()),
            helpers: AtomicUsize::new(0),
        }
    }

    /// Ends the wait.
    pub fn finish(&self) {
        self.done.store(true, Ordering::Release);
        self.parker.unpark();
    }

    /// Whether the wait is over.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    pub(super) fn take_own(&self) -> Option<Work> {
        let mut own = self.own.lock();
        while let Some(task) = own.pop_front() {
            if let Some((work, _)) = task.take() {
                return Some(work);
            }
        }
        None
    }
}

impl PoolState {
    /// Adds a task. Taken tasks at the front are dropped: without workers no other thread removes
    /// them.
    pub(super) fn queue_up(&mut self, task: &Arc<Task>) {
        self.drop_taken();
        self.queue.push_back(Arc::clone(task));
    }

    fn drop_taken(&mut self) {
        while self.queue.front().is_some_and(|first| first.is_taken()) {
            self.queue.pop_front();
        }
    }

    /// Whether a task of the queue is still to be done.
    pub(super) fn has_task(&mut self) -> bool {
        self.drop_taken();
        !self.queue.is_empty()
    }
}

#[derive(Default)]
pub(super) struct PoolState {
    pub(super) queue: VecDeque<Arc<Task>>,
    /// Parked threads; a worker parks in a wait that never ends.
    pub(super) idle: Vec<Arc<Waiter>>,
    /// Number of workers and spares.
    pub(super) threads: usize,
    /// Those of them that are parked inside a task.
    pub(super) waiting: usize,
    /// Number of threads that wait inside a task, workers or not.
    pub(super) nested_waits: usize,
    /// Those of them that are too deep to help, in a pool without workers.
    pub(super) deep_waits: usize,
    pub(super) started: usize,
    /// Like [`Running::held`].
    pub(super) held: bool,
    pub(super) quitting: bool,
    pub(super) quiet: Vec<Arc<Parker>>,
}

/// The next action of a waiting thread that finds no task.
pub(super) enum Next {
    Park,
    LookAgain,
    TooDeep,
}

impl PoolState {
    /// Whether tasks may start. While a fork is coming, only those that a running task may be
    /// waiting for.
    pub(super) fn open(&self) -> bool {
        !self.held || self.nested_waits > 0
    }

    /// The number of workers that are not parked in a wait.
    pub(super) fn active(&self) -> usize {
        self.threads - self.waiting.min(self.threads)
    }

    /// Maximal number of active workers: one for deep waits in a pool without workers.
    pub(super) fn allowed(&self, jobs: usize) -> usize {
        jobs.max(usize::from(self.deep_waits > 0))
    }

    /// Counts a new thread, if one more may run; returns its number.
    pub(super) fn new_thread(&mut self, jobs: usize) -> Option<usize> {
        if self.active() >= self.allowed(jobs) || self.threads >= jobs + MAX_SPARES {
            return None;
        }
        self.threads += 1;
        self.started += 1;
        Some(self.started - 1)
    }

    pub(super) fn before_park(
        &mut self,
        jobs: usize,
        helps: bool,
        waiter: &Arc<Waiter>,
    ) -> (Option<usize>, Next) {
        let work = !self.queue.is_empty() && self.open();
        if jobs == 0 && helps {
            if work {
                return (None, Next::LookAgain);
            }
            self.idle.push(Arc::clone(waiter));
            return (None, Next::Park);
        }
        if !work || !self.idle.is_empty() {
            return (None, Next::Park);
        }
        let start = self.new_thread(jobs);
        let next = match start.is_none() && self.active() == 0 {
            true => Next::TooDeep,
            false => Next::Park,
        };
        (start, next)
    }
}
