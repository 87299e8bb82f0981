//! Continuations in better code that are offered at the heads of a version's loops (OSR), and passes
//! that the heads are asked to count.
//!
//! Each loop has words that guest code reads and writes without a lock or an atomic instruction. At a
//! pass it only reads the count, unless that is negative:
//!
//! | word | writer | reader | ordering |
//! |---|---|---|---|
//! | slot | [`Offers::offer`], [`Offers::lead`]; [`Offers::close`], [`Offers::open`] and [`Offers::take_back`], under the lock | guest code, when the count reaches zero | release; the guest's plain load acquires on this processor: a thread that reads an address sees the code published there |
//! | count | [`LoopWords::ask`] and [`LoopWords::ask_after`] make it negative; guest code raises it to zero, by a load and a store, and makes it -1 when it leaves | guest code at each pass; [`LoopWords::left_to_count`] | sequentially consistent, after the slot: a thread that sees the request sees the offer, and a request for other passes does not take it away unseen. Increments are relaxed: two threads may lose some of each other, and a guest's store may undo what was asked |
//! | when | guest code, when the count reaches zero and the slot is null | [`LoopWords::ended_at`] | relaxed |
//!
//! # Invariants (`tests/loom/offers.rs` has the models)
//! 1. After [`Offers::close`] slots hold only continuations that [lead](Offers::lead) to the body
//!    that replaced this one, until they are [opened](Offers::open); after [`Offers::give_up`] none
//!    ever. A thread that read a slot before may still be on its way there. So the continuation
//!    stays callable until no frame of the version is left; only then [`Offers::end`] returns it.
//! 2. An offer may be delayed, but is not lost: a thread that leaves asks for the next one to leave. If
//!    a guest's store undoes what was asked, none or more than one pass is left to count: who made the
//!    offer [asks again](LoopWords::ask).
//! 3. Passes beyond those that were asked for are not counted: see [`Measure`](crate::passes::Measure).
//! 4. A loop has one continuation of its own body at most, and none is noted after the end.
//!    Continuations of bodies that replaced it live as long: a frame may be on its way to each of
//!    them.

use crate::ids::FunctionId;
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};

/// The words of one loop.
#[derive(Debug, Clone, Copy)]
pub struct LoopWords<'a> {
    /// The offer: the address of a stub, or 0.
    pub slot: &'a AtomicU64,
    /// The processor's cycle counter when the count last reached zero.
    pub when: &'a AtomicU64,
    /// Negative: the passes of the head until it asks.
    pub count: &'a AtomicU32,
}

/// Largest number of passes that are asked for.
const MOST: u32 = 1 << 30;

/// The continuations offered at the loops of one version, by loop.
#[derive(Debug)]
pub struct Offers {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    continuations: Vec<Option<FunctionId>>,
    /// Continuations of bodies that replaced the version's.
    leading: Vec<FunctionId>,
    /// Loops whose continuation could not be made.
    failed: Vec<usize>,
    stand: Stand,
}

/// The kind of offers that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// The version's body is the function's.
    Open,
    /// Another body is the function's.
    Closed,
    /// The function does not exist any more.
    GivenUp,
}

impl LoopWords<'_> {
    /// The passes that are left to count.
    pub fn left_to_count(self) -> u32 {
        // A request on behalf of an offer is seen with that.
        let count = self.count.load(Ordering::Acquire).cast_signed();
        count.min(0).unsigned_abs()
    }

    /// The processor's cycle counter when the count last reached zero.
    pub fn ended_at(self) -> u64 {
        self.when.load(Ordering::Relaxed)
    }

    /// True if a continuation is offered.
    pub fn is_offered(self) -> bool {
        self.slot.load(Ordering::Relaxed) != 0
    }

    /// Makes guest code read the slot at its next pass; returns the passes that were left to count. A
    /// concurrent store of an older count may undo it: call it again to be sure.
    pub fn ask(self) -> u32 {
        self.ask_after(1)
    }

    /// Makes guest code count so many passes, at least one, and read the slot at the last; returns the
    /// passes that were left to count.
    pub fn ask_after(self, passes: u32) -> u32 {
        let passes = passes.clamp(1, MOST).cast_signed();
        // An offer that is made meanwhile is seen behind it, or its own request comes later.
        let before = self.count.swap((-passes).cast_unsigned(), Ordering::SeqCst);
        before.cast_signed().min(0).unsigned_abs()
    }

    fn put(self, offered: u64) {
        self.slot.store(offered, Ordering::Release);
    }
}

impl Offers {
    /// The offers of a version with so many loops.
    pub fn new(loops: usize) -> Offers {
        Offers {
            state: Mutex::new(State {
                continuations: vec![None; loops],
                leading: Vec::new(),
                failed: Vec::new(),
                stand: Stand::Open,
            }),
        }
    }

