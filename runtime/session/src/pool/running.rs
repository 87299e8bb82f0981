//! The number of threads that run a task, nested tasks not counted, and whether more may begin. A
//! thread with its own work reads this state without the pool's lock.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | `threads` | a thread that runs a task | around it | sequentially consistent, as is the load of `held` after it: pairs with `held` and the load of `threads` in `quiesce` - one of the two sees the other |
//! | `held` | `quiesce`, `resume`, under the pool's lock | around a fork | same |

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// See the module text.
#[derive(Default)]
pub(super) struct Running {
    threads: AtomicUsize,
    held: AtomicBool,
}

impl Running {
    /// Counts a task that begins; returns whether tasks are held, so that it must be uncounted
    /// again.
    #[inline]
    pub(super) fn begin(&self) -> bool {
        self.threads.fetch_add(1, Ordering::SeqCst);
        self.held.load(Ordering::SeqCst)
    }

    /// Uncounts a task; returns whether a thread may wait for that.
    #[inline]
    pub(super) fn end(&self) -> bool {
        self.threads.fetch_sub(1, Ordering::SeqCst);
        self.held.load(Ordering::SeqCst)
    }

    /// Sets whether tasks are kept from beginning.
    pub(super) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// The number of threads that run a task.
    pub(super) fn threads(&self) -> usize {
        self.threads.load(Ordering::SeqCst)
    }

    /// Sets the number, in a process without the other threads.
    pub(super) fn set(&self, threads: usize) {
        self.threads.store(threads, Ordering::SeqCst);
    }
}
