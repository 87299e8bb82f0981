//! One request to one thread, and its answer: ownership of the work in between.
//!
//! The requester (one at a time) puts work into a slot and directs a signal at a
//! thread; the handler of that thread takes the work, does it and puts it back. Either
//! side may be late. The word of a slot is `number << 2 | phase`; the number grows with
//! every request, so a handler that slept between its look and its claim cannot take
//! the request that came after.
//!
//! ```text
//!            post              claim               finish
//!   FREE n ───────▶ POSTED n+1 ──────▶ CLAIMED n+1 ──────▶ DONE n+1
//!     ▲                 │ withdraw                            │ collect
//!     └─────────────────┴─────────────────────────────────────┘
//! ```
//!
//! | field | written by | in phase | ordering |
//! |---|---|---|---|
//! | `word` to POSTED | requester | FREE | release; pairs with the acquire of `claim` |
//! | `word` to CLAIMED | handler | POSTED | relaxed compare-exchange of the word that was acquired, with its number |
//! | `word` to DONE | handler | CLAIMED | release; pairs with the acquire of `collect` |
//! | `word` to FREE | requester | POSTED, DONE | relaxed: only the requester goes on from there |
//! | `thread` | requester | FREE | relaxed; ordered by `word` |
//! | `work` | requester in FREE and DONE, handler in CLAIMED | | ordered by `word` |
//!
//! A request that was claimed cannot be withdrawn: the slot stays with its handler,
//! and the requester takes another one. `model` checks this under loom.
//!
//! Requesters are serialized by `turn`, which orders their accesses.

use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};

const FREE: u64 = 0;
const POSTED: u64 = 1;
const CLAIMED: u64 = 2;
const DONE: u64 = 3;
const PHASE: u64 = 3;

/// A place for one request.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    word: AtomicU64,
    thread: AtomicU32,
    work: UnsafeCell<Option<T>>,
}

// SAFETY: only the party that the table above names for the phase accesses `work`, and the phases follow
// each other by release and acquire on `word`; `T` moves between threads.
unsafe impl<T: Send> Sync for Slot<T> {}

/// Evidence of a request in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// Result of `withdraw`.
#[derive(Debug)]
pub(crate) enum Withdrawn<T> {
    /// The request was not taken; the slot is free.
    Back(T),
    /// A handler has it, or has answered: `collect` later.
    Taken,
}

/// The handler's exclusive hold on the work of a request; given back by `finish`.
pub(crate) struct Claim<'a, T> {
    slot: &'a Slot<T>,
    word: u64,
}

