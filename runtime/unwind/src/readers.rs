//! Counts of lookups in progress, so that a writer knows when it may free the nodes it unlinked.
//!
//! A reader increments its stripe, *then* loads list heads; a writer unlinks, *then* looks at the
//! stripes. With a sequentially consistent fence between the two steps on both sides, either the
//! writer sees the count, or the reader sees the list without the node. So a writer that finds all
//! stripes zero, each at some moment after it unlinked, may free: earlier readers have left (their
//! decrement is a release, the writer's load an acquire), later ones cannot reach the node.
//!
//! A reader that never leaves (a signal handler that interrupted a lookup and
//! left by `longjmp`; another thread's lookup at the moment of a `fork`, seen
//! from the child) only keeps memory from being freed.
//!
//! | field | written by | ordering | partner |
//! |---|---|---|---|
//! | stripe, enter | any thread | relaxed + SeqCst fence | fence in `quiescent` |
//! | stripe, leave | same thread | release | acquire load in `quiescent` |

use crossbeam::utils::CachePadded;

use crate::sync::{AtomicUsize, Ordering, fence, turn};

/// Number of counters. Several, so that threads that unwind at the same time seldom share a cache
/// line.
const STRIPES: usize = if cfg!(loom) { 1 } else { 16 };

/// The counts of lookups in progress.
#[derive(Debug)]
pub(crate) struct Readers {
    stripes: [CachePadded<AtomicUsize>; STRIPES],
}

/// Evidence that a lookup is counted; ends it when dropped.
#[derive(Debug)]
pub(crate) struct Reading<'r> {
    stripe: &'r AtomicUsize,
}

impl Readers {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Readers {
        Readers {
            stripes: [const { CachePadded::new(AtomicUsize::new(0)) }; STRIPES],
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Readers {
        Readers {
            stripes: std::array::from_fn(|_| CachePadded::new(AtomicUsize::new(0))),
        }
    }

    /// Begins a lookup.
    pub(crate) fn enter(&self) -> Reading<'_> {
        // Stacks of different threads differ above the low bits; a thread-local
        // would not be safe in a signal handler.
        let here = 0u8;
        let address = std::ptr::from_ref(&here).addr();
        let stripe = &self.stripes[((address >> 14) ^ (address >> 21)) % STRIPES];
        stripe.fetch_add(1, Ordering::Relaxed);
        // Partner: the fence in `quiescent`.
        fence(Ordering::SeqCst);
        Reading { stripe }
    }

    /// Whether all lookups that began before this call have ended.
    pub(crate) fn quiescent(&self) -> bool {
        turn();
        // Partner: the fence in `enter`.
        fence(Ordering::SeqCst);
        // Partner: the release of `Reading`'s drop.
        let empty = |stripe: &CachePadded<AtomicUsize>| stripe.load(Ordering::Acquire) == 0;
        self.stripes.iter().all(empty)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Partner: the acquire load in `quiescent`.
        self.stripe.fetch_sub(1, Ordering::Release);
    }
}
