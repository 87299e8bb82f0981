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
use uruk_reclaim::{BlockId, Fixed, IdMap, Slots};
use uruk_stubs::FunctionId;
use uruk_tiering::VersionId;
use uruk_unwind::Row;

use crate::core::Core;
use crate::error::Error;
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
    pub(crate) rest: Arc<Rest>,
}

/// What a version needs besides its code, and what is known of it wherever it lies.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Name of all of its rows.
    pub(crate) name: &'static CStr,
    /// How it is moved, if it can be.
    pub(crate) moves: Option<Moves>,
    /// Where its functions lie and are described, in code at address 0.
    rows: Box<[FdeRow]>,
    data: Vec<Sealed>,
    /// Kept for the code that counts in them.
    _words: Option<Words>,
    /// Kept for the code that was linked against it.
    _uses: Uses,
}

impl Rest {
    pub(crate) fn new(data: Vec<Sealed>, words: Option<Words>, uses: Uses) -> Rest {
        Rest {
            name: c"",
            moves: None,
            rows: Box::default(),
            data,
            _words: words,
            _uses: uses,
        }
    }

    /// Of code at `from` that is called `name`.
    pub(crate) fn with_code(
        mut self,
        name: &'static CStr,
        moves: Option<Moves>,
        rows: &[FdeRow],
        from: u64,
    ) -> Rest {
        self.name = name;
        self.moves = moves;
        self.rows = rows.iter().map(|row| row.moved(from, 0)).collect();
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
            rest: Arc::clone(&self.rest),
        }
    }

    /// Its unwind rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> {
        let at = self.memory.address();
        self.rest.rows.iter().map(move |row| {
            let FdeRow { start, end, fde } = row.moved(0, at);
            Row { start, end, fde }
        })
    }
}

/// All code there is, live and retired, by block. Used by the thread that reclaims.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) codes: Slots<Piece>,
    /// The block of a version that is live.
    pub(crate) live: IdMap<VersionId, BlockId>,
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

    /// Makes the unwind rows of copies findable; before any of them can run.
    pub(crate) fn register_copies(&self, copies: &[Code]) -> Result<(), Error> {
        let mut rows = Vec::with_capacity(copies.len());
        let ends: Vec<usize> = copies
            .iter()
            .map(|copy| {
                rows.extend(copy.rows());
                rows.len()
            })
            .collect();
        let mut start = 0;
        let objects = copies.iter().zip(ends).map(|(copy, end)| {
            let name = copy.rest.name.to_str().unwrap_or_default();
            (&rows[std::mem::replace(&mut start, end)..end], name)
        });
        // SAFETY: as in `register_rows`.
        unsafe { self.region.insert_all(objects)? };
        Ok(())
    }
}
