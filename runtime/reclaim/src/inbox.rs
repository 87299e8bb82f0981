//! Notes from the publishing threads to the one that steps the engine.
//!
//! The engine is used by one thread; publishers must not wait while it scans. They leave
//! notes here instead, under a lock that is held for one push.
//!
//! Invariants:
//! - A note `Retired` is left after the stores that made the block unreachable, and after the note
//!   `Born` of the same block.
//! - The length is bounded by the number of blocks: each is born, and retired, once.
//! - A ticket is taken after its note is left: the thread that takes all notes answers it.
//!
//! No `fork` finds the lock held (`uruk_base::locks`).

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use uruk_base::locks::Mutex;

use crate::block::Block;
use crate::ids::BlockId;
use crate::policy::Kind;

/// A note to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The block is live from now on.
    Born(Block),
    /// The block cannot be started any more: by no slot, no fallback version, no gate.
    Retired(BlockId),
    /// Requests a cycle that begins after this.
    Request {
        /// The kind of cycle.
        kind: Kind,
        /// Its number; answered by [`crate::Summary::answered`].
        ticket: u64,
    },
}

#[derive(Debug)]
struct Pending<N> {
    notes: Vec<N>,
    tickets: u64,
}

/// The queue of notes. The owner of the engine may use notes of its own type, and convert them when
/// they are read.
#[derive(Debug)]
pub struct Inbox<N>(Mutex<Pending<N>>);

impl<N> Default for Inbox<N> {
    fn default() -> Inbox<N> {
        Inbox(Mutex::new(Pending {
            notes: Vec::new(),
            tickets: 0,
        }))
    }
}

impl<N> Inbox<N> {
    /// Leaves a note. The caller must wake the reader.
    pub fn push(&self, note: N) {
        self.with(|pending| pending.notes.push(note));
    }

    /// Leaves a note that carries its ticket, by which its answer is recognized.
    pub fn request(&self, note: impl FnOnce(u64) -> N) -> u64 {
        self.with(|pending| {
            pending.tickets += 1;
            let ticket = pending.tickets;
            pending.notes.push(note(ticket));
            ticket
        })
    }

    /// Takes all notes, in the order they were left.
    pub fn take(&self) -> Vec<N> {
        self.with(|pending| std::mem::take(&mut pending.notes))
    }

    /// The latest ticket; 0 if there was none.
    pub fn tickets(&self) -> u64 {
        self.with(|pending| pending.tickets)
    }

    /// Whether no note waits.
    pub fn is_empty(&self) -> bool {
        self.with(|pending| pending.notes.is_empty())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Pending<N>) -> T) -> T {
        // A panic under the lock leaves no partial change: each change is one push.
        #[cfg(not(loom))]
        let mut held = self.0.lock();
        #[cfg(loom)]
        let mut held = (self.0.lock()).unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut held)
    }
}
