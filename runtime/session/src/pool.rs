//! The worker pool: a bounded number of persistent threads, and waits that help.
//!
//! Invariants:
//! - At most `jobs` workers run tasks at a time. A worker that waits inside a task does not count;
//!   a *spare* thread takes its place while there is work ([`MAX_SPARES`] bounds them), so a
//!   blocking lookup inside a materializer never starves the work it waits for, even with one
//!   worker.
//! - A waiting thread helps only with tasks that were started for the sake of its own wait. An
//!   arbitrary task on top of its stack might wait for a task below it, which could then never
//!   finish. Without workers (`jobs` = 0) no other thread would run the rest, so there waiting
//!   threads help with all tasks.
//! - Helping nests at most `help_depth` deep on one stack; deeper waits leave the work to spare
//!   threads, also in a pool without workers. Where no more spares are possible, the wait is an
//!   error.
//!
//! How it works: tasks are in one queue, in [`Task`] cells that are taken at most once; a task
//! started during a wait is also in that wait's own list. Parked threads are in `idle`; a new task
//! wakes one of them. Every parked thread stays in the list until it is woken or leaves.
//!
//! Everything is under `inner` except each parker's token, each wait's list, and the count of
//! threads that run a task (`running.rs`).

mod config;
mod forks;
mod own;
mod own_tasks;
mod parts;
mod running;

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use uruk_base::locks::{Covered, ranks};

pub use config::PoolConfig;
pub use parts::Waiter;
use parts::{Next, PoolState, Task};
use running::Running;

use crate::gate::Gate;
use crate::sync::Mutex;

/// Maximal number of threads beyond `jobs` that stand in for waiting workers.
const MAX_SPARES: usize = 64;
/// Sleep of a thread that may not start a task, before it retries.
const HELD_AGAIN: Duration = Duration::from_micros(100);
/// Maximal number of tasks in the queue; beyond it, the starting thread runs the task itself.
const QUEUE_LIMIT: usize = 1 << 20;

type Work = Box<dyn FnOnce() + Send>;
type PanicHook = Arc<dyn Fn(&str) + Send + Sync>;

struct Shared {
    config: PoolConfig,
    on_panic: PanicHook,
    gate: Gate,
    running: Running,
    inner: Mutex<PoolState, ranks::PoolInner>,
}

/// A handle to the threads; the clones are one pool.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.0.config).finish()
    }
}

use own::{DEPTH, SAKE, Sake, WORKER};

/// Creates the thread-locals of `arc_swap`, which have destructors, on the calling thread. The C library
/// registers these under the dynamic loader's lock, which may be held by a thread that waits for this
/// one.
pub fn prepare_thread() {
    drop(arc_swap::ArcSwap::from_pointee(()).load());
}

impl Pool {
    /// A new pool; its threads start when there is work. `on_panic` gets the panics of tasks.
    pub fn new(config: PoolConfig, on_panic: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        Self(Arc::new(Shared {
            config,
            on_panic,
            gate: Gate::default(),
            running: Running::default(),
            inner: Mutex::new(PoolState::default()),
        }))
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    fn inner<R>(&self, change: impl FnOnce(&mut PoolState) -> R) -> R {
        let _covered = Covered::ensure();
        let _inside = self.0.gate.enter();
        change(&mut self.0.inner.lock())
    }

    /// The number of threads that run tasks.
    pub fn jobs(&self) -> usize {
        self.0.config.jobs
    }

    /// Threads that exist now, spares included.
    pub fn threads(&self) -> usize {
        self.inner(|inner| inner.threads)
    }

    /// Starts a task. It runs on a worker, or without workers on this thread: at once, or after the
    /// current task.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        let sake = SAKE.with(|sake| sake.borrow().clone());
        let task = Arc::new(Task {
            work: Mutex::new(Some(Box::new(work))),
            sake: sake.as_ref().map_or_else(Weak::new, Arc::downgrade),
        });
        if let Some(waiter) = sake {
            waiter.own.lock().push_back(Arc::clone(&task));
            waiter.parker.unpark();
        }
        let jobs = self.0.config.jobs;
        let outside = !WORKER.with(Cell::get);
        let (wake, start, run_here) = self.inner(|inner| {
            if !inner.open() {
                inner.queue_up(&task);
                return (None, None, false);
            }
            if inner.queue.len() >= QUEUE_LIMIT {
                return (None, None, true);
            }
            let wake = inner.idle.pop();
            let start = match wake {
                Some(_) => None,
                None => inner.new_thread(jobs),
            };
            let stuck = jobs > 0 && outside && inner.active() == 0;
            if !stuck {
                inner.queue_up(&task);
            }
            (wake, start, stuck)
        });
        if let Some(idle) = wake {
            idle.parker.unpark();
        }
        self.start(start);
        if run_here {
            if let Some((work, sake)) = task.take() {
                self.run(work, sake);
            }
        } else if jobs == 0 && DEPTH.with(Cell::get) == 0 {
            self.drain();
        }
    }

