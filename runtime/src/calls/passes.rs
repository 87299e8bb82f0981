//! Passes of code that looks: fuel, and interrupts and deadlines that need no signal.
//!
//! In a session that counts passes ([`JitBuilder::count_passes`](crate::JitBuilder::count_passes))
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
use crate::api::builder::JitBuilder;
use crate::api::error::Error;

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
fn look() -> Option<Look> {
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

impl JitBuilder {
    /// Has the code of IR functions count its passes, at every tier: entries of functions that call
    /// others, and ends of loops' bodies. Off by default. Code of object files, of units and of shared
    /// libraries counts none, also where it is called by code that does.
    ///
    /// Guarded calls can have a limit of passes then
    /// ([`Func::with_fuel`](crate::Func::with_fuel)), which ends the same call at the same place each
    /// time; and [`Jit::interrupt`](crate::Jit::interrupt) and deadlines end them without a signal,
    /// a slice of 16,384 passes later. (If the thread is in code that does not count by then, of an
    /// object file or a unit, the signal comes 20 ms after.) `cargo xtask bench --only "counted
    /// passes"` prints what it costs.
    ///
    /// Code is changed when it is added, which takes LLVM the time to read and write it once.
    ///
    /// ```
    /// use uruk::{GuestThread, Jit, TrapKind};
    ///
    /// let jit = Jit::builder().count_passes(true)?.build()?;
    /// jit.add_ir("m", "define i64 @sum(i64 %n) {
    ///   br label %l
    /// l:
    ///   %i = phi i64 [ 0, %0 ], [ %j, %l ]
    ///   %s = phi i64 [ 0, %0 ], [ %t, %l ]
    ///   %t = add i64 %s, %i
    ///   %j = add i64 %i, 1
    ///   %more = icmp ult i64 %j, %n
    ///   br i1 %more, label %l, label %e
    /// e:
    ///   ret i64 %t
    /// }")?;
    /// // SAFETY: the function above.
    /// let sum = unsafe { jit.function::<extern "C" fn(u64) -> u64>("sum")? };
    /// let before = GuestThread::passes();
    /// assert_eq!(sum.with_fuel(1000).call_guarded(1000).ok(), Some(499_500));
    /// assert_eq!(GuestThread::passes() - before, 1000);
    /// let trap = sum.with_fuel(999).call_guarded(1000).unwrap_err();
    /// assert!(matches!(trap.kind, TrapKind::OutOfFuel));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PassesUncounted`]: this library was opened by a running process (`dlopen`), which had made
    /// 32 keys of `pthread_key_create` before, so that threads have their words at different places.
    pub fn count_passes(mut self, count: bool) -> Result<JitBuilder, Error> {
        self.layers.look = match count {
            true => Some(look().ok_or(Error::PassesUncounted)?),
            false => None,
        };
        Ok(self)
    }
}
