//! Threads for code of embedders that was requested where it may not run: by a worker, which
//! answers first calls and must not wait for one.
//!
//! Their number follows the tasks; one that finds no task for a second ends. Each task may wait for
//! any other, so none waits for a thread.
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

use crate::fork::errands::Errand;
use crate::fork::threads;
use crate::fork::{futex, gate, thread};

type Task = Box<dyn FnOnce() + Send>;

thread_local! {
    static HAND: Cell<bool> = const { Cell::new(false) };
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

impl EmbedderThreads {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Runs `work` on a thread of these, where it begins without a pass. Under a pass.
    pub(crate) fn start(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        let behalf = Behalf::now();
        let work = move || behalf.scope(work);
        let more = {
            let mut queue = self.queue();
            queue.tasks.push_back(Box::new(work));
            queue.tasks.len() > queue.idle
        };
        self.wake(1);
        if more {
            self.add();
        }
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
                self.start(work);
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

    fn add(self: &Arc<Self>) {
        let hands = Arc::clone(self);
        if let Err(cause) = thread::spawn(String::from("uruk-unit"), move || hands.live()) {
            // The existing threads will do it.
            error!(%cause, "no thread for a unit");
        }
    }

    fn live(&self) {
        HAND.set(true);
        let mut was_idle = false;
        let mut last = Instant::now();
        loop {
            let seen = self.word.load(Ordering::Acquire);
            let (task, _ours) = {
                let _pass = gate::enter();
                let mut queue = self.queue();
                queue.idle -= usize::from(was_idle);
                let task = queue.tasks.pop_front();
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
                Some(task) => {
                    task();
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
    pub(crate) fn restart(self: &Arc<Self>) {
        let waiting = {
            let mut queue = self.queue();
            queue.idle = 0;
            queue.tasks.len()
        };
        (0..waiting).for_each(|_| self.add());
    }
}