impl<T> Slot<T> {
    /// A free slot.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self {
            word: AtomicU64::new(FREE),
            thread: AtomicU32::new(0),
            work: UnsafeCell::new(None),
        }
    }

    /// A free slot.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(FREE),
            thread: AtomicU32::new(0),
            work: UnsafeCell::new(None),
        }
    }

    /// Requester: asks `thread`. The work comes back if the slot is not free.
    pub(crate) fn post(&self, thread: u32, work: T) -> Result<Ticket, T> {
        // Relaxed: FREE was stored by the requester.
        let word = self.word.load(Ordering::Relaxed);
        if word & PHASE != FREE {
            return Err(work);
        }
        self.work.with_mut(|cell| {
            // SAFETY: the phase is FREE, so the cell is the requester's alone.
            unsafe { *cell = Some(work) }
        });
        self.thread.store(thread, Ordering::Relaxed);
        let posted = (word & !PHASE).wrapping_add(1 << 2) | POSTED;
        // Release: pairs with the acquire in `claim`; publishes work and thread.
        self.word.store(posted, Ordering::Release);
        Ok(Ticket(posted))
    }

    /// Requester: takes the request back unless a handler has it.
    pub(crate) fn withdraw(&self, ticket: Ticket) -> Withdrawn<T> {
        let free = ticket.0 & !PHASE | FREE;
        // Relaxed: if it succeeds, only the requester accessed the work.
        let exchanged =
            self.word
                .compare_exchange(ticket.0, free, Ordering::Relaxed, Ordering::Relaxed);
        match exchanged {
            Ok(_) => self.take().map_or(Withdrawn::Taken, Withdrawn::Back),
            Err(_) => Withdrawn::Taken,
        }
    }

    /// Requester: the answered work, if there is an answer in this slot (to any request); the slot is
    /// free then.
    pub(crate) fn collect(&self) -> Option<T> {
        // Acquire: pairs with the release in `finish`.
        let word = self.word.load(Ordering::Acquire);
        if word & PHASE != DONE {
            return None;
        }
        let work = self.take();
        // Relaxed: only the requester leaves this phase.
        self.word.store(word & !PHASE | FREE, Ordering::Relaxed);
        work
    }

    /// Requester: whether `post` would succeed.
    #[cfg(not(loom))]
    pub(crate) fn is_free(&self) -> bool {
        // Relaxed: only the requester leaves this phase, and reads its own writes.
        self.word.load(Ordering::Relaxed) & PHASE == FREE
    }

    fn take(&self) -> Option<T> {
        self.work.with_mut(|cell| {
            // SAFETY: called in FREE after a withdrawal and in DONE: the requester's.
            unsafe { (*cell).take() }
        })
    }

    /// Handler: takes the request addressed to `thread`, if there is one.
    pub(crate) fn claim(&self, thread: u32) -> Option<Claim<'_, T>> {
        // Acquire: pairs with the release in `post`, for `thread` and for the work.
        let word = self.word.load(Ordering::Acquire);
        if word & PHASE != POSTED || self.thread.load(Ordering::Relaxed) != thread {
            return None;
        }
        let claimed = word & !PHASE | CLAIMED;
        // Relaxed: it takes the very word that was acquired, with its number (a later request has a
        // higher one), and no thread reads from it.
        self.word
            .compare_exchange(word, claimed, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        Some(Claim {
            slot: self,
            word: claimed,
        })
    }

    /// Resets a slot in the child after `fork`: no thread answers any more. Relaxed, for the only
    /// thread.
    #[cfg(not(loom))]
    pub(crate) fn reset(&self) -> Option<T> {
        let word = self.word.load(Ordering::Relaxed);
        let work = if word & PHASE == FREE {
            None
        } else {
            self.take()
        };
        self.word
            .store((word & !PHASE).wrapping_add(1 << 2), Ordering::Relaxed);
        work
    }
}

impl<T> Claim<'_, T> {
    /// Runs `act` on the work of the request.
    pub(crate) fn with(&mut self, act: impl FnOnce(&mut T)) {
        self.slot.work.with_mut(|cell| {
            // SAFETY: the phase is CLAIMED by us, so the cell is ours alone.
            if let Some(work) = unsafe { (*cell).as_mut() } {
                act(work);
            }
        });
    }

    /// Publishes the answer.
    pub(crate) fn finish(self) {
        // Release: pairs with the acquire in `collect`.
        self.slot
            .word
            .store(self.word & !PHASE | DONE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Slot, Withdrawn};

    #[test]
    fn a_reset_forgets_requests_and_their_tickets() {
        let slot = Slot::new();
        let ticket = slot.post(1, "first").expect("a free slot");
        assert_eq!(slot.post(1, "second"), Err("second"));
        assert_eq!(slot.reset(), Some("first"));
        assert!(slot.claim(1).is_none() && slot.is_free());
        let next = slot.post(1, "third").expect("a free slot");
        assert!(matches!(slot.withdraw(ticket), Withdrawn::Taken));
        assert!(slot.claim(2).is_none(), "somebody else's");
        slot.claim(1).expect("a request").finish();
        assert!(matches!(slot.withdraw(next), Withdrawn::Taken));
        assert_eq!(slot.collect(), Some("third"));
        assert!(slot.is_free());
    }
}
