//! Requests for code from guests to the service, and the bell that wakes it.
//!
//! Guests push on an intrusive list; the service swaps the whole list, reverses
//! it and keeps the rest as the *batch*, from which any service thread pops. So
//! requests are served first come first served within a batch, and batches in
//! order (when two threads drain at once, theirs may interleave).
//!
//! | field | by | ordering | partner |
//! |---|---|---|---|
//! | `head` | guest: push | release | the swap in `drain` |
//! | `head` | service: swap | acquire | the push |
//! | `batch` | service: prepend | release | the loads in `pop` |
//! | `batch` | service: pop | acquire, of the head it takes off; relaxed exchange | the prepend |
//! | `bell` | guest: ring | add release, then SeqCst fence | the fence in `wait` |
//! | `bell` | runtime: stop | add release | the acquire in `wait` |
//! | `stopped` | runtime | relaxed, ordered by `bell` | |
//! | `unserved` | runtime | relaxed, SeqCst fence after it | the fences in `ring` and in the guest's `wait` |
//! | `sleepers` | service: add, SeqCst fence; sub | | the fence in `ring` |
//! | `caller` | guest | relaxed: a hint | |
//!
//! Pushing needs no tag against ABA, because only the whole list is ever removed. Popping from the
//! batch carries a 32-bit tag beside the link. Pushes and prepends are exchanges. So a thread that
//! acquires the last one also sees the writes before all earlier ones.
//!
//! # Choice of the thread to wake
//! A service thread bound to a processor ([`Requests::wait`]) names it, and sleeps at a
//! place of its own. A guest wakes a thread bound to the guest's processor, else one that is not
//! bound, else any. Measured (two cores): waking an idle core and being woken from it takes 50 us,
//! a change of threads on one core 4 to 6.
//!
//! Neither a push nor a pop is ever left incomplete: guests push with signals blocked, and the
//! service's threads block them always.

use std::time::{Duration, Instant};

use crate::cell::Cells;
use crate::futex::Futex;
use crate::state::{Kind, Step};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, turn};
use uruk_base::FunctionId;

/// A link to a cell: index + 1; zero is the end of a list.
type Link = u32;

fn link(function: FunctionId) -> Link {
    function.index() + 1
}

fn linked(link: Link) -> Option<FunctionId> {
    link.checked_sub(1).map(FunctionId)
}

/// A list head with a tag that changes on every pop.
#[derive(Debug, Default)]
pub(crate) struct TaggedList(AtomicU64);

impl TaggedList {
    /// Prepends the chain `first..=last`, whose links are in place except the
    /// last one's.
    pub(crate) fn prepend(&self, cells: &Cells, first: FunctionId, last: FunctionId) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            cells.get(last).next.store(head as Link, Ordering::Relaxed);
            let new = (head >> 32 << 32) | u64::from(link(first));
            // Release: publishes the chain; partner: the acquire in `pop`.
            turn();
            let swapped = self
                .0
                .compare_exchange(head, new, Ordering::Release, Ordering::Relaxed);
            match swapped {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Removes the first element.
    pub(crate) fn pop(&self, cells: &Cells) -> Option<FunctionId> {
        // Acquire, also of a head that another thread replaced meanwhile; partner: the release in
        // `prepend`. The exchange removes exactly the head that was acquired.
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let first = linked(head as Link)?;
            // May be stale when another thread popped it meanwhile; then the
            // tag has changed and the exchange fails.
            let next = cells.get(first).next.load(Ordering::Relaxed);
            let new = ((head >> 32).wrapping_add(1) << 32) | u64::from(next);
            turn();
            let swapped = self
                .0
                .compare_exchange(head, new, Ordering::Relaxed, Ordering::Acquire);
            match swapped {
                Ok(_) => return Some(first),
                Err(now) => head = now,
            }
        }
    }

    fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The request list of a table.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Requests {
    head: AtomicU32,
    /// Counts rings; the futex word of waiting service threads.
    bell: AtomicU32,
    /// Service threads that sleep or are about to.
    sleepers: AtomicU32,
    /// 1 while service threads must not wait.
    stopped: AtomicU32,
    /// 1 while no service thread exists, so that no request is answered.
    unserved: AtomicU32,
    /// The processor of the guest that rang last, plus one; zero if it is not known.
    caller: AtomicU32,
    batch: TaggedList,
    futex: Futex,
}

impl Requests {
    /// Guest side: links a cell whose *queued* flag the caller just set.
    pub(crate) fn push(&self, cells: &Cells, function: FunctionId) {
        let next = &cells.get(function).next;
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            next.store(head, Ordering::Relaxed);
            // Release: publishes `next`; partner: the swap in `drain`.
            let swapped = self.head.compare_exchange(
                head,
                link(function),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Guest side: signals that the list has a request.
    pub(crate) fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        // Partner: the fence in `wait`. Either we see the sleeper, or it sees
        // the bell (and with it the request).
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            let here = here();
            self.caller
                .store(here.map_or(0, |here| here + 1), Ordering::Relaxed);
            let woken = here.is_some_and(|here| self.futex.wake_at(&self.bell, place(here)))
                || self.futex.wake_at(&self.bell, ANYWHERE);
            if !woken {
                self.futex.wake_one(&self.bell);
            }
        }
    }

