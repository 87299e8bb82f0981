//! Notes from the threads that publish, to the one that steps the engine.
//!
//! The engine is used by one thread; publishers must not wait while it scans. They leave
//! notes here instead, under a lock that is held for one push.
//!
//! Invariants:
//! - A note `Retired` or `Dropped` is left after the stores that made the block
//!   unreachable, and after the note `Born` of the same block.
//! - The length is bounded by the blocks there are: each is born, and retired, once.
//!
//! No `fork` finds the lock held (`uruk_locks`).

use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use uruk_locks::Mutex;

use crate::block::Block;
use crate::ids::{BlockId, GroupId};
use crate::policy::Kind;

/// What the engine is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The block is live from now on.
    Born(Block),
    /// Nothing can start the block any more: no slot, no version to go back to, no gate.
    Retired(BlockId),
    /// Nothing can start any block of the group; its data may go when they are gone.
    Dropped(GroupId),
    /// Somebody wants a cycle that begins after this.
    Request {
        /// Which.
        kind: Kind,
        /// Its number; answered by [`crate::Summary::answered`].
        ticket: u64,
    },
    /// An allocation of so many bytes found no memory.
    Short(u64),
}

#[derive(Debug, Default)]
struct Pending {
    notes: Vec<Note>,
    tickets: u64,
}

/// Where notes wait.
#[derive(Debug, Default)]
pub struct Inbox(Mutex<Pending>);

impl Inbox {
    /// An empty one.
    pub fn new() -> Inbox {
        Inbox(Mutex::new(Pending::default()))
    }

    /// Leaves a note. The reader is to be woken by the caller.
    pub fn push(&self, note: Note) {
        self.with(|pending| pending.notes.push(note));
    }

    /// Asks for a cycle; the ticket tells when it is done.
    pub fn request(&self, kind: Kind) -> u64 {
        self.with(|pending| {
            pending.tickets += 1;
            let ticket = pending.tickets;
            pending.notes.push(Note::Request { kind, ticket });
            ticket
        })
    }

    /// All notes, in the order they were left.
    pub fn take(&self) -> Vec<Note> {
        self.with(|pending| std::mem::take(&mut pending.notes))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Pending) -> T) -> T {
        // A panic under the lock leaves nothing half done: each change is one push.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
