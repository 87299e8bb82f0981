//! The gate: a set of functions gets its new code at one instant.
//!
//! Separate slot stores are not atomic together: between two of them a caller could go through one
//! new function into one old one. So the set passes through a state in which no call can reach any
//! of its code:
//!
//! ```text
//!   close    each member: kept = code, slot = trampoline, gated       callers park
//!   meanwhile   publish, prepare, fail, unpublish: change the kept word
//!   open     each member: slot = code, kept = 0, not gated; then wake all
//! ```
//!
//! After `close` returns, no call of a member starts; before the first slot of `open`
//! is stored, none has. A caller that meets an open member beside a closed one parks
//! at the closed one. So the instant is the first store of `open`, for the whole set.
//!
//! # Invariants
//! - A gated function's slot holds its trampoline. Its code is in its kept word.
//! - One gate is closed at a time: sets may overlap, and a caller that is parked at
//!   one may be the thread that another waits for. The second is refused, not queued.
//! - A call that was let through continues at the code that is kept at that moment. Let
//!   through only waits whose thread's stack holds old code. Change a kept word to new code
//!   only when no stack holds old code: then no such call is under way. The stack must have
//!   been scanned during the wait: list the waits, scan, then let through. A thread that
//!   leaves old code after the scan and parks anew has no old code below it, and must wait
//!   for the new code.
//!
//! # Waiting
//! A caller that meets a closed gate polls it for a few microseconds before it sleeps: a set whose
//! code is ready is behind the gate for less time than a sleep and a wake. It does not poll on a
//! machine with one processor, where no other thread could open the gate meanwhile.
//!
//! # Signal handlers
//! A handler that interrupts a parked thread and calls a member parks as well, as a second entry of
//! the same thread (the same entry for the same function). Letting the thread through lets both
//! continue, the inner one first. A handler that leaves by `longjmp` leaves an entry without a
//! waiting thread, until the next gate closes.

use crate::cell::Cell;
use crate::shared::Shared;
use crate::spots::Wait;
use crate::state::{Kind, Step};
use crate::sync::{Ordering, turn};
use uruk_base::FunctionId;

/// The code of one function after its gate opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// New code. As for [`StubTable::publish`](crate::StubTable::publish).
    Code(u64),
    /// The code from before, or code published behind the gate since.
    Keep,
    /// No code: the next call requests it. (A request that was already made is not repeated.)
    Unbound,
}

/// A wait of a thread at the gate. The next wait of the same thread is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked(Wait);

impl Parked {
    /// The kernel's id of the thread.
    pub fn tid(self) -> i32 {
        self.0.thread() as i32
    }

    /// The function that the thread calls.
    pub fn function(self) -> FunctionId {
        self.0.function()
    }
}

