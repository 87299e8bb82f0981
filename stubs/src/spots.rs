//! The waits at the gate: a table of spots, one word each.
//!
//! ```text
//!   63 .. 42   41 .. 32   31        30 .. 0
//!   thread     wait       granted   function + 1       zero: free
//! ```
//!
//! | step | by | from | to |
//! |---|---|---|---|
//! | take a spot | guest | zero | waiting |
//! | take it again | guest, same thread and function | its own, granted or not | waiting |
//! | grant | gate | waiting | granted |
//! | pass | guest | granted | zero |
//! | leave | guest | its own | zero |
//! | clear | gate, before it closes; child of a `fork` | any | zero |
//!
//! A thread's id has 22 bits, the kernel's limit (`PID_MAX_LIMIT`). The number of the wait goes up
//! with each spot that is taken, so that two waits of the same thread for the same function differ.
//!
//! All accesses are relaxed, because a spot is one word and holds all its state: the steps are
//! exchanges, of which only one succeeds. Order between a spot and a function's state word comes
//! from that word: a grant comes before its `Nudge`, clearing comes before the first `Close`.
//!
//! # Invariants
//! - A grant is used once, and by a wait that was listed before it: a new wait of the
//!   same thread for the same function takes the spot again, without the grant, and is another
//!   wait.
//! - So a grant that is used while the gate opens is used by a call that began
//!   before: old code is a right answer to it, and grants need not be revoked.
//! - A guest that left by `longjmp` leaves its spot, which is cleared when the next
//!   gate closes. A handler that waits for the same function as the frame it
//!   interrupted shares its spot. The frame finds it gone and takes another, because the
//!   step that let the handler continue has turned the function's word.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use uruk_base::FunctionId;

/// Threads that can be let through; further threads wait as well.
#[cfg(not(loom))]
pub(crate) const SPOTS: usize = 256;
#[cfg(loom)]
pub(crate) const SPOTS: usize = 2;

const GRANTED: u64 = 1 << 31;
const WAIT: u64 = ((1 << 10) - 1) << 32;

/// A wait that was seen in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    index: usize,
    /// The spot's word without the grant.
    word: u64,
}

impl Wait {
    /// The kernel's id of the thread.
    pub(crate) fn thread(self) -> u32 {
        (self.word >> 42) as u32
    }

    /// The function that the thread calls.
    pub(crate) fn function(self) -> FunctionId {
        function(self.word)
    }
}

/// A spot, as its owner remembers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    index: usize,
    /// The spot's word without the grant.
    word: u64,
}

/// The state of a spot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Waiting,
    Granted,
    /// Another wait has it, or it is free.
    Lost,
}

/// The table of spots.
#[derive(Debug)]
pub(crate) struct Spots {
    words: [AtomicU64; SPOTS],
    /// Number of spots taken. Relaxed: a source of numbers.
    taken: AtomicU32,
    /// Waits that found no spot since the gate closed. Relaxed: a count.
    missed: AtomicU32,
}

impl Default for Spots {
    fn default() -> Spots {
        Spots {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            taken: AtomicU32::new(0),
            missed: AtomicU32::new(0),
        }
    }
}

impl Spots {
    /// Guest side: takes a spot for the thread; `None`, and counted, if all are taken.
    pub(crate) fn take(&self, thread: u32, function: FunctionId) -> Option<Spot> {
        let own = u64::from(thread) << 42 | u64::from(function.index() + 1);
        let number = u64::from(self.taken.fetch_add(1, Ordering::Relaxed));
        let word = own | (number << 32 & WAIT);
        // The thread's own spot first, then a free one.
        for wanted in [own, 0] {
            for (index, place) in self.words.iter().enumerate() {
                let found = place.load(Ordering::Relaxed);
                if found & !(GRANTED | WAIT) != wanted {
                    continue;
                }
                let taken =
                    place.compare_exchange(found, word, Ordering::Relaxed, Ordering::Relaxed);
                if taken.is_ok() {
                    return Some(Spot { index, word });
                }
            }
        }
        self.missed.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Guest side: the state of a spot.
    pub(crate) fn standing(&self, spot: Spot) -> Standing {
        match self.words[spot.index].load(Ordering::Relaxed) {
            word if word == spot.word => Standing::Waiting,
            word if word == spot.word | GRANTED => Standing::Granted,
            _ => Standing::Lost,
        }
    }

    /// Guest side: uses a grant; false if a handler used it, or the spot is cleared.
    pub(crate) fn pass(&self, spot: Spot) -> bool {
        self.swap(spot.index, spot.word | GRANTED, 0)
    }

    /// Guest side: gives the spot back.
    pub(crate) fn leave(&self, spot: Spot) {
        let _ = self.swap(spot.index, spot.word, 0) || self.pass(spot);
    }

    /// Grants a call to a wait; false if the wait has ended, or has a grant.
    pub(crate) fn grant(&self, wait: Wait) -> bool {
        self.swap(wait.index, wait.word, wait.word | GRANTED)
    }

    /// The waits without a grant.
    pub(crate) fn list(&self) -> Vec<Wait> {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        let waits = (words.enumerate()).map(|(index, word)| Wait { index, word });
        waits
            .filter(|wait| wait.word != 0 && wait.word & GRANTED == 0)
            .collect()
    }

    /// Number of waits without a spot.
    pub(crate) fn missed(&self) -> u32 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Empties the table.
    pub(crate) fn clear(&self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
        self.missed.store(0, Ordering::Relaxed);
    }

    fn swap(&self, index: usize, from: u64, to: u64) -> bool {
        self.words[index]
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

fn function(word: u64) -> FunctionId {
    FunctionId((word & (GRANTED - 1)) as u32 - 1)
}
