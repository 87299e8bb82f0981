//! The memory of versions: what is known of each piece, and moving it.
//!
//! A version is one allocation of code memory: text, private constants, unwind records
//! and exception tables. Data that only this version uses (the words of its probes)
//! lives as long, however often the code moves.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

use uruk_heap::{Pool, Sealed};
use uruk_link::{FdeRow, Moves};
use uruk_reclaim::{BlockId, Fixed, IdMap};
use uruk_stubs::FunctionId;
use uruk_tiering::VersionId;
use uruk_unwind::Row;

use crate::core::Core;
use crate::error::Error;
use crate::guest::tls;
use crate::guided::Words;
use crate::removal::Uses;

/// The code of one version, at one place.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) memory: Sealed,
    /// Where calls go; 0 for code that is no version.
    pub(crate) entry: u64,
    /// End of the function itself.
    pub(crate) body_end: u64,
    /// Where its functions lie and are described.
    pub(crate) rows: Vec<FdeRow>,
    /// Name of all of its rows.
    pub(crate) name: &'static CStr,
    /// How it is moved, if it can be.
    pub(crate) moves: Option<Arc<Moves>>,
    pub(crate) rest: Arc<Rest>,
}

/// What a version needs besides its code.
#[derive(Debug)]
pub(crate) struct Rest {
    data: Vec<Sealed>,
    /// Kept for the code that counts in them.
    _words: Option<Words>,
    /// Kept for the code that was linked against it.
    _uses: Uses,
    /// Kept for the code that uses them.
    _thread_locals: Option<tls::Owned>,
}

impl Rest {
    pub(crate) fn new(data: Vec<Sealed>, words: Option<Words>, uses: Uses) -> Rest {
        Rest {
            data,
            _words: words,
            _uses: uses,
            _thread_locals: None,
        }
    }

    /// The same, with the thread-locals of its code.
    pub(crate) fn with_thread_locals(mut self, thread_locals: Option<tls::Owned>) -> Rest {
        self._thread_locals = thread_locals;
        self
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        for memory in self.data.drain(..) {
            // SAFETY: the code it belongs to holds it until it is freed, when no thread
            // can be in it; what pointers a program kept to data of an image it removed
            // is its own affair (`Tracker::remove`).
            unsafe { memory.release() };
        }
    }
}

/// The code among the allocations of a link, and the rest.
pub(crate) fn split(memory: Vec<Sealed>) -> (Option<Sealed>, Vec<Sealed>) {
    let (code, data): (Vec<_>, Vec<_>) = memory
        .into_iter()
        .partition(|memory| memory.pool() == Pool::Code);
    (code.into_iter().next(), data)
}

impl Code {
    /// The addresses of the code.
    pub(crate) fn range(&self) -> Range<u64> {
        self.memory.address()..self.memory.address() + self.memory.len() as u64
    }

    /// The bytes of the function itself.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        let place =
            |address: u64| usize::try_from(address.checked_sub(self.memory.address())?).ok();
        self.memory
            .bytes()?
            .get(place(self.entry)?..place(self.body_end)?)
    }

    /// As it is in `memory`, a copy of its own.
    pub(crate) fn moved(&self, memory: Sealed) -> Code {
        let (from, to) = (self.memory.address(), memory.address());
        let place = |address: u64| address.wrapping_add(to.wrapping_sub(from));
        Code {
            memory,
            entry: place(self.entry),
            body_end: place(self.body_end),
            rows: self.rows.iter().map(|row| row.moved(from, to)).collect(),
            name: self.name,
            moves: self.moves.clone(),
            rest: Arc::clone(&self.rest),
        }
    }
}

/// All code there is, live and retired, by block. Used by the thread that reclaims.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) codes: IdMap<BlockId, Piece>,
    /// The block of a version that is live.
    pub(crate) live: IdMap<VersionId, BlockId>,
    next: u64,
    /// Requests applied so far.
    pub(crate) tickets: u64,
}

/// A piece of code and whose it is.
pub(crate) struct Piece {
    /// Functions it took bodies or facts from.
    pub(crate) depends: Arc<[FunctionId]>,
    /// Why it cannot move.
    pub(crate) fixed: Option<Fixed>,
    pub(crate) version: VersionId,
    pub(crate) function: Option<FunctionId>,
    pub(crate) code: Code,
}

impl Table {
    pub(crate) fn next_id(&mut self) -> BlockId {
        self.next += 1;
        BlockId(self.next)
    }
}

impl Core {
    /// Makes unwind rows findable; before any of the code can run.
    pub(crate) fn register_rows(&self, rows: &[FdeRow], name: &CStr) -> Result<(), Error> {
        let rows: Vec<Row> = rows
            .iter()
            .map(|row| Row {
                start: row.start,
                end: row.end,
                fde: row.fde,
            })
            .collect();
        let names = vec![name.to_str().unwrap_or_default(); rows.len()];
        // SAFETY: the records lie in sealed memory, which is given back only after the
        // rows were removed.
        unsafe { self.region.insert(&rows, &names)? };
        Ok(())
    }
}
