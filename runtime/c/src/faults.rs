//! Fault handlers of hosts in C.
//!
//! They stay as long as the process lives: the library's handler, which calls them, is a plain
//! function that knows no session, and a signal handler cannot wait.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk::{Access, Error, FaultAnswer, FaultHandler, MemoryFault};

use crate::boundary::Fault;

type Handler = unsafe extern "C" fn(address: u64, access: c_int) -> c_int;

const MOST: usize = 16;

/// Functions, from the first place on; zero in free places. A place is written once.
static HANDLERS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// Registers `handler`; returns the function that calls all of them.
pub(crate) fn asking(handler: Handler) -> Result<FaultHandler, Fault> {
    let word = handler as usize;
    let taken = HANDLERS.iter().any(|place| {
        let free = place.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire);
        free.is_ok() || free == Err(word)
    });
    match taken {
        true => Ok(ask),
        false => Err(Error::ManyFaultHandlers { most: MOST }.into()),
    }
}

/// Calls the handlers in turn. Runs in a signal handler.
fn ask(fault: &MemoryFault) -> FaultAnswer {
    let access = match fault.access {
        Access::Read => 0,
        Access::Write => 1,
        Access::Execute => 2,
        _ => 0,
    };
    let words = HANDLERS.iter().map(|place| place.load(Ordering::Acquire));
    let mut words = words.take_while(|&word| word != 0);
    let mended = words.any(|word| {
        // SAFETY: each word that is not zero is a function of that type.
        let handler: Handler = unsafe { std::mem::transmute(word) };
        // SAFETY: the host's own fault handler.
        unsafe { handler(fault.address, access) != 0 }
    });
    match mended {
        true => FaultAnswer::Again,
        false => FaultAnswer::NotMine,
    }
}