    /// Runs the queued tasks on this thread.
    fn drain(&self) {
        while self.run_next() {}
    }

    /// Runs the next task of the queue, if there is one and tasks may start.
    fn run_next(&self) -> bool {
        let outermost = DEPTH.with(Cell::get) == 0;
        loop {
            let task = self.inner(|inner| {
                if !inner.open() {
                    return None;
                }
                let task = inner.queue.pop_front()?;
                if outermost {
                    self.0.running.begin();
                }
                Some(task)
            });
            let Some(task) = task else { return false };
            if let Some((work, sake)) = task.take() {
                self.run_admitted(work, sake);
                return true;
            }
            if outermost {
                self.leave();
            }
        }
    }

    /// Runs one task for the sake of `sake`. A panic ends the task only.
    pub(crate) fn run(&self, work: impl FnOnce(), sake: Option<Arc<Waiter>>) {
        if DEPTH.with(Cell::get) == 0 {
            self.begin();
        }
        self.run_admitted(work, sake);
    }

    /// Counts a task that is about to run, once tasks may start.
    fn begin(&self) {
        if !self.0.running.begin() {
            return;
        }
        self.leave();
        while !self.inner(|inner| {
            let open = inner.open();
            if open {
                self.0.running.begin();
            }
            open
        }) {
            // A fork is coming; see `quiesce`.
            std::thread::sleep(HELD_AGAIN);
        }
    }

