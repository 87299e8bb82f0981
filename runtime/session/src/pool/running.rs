//! How many threads run a task, nested ones not counted, and whether more may begin: what a
//! thread that runs its own work needs of the pool, without the pool's lock.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | `threads` | who runs a task | around it | sequentially consistent, as is the load of `held` after it: pairs with `held` and the load of `threads` in `quiesce` - one of the two sees the other |
//! | `held` | `quiesce`, `resume`, under the pool's lock | around a fork | same |

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// See the module text.
#[derive(Default)]
pub(super) struct Running {
    threads: AtomicUsize,
    held: AtomicBool,
}

impl Running {
    /// Counts a task in; whether none may begin now, so that it is to be counted out again.
    #[inline]
    pub(super) fn begin(&self) -> bool {
        self.threads.fetch_add(1, Ordering::SeqCst);
        self.held.load(Ordering::SeqCst)
    }

    /// Counts a task out; whether somebody may wait for that.
    #[inline]
    pub(super) fn end(&self) -> bool {
        self.threads.fetch_sub(1, Ordering::SeqCst);
        self.held.load(Ordering::SeqCst)
    }

    /// Keeps tasks from beginning, or no longer.
    pub(super) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// How many there are.
    pub(super) fn threads(&self) -> usize {
        self.threads.load(Ordering::SeqCst)
    }

    /// Says how many there are, in a process without the other threads.
    pub(super) fn set(&self, threads: usize) {
        self.threads.store(threads, Ordering::SeqCst);
    }
}
