//! Threads for code of embedders that was requested where it may not run: by a worker, which
//! answers first calls and must not wait for one.
//!
//! Their number follows the tasks; one that finds no task for a second ends. Each task may wait for
//! any other, so none waits for a thread. If no thread can be started, a task that others may wait for is
//! dropped, which fails what it was to do ([`EmbedderThreads::start`]); the release of memory waits
//! for the next thread ([`EmbedderThreads::start_late`]).
//!
//! They are threads of the runtime (`fork::thread`): all signals are blocked there. They are not in
//! the child of a fork, where tasks that had not begun get new ones.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tracing::error;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_session::Behalf;

use crate::error::Error;
use crate::fork::errands::Errand;
use crate::fork::threads;
use crate::fork::{futex, gate, thread};

/// Work of a task.
type Work = Box<dyn FnOnce() + Send>;

/// A task without a thread.
struct Task {
    number: u64,
    work: Work,
    /// Whether it may wait for a thread.
    late: bool,
}

thread_local! {
    static HAND: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one of these until it is dropped: the thread may do other work of the
/// runtime afterwards.
struct Hand;

impl Hand {
    fn new() -> Hand {
        HAND.set(true);
        Hand
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        HAND.set(false);
    }
}

/// How long a thread waits for a task before it ends.
const IDLE: Duration = Duration::from_secs(1);

/// Whether the calling thread is one of the runtime's that must not run an embedder's code.
pub(crate) fn is_worker() -> bool {
    !HAND.get() && threads::is_ours()
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// The number of the next task.
    next: u64,
    /// Tasks for which no thread could be started: the next thread without another task does them.
    late: Vec<Work>,
    /// Threads that found no task, and have not looked again.
    idle: usize,
    stopping: bool,
}

/// The threads and their queue; see the module. Threads keep it, and no session: the session's last
/// handle may be dropped on one of them.
#[derive(Default)]
pub(crate) struct EmbedderThreads {
    queue: Mutex<Queue>,
    /// Changes with each task.
    word: AtomicU32,
    /// Drops of states of embedders that are queued or run.
    drops: AtomicU32,
}

/// Counts a drop of states until it is over, or was given up.
struct DropCount(Arc<EmbedderThreads>);

impl DropCount {
    fn new(hands: &Arc<EmbedderThreads>) -> Self {
        // Relaxed: the queue's lock orders it before the task.
        hands.drops.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(hands))
    }
}

impl Drop for DropCount {
    fn drop(&mut self) {
        // Release: a thread that reads the new number sees the effects of the drop.
        self.0.drops.fetch_sub(1, Ordering::Release);
        futex::wake(&self.0.drops, u32::MAX);
    }
}

impl Queue {
    /// The next work for a thread.
    fn take(&mut self) -> Option<Work> {
        let first = self.tasks.pop_front().map(|task| task.work);
        first.or_else(|| self.late.pop())
    }

    /// Adds a task; returns its number.
    fn add(&mut self, work: Work, late: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.tasks.push_back(Task { number, work, late });
        number
    }

    /// Takes a task out for which there is no thread; returns the work if it may not wait for one.
    fn take_back(&mut self, place: usize) -> Option<Work> {
        let Task { work, late, .. } = self.tasks.remove(place)?;
        if late {
            self.late.push(work);
            return None;
        }
        Some(work)
    }
}

impl EmbedderThreads {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Runs `work` on a thread of these, where it begins without a pass. Under a pass.
    ///
    /// # Errors
    /// [`Error::Thread`]: no thread could be started. `work` was dropped, without a pass.
    pub(crate) fn start(
        self: &Arc<Self>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        self.enqueue(work, false)
    }

    /// Like [`EmbedderThreads::start`], for work that no thread waits for: if no thread can be
    /// started, it waits for the next one.
    pub(crate) fn start_late(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        // Quiet: it is called in the child of a fork, where a subscriber of `tracing` may find its
        // locks held.
        let _ = self.enqueue(work, true);
    }

    /// Runs code of an embedder without a pass: on the calling thread, or on one of these if that is
    /// a worker. If none can be started, the code is dropped.
    pub(crate) fn run(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        if !is_worker() {
            return gate::outside(work);
        }
        let _pass = gate::enter();
        if let Err(cause) = self.start(work) {
            error!(%cause, "no thread for code of an embedder");
        }
    }

