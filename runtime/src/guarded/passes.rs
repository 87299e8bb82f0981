//! Fuel, and interrupts and deadlines that need no signal.
//!
//! In a session that counts fuel ([`JitBuilder::count_fuel`](crate::JitBuilder::count_fuel)) code
//! subtracts one from a word of its thread at entries and loops, a *pass* (`codegen::looks`). The
//! word has a *slice*: when that is used up, code calls this module, and gets another one or its
//! call ends. So a thread's passes are known, and a thread that waits for it to stop waits for a
//! slice at most.
//!
//! | thread-local | written by | read by |
//! |---|---|---|
//! | the word ([`word`](crate::guarded::word)) | JIT'd code, by its address; [`slice`] | [`settle`] |
//! | `GIVEN`, `BEFORE` | [`slice`], [`settle`] | the thread |
//!
//! # Invariants
//! - The passes made are `BEFORE + GIVEN` minus the word, at any time except within [`settle`].
//! - A slice ends where the fuel of a guarded call does, if that is earlier: the call ends at the
//!   same pass each time.
//! - The word lies at the same distance from the thread pointer in all threads, or code does not
//!   count ([`look`]).
//!
//! A signal handler that runs JIT'd code while its thread is here makes passes that may be counted
//! twice or not at all.
//!
//! # Why
//! Not a word that others write, as a flag or an epoch: it would have to be read as often, and
//! could not be kept in a register through a loop. Not fuel in the word itself without slices: an
//! interrupt would have to change a word that another thread changes all the time.

use std::cell::Cell;
use std::time::Duration;

use uruk_codegen::Look;

use crate::error::trap::TrapKind;
use crate::guarded::chain;
use crate::guarded::fault;
use crate::guarded::guard::{self, Guard};
use crate::guarded::interrupt;
use crate::guarded::word;

/// Passes of a slice: some 20 us of a loop of few instructions.
const SLICE: u64 = 1 << 14;

thread_local! {
    /// The slice.
    static GIVEN: Cell<u64> = const { Cell::new(0) };
    /// Passes before it.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// The limits of a guarded call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) time: Option<Duration>,
    pub(crate) fuel: Option<u64>,
    /// Whether the called code counts fuel.
    pub(crate) looks: bool,
}

impl Limits {
    /// The reason for refusing a call: it has a fuel limit, and its code counts no fuel.
    pub(crate) fn refused(&self) -> Option<TrapKind> {
        (self.fuel.is_some() && !self.looks).then_some(TrapKind::NotCounted)
    }
}

/// The fuel counters for code of this process; `None` if threads have their words at different
/// distances.
pub(crate) fn look() -> Option<Look> {
    word::distance().map(|distance| Look {
        distance,
        ask: ask as *const () as u64,
    })
}

/// The passes that the calling thread has made.
pub(crate) fn made() -> u64 {
    let left = word::left();
    BEFORE
        .get()
        .wrapping_add(GIVEN.get())
        .wrapping_sub(left as u64)
}

/// Counts the used part of the slice, which ends.
fn settle() -> u64 {
    let made = made();
    GIVEN.set(0);
    word::set_left(0);
    BEFORE.set(made);
    made
}

/// Begins a slice that ends at the fuel limit of a guarded call from `guard` on, or regularly.
fn slice(guard: Option<&Guard>, made: u64) {
    let ends = guard.into_iter().flat_map(chain::from);
    let ends = ends.filter_map(|guard| guard.last_pass.get());
    let next = ends.min().and_then(|last| last.checked_sub(made));
    let given = next.map_or(SLICE, |left| left.min(SLICE));
    GIVEN.set(given);
    word::set_left(given as i64);
}

/// Begins a guarded call with fuel.
pub(crate) fn begin(guard: &Guard, fuel: u64) {
    let made = settle();
    guard.last_pass.set(Some(made.saturating_add(fuel)));
    slice(Some(guard), made);
}

/// Ends a guarded call with fuel; `below` is the one below it.
pub(crate) fn end(below: Option<&Guard>) {
    let made = settle();
    slice(below, made);
}

/// Called by JIT'd code that has used up its slice. Ends the innermost guarded call if it, or one
/// below it, must end; later if it is covered by a function of the host.
extern "C" fn ask() {
    let made = settle();
    let guard = guard::current();
    let due = guard.and_then(|guard| why_over(guard, made).map(|kind| (guard, kind)));
    slice(guard, made);
    let Some((guard, kind)) = due.filter(|(guard, _)| guard.is_open()) else {
        return;
    };
    // SAFETY: its own thread's.
    fault::note_callers(unsafe { &mut *guard.addresses.get() }, guard.stack());
    // SAFETY: the innermost; above it is JIT'd code, and this frame, without pending destructors.
    unsafe { guard.leave(kind) }
}

/// The reason if a call must end.
fn why_over(guard: &Guard, made: u64) -> Option<TrapKind> {
    let is_used = |guard: &Guard| guard.last_pass.get().is_some_and(|last| last < made);
    if is_used(guard) {
        return Some(TrapKind::OutOfFuel);
    }
    if let Some(kind) = interrupt::why_over(guard) {
        return Some(kind);
    }
    chain::from(guard)
        .any(is_used)
        .then_some(TrapKind::Interrupted)
}
