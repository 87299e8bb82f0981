//! Lends readers of one module to compile workers.
//!
//! Each reader pays the lazy load of the module once (7 to 90 ms on large ones),
//! so a second one is made only when a worker would otherwise wait, never more
//! than the limit; a reader whose context has grown by many compiles is dropped
//! instead of coming back.
//!
//! The lock is `std`'s on purpose: its whole state is one word, so a child process
//! can go on using it, while `parking_lot` keeps waiters in a table that another
//! thread may hold locked at the moment of a `fork`.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

use uruk_base::locks::{Condvar, Mutex, MutexGuard};

use crate::bitcode::Bitcode;
use crate::error::CodegenError;
use crate::fatal;
use crate::reader::Reader;
use crate::summary::ModuleSummary;

/// Compiles after which a reader is recycled, to bound what its context keeps.
const RECYCLE_AFTER: usize = 50_000;

/// The readers of one module.
pub struct ReaderPool {
    bitcode: Bitcode,
    summary: Arc<ModuleSummary>,
    limit: usize,
    ledger: Arc<Ledger>,
}

/// Which readers exist.
pub(crate) struct Ledger {
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    idle: Vec<Reader>,
    live: usize,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A borrowed reader will never come back.
    pub(crate) fn write_off(&self) {
        self.lock().live -= 1;
        self.returned.notify_one();
    }
}

impl ReaderPool {
    /// Reads the module once and keeps that reader; at most `limit` will exist.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn new(bitcode: Bitcode, limit: usize) -> Result<ReaderPool, CodegenError> {
        let reader = Reader::new(&bitcode)?;
        let summary = Arc::clone(reader.summary());
        let state = Mutex::new(State {
            idle: vec![reader],
            live: 1,
        });
        let ledger = Arc::new(Ledger {
            state,
            returned: Condvar::new(),
        });
        Ok(ReaderPool {
            bitcode,
            summary,
            limit: limit.max(1),
            ledger,
        })
    }

    /// What the module holds.
    pub fn summary(&self) -> &Arc<ModuleSummary> {
        &self.summary
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
        fatal::enter();
        let reader = match self.idle_or_right_to_make() {
            Some(reader) => reader,
            None => match Reader::with_summary(&self.bitcode, Some(Arc::clone(&self.summary))) {
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
            reader: Some(reader),
        })
    }

    /// An idle reader; or `None`, and one more counted as live.
    fn idle_or_right_to_make(&self) -> Option<Reader> {
        let mut state = self.ledger.lock();
        loop {
            if let Some(reader) = state.idle.pop() {
                return Some(reader);
            }
            if state.live < self.limit {
                state.live += 1;
                return None;
            }
            state = self
                .ledger
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A borrowed reader; goes back when dropped.
pub struct Lent {
    ledger: Arc<Ledger>,
    /// `None` once it was given up.
    reader: Option<Reader>,
}

impl Lent {
    /// Gives the reader up after an error: LLVM may have left its context in a
    /// state that later compiles should not build on.
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
        let mut state = self.ledger.lock();
        match kept {
            Some(reader) => state.idle.push(reader),
            None => state.live -= 1,
        }
        drop(state);
        self.ledger.returned.notify_one();
    }
}
