//! Better code that is offered at the heads of a version's loops.
//!
//! Each loop has words that guest code reads and writes without a lock or an atomic
//! instruction, as its increments must cost nothing:
//!
//! | what | writer | reader | ordering |
//! |---|---|---|---|
//! | slot | [`Offers::offer`], [`Offers::lead`]; [`Offers::close`], [`Offers::open`] and [`Offers::take_back`], under the lock | guest code, when the sign says so | release; the guest's plain load acquires on this processor: whoever finds an address finds what was published there |
//! | count | guest code, a load and a store | [`passed`] | relaxed: what two threads lose of each other's is lost |
//! | sign of the count | [`LoopWords::ask`]; a guest's store may undo it | guest code, at each pass | relaxed |
//!
//! # Invariants (`tests/loom/offers.rs` has the models)
//! 1. After [`Offers::close`] no slot holds anything but what [leads](Offers::lead) to the body
//!    that replaced this one, until they are [opened](Offers::open); after [`Offers::give_up`]
//!    nothing ever. Who read a slot before may still be on the way there: what it read stays callable until
//!    no frame of the version is left, and only then does [`Offers::end`] give it away.
//! 2. An offer is not lost for good: the sign may be, and whoever looks at the counts
//!    [asks again](LoopWords::ask). Without that, the count itself reaches its sign.
//! 3. A count may go back, by whatever a thread that was stopped in the middle of an increment
//!    did not see. That is no pass ([`passed`]).
//! 4. A loop has one continuation of its own body at most, and none is noted after the end. Those
//!    of bodies that replaced it live as long: a frame may be on its way to each of them.

use crate::ids::FunctionId;
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};

/// The sign of a count.
const ASKED: u32 = 1 << 31;

/// The words of one loop.
#[derive(Debug, Clone, Copy)]
pub struct LoopWords<'a> {
    /// What is offered: the address of a stub, or 0.
    pub slot: &'a AtomicU64,
    /// How often the head was passed, and whether to look at the slot.
    pub count: &'a AtomicU32,
}

/// What is offered at the loops of one version, by loop.
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

/// What may be offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// The version's body is the function's.
    Open,
    /// Another body is.
    Closed,
    /// There is no such function any more.
    GivenUp,
}

/// Passes between two reads of a count. What is more than half of all is none: a count that went
/// back. In the time between two reads no loop is passed so often.
pub fn passed(before: u32, now: u32) -> u32 {
    let added = now.wrapping_sub(before) & !ASKED;
    match added < ASKED / 2 {
        true => added,
        false => 0,
    }
}

impl LoopWords<'_> {
    /// How often the head was passed, modulo 2^31.
    pub fn passes(self) -> u32 {
        self.count.load(Ordering::Relaxed) & !ASKED
    }

    /// True if something is offered.
    pub fn is_offered(self) -> bool {
        self.slot.load(Ordering::Relaxed) != 0
    }

    /// Has guest code look at the slot at its next pass. It may be storing a count that it read
    /// before: whoever wants to be sure asks again.
    pub fn ask(self) {
        self.count.fetch_or(ASKED, Ordering::Relaxed);
    }

    /// True if guest code will look at the slot at its next pass, unless a store of its count is
    /// under way.
    pub fn is_asked(self) -> bool {
        self.count.load(Ordering::Relaxed) & ASKED != 0
    }

    /// Has guest code look at the slot after so many passes.
    pub fn ask_after(self, passes: u32) {
        let begin = ASKED.wrapping_sub(passes.max(1));
        self.count.store(begin, Ordering::Relaxed);
    }

    fn put(self, offered: u64) {
        self.slot.store(offered, Ordering::Release);
    }
}

impl Offers {
    /// Of a version with so many loops.
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

    /// Notes the continuation of a loop; false if there is one, or none is wanted any more.
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

    /// Notes that the continuation of a loop cannot be made.
    pub fn fail(&self, place: usize) {
        self.state.lock().failed.push(place);
    }

    /// True if the continuation of a loop cannot be made.
    pub fn has_failed(&self, place: usize) -> bool {
        self.state.lock().failed.contains(&place)
    }

    /// Offers what is published at the address of a stub; false if nothing is offered any more.
    pub fn offer(&self, words: LoopWords<'_>, stub: u64) -> bool {
        let state = self.state.lock();
        if state.stand != Stand::Open {
            return false;
        }
        give(state, words, stub);
        true
    }

    /// Offers a continuation of the body that replaced the version's, which is published at the
    /// address of a stub; false, and nothing is kept of it, unless the loops are closed.
    pub fn lead(&self, words: LoopWords<'_>, continuation: FunctionId, stub: u64) -> bool {
        let mut state = self.state.lock();
        if state.stand != Stand::Closed {
            return false;
        }
        state.leading.push(continuation);
        give(state, words, stub);
        true
    }

    /// Nothing of the version's body is offered any more, at any of the loops.
    pub fn close<'a>(&self, all: impl IntoIterator<Item = LoopWords<'a>>) {
        self.become_closed(Stand::Closed, all);
    }

    /// Nothing at all is offered any more, for good.
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

    /// The version's body is the function's again: something of it may be offered, and what leads
    /// elsewhere is taken back.
    pub fn open<'a>(&self, all: impl IntoIterator<Item = LoopWords<'a>>) {
        let mut state = self.state.lock();
        if state.stand == Stand::Closed {
            state.stand = Stand::Open;
            all.into_iter().for_each(|words| words.put(0));
        }
    }

    /// Takes back what is offered at the loops, until something is offered again.
    pub fn take_back<'a>(&self, all: impl IntoIterator<Item = LoopWords<'a>>) {
        let _state = self.state.lock();
        all.into_iter().for_each(|words| words.put(0));
    }

    /// True if nothing of the version's body is offered any more.
    pub fn is_closed(&self) -> bool {
        self.state.lock().stand != Stand::Open
    }

    /// The version is freed: no frame of it is left, and none comes. Its continuations, which
    /// nobody can call any more.
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