    /// The continuation of a loop, if one was made.
    pub fn continuation(&self, place: usize) -> Option<FunctionId> {
        let state = self.state.lock();
        state.continuations.get(place).copied().flatten()
    }

    /// Records the continuation of a loop; false if the loop has one, or none is allowed any more.
    pub fn note(&self, place: usize, continuation: FunctionId) -> bool {
        let mut state = self.state.lock();
        let open = state.stand == Stand::Open;
        match state.continuations.get_mut(place) {
            Some(free @ None) if open => {
                *free = Some(continuation);
                true
            }
            _ => false,
        }
    }

    /// Records that the continuation of a loop cannot be compiled.
    pub fn fail(&self, place: usize) {
        self.state.lock().failed.push(place);
    }

    /// True if the continuation of a loop cannot be compiled.
    pub fn has_failed(&self, place: usize) -> bool {
        self.state.lock().failed.contains(&place)
    }

    /// Offers the continuation at the address of a stub, and returns the passes that were left to count;
    /// none if offers are not allowed any more.
    pub fn offer(&self, words: LoopWords<'_>, stub: u64) -> Option<u32> {
        let state = self.state.lock();
        (state.stand == Stand::Open).then(|| give(state, words, stub))
    }

    /// Offers a continuation of the body that replaced the version's, at the address of a stub, and
    /// returns the passes that were left to count; none, and no change, unless the loops are closed.
    pub fn lead(&self, words: LoopWords<'_>, continuation: FunctionId, stub: u64) -> Option<u32> {
        let mut state = self.state.lock();
        if state.stand != Stand::Closed {
            return None;
        }
        state.leading.push(continuation);
        Some(give(state, words, stub))
    }

    /// Withdraws the offers of the version's body at all loops, until it is opened again.
    pub fn close<'a>(&self, all: impl IntoIterator<Item = LoopWords<'a>>) {
        self.become_closed(Stand::Closed, all);
    }

    /// Withdraws all offers; none is allowed after it.
    pub fn give_up<'a>(&self, all: impl IntoIterator<Item = LoopWords<'a>>) {
        self.become_closed(Stand::GivenUp, all);
    }

    fn become_closed<'a>(&self, stand: Stand, all: impl IntoIterator<Item = LoopWords<'a>>) {
        let mut state = self.state.lock();
        if state.stand != Stand::GivenUp {
            state.stand = stand;
        }
        all.into_iter().for_each(|words| words.put(0));
    }

    /// Records that the version's body is the function's again: its continuations may be offered,
    /// and those of other bodies are withdrawn.
    pub fn open<'a>(&self, all: impl IntoIterator<Item = LoopWords<'a>>) {
        let mut state = self.state.lock();
        if state.stand == Stand::Closed {
            state.stand = Stand::Open;
            all.into_iter().for_each(|words| words.put(0));
        }
    }

    /// Withdraws the offers at the loops, until the next offer.
    pub fn take_back<'a>(&self, all: impl IntoIterator<Item = LoopWords<'a>>) {
        let _state = self.state.lock();
        all.into_iter().for_each(|words| words.put(0));
    }

    /// True if continuations of the version's body are not offered any more.
    pub fn is_closed(&self) -> bool {
        self.state.lock().stand != Stand::Open
    }

    /// Ends the offers when the version is freed: no frame of it is left, and none comes. Returns
    /// its continuations, which no code can call any more.
    pub fn end(&self) -> Vec<FunctionId> {
        let mut state = self.state.lock();
        let continuations = std::mem::take(&mut state.continuations);
        let leading = std::mem::take(&mut state.leading);
        continuations.into_iter().flatten().chain(leading).collect()
    }
}

fn give(state: MutexGuard<'_, State>, words: LoopWords<'_>, stub: u64) -> u32 {
    words.put(stub);
    drop(state);
    words.ask()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn after_so_many_passes_the_slot_is_read() {
        let (slot, when) = (AtomicU64::new(0), AtomicU64::new(0));
        let count = AtomicU32::new(0);
        let words = LoopWords {
            slot: &slot,
            when: &when,
            count: &count,
        };
        assert_eq!(words.left_to_count(), 0);
        words.ask_after(3);
        let left = (0..4).map(|_| {
            let left = words.left_to_count();
            count.fetch_add(1, Ordering::Relaxed);
            left
        });
        assert_eq!(left.collect::<Vec<_>>(), [3, 2, 1, 0]);
        words.ask_after(u32::MAX);
        assert_eq!(words.left_to_count(), MOST);
    }
}