    /// Service side: the processor of the guest that last woke a thread, if it is known.
    pub(crate) fn caller(&self) -> Option<u32> {
        self.caller.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Service side: the next function that was requested and is still not
    /// bound.
    pub(crate) fn next(&self, cells: &Cells) -> Option<FunctionId> {
        loop {
            let function = self.batch.pop(cells).or_else(|| self.drain(cells))?;
            let before = cells.get(function).step(Step::Take);
            debug_assert!(before.is_some(), "linked but not queued");
            if before.is_some_and(|word| word.kind() == Kind::Requested) {
                return Some(function);
            }
        }
    }

    /// Takes the whole list; returns the oldest request and keeps the rest as batch.
    fn drain(&self, cells: &Cells) -> Option<FunctionId> {
        if self.head.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Partner: the release in `push`.
        let newest = linked(self.head.swap(0, Ordering::Acquire))?;
        // Reverse. The cells are queued and off the list: their links are ours.
        let mut oldest = newest;
        let mut behind = 0;
        loop {
            let next = &cells.get(oldest).next;
            let Some(older) = linked(next.load(Ordering::Relaxed)) else {
                break;
            };
            next.store(behind, Ordering::Relaxed);
            behind = link(oldest);
            oldest = older;
        }
        if let Some(second) = linked(behind) {
            self.batch.prepend(cells, second, newest);
        }
        Some(oldest)
    }

    /// Service side: waits for a request, at most `timeout`; `None` also while stopped. `processor`
    /// is the one that the calling thread is bound to.
    pub(crate) fn wait(
        &self,
        cells: &Cells,
        timeout: Option<Duration>,
        processor: Option<u32>,
    ) -> Option<FunctionId> {
        let places = processor.map_or(ANYWHERE, place);
        let deadline = timeout.and_then(deadline);
        loop {
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            // Partner: the fence in `ring`.
            fence(Ordering::SeqCst);
            // Acquire; partner: the releases in `ring` and `stop`.
            let bell = self.bell.load(Ordering::Acquire);
            let stopped = self.stopped.load(Ordering::Relaxed) != 0;
            let found = if stopped { None } else { self.next(cells) };
            let left = deadline.map(remaining);
            let done = found.is_some() || stopped || left == Some(Duration::ZERO);
            if !done {
                self.futex.wait_at(&self.bell, bell, places, left);
            }
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
            if done {
                return found;
            }
        }
    }

    /// Makes all present and later waits of service threads return.
    pub(crate) fn stop(&self) {
        self.stopped.store(1, Ordering::Relaxed);
        // Release; partner: the acquire load in `wait`. A thread that does not see the flag has not
        // seen this bell either, so it does not sleep, or is woken.
        self.bell.fetch_add(1, Ordering::Release);
        self.futex.wake_all(&self.bell);
    }

    /// Lets service threads wait again.
    pub(crate) fn start(&self) {
        self.stopped.store(0, Ordering::Relaxed);
    }

    /// Whether no service thread exists. A guest that reads `false` after its request or its
    /// declaration to wait, and a fence, is found by [`Shared::end_waits`](crate::shared::Shared).
    pub(crate) fn is_unserved(&self) -> bool {
        self.unserved.load(Ordering::Relaxed) != 0
    }

    /// Sets whether no service thread exists.
    pub(crate) fn set_unserved(&self, unserved: bool) {
        self.unserved.store(u32::from(unserved), Ordering::Relaxed);
        // Partners: the fences in `ring` and in the guest's `wait`. Either the guest sees the word,
        // or the runtime sees its request.
        fence(Ordering::SeqCst);
    }

    /// Empties everything, for the only thread of a forked child.
    pub(crate) fn reset(&self) {
        self.head.store(0, Ordering::Relaxed);
        self.sleepers.store(0, Ordering::Relaxed);
        self.start();
        self.set_unserved(false);
        self.batch.clear();
    }
}

/// The place of service threads that are bound to no processor.
const ANYWHERE: u32 = 1 << 31;

/// The place of threads bound to `processor`; processors may share a place.
fn place(processor: u32) -> u32 {
    1 << (processor % 31)
}

/// The processor that this thread runs on.
#[cfg(not(loom))]
fn here() -> Option<u32> {
    crate::sys::processor()
}

/// Under loom the processor is not known.
#[cfg(loom)]
fn here() -> Option<u32> {
    None
}

/// The end of a wait; `None` if it is too far away for the clock.
fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