    /// Like `run`, after the task was counted in `running` if it is the outermost.
    fn run_admitted(&self, work: impl FnOnce(), sake: Option<Arc<Waiter>>) {
        let depth = DEPTH.with(|depth| depth.replace(depth.get() + 1));
        {
            let _sake = Sake::set(sake);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "a panic without text".to_owned());
                (self.0.on_panic)(&text);
            }
        }
        DEPTH.with(|at| at.set(depth));
        if depth == 0 {
            self.leave();
        }
    }

    fn leave(&self) {
        if !self.0.running.end() {
            return;
        }
        let quiet = self.inner(|inner| std::mem::take(&mut inner.quiet));
        quiet.iter().for_each(|parker| parker.unpark());
    }

    /// Sets whether tasks are kept from starting.
    fn hold(&self, inner: &mut PoolState, held: bool) {
        inner.held = held;
        self.0.running.hold(held);
    }

    /// Runs `work`; the tasks it starts are for the sake of `waiter`.
    pub(crate) fn for_the_sake_of<R>(&self, waiter: &Arc<Waiter>, work: impl FnOnce() -> R) -> R {
        let _sake = Sake::set(Some(Arc::clone(waiter)));
        work()
    }

    /// Whether a wait of this thread may run tasks on top of its stack.
    pub(crate) fn may_help(&self) -> bool {
        let config = &self.0.config;
        DEPTH.with(Cell::get) < config.help_depth
            && (config.jobs == 0 || config.help_outside || WORKER.with(Cell::get))
    }

    /// Waits until `waiter` is finished, helping meanwhile. False if no thread is left that could
    /// do the work: waits nest too deep.
    pub fn wait(&self, waiter: &Arc<Waiter>) -> bool {
        let nested = DEPTH.with(Cell::get) > 0;
        let worker = nested && WORKER.with(Cell::get);
        if nested && !waiter.is_done() {
            let deep = self.0.config.jobs == 0 && !self.may_help();
            let start = self.inner(|inner| {
                inner.nested_waits += 1;
                inner.deep_waits += usize::from(deep);
                inner.waiting += usize::from(worker);
                // A fork may be waiting for the task that now waits.
                match inner.held && !inner.queue.is_empty() {
                    true => inner.idle.pop(),
                    false => None,
                }
            });
            if let Some(idle) = start {
                idle.parker.unpark();
            }
            let possible = self.wait_counted(waiter);
            let idle = self.inner(|inner| {
                // In the child of a fork that a handler made meanwhile, there are none.
                inner.nested_waits = inner.nested_waits.saturating_sub(1);
                inner.deep_waits = inner.deep_waits.saturating_sub(usize::from(deep));
                inner.waiting -= usize::from(worker);
                // The spares of a pool without workers exit after the last deep wait.
                match deep && inner.deep_waits == 0 {
                    true => std::mem::take(&mut inner.idle),
                    false => Vec::new(),
                }
            });
            idle.iter().for_each(|idle| idle.parker.unpark());
            return possible;
        }
        self.wait_counted(waiter)
    }

    fn wait_counted(&self, waiter: &Arc<Waiter>) -> bool {
        let _waits = self.will_wait(waiter);
        self.wait_until_done(waiter, self.may_help())
    }
    fn wait_until_done(&self, waiter: &Arc<Waiter>, helps: bool) -> bool {
        let jobs = self.0.config.jobs;
        while !waiter.is_done() {
            if helps {
                if let Some(work) = waiter.take_own() {
                    self.run(work, Some(Arc::clone(waiter)));
                    continue;
                }
                if jobs == 0 && self.run_next() {
                    continue;
                }
            }
            let (start, next) = self.inner(|inner| inner.before_park(jobs, helps, waiter));
            let started = self.start(start);
            match next {
                Next::Park if !started && self.inner(|inner| inner.active() == 0) => {
                    return waiter.is_done();
                }
                Next::Park if !waiter.is_done() => waiter.parker.park(),
                Next::TooDeep => return waiter.is_done(),
                _ => {}
            }
            if jobs == 0 {
                self.leave_idle(waiter);
            }
        }
        // Another thread may wait for it too.
        waiter.parker.unpark();
        true
    }

    /// Takes a wait out of the list, and passes on a wake-up that it may have received for a task
    /// it will not run.
    fn leave_idle(&self, waiter: &Arc<Waiter>) {
        let wake = self.inner(|inner| {
            let before = inner.idle.len();
            inner.idle.retain(|idle| !Arc::ptr_eq(idle, waiter));
            let was_woken = inner.idle.len() == before;
            match was_woken && !inner.queue.is_empty() && inner.open() {
                true => inner.idle.pop(),
                false => None,
            }
        });
        if let Some(idle) = wake {
            idle.parker.unpark();
        }
    }

    #[cfg(loom)]
    fn start(&self, number: Option<usize>) -> bool {
        if number.is_some() {
            let pool = self.clone();
            loom::thread::spawn(move || pool.work());
        }
        true
    }

    /// Starts a thread, if one was counted; false if it cannot be started.
    #[cfg(not(loom))]
    fn start(&self, number: Option<usize>) -> bool {
        let Some(number) = number else { return true };
        let pool = self.clone();
        let name = format!("uruk-{number}");
        let config = &self.0.config;
        let started = match &config.spawn {
            Some(spawn) => spawn(name, Box::new(move || pool.work())),
            None => {
                let thread = std::thread::Builder::new().name(name);
                let thread = thread.stack_size(config.stack_size);
                thread.spawn(move || pool.work()).map(drop)
            }
        };
        if let Err(error) = &started {
            // The task stays in the queue for the existing threads.
            tracing::error!(%error, "cannot start a worker thread");
            self.inner(|inner| inner.threads -= 1);
        }
        started.is_ok()
    }

    /// The main loop of a worker: runs tasks until the pool quits, or until it is a spare that is
    /// no longer needed.
    pub fn work(&self) {
        prepare_thread();
        WORKER.with(|worker| worker.set(true));
        self.work_until_unneeded();
        // The thread may be used for other work.
        WORKER.with(|worker| worker.set(false));
    }

    fn work_until_unneeded(&self) {
        let own = Arc::new(Waiter::new());
        let jobs = self.0.config.jobs;
        loop {
            if self.run_next() {
                continue;
            }
            let stay = self.inner(|inner| {
                let idle = inner.queue.is_empty();
                if inner.active() > inner.allowed(jobs) || (inner.quitting && idle) {
                    inner.threads -= 1;
                    return false;
                }
                if idle || !inner.open() {
                    inner.idle.push(Arc::clone(&own));
                } else {
                    own.parker.unpark();
                }
                true
            });
            if !stay {
                return;
            }
            own.parker.park();
        }
    }

    /// Ends the workers as soon as the queue is empty. Does not wait for them.
    pub fn quit(&self) {
        let idle = self.inner(|inner| {
            inner.quitting = true;
            std::mem::take(&mut inner.idle)
        });
        idle.iter().for_each(|idle| idle.parker.unpark());
    }
}
