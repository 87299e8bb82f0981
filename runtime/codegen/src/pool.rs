//! Lends readers of one module to compile workers.
//!
//! Each reader of a large module pays the lazy load of the module once (7 to 90 ms on large ones).
//! So a second one is made only when a worker would otherwise wait, never more than the limit. A
//! reader whose context has grown by many compiles is dropped instead of being kept. Idle readers
//! are kept in the [`ReadingRoom`] of the session, those of a small module as desks at which it is
//! open.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use uruk_base::allocated::of_arc;

use crate::bitcode::Bitcode;
use crate::desk::{Desk, SMALL};
use crate::error::CodegenError;
use crate::fatal;
use crate::labels::places;
use crate::ledger::Ledger;
use crate::numbered::{Numbered, interface};
use crate::opened::Known;
use crate::plan::ModulePlan;
use crate::reader::Reader;
use crate::room::ReadingRoom;
use crate::summary::{ModuleSummary, SymbolId};
use uruk_lower::Refused as NotPlain;
use uruk_lower::data::Data;

/// Compiles after which a reader is recycled, to bound the memory of its context.
const RECYCLE_AFTER: usize = 50_000;

/// Size in bytes up to which reading a module again, some 10 us, costs less than keeping it read.
/// The result takes 5 KB of memory, and would be kept longer than it is used ([`ReadingRoom`]).
const TINY: usize = 8 << 10;

/// The readers of one module.
pub struct ReaderPool {
    bitcode: Bitcode,
    known: Known,
    limit: usize,
    ledger: Arc<Ledger>,
    room: Arc<ReadingRoom>,
    numbered: OnceLock<Option<Arc<Numbered>>>,
}

/// Names of structs that a reader may show in text about the module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StructNames {
    Any,
    /// Structs are named as in the file.
    OfFile,
}

