//! Handlers of embedders that are asked of memory faults before all others: a collector's, whose
//! pages are closed for its barriers.
//!
//! A handler is a plain function, found in a table of words by the signal handler ([`super::fault`]),
//! which takes no lock and reads no memory of a session: one may end meanwhile. A handler that runs
//! while its session ends runs to its end.
//!
//! # Invariants
//! - A place holds one function, and how many sessions asked for it; its word is zero if none did.
//! - Places are written under [`PLACES`], and read without.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk_base::locks::Mutex;

use super::trap::Access;
use crate::api::error::Error;

/// A memory fault, for a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFault {
    /// The address, if the processor says it, else 0.
    pub address: u64,
    /// What was to be done there.
    pub access: Access,
    /// The instruction, of any code of the process.
    pub instruction: u64,
}

/// What follows a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAnswer {
    /// The handler has mended the cause: the instruction runs again.
    Again,
    /// It is none of the handler's: the next one is asked, then the guarded call fails that it is in,
    /// or the process's handler is called that was there before.
    NotMine,
}

/// Is asked of memory faults ([`JitBuilder::on_fault`](crate::JitBuilder::on_fault)).
pub type FaultHandler = fn(&MemoryFault) -> FaultAnswer;

/// Functions that sessions of a process may ask for at a time.
const MOST: usize = 16;

/// Addresses of functions, or zero. Stored with release once the function's session is there, and
/// read with acquire by signal handlers.
static HANDLERS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// How many sessions asked for each.
static PLACES: Mutex<[usize; MOST]> = Mutex::new([0; MOST]);

/// A session's wish to have its handler asked, as long as this lives.
#[derive(Debug)]
pub(crate) struct Asked {
    place: usize,
}

impl Asked {
    /// Has `handler` asked.
    ///
    /// # Errors
    /// [`Error::ManyFaultHandlers`].
    pub(crate) fn new(handler: FaultHandler) -> Result<Asked, Error> {
        let word = handler as usize;
        let mut counts = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |wanted| {
            let mut words = HANDLERS.iter();
            words.position(|it| it.load(Ordering::Relaxed) == wanted)
        };
        let place = of(word).or_else(|| of(0));
        let place = place.ok_or(Error::ManyFaultHandlers { most: MOST })?;
        counts[place] += 1;
        HANDLERS[place].store(word, Ordering::Release);
        drop(counts);
        super::fault::set();
        Ok(Asked { place })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut counts = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        counts[self.place] -= 1;
        if counts[self.place] == 0 {
            HANDLERS[self.place].store(0, Ordering::Relaxed);
        }
    }
}

/// Whether a handler has mended the cause. In a signal handler.
pub(super) fn mended(fault: impl FnOnce() -> MemoryFault) -> bool {
    let words = HANDLERS.each_ref().map(|it| it.load(Ordering::Acquire));
    if words == [0; MOST] {
        return false;
    }
    let fault = fault();
    words.into_iter().filter(|&word| word != 0).any(|word| {
        // SAFETY: the word of a function of that type, which is there as long as the process: what
        // is not zero was one.
        let handler: FaultHandler = unsafe { std::mem::transmute(word) };
        handler(&fault) == FaultAnswer::Again
    })
}
