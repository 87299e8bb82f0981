//! The reading room of a session: idle readers and desks.
//!
//! | kept | how many | dropped first |
//! |---|---|---|
//! | readers with a desk to themselves, of large modules | [`READERS`] | the one not used for longest |
//! | shared [desks](crate::desk), for small modules | [`DESKS`] | a desk that is returned |
//! | tiny modules read without LLVM | [`NUMBERED`] | the one not used for longest |
//!
//! So the memory that a session keeps for compiling is bounded, for any number of live modules. A
//! module that is needed again is read again, from the same bytes, and gives the same code.
//!
//! The lock is `std`'s on purpose: its whole state is one word, so a child process can go on using
//! it. `parking_lot` keeps waiters in a table that another thread may hold locked at the moment of
//! a `fork`. LLVM never runs under it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use uruk_base::locks::{Mutex, MutexGuard};

use crate::bitcode::Bitcode;
use crate::desk::Desk;
use crate::error::CodegenError;
use crate::fatal;
use crate::ledger::Ledger;
use crate::numbered::Numbered;
use crate::reader::Reader;

/// Readers of large modules: some 100 MB, as much as a program of that many files takes.
const READERS: usize = 100;

/// Desks: more than there are threads that compile at once.
const DESKS: usize = 16;

/// Tiny modules that stay read: each is asked for some ten times while it is added and first
/// called, and takes 5 KB.
const NUMBERED: usize = 8;

/// Holds idle readers and desks.
#[derive(Default)]
pub struct ReadingRoom {
    state: Mutex<RoomState>,
}

#[derive(Default)]
struct RoomState {
    /// The one used last comes last.
    readers: VecDeque<Waiting>,
    /// The one used last comes last.
    desks: Vec<Desk>,
    /// The one used last comes last.
    numbered: VecDeque<Arc<Numbered>>,
}

/// An idle reader, and the ledger that counts it.
struct Waiting {
    ledger: Weak<Ledger>,
    reader: Reader,
}

impl ReadingRoom {
    /// An empty room.
    #[must_use]
    pub fn new() -> Arc<ReadingRoom> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock()
    }

    /// A reader that `ledger` counts.
    pub(crate) fn take_reader(&self, ledger: &Arc<Ledger>) -> Option<Reader> {
        let mut state = self.lock();
        let readers = state.readers.iter();
        let at = readers.rev().position(|waiting| waiting.is_of(ledger))?;
        let at = state.readers.len() - 1 - at;
        state.readers.remove(at).map(|waiting| waiting.reader)
    }

    /// Keeps a reader, which stays counted; another one may be dropped for it.
    pub(crate) fn keep_reader(&self, ledger: &Arc<Ledger>, reader: Reader) {
        let ledger = Arc::downgrade(ledger);
        let gone = {
            let mut state = self.lock();
            state.readers.push_back(Waiting { ledger, reader });
            match state.readers.len() > READERS {
                true => state.readers.pop_front(),
                false => None,
            }
        };
        if let Some(Waiting { ledger, reader }) = gone {
            drop(reader);
            if let Some(ledger) = ledger.upgrade() {
                ledger.write_off();
            }
        }
    }

    /// A module that was read without LLVM and is kept.
    pub(crate) fn numbered(&self, bitcode: &Bitcode) -> Option<Arc<Numbered>> {
        let mut state = self.lock();
        let kept = &mut state.numbered;
        let at = kept.iter().rposition(|one| one.is_of(bitcode))?;
        let found = kept.remove(at)?;
        kept.push_back(Arc::clone(&found));
        Some(found)
    }

    /// Keeps a tiny module that was read without LLVM; another one may be dropped for it.
    pub(crate) fn keep_numbered(&self, numbered: &Arc<Numbered>) {
        let _gone = {
            let mut state = self.lock();
            state.numbered.push_back(Arc::clone(numbered));
            match state.numbered.len() > NUMBERED {
                true => state.numbered.pop_front(),
                false => None,
            }
        };
    }

    /// A shared desk: the one where `bitcode` is open, or else any.
    pub(crate) fn shared_desk(&self, bitcode: &Bitcode) -> Result<Desk, CodegenError> {
        fatal::admit()?;
        let open_at = {
            let mut state = self.lock();
            let mut desks = state.desks.iter();
            let at = desks.rposition(|desk| desk.has_open(bitcode));
            at.map(|at| state.desks.remove(at))
        };
        open_at.map_or_else(|| self.any_desk(), Ok)
    }

    /// The shared desk used last, or a new one.
    pub(crate) fn any_desk(&self) -> Result<Desk, CodegenError> {
        fatal::admit()?;
        let idle = self.lock().desks.pop();
        idle.map_or_else(|| Desk::new(true), Ok)
    }

    /// Keeps a desk, unless it is worn or unsound.
    pub(crate) fn keep_desk(&self, desk: Desk) {
        if desk.is_worn() || !desk.is_sound() {
            return;
        }
        let mut state = self.lock();
        if state.desks.len() < DESKS {
            state.desks.push(desk);
        }
    }

    /// Drops readers and open modules of a module that is removed. If it is open at a desk in use,
    /// it is dropped when that desk has too many open modules.
    pub(crate) fn forget(&self, ledger: &Arc<Ledger>, bitcode: &Bitcode) {
        let mut gone = Vec::new();
        let mut unread = None;
        let open_at: Vec<Desk> = {
            let mut state = self.lock();
            while let Some(at) = state.readers.iter().position(|one| one.is_of(ledger)) {
                gone.extend(state.readers.remove(at));
            }
            let kept = &mut state.numbered;
            if let Some(at) = kept.iter().position(|one| one.is_of(bitcode)) {
                unread = kept.remove(at);
            }
            let desks = &mut state.desks;
            desks
                .extract_if(.., |desk| desk.has_open(bitcode))
                .collect()
        };
        drop(unread);
        // A desk that is taken out has no other user.
        for mut desk in open_at {
            drop(desk.take_open(bitcode));
            self.keep_desk(desk);
        }
    }
}

impl Waiting {
    fn is_of(&self, ledger: &Arc<Ledger>) -> bool {
        std::ptr::eq(self.ledger.as_ptr(), Arc::as_ptr(ledger))
    }
}