    fn enqueue(
        self: &Arc<Self>,
        work: impl FnOnce() + Send + 'static,
        late: bool,
    ) -> Result<(), Error> {
        let behalf = Behalf::now();
        let work = Box::new(move || behalf.scope(work));
        let (number, more) = {
            let mut queue = self.queue();
            let number = queue.add(work, late);
            (number, queue.tasks.len() > queue.idle)
        };
        self.wake(1);
        if !more {
            return Ok(());
        }
        let Err(cause) = self.add() else {
            return Ok(());
        };
        let left = {
            let mut queue = self.queue();
            // Another thread may have become idle meanwhile, or have taken the task.
            let own = |task: &Task| task.number == number;
            match queue.tasks.iter().position(own) {
                Some(place) if queue.tasks.len() > queue.idle => queue.take_back(place),
                _ => return Ok(()),
            }
        };
        // In the repair of a child, which holds the gate's lock, tasks are late.
        if let Some(left) = left {
            gate::outside(|| drop(left));
        }
        Err(cause)
    }

    /// Drops states of an embedder, on a thread of [`EmbedderThreads::start`]; on the calling
    /// thread if the session ends, when no more tasks begin.
    pub(crate) fn drop_apart(self: &Arc<Self>, states: impl Send + 'static) {
        let counted = DropCount::new(self);
        let work = move || {
            drop(states);
            drop(counted);
        };
        let stopping = {
            let _pass = gate::enter();
            self.queue().stopping
        };
        match stopping {
            true => gate::outside(work),
            false => {
                let _pass = gate::enter();
                // A replacement does not wait for the drop, which may replace something itself.
                let _working = Behalf::now().owned(0).enter();
                self.start_late(work);
            }
        }
    }

    /// Waits until the drops of [`EmbedderThreads::drop_apart`] are over, at most for `limit`.
    /// Without a pass, and not on a thread of [`EmbedderThreads::start`], whose own task may be one
    /// of them.
    pub(crate) fn wait_for_drops(&self, limit: Duration) {
        let start = Instant::now();
        loop {
            // Acquire: see `DropCount`.
            let left = self.drops.load(Ordering::Acquire);
            let time = limit.saturating_sub(start.elapsed());
            if left == 0 || time.is_zero() {
                return;
            }
            futex::wait_for(&self.drops, left, time);
        }
    }

    fn wake(&self, count: u32) {
        // Release: a thread that sees the new word finds the task.
        self.word.fetch_add(1, Ordering::Release);
        futex::wake(&self.word, count);
    }

    fn add(self: &Arc<Self>) -> Result<(), Error> {
        let hands = Arc::clone(self);
        thread::spawn(String::from("uruk-unit"), move || hands.live())
    }

    fn live(&self) {
        let _hand = Hand::new();
        let mut was_idle = false;
        let mut last = Instant::now();
        loop {
            let seen = self.word.load(Ordering::Acquire);
            let (task, _ours) = {
                let _pass = gate::enter();
                let mut queue = self.queue();
                queue.idle -= usize::from(was_idle);
                let task = queue.take();
                was_idle = task.is_none();
                queue.idle += usize::from(was_idle);
                if was_idle && (queue.stopping || last.elapsed() >= IDLE) {
                    queue.idle -= 1;
                    return;
                }
                // Before the pass is dropped: a fork waits for the task from here on.
                let ours = task.is_some().then(|| Errand::Ours.begin());
                (task, ours)
            };
            match task {
                Some(work) => {
                    work();
                    last = Instant::now();
                }
                None => futex::wait_for(&self.word, seen, IDLE),
            }
        }
    }

    /// Ends the threads once they have done the queued tasks. Under a pass.
    pub(crate) fn stop(&self) {
        self.queue().stopping = true;
        self.wake(u32::MAX);
    }

    /// Starts threads for the tasks that had not begun, in the child of a fork, which has none.
    /// Returns the tasks for which no thread can be started; their drop runs code of embedders.
    pub(crate) fn restart(self: &Arc<Self>) -> Vec<Box<dyn FnOnce() + Send>> {
        let waiting = {
            let mut queue = self.queue();
            queue.idle = 0;
            queue.tasks.len()
        };
        let started = (0..waiting).take_while(|_| self.add().is_ok()).count();
        let mut queue = self.queue();
        (started..waiting)
            .filter_map(|_| {
                let last = queue.tasks.len().checked_sub(1)?;
                queue.take_back(last)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{EmbedderThreads, HAND};

    #[test]
    fn a_thread_that_has_ended_may_do_other_work() {
        let hands = EmbedderThreads::default();
        hands.stop();
        hands.live();
        assert!(!HAND.get());
    }
}