impl ReaderPool {
    /// Reads the module once and keeps that reader in `room`; at most `limit` will exist.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn new(
        bitcode: Bitcode,
        limit: usize,
        room: &Arc<ReadingRoom>,
    ) -> Result<ReaderPool, CodegenError> {
        let small = bitcode.bytes().len() <= SMALL;
        let desk = match small {
            true => room.shared_desk(&bitcode)?,
            false => Desk::new(false)?,
        };
        let reader = Reader::at(desk, &bitcode, None)?;
        Ok(ReaderPool::with(reader, limit, room))
    }

    /// Like [`ReaderPool::new`], but LLVM reads the module when a reader is first needed, if the
    /// module can be summarized without LLVM. Errors in it that only LLVM sees are reported by the
    /// first operation that needs a reader.
    ///
    /// # Errors
    /// As [`ReaderPool::new`].
    pub fn without_llvm(
        bitcode: Bitcode,
        limit: usize,
        room: &Arc<ReadingRoom>,
    ) -> Result<ReaderPool, CodegenError> {
        let Some(numbered) = Numbered::alone(&bitcode) else {
            return ReaderPool::new(bitcode, limit, room);
        };
        let known = Known::without_llvm(numbered.summary());
        let is_tiny = bitcode.bytes().len() <= TINY;
        if is_tiny {
            room.keep_numbered(&numbered);
        }
        Ok(ReaderPool {
            bitcode,
            known,
            limit: limit.max(1),
            ledger: Arc::new(Ledger::new(0)),
            room: Arc::clone(room),
            numbered: match is_tiny {
                true => OnceLock::new(),
                false => OnceLock::from(Some(numbered)),
            },
        })
    }

    /// Parses IR text, and continues as with its bitcode.
    ///
    /// # Errors
    /// [`CodegenError::Syntax`] with line and column; as [`Reader::new`].
    pub fn from_ir_text(
        name: &str,
        text: &str,
        limit: usize,
        room: &Arc<ReadingRoom>,
    ) -> Result<ReaderPool, CodegenError> {
        // Text without named types contains no `type`.
        if text.len() <= SMALL && !text.contains("type") {
            let desk = room.any_desk()?;
            if let Some(reader) = Reader::of_text(desk, name, text)? {
                return Ok(ReaderPool::with(reader, limit, room));
            }
        }
        ReaderPool::new(Bitcode::from_ir_text(name, text)?, limit, room)
    }

    /// Makes a pool with a first reader, which is not lent.
    fn with(reader: Reader, limit: usize, room: &Arc<ReadingRoom>) -> ReaderPool {
        let bitcode = reader.bitcode().clone();
        let shared = reader.is_at_shared_desk();
        let structure = reader.structure().filter(|_| !shared).cloned();
        let known = Known::by_llvm(reader.summary(), structure);
        let ledger = Arc::new(Ledger::new(usize::from(!shared)));
        match shared {
            true => room.keep_desk(reader.leave()),
            false => room.keep_reader(&ledger, reader),
        }
        ReaderPool {
            bitcode,
            known,
            limit: limit.max(1),
            ledger,
            room: Arc::clone(room),
            numbered: OnceLock::new(),
        }
    }

    /// The module read without LLVM; `None` if it cannot be. It is read once, when it is first
    /// needed; a tiny one again if it was not used recently.
    pub fn numbered(&self) -> Option<Arc<Numbered>> {
        let read = || Numbered::read(&self.bitcode, &self.known.summary);
        if self.bitcode.bytes().len() > TINY {
            return self.numbered.get_or_init(read).clone();
        }
        let kept = self.room.numbered(&self.bitcode);
        kept.or_else(|| read().inspect(|numbered| self.room.keep_numbered(numbered)))
    }

    /// Bytes allocated for data about the module, without the bytes of its bitcode. LLVM's memory
    /// for it while it is read is not known.
    pub fn bytes(&self) -> usize {
        of_arc::<Ledger>() + self.bitcode.bytes_beside() + self.known.bytes()
    }

    /// The number of blocks in the body of a function; `None` if it cannot be read.
    pub fn blocks(&self, function: SymbolId) -> Option<usize> {
        let known = self.numbered().and_then(|it| it.blocks(function));
        known.or_else(|| places::blocks(&*self.reader().ok()?, function).ok())
    }

    /// Whether a function whose code may be running cannot get another body. Addresses of its
    /// labels or of its code may be elsewhere, or are in variables that stay.
    ///
    /// # Errors
    /// An unreadable body; as [`Reader::new`].
    pub fn keeps_labels(&self, function: SymbolId) -> Result<bool, CodegenError> {
        let plain = self.numbered().is_some_and(|it| it.has_no_labels(function));
        match plain {
            true => Ok(false),
            false => places::keeps(&*self.reader()?, function),
        }
    }

    /// The module's data, without LLVM: [`Reader::compile_data`] makes an object of the same.
    /// `None` if there is no data.
    ///
    /// # Errors
    /// The reason why LLVM has to compile it.
    pub fn data(&self, plan: &ModulePlan) -> Result<Option<Data>, NotPlain> {
        match self.numbered() {
            Some(numbered) => numbered.data(plan),
            None => Err(NotPlain::Unread("the module")),
        }
    }

    /// The calling signature of a function: its type, and attributes that change how values are
    /// passed, as text that can be compared between modules.
    ///
    /// # Errors
    /// As [`Reader::new`], if LLVM has to determine it.
    pub fn signature(&self, function: SymbolId) -> Result<String, CodegenError> {
        let known = self
            .numbered()
            .and_then(|it| interface::signature(&it, function));
        known.map_or_else(|| Ok(self.faithful()?.signature(function)), Ok)
    }

    /// The type of a symbol as LLVM writes it, `i32 (ptr, double)`, if that is known without LLVM.
    pub fn type_of(&self, symbol: SymbolId) -> Option<String> {
        interface::type_of(&*self.numbered()?, symbol)
    }

    /// A sign that passes which look at several functions at once have seen this module; see
    /// [`Reader::interprocedural`].
    ///
    /// # Errors
    /// As [`Reader::new`], if LLVM has to determine it.
    pub fn interprocedural(&self) -> Result<Option<String>, CodegenError> {
        let known = self
            .numbered()
            .and_then(|it| interface::interprocedural(&it));
        known.map_or_else(|| Ok(self.reader()?.interprocedural()), Ok)
    }

    /// The summary of the module.
    pub fn summary(&self) -> &Arc<ModuleSummary> {
        &self.known.summary
    }

    /// The module's bytes.
    pub fn bitcode(&self) -> &Bitcode {
        &self.bitcode
    }

    /// Borrows a reader; makes one, or waits, if none is idle.
    ///
    /// # Errors
    /// As [`Reader::new`], when a further reader has to be made.
    pub fn reader(&self) -> Result<Lent, CodegenError> {
        self.lend(StructNames::Any)
    }

    /// Like [`ReaderPool::reader`], with structs named as in the file.
    ///
    /// # Errors
    /// As [`ReaderPool::reader`].
    pub fn faithful(&self) -> Result<Lent, CodegenError> {
        self.lend(StructNames::OfFile)
    }

    /// Makes another reader of a large module, unless there are `count`, for the next borrower:
    /// reading the symbol table takes longer than compiling a function. A module that has not
    /// needed LLVM gets none.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn prepare(&self, count: usize) -> Result<(), CodegenError> {
        if !self.known.is_verified() {
            return Ok(());
        }
        fatal::admit()?;
        {
            let mut live = self.ledger.lock();
            if self.bitcode.bytes().len() <= SMALL || *live >= count.min(self.limit) {
                return Ok(());
            }
            *live += 1;
        }
        match self.make(StructNames::Any) {
            Ok(reader) => {
                self.room.keep_reader(&self.ledger, reader);
                self.ledger.tell();
                Ok(())
            }
            Err(error) => {
                self.ledger.write_off();
                Err(error)
            }
        }
    }

    fn lend(&self, names: StructNames) -> Result<Lent, CodegenError> {
        fatal::admit()?;
        let reader = match self.idle_or_right_to_make() {
            Some(reader) => reader,
            None => match self.make(names) {
                Ok(reader) => reader,
                Err(error) => {
                    self.ledger.write_off();
                    return Err(error);
                }
            },
        };
        fatal::borrowed(Arc::downgrade(&self.ledger));
        Ok(Lent {
            ledger: Arc::clone(&self.ledger),
            room: Arc::clone(&self.room),
            reader: Some(reader),
        })
    }

    /// An idle reader with a desk to itself; or `None`, and one more counted as live.
    fn idle_or_right_to_make(&self) -> Option<Reader> {
        let mut live = self.ledger.lock();
        loop {
            if let Some(reader) = self.room.take_reader(&self.ledger) {
                return Some(reader);
            }
            if *live < self.limit {
                *live += 1;
                return None;
            }
            live = self.ledger.wait(live);
        }
    }

    fn make(&self, names: StructNames) -> Result<Reader, CodegenError> {
        let small = self.bitcode.bytes().len() <= SMALL;
        let shares = small && (names == StructNames::Any || !self.bitcode.names_structs());
        let desk = match shares {
            true => self.room.shared_desk(&self.bitcode)?,
            false => Desk::new(false)?,
        };
        Reader::at(desk, &self.bitcode, Some(&self.known))
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.room.forget(&self.ledger, &self.bitcode);
    }
}

