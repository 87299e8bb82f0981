//! Continuations in better code that are offered at the heads of a version's loops (OSR).
//!
//! Each loop has words that guest code reads and writes without a lock or an atomic instruction,
//! because its increments must cost nothing:
//!
//! | word | writer | reader | ordering |
//! |---|---|---|---|
//! | slot | [`Offers::offer`], [`Offers::lead`]; [`Offers::close`], [`Offers::open`] and [`Offers::take_back`], under the lock | guest code, when the sign is set | release; the guest's plain load acquires on this processor: a thread that reads an address sees the code published there |
//! | count | guest code, a load and a store | [`passed`] | relaxed: two threads may lose increments of each other |
//! | sign of the count | [`LoopWords::ask`]; a guest's store may undo it | guest code, at each pass | relaxed |
//!
//! # Invariants (`tests/loom/offers.rs` has the models)
//! 1. After [`Offers::close`] slots hold only continuations that [lead](Offers::lead) to the body
//!    that replaced this one, until they are [opened](Offers::open); after [`Offers::give_up`] none
//!    ever. A thread that read a slot before may still be on its way there. So the continuation
//!    stays callable until no frame of the version is left; only then [`Offers::end`] returns it.
//! 2. An offer may be delayed, but is not lost. If the sign is lost, the thread that reads the counts
//!    [asks again](LoopWords::ask). Without that, the count itself reaches its sign.
//! 3. A count may go back, because a thread stored an old value after it was stopped in the middle
//!    of an increment. That is no pass ([`passed`]).
//! 4. A loop has one continuation of its own body at most, and none is noted after the end.
//!    Continuations of bodies that replaced it live as long: a frame may be on its way to each of
//!    them.

use crate::ids::FunctionId;
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};

/// The sign bit of a count.
const ASKED: u32 = 1 << 31;

/// The words of one loop.
#[derive(Debug, Clone, Copy)]
pub struct LoopWords<'a> {
    /// The offer: the address of a stub, or 0.
    pub slot: &'a AtomicU64,
    /// The number of passes of the head, and the sign to read the slot.
    pub count: &'a AtomicU32,
}

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

/// Number of passes between two reads of a count. A difference of more than half the range means
/// that the count went back, and is 0. Between two reads no loop is passed so often.
pub fn passed(before: u32, now: u32) -> u32 {
    let added = now.wrapping_sub(before) & !ASKED;
    match added < ASKED / 2 {
        true => added,
        false => 0,
    }
}

impl LoopWords<'_> {
    /// The number of passes of the head, modulo 2^31.
    pub fn passes(self) -> u32 {
        self.count.load(Ordering::Relaxed) & !ASKED
    }

    /// True if a continuation is offered.
    pub fn is_offered(self) -> bool {
        self.slot.load(Ordering::Relaxed) != 0
    }

    /// Makes guest code read the slot at its next pass. A concurrent store of an older count may
    /// undo it: call it again to be sure.
    pub fn ask(self) {
        self.count.fetch_or(ASKED, Ordering::Relaxed);
    }

    /// True if guest code will read the slot at its next pass, unless a store of its count is in
    /// progress.
    pub fn is_asked(self) -> bool {
        self.count.load(Ordering::Relaxed) & ASKED != 0
    }

    /// Makes guest code read the slot after so many passes.
    pub fn ask_after(self, passes: u32) {
        let begin = ASKED.wrapping_sub(passes.max(1));
        self.count.store(begin, Ordering::Relaxed);
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

    /// Offers the continuation at the address of a stub; false if offers are not allowed any more.
    pub fn offer(&self, words: LoopWords<'_>, stub: u64) -> bool {
        let state = self.state.lock();
        if state.stand != Stand::Open {
            return false;
        }
        give(state, words, stub);
        true
    }

    /// Offers a continuation of the body that replaced the version's, at the address of a stub;
    /// false, and no change, unless the loops are closed.
    pub fn lead(&self, words: LoopWords<'_>, continuation: FunctionId, stub: u64) -> bool {
        let mut state = self.state.lock();
        if state.stand != Stand::Closed {
            return false;
        }
        state.leading.push(continuation);
        give(state, words, stub);
        true
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

fn give(state: MutexGuard<'_, State>, words: LoopWords<'_>, stub: u64) {
    words.put(stub);
    drop(state);
    words.ask();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn passes_are_what_was_added_and_a_count_that_went_back_is_none() {
        for (before, now, passes) in [
            (0, 0, 0),
            (3, 10, 7),
            (ASKED - 2, 5, 7),
            (ASKED - 2, ASKED | 5, 7),
            (0, ASKED / 2 - 1, ASKED / 2 - 1),
            (1000, 11, 0),
            (5, ASKED - 2, 0),
        ] {
            assert_eq!(passed(before, now), passes, "{before:#x} {now:#x}");
        }
    }

    #[test]
    fn after_so_many_passes_the_sign_is_there() {
        let (slot, count) = (AtomicU64::new(0), AtomicU32::new(0));
        let words = LoopWords {
            slot: &slot,
            count: &count,
        };
        words.ask_after(3);
        let signs = (0..4).map(|_| count.fetch_add(1, Ordering::Relaxed) + 1 >= ASKED);
        assert_eq!(signs.collect::<Vec<_>>(), [false, false, true, true]);
    }
}