impl Shared {
    /// Begins a gate and returns its number; `None` while another is closed.
    pub(crate) fn claim_gate(&self) -> Option<u32> {
        let before = self.gates.fetch_add(1, Ordering::Relaxed);
        let number = before.wrapping_add(1).max(1);
        // Acquire; partner: the release in `end_gate`: the directory of kept words.
        self.gate
            .compare_exchange(0, number, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // Remaining entries were left by an earlier gate.
        self.spots.clear();
        Some(number)
    }

    /// Ends a gate that was opened.
    pub(crate) fn end_gate(&self) {
        // Release; partner: the acquire in `claim_gate`.
        self.gate.store(0, Ordering::Release);
    }

    /// Closes the gate before a function; false, and no change, if it was released.
    ///
    /// Its kept word must be there.
    pub(crate) fn close(&self, function: FunctionId) -> bool {
        let cell = self.cells.get(function);
        let Some(word) = cell.acquire().and_then(|word| word.step(Step::Acquire)) else {
            return false;
        };
        let kept = self.kept.word(function);
        let (Some(kept), Some(_)) = (kept, word.step(Step::Close)) else {
            self.settle(cell, word.kind());
            return false;
        };
        let code = match word.kind() {
            // Relaxed: stored by the thread that set *busy* before.
            Kind::Bound => cell.target.load(Ordering::Relaxed),
            _ => 0,
        };
        turn();
        // Partner: the acquire loads in `guest` and `entry`, by threads that read the state word at
        // an earlier gate: the code may be newer than that word.
        kept.store(code, Ordering::Release);
        // Partner: the acquire load in `entry`, which finds the code in its kept word.
        cell.target
            .store(self.cells.trampoline(function), Ordering::Release);
        if self.end(cell, Step::Close) {
            self.waiting.wake_all(cell.futex());
        }
        true
    }

    /// Opens the gate before a function; true if threads are to be woken.
    pub(crate) fn open(&self, function: FunctionId, to: Target) -> bool {
        let cell = self.cells.get(function);
        let Some(word) = cell.acquire().and_then(|word| word.step(Step::Acquire)) else {
            return false;
        };
        let (Some(kept), true) = (self.kept.word(function), word.gated()) else {
            self.settle(cell, word.kind());
            return false;
        };
        let wanted = match to {
            Target::Code(_) => Kind::Bound,
            Target::Unbound => Kind::Unbound,
            Target::Keep => word.kind(),
        };
        // A released function stays released, a request stays pending.
        let legal = word.step(Step::Open(wanted)).is_some();
        let kind = if legal { wanted } else { word.kind() };
        // Relaxed: stored by the thread that set *busy* before.
        let old = kept.load(Ordering::Relaxed);
        let code = match to {
            Target::Code(new) if legal => new,
            _ => old,
        };
        if kind == Kind::Bound {
            // Release; partner: the acquire loads of `target`. Members that this code calls next
            // are gated or new, because all were closed before.
            cell.target.store(code, Ordering::Release);
        }
        turn();
        // Zero, because old code may be freed from now on as soon as no stack or register holds its
        // address: a thread that was let through and reads zero starts over. Partner: the acquire
        // load in `entry`, which finds the code in its slot.
        kept.store(0, Ordering::Release);
        self.end(cell, Step::Open(kind))
    }

    /// Ends a change; true if threads are to be woken.
    fn end(&self, cell: &Cell, step: Step) -> bool {
        let before = cell.step(step);
        debug_assert!(before.is_some(), "illegal {step:?}");
        before.is_some_and(|word| word.waiters())
    }

    /// Lets the call of a wait continue; false if that wait has ended.
    pub(crate) fn let_through(&self, wait: Wait) -> bool {
        let granted = self.spots.grant(wait);
        if granted {
            let cell = self.cells.get(wait.function());
            // After the grant: a caller that saw the word before it does not sleep on it.
            if cell.step(Step::Nudge).is_some_and(|word| word.waiters()) {
                self.waiting.wake_all(cell.futex());
            }
        }
        granted
    }

    /// One round of waiting until no stack holds old code. `scan` reads all stacks; waits of
    /// threads for which `holds` finds old code are let through.
    pub(crate) fn round<R, E>(
        &self,
        scan: impl FnOnce() -> Result<R, E>,
        holds: impl Fn(&R, u32) -> bool,
    ) -> Result<R, E> {
        // List before the scan. The scan may have seen old code on a thread that left it and parked
        // later. Such a thread would enter old code with none below it; if it is slow to wake, the
        // next scan finds it in none.
        let parked = self.spots.list();
        let seen = scan()?;
        for wait in parked {
            if holds(&seen, wait.thread()) {
                self.let_through(wait);
            }
        }
        Ok(seen)
    }

    /// Opens the gate before a set of members, each with its target.
    pub(crate) fn open_all(&self, set: impl ExactSizeIterator<Item = (FunctionId, Target)>) {
        // No allocation between two members.
        let mut waited: Vec<FunctionId> = Vec::with_capacity(set.len());
        let opened = set.filter(|&(function, to)| self.open(function, to));
        waited.extend(opened.map(|(function, _)| function));
        // Wake only when all are open: callers would park again at the next member.
        for function in waited {
            self.waiting.wake_all(self.cells.get(function).futex());
        }
    }
}

#[cfg(not(loom))]
pub use handle::{Gate, ReadyGate};

#[cfg(not(loom))]
mod handle {
    use std::sync::Arc;

    use super::{FunctionId, Kind, Ordering, Parked, Target};
    use crate::error::StubError;
    use crate::table::StubTable;

    /// A closed gate. Dropping it opens it to the old set.
    #[derive(Debug)]
    #[must_use = "callers wait until it is opened or dropped"]
    pub struct Gate {
        table: Arc<StubTable>,
        /// In ascending order.
        members: Vec<FunctionId>,
        number: u32,
    }

    /// A gate that is prepared and can close at once. Dropping it frees the table for another.
    #[derive(Debug)]
    #[must_use = "no other gate closes until it is closed and opened, or dropped"]
    pub struct ReadyGate {
        /// A gate without members yet.
        gate: Gate,
        /// In ascending order; each has its kept word.
        set: Vec<FunctionId>,
    }

    impl StubTable {
        /// Closes a gate before a whole set: after the return, no call of a member starts until the
        /// gate opens; callers park. Calls that began before continue. A member without code is not
        /// requested meanwhile, but earlier requests stay pending, and their answers change the
        /// code that the gate opens to.
        ///
        /// # Errors
        /// [`StubError::Twice`], [`StubError::Released`], [`StubError::GateClosed`],
        /// [`StubError::Heap`]; nothing changed then.
        pub fn close_gate(self: &Arc<Self>, set: &[FunctionId]) -> Result<Gate, StubError> {
            let ready = self.ready_gate(set)?;
            let members = ready.set.clone();
            let gate = ready.close();
            // Dropping the gate opens the closed members.
            let closed = |member| gate.members.binary_search(member).is_ok();
            match members.iter().find(|&member| !closed(member)) {
                Some(&released) => Err(StubError::Released(released)),
                None => Ok(gate),
            }
        }