/// A borrowed reader; returned when dropped.
pub struct Lent {
    ledger: Arc<Ledger>,
    room: Arc<ReadingRoom>,
    /// `None` once it was discarded.
    reader: Option<Reader>,
}

impl Lent {
    /// Drops the reader after an error: LLVM may have left its context in a state that later
    /// compiles should not use.
    pub fn discard(mut self) {
        self.reader = None;
    }
}

impl Deref for Lent {
    type Target = Reader;
    fn deref(&self) -> &Reader {
        fatal::enter();
        self.reader
            .as_ref()
            .expect("present until given up, which takes `self`")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Reader {
        fatal::enter();
        self.reader
            .as_mut()
            .expect("present until given up, which takes `self`")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        fatal::returned();
        let kept = self
            .reader
            .take()
            // A panic in the middle of a compile may leave its module half changed.
            .filter(|_| !std::thread::panicking())
            .filter(|reader| reader.is_sound() && reader.compiles() < RECYCLE_AFTER);
        match kept {
            Some(reader) if reader.is_at_shared_desk() => {
                self.room.keep_desk(reader.leave());
                self.ledger.write_off();
            }
            Some(reader) => {
                self.room.keep_reader(&self.ledger, reader);
                self.ledger.tell();
            }
            None => self.ledger.write_off(),
        }
    }
}
