//! Who waits at the gate: a table of spots, each one word.
//!
//! ```text
//!   63 .. 32   31        30 .. 0
//!   thread     granted   function + 1       zero: free
//! ```
//!
//! | step | who | from | to |
//! |---|---|---|---|
//! | take a spot | guest | zero | waiting |
//! | take it again | guest, same thread and function | its own, granted or not | waiting |
//! | grant | gate | waiting | granted |
//! | pass | guest | granted | zero |
//! | leave | guest | its own | zero |
//! | clear | gate, before it closes; child of a `fork` | any | zero |
//!
//! All accesses are relaxed, because a spot is one word and says all there is to say: the
//! steps are exchanges, of which only one succeeds. What must be seen of a spot *with* a
//! function's state word is published by that word: a grant comes before its `Nudge`,
//! clearing comes before the first `Close`.
//!
//! # Invariants
//! - A grant is used once, and by a wait that began before it: a new wait of the
//!   same thread for the same function takes the spot again, without the grant.
//! - So a grant that is used while the gate opens is used by a call that began
//!   before: old code is a right answer to it, and grants need not be revoked.
//! - A guest that left by `longjmp` leaves its spot, which is cleared when the next
//!   gate closes. A handler that waits for the same function as the frame it
//!   interrupted shares its spot; the frame finds it gone and takes another, because
//!   whatever let the handler go on has turned the function's word.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use uruk_base::FunctionId;

/// Threads that can be let through; more wait all the same.
#[cfg(not(loom))]
pub(crate) const SPOTS: usize = 256;
#[cfg(loom)]
pub(crate) const SPOTS: usize = 2;

const GRANTED: u64 = 1 << 31;

/// A spot as its owner remembers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    index: usize,
    /// Without the grant.
    word: u64,
}

/// What has become of a spot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Waiting,
    Granted,
    /// Somebody else has it.
    Lost,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Spots {
    words: [AtomicU64; SPOTS],
    /// Waits that found no spot since the gate closed. Relaxed: a count.
    missed: AtomicU32,
}

impl Default for Spots {
    fn default() -> Spots {
        Spots {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            missed: AtomicU32::new(0),
        }
    }
}

impl Spots {
    /// Guest side: a spot for the thread; `None`, and counted, if there is none.
    pub(crate) fn take(&self, thread: u32, function: FunctionId) -> Option<Spot> {
        let word = u64::from(thread) << 32 | u64::from(function.index() + 1);
        // Its own first, then a free one.
        for wanted in [word, 0] {
            for (index, place) in self.words.iter().enumerate() {
                let found = place.load(Ordering::Relaxed);
                if found & !GRANTED != wanted {
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

    /// Guest side: how it stands.
    pub(crate) fn standing(&self, spot: Spot) -> Standing {
        match self.words[spot.index].load(Ordering::Relaxed) {
            word if word == spot.word => Standing::Waiting,
            word if word == spot.word | GRANTED => Standing::Granted,
            _ => Standing::Lost,
        }
    }

    /// Guest side: uses a grant up; false if a handler did, or the spot is cleared.
    pub(crate) fn pass(&self, spot: Spot) -> bool {
        self.swap(spot.index, spot.word | GRANTED, 0)
    }

    /// Guest side: gives the spot back.
    pub(crate) fn leave(&self, spot: Spot) {
        let _ = self.swap(spot.index, spot.word, 0) || self.pass(spot);
    }

    /// Grants a call to whatever the thread waits for; gives those functions.
    pub(crate) fn grant(&self, thread: u32) -> Vec<FunctionId> {
        let waits = self.waits();
        let waits = waits.filter(|&(_, word)| word >> 32 == u64::from(thread));
        let waits = waits.filter(|&(index, word)| self.swap(index, word, word | GRANTED));
        waits.map(|(_, word)| function(word)).collect()
    }

    /// The threads that wait without a grant, and for which functions.
    pub(crate) fn list(&self) -> Vec<(u32, FunctionId)> {
        let waits = self.waits();
        waits
            .map(|(_, word)| ((word >> 32) as u32, function(word)))
            .collect()
    }

    /// Waits without a spot.
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

    fn waits(&self) -> impl Iterator<Item = (usize, u64)> {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        let words = words.enumerate();
        words.filter(|&(_, word)| word != 0 && word & GRANTED == 0)
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
