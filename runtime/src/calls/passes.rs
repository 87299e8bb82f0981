//! Passes of code that looks: fuel, and interrupts and deadlines that need no signal.
//!
//! In a session that counts passes ([`JitBuilder::count_fuel`](crate::JitBuilder::count_fuel))
//! code takes one from a word of its thread at entries and loops (`codegen::looks`). The word has a
//! *slice*: when that is used up code asks here, and gets another one or is left. So a thread's
//! passes are known, and somebody who waits for it to stop waits for a slice at most.
//!
//! | thread-local | written by | read by |
//! |---|---|---|
//! | the word ([`word`](super::word)) | JIT'd code, by its address; [`slice`] | [`settle`] |
//! | `GIVEN`, `BEFORE` | [`slice`], [`settle`] | the thread |
//!
//! # Invariants
//! - Passes made are `BEFORE + GIVEN` less the word, at any time but within [`settle`].
//! - A slice ends where the fuel of a guarded call does, if that is earlier: its end is found at the
//!   same pass each time.
//! - The word lies at the same distance from the thread pointer in all threads, or code is not made to
//!   look ([`look`]).
//!
//! A handler of a signal that runs JIT'd code while its thread is here makes passes that may be
//! counted twice or not at all.
//!
//! # Why
//! Not a word that others write, as a flag or an epoch: it had to be read as often, and could not be
//! kept in a register through a loop. Not fuel in the word itself without slices: an interrupt would
//! have to change a word that another thread changes all the time.

use std::cell::Cell;
use std::time::Duration;

use uruk_codegen::Look;

use super::chain;
use super::fault;
use super::guard::{self, Guard};
use super::interrupt;
use super::trap::TrapKind;
use super::word;

/// Passes of a slice: some 20 us of a loop of few instructions.
const SLICE: u64 = 1 << 14;

thread_local! {
    /// The slice.
    static GIVEN: Cell<u64> = const { Cell::new(0) };
    /// Passes before it.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// What a guarded call may take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) time: Option<Duration>,
    pub(crate) fuel: Option<u64>,
    /// Whether the code that is called looks.
    pub(crate) looks: bool,
}

impl Limits {
    /// Why a call within them is not made: there is fuel, and nothing uses it.
    pub(super) fn refused(&self) -> Option<TrapKind> {
        (self.fuel.is_some() && !self.looks).then_some(TrapKind::NotCounted)
    }
}

/// What code of this process looks at; `None` if threads have their words elsewhere.
pub(crate) fn look() -> Option<Look> {
    word::distance().map(|distance| Look {
        distance,
        ask: ask as *const () as u64,
    })
}

/// The calling thread's passes so far.
pub(super) fn made() -> u64 {
    let left = word::left();
    BEFORE
        .get()
        .wrapping_add(GIVEN.get())
        .wrapping_sub(left as u64)
}

/// Counts what was used of the slice, which is over.
fn settle() -> u64 {
    let made = made();
    GIVEN.set(0);
    word::set_left(0);
    BEFORE.set(made);
    made
}

/// Begins a slice that ends where a guarded call from `guard` on is to, or regularly.
fn slice(guard: Option<&Guard>, made: u64) {
    let ends = guard.into_iter().flat_map(chain::from);
    let ends = ends.filter_map(|guard| guard.last_pass.get());
    let next = ends.min().and_then(|last| last.checked_sub(made));
    let given = next.map_or(SLICE, |left| left.min(SLICE));
    GIVEN.set(given);
    word::set_left(given as i64);
}

/// A guarded call with fuel begins.
pub(super) fn begin(guard: &Guard, fuel: u64) {
    let made = settle();
    guard.last_pass.set(Some(made.saturating_add(fuel)));
    slice(Some(guard), made);
}

/// A guarded call with fuel is over; `below` is the one below it.
pub(super) fn end(below: Option<&Guard>) {
    let made = settle();
    slice(below, made);
}

/// Called by JIT'd code that has used its slice up. Ends the innermost guarded call if it, or one
/// below it, is to end; another time if it is covered by a function of the host.
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
    // SAFETY: the innermost; above it is JIT'd code, and this frame, in which nothing is left to
    // be done.
    unsafe { guard.leave(kind) }
}

/// Why a call is over, if it is.
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
