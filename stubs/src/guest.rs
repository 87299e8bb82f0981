//! The guest side of a first call: from the trampoline to the address to continue at.
//!
//! It runs on the guest's thread and stack, possibly in a signal handler that
//! interrupted anything, on a 16 KiB stack, with hundreds of threads at once.
//!
//! # Invariants
//! - No allocation, no lock that an interrupted frame can hold, no thread-local,
//!   `errno` untouched.
//! - No other thread refers to this stack. A handler may leave by `longjmp` at any
//!   instruction, so steps that must be completed run with signals blocked (a few
//!   instructions, and at most one futex wake).
//! - No function has a value with a destructor, so a forced unwind may pass at any instruction:
//!   `pthread_exit` in a handler, or `pthread_cancel` of a thread that is cancelled asynchronously.
//!   A function with destructors has a table of its calls, and Rust's personality routine ends the
//!   process for an instruction that is in none of them.
//!
//! A first call does not spin before the futex wait. With 2,000 turns of a spin the wait for a
//! service that answers at once was not shorter (4 to 6 us on two cores). Compiling takes a hundred
//! times as long as any reasonable spin. A call at a gate does spin.

use std::time::Duration;

use crate::cell::Cell;
use crate::shared::Shared;
use crate::spots::{Spot, Standing};
use crate::state::{Kind, Step, Word};
use crate::sync::{Ordering, fence, look_again, spin, turn};
#[cfg(not(loom))]
use crate::sys::SignalsBlocked;
use uruk_base::{FunctionId, sandbox};

/// Time between two looks of a first call that waits while the process closes a sandbox around itself,
/// or while there is no service.
const ENDING_LOOK: Duration = Duration::from_millis(1);

/// Under loom there are no signals.
#[cfg(loom)]
struct NoSignals;
#[cfg(loom)]
use self::NoSignals as SignalsBlocked;

#[cfg(loom)]
impl NoSignals {
    fn new() -> NoSignals {
        NoSignals
    }

    fn end(self) {}
}

/// Result of a first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Continue at the function's code.
    Code(u64),
    /// The function has no code and gets none: ask the failure handler.
    Failed,
}

impl Shared {
    /// Returns the code of a function, requesting it and waiting as needed. At a gate it parks
    /// under the id that `thread` returns.
    pub(crate) fn resolve(&self, function: FunctionId, thread: impl Fn() -> u32) -> Outcome {
        let cell = self.cells.get(function);
        let mut turn = 0;
        let mut spot = None;
        let mut looks = self.looks_at_gate;
        loop {
            let word = cell.word();
            if word.gated() && looks > 0 {
                looks -= 1;
                look_again();
                continue;
            }
            if word.gated() {
                let lost = spot.is_none_or(|spot| self.spots.standing(spot) == Standing::Lost);
                if lost {
                    spot = self.spots.take(thread(), function);
                }
                match self.at_gate(function, cell, word, spot) {
                    Some(outcome) => return outcome,
                    None => continue,
                }
            }
            if let Some(spot) = spot.take() {
                self.spots.leave(spot);
            }
            match word.kind() {
                Kind::Bound => {
                    // Acquire; partner: the release in `publish`: makes the code's bytes visible to
                    // readers of code as data.
                    let target = cell.target.load(Ordering::Acquire);
                    if target != self.cells.trampoline(function) {
                        return Outcome::Code(target);
                    }
                    // Another thread is unpublishing it.
                    if word.busy() {
                        self.wait(cell, word);
                    } else {
                        spin(turn);
                        turn += 1;
                    }
                }
                Kind::Vacant | Kind::Failed | Kind::Quarantined if !word.busy() => {
                    return Outcome::Failed;
                }
                Kind::Prepared if !word.busy() => {
                    if let Some(entry) = self.bind(function, cell, word) {
                        return Outcome::Code(entry);
                    }
                }
                // The service answers no more requests.
                Kind::Unbound | Kind::Requested if sandbox::is_closed() => return Outcome::Failed,
                Kind::Unbound | Kind::Requested if !word.busy() && self.requests.is_unserved() => {
                    return Outcome::Failed;
                }
                Kind::Unbound if !word.busy() => self.request(function, cell, word),
                _ => self.wait(cell, word),
            }
        }
    }

    /// One turn of a wait at the gate: sleeps, unless this call was let through. Then it continues
    /// at the code behind the gate, or requests it.
    fn at_gate(
        &self,
        function: FunctionId,
        cell: &Cell,
        word: Word,
        spot: Option<Spot>,
    ) -> Option<Outcome> {
        let granted = |spot: &Spot| self.spots.standing(*spot) == Standing::Granted;
        let Some(spot) = spot.filter(granted) else {
            self.wait(cell, word);
            return None;
        };
        match word.kind() {
            _ if word.busy() => self.wait(cell, word),
            Kind::Unbound | Kind::Requested
                if self.requests.is_unserved() && self.spots.pass(spot) =>
            {
                return Some(Outcome::Failed);
            }
            Kind::Requested => self.wait(cell, word),
            Kind::Unbound => self.request(function, cell, word),
            Kind::Prepared => {
                self.bind(function, cell, word);
            }
            Kind::Bound if self.spots.pass(spot) => {
                // Acquire; partner: the release in `close` and `publish`. Zero: the gate has opened
                // since.
                turn();
                let code = self.kept.word(function)?.load(Ordering::Acquire);
                return (code != 0).then_some(Outcome::Code(code));
            }
            Kind::Vacant | Kind::Failed | Kind::Quarantined if self.spots.pass(spot) => {
                return Some(Outcome::Failed);
            }
            _ => {}
        }
        None
    }

