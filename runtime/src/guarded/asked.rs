//! Embedders' handlers that get memory faults before all others: for collectors that protect pages
//! for their barriers.
//!
//! A handler is a plain function, found in a table of words by the signal handler
//! ([`crate::guarded::fault`]), which takes no lock. It reads no memory of a session, as a session may end
//! meanwhile. A handler that runs while its session ends runs to its end.
//!
//! # Invariants
//! - A place holds one function, and the number of sessions that registered it; its word is zero if
//!   none did.
//! - Places are written under [`PLACES`], and read without.

use std::sync::atomic::{AtomicUsize, Ordering};

use uruk_base::locks::Mutex;

use crate::error::Error;
use crate::error::trap::Access;

/// A memory fault, for a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFault {
    /// The address, if the processor reports it, else 0.
    pub address: u64,
    /// The kind of access.
    pub access: Access,
    /// The address of the instruction, in any code of the process.
    pub instruction: u64,
}

/// A handler's answer to a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAnswer {
    /// The handler has removed the cause: the instruction runs again.
    Again,
    /// The fault is not the handler's. The next handler is called; then the enclosing guarded call
    /// fails, or the process's previous handler is called.
    NotMine,
}

/// Handles memory faults ([`JitBuilder::on_fault`](crate::JitBuilder::on_fault)).
pub type FaultHandler = fn(&MemoryFault) -> FaultAnswer;

/// Maximal number of functions that the sessions of a process may register at a time.
const MOST: usize = 16;

/// Addresses of functions, or zero. Stored with release once the function's session exists, and
/// read with acquire by signal handlers.
static HANDLERS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// Number of sessions that registered each.
static PLACES: Mutex<[usize; MOST]> = Mutex::new([0; MOST]);

/// The registration of a session's handler, until dropped.
#[derive(Debug)]
pub(crate) struct HandlerRegistration {
    place: usize,
}

impl HandlerRegistration {
    /// Registers `handler`.
    ///
    /// # Errors
    /// [`Error::ManyFaultHandlers`].
    pub(crate) fn new(handler: FaultHandler) -> Result<HandlerRegistration, Error> {
        let word = handler as usize;
        let mut counts = PLACES.lock();
        let of = |wanted| {
            let mut words = HANDLERS.iter();
            words.position(|it| it.load(Ordering::Relaxed) == wanted)
        };
        let place = of(word).or_else(|| of(0));
        let place = place.ok_or(Error::ManyFaultHandlers { most: MOST })?;
        counts[place] += 1;
        HANDLERS[place].store(word, Ordering::Release);
        drop(counts);
        crate::guarded::fault::set();
        Ok(HandlerRegistration { place })
    }
}

impl Drop for HandlerRegistration {
    fn drop(&mut self) {
        let mut counts = PLACES.lock();
        counts[self.place] -= 1;
        if counts[self.place] == 0 {
            HANDLERS[self.place].store(0, Ordering::Relaxed);
        }
    }
}

/// Whether a handler has removed the cause. In a signal handler.
pub(crate) fn mended(fault: impl FnOnce() -> MemoryFault) -> bool {
    let words = HANDLERS.each_ref().map(|it| it.load(Ordering::Acquire));
    if words == [0; MOST] {
        return false;
    }
    let fault = fault();
    words.into_iter().filter(|&word| word != 0).any(|word| {
        // SAFETY: the word of a function of that type, which is valid for the process's life: a
        // non-zero word was one.
        let handler: FaultHandler = unsafe { std::mem::transmute(word) };
        handler(&fault) == FaultAnswer::Again
    })
}