        /// Prepares a gate before a set: everything that can fail or takes time, so that
        /// [`ReadyGate::close`] is a few stores for each member.
        ///
        /// # Errors
        /// As for [`StubTable::close_gate`].
        pub fn ready_gate(self: &Arc<Self>, set: &[FunctionId]) -> Result<ReadyGate, StubError> {
            let mut set = set.to_vec();
            set.sort_unstable();
            if let Some(twice) = set.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(StubError::Twice(twice[0]));
            }
            let shared = self.shared();
            for &function in &set {
                let gone = |kind| matches!(kind, Kind::Vacant | Kind::Quarantined);
                if !self.handed_out(function) || gone(shared.cells.get(function).word().kind()) {
                    return Err(StubError::Released(function));
                }
            }
            let number = shared.claim_gate().ok_or(StubError::GateClosed)?;
            let gate = Gate {
                table: Arc::clone(self),
                members: Vec::with_capacity(set.len()),
                number,
            };
            for &function in &set {
                self.ensure_kept(function)?;
            }
            Ok(ReadyGate { gate, set })
        }
    }

    impl ReadyGate {
        /// Closes the gate; see [`StubTable::close_gate`]. Functions released since it was prepared
        /// are no members.
        pub fn close(self) -> Gate {
            let ReadyGate { mut gate, set } = self;
            for function in set {
                if gate.table.shared().close(function) {
                    gate.members.push(function);
                }
            }
            gate
        }
    }

    impl Gate {
        /// The members, in ascending order.
        pub fn members(&self) -> &[FunctionId] {
            &self.members
        }

        /// The waits at the gate that were not let through. It may name threads that left by
        /// `longjmp` (see the module). Waits beyond the table's 256 places are missing
        /// ([`Gate::overflow`]).
        pub fn parked(&self) -> Vec<Parked> {
            let waits = self.table.shared().spots.list().into_iter();
            waits.map(Parked).collect()
        }

        /// The number of waits that found no place in the table: they cannot be let through.
        pub fn overflow(&self) -> u32 {
            self.table.shared().spots.missed()
        }

        /// Lets a parked call continue into the old code of its function; the thread's next call of
        /// a member parks again. If the function has no code the call requests it. False if that
        /// wait has ended.
        ///
        /// Only for waits during which the thread's stack was seen to hold old code of the
        /// set (see the module).
        pub fn let_through(&self, parked: Parked) -> bool {
            self.table.shared().let_through(parked.0)
        }

        /// One round of waiting until no stack holds old code of the set: lists the waits, runs
        /// `scan` over all stacks, and lets through the waits of threads that `holds` finds, by the
        /// kernel's ids, in the result of the scan.
        ///
        /// # Errors
        /// Those of the scan; no wait is let through then.
        pub fn round<R, E>(
            &self,
            scan: impl FnOnce() -> Result<R, E>,
            holds: impl Fn(&R, i32) -> bool,
        ) -> Result<R, E> {
            let shared = self.table.shared();
            shared.round(scan, |seen, tid| holds(seen, tid as i32))
        }

        /// Opens the gate: stores all slots, then wakes the waiting threads. Members that `new`
        /// does not name keep their code.
        ///
        /// # Errors
        /// [`StubError::Twice`], [`StubError::NotGated`]: the gate opens to the old set.
        pub fn open(mut self, new: &[(FunctionId, Target)]) -> Result<(), StubError> {
            let mut new = new.to_vec();
            new.sort_unstable_by_key(|&(function, _)| function);
            if let Some(twice) = new.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(StubError::Twice(twice[0].0));
            }
            let stranger = |&(function, _): &(FunctionId, Target)| {
                self.members.binary_search(&function).is_err()
            };
            if let Some(&(function, _)) = new.iter().find(|&named| stranger(named)) {
                return Err(StubError::NotGated(function));
            }
            self.reopen(&new);
            Ok(())
        }

        fn reopen(&mut self, new: &[(FunctionId, Target)]) {
            let members = std::mem::take(&mut self.members);
            let shared = self.table.shared();
            // Differs in a child of `fork`, where the gate is open already.
            if shared.gate.load(Ordering::Relaxed) != self.number {
                return;
            }
            let mut named = new.iter().copied().peekable();
            shared.open_all(members.into_iter().map(|function| {
                let own = named.next_if(|&(of, _)| of == function);
                (function, own.map_or(Target::Keep, |(_, to)| to))
            }));
            shared.end_gate();
            self.number = 0;
        }
    }

    impl Drop for Gate {
        fn drop(&mut self) {
            if self.number != 0 {
                self.reopen(&[]);
            }
        }
    }
}