    /// Requests code from the service, unless another thread already did.
    fn request(&self, function: FunctionId, cell: &Cell, word: Word) {
        // From the step to the ring: a handler that waited for this function would wait for ever; a
        // handler that left by `longjmp` would leave an unlinked request.
        let blocked = SignalsBlocked::new();
        if cell.try_step(word, Step::Request).is_some() {
            if !word.queued() {
                self.requests.push(&self.cells, function);
            }
            self.requests.ring();
        }
        blocked.end();
    }

    /// Stores prepared code into the slot, or behind its gate; `None` if another thread was faster.
    fn bind(&self, function: FunctionId, cell: &Cell, word: Word) -> Option<u64> {
        // Blocked while the cell is busy, as in `request`.
        let blocked = SignalsBlocked::new();
        let entry = cell.try_step(word, Step::Acquire).map(|_| {
            // Relaxed: published by the state word that said Prepared.
            let entry = self.heap_base + u64::from(cell.next.load(Ordering::Relaxed));
            // Partner: the acquire loads of `target` and of kept words.
            self.place(function, word).store(entry, Ordering::Release);
            self.settle(cell, Kind::Bound);
            entry
        });
        blocked.end();
        entry
    }

    /// Makes sure that the service exists: it does not in a child of a fork that bypassed the fork
    /// handlers.
    #[cfg(not(loom))]
    fn attend(&self) {
        // Partner: the release in `set_attendance`.
        let ask = self.attendance.load(Ordering::Acquire) as usize;
        if ask == 0 {
            return;
        }
        let ask = std::ptr::with_exposed_provenance::<()>(ask);
        // SAFETY: only functions of this type are ever stored.
        let ask = unsafe { std::mem::transmute::<*const (), extern "C-unwind" fn()>(ask) };
        ask();
    }

    /// Sleeps until the state is no longer `word`; may return early.
    fn wait(&self, cell: &Cell, word: Word) {
        // This process may be a fork made by a handler that interrupted a wait.
        #[cfg(not(loom))]
        self.attend();
        let word = if word.waiters() {
            word
        } else {
            match cell.try_step(word, Step::Await) {
                Some(word) => word,
                None => return,
            }
        };
        // Partner: the fence in `set_unserved`, which comes before the look at requests.
        fence(Ordering::SeqCst);
        let unserved = self.requests.is_unserved();
        if unserved && word.kind() == Kind::Requested && !word.busy() && !word.gated() {
            return;
        }
        // The request was put before this look, by a read-modify-write. So either the thread that ends
        // the service takes it afterwards, or this wait ends soon, and sees the sandbox closed.
        let limit = (unserved || sandbox::is_ending()).then_some(ENDING_LOOK);
        self.waiting.wait(cell.futex(), word.bits(), limit);
    }
}

/// Resolves a first call. The resolver trampoline passes the address after the `call` in the stub;
/// the result is the address to continue at.
///
/// # Safety
/// 1. `shared` is the table's, alive as long as the stubs are.
#[cfg(not(loom))]
pub(crate) unsafe extern "C-unwind" fn resolve(shared: *const Shared, return_address: u64) -> u64 {
    // SAFETY: duty 1.
    let shared = unsafe { &*shared };
    let function = shared.cells.by_return_address(return_address);
    shared.attend();
    let begun = shared.waits.begin();
    let outcome = shared.resolve(function, crate::sys::thread_id);
    shared.waits.end(begun);
    match outcome {
        Outcome::Code(entry) => entry,
        Outcome::Failed => {
            // Partner: the release in `set_failure_handler`.
            let handler = shared.failure_handler.load(Ordering::Acquire) as usize;
            let handler = std::ptr::with_exposed_provenance::<()>(handler);
            // SAFETY: only functions of this type are ever stored.
            let handler = unsafe { std::mem::transmute::<*const (), FailureHandler>(handler) };
            // Relaxed: the handler is stored after it.
            handler(function, shared.failure_context.load(Ordering::Relaxed))
        }
    }
}

/// Function that runs on the guest thread, on the guest's stack, instead of a function without
/// code. It returns the address to continue at, with the call's arguments. The number is the
/// context set with the handler.
#[cfg(not(loom))]
pub type FailureHandler = extern "C" fn(FunctionId, u64) -> u64;

/// Exit status of the default failure handler (`EX_SOFTWARE`).
#[cfg(not(loom))]
pub const FAILURE_STATUS: i32 = 70;

/// The default failure handler: writes a message and ends the process.
#[cfg(not(loom))]
pub(crate) extern "C" fn default_failure_handler(function: FunctionId, _: u64) -> u64 {
    const TEXT: &[u8] = b"uruk: call of a function without code: #";
    // The longest number has ten digits; written from the end.
    let mut line = [b'\n'; TEXT.len() + 11];
    let mut start = line.len() - 1;
    let mut rest = function.index();
    loop {
        start -= 1;
        line[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    start -= TEXT.len();
    line[start..start + TEXT.len()].copy_from_slice(TEXT);
    crate::sys::write_error(&line[start..]);
    crate::sys::exit(FAILURE_STATUS)
}
