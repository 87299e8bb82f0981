//! The state shared by the guest side and the runtime side, and the runtime's steps on it.
//!
//! It lives in the heap's writable data, not in Rust's: stubs stay executable as long as the heap
//! is mapped, and everything they reach must stay, too.

use crate::cell::{Cell, Cells};
use crate::futex::Futex;
use crate::kept::Kept;
use crate::requests::{Requests, TaggedList};
use crate::spots::Spots;
use crate::state::{Kind, Step, Word};
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin};
#[cfg(not(loom))]
use crate::waits::Waits;
use uruk_base::FunctionId;

/// The part of a table that guests reach.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Shared {
    pub(crate) cells: Cells,
    pub(crate) requests: Requests,
    /// The futex on which guests sleep (on their function's state word).
    pub(crate) waiting: Futex,
    /// The code behind the gate.
    pub(crate) kept: Kept,
    /// The waits at the gate.
    pub(crate) spots: Spots,
    /// The number of the closed gate, zero for none. Acquire in `claim_gate`, release
    /// in `end_gate`.
    pub(crate) gate: AtomicU32,
    /// How often a caller polls a closed gate before it sleeps.
    pub(crate) looks_at_gate: u32,
    /// Gates closed so far. Relaxed: `gate` publishes it.
    pub(crate) gates: AtomicU32,
    /// Cells that may be handed out again.
    pub(crate) free: TaggedList,
    /// An `extern "C" fn(FunctionId, u64) -> u64`, never zero. Release in
    /// `set_failure_handler`, acquire in the guest.
    pub(crate) failure_handler: AtomicU64,
    /// The handler's second argument. Relaxed, stored before the handler.
    pub(crate) failure_context: AtomicU64,
    /// Function to call before each wait; it checks that the service exists: an `extern "C" fn()`,
    /// or zero. Release in `set_attendance`, acquire in the guest.
    pub(crate) attendance: AtomicU64,
    /// Counts of the times that guests waited.
    #[cfg(not(loom))]
    pub(crate) waits: Waits,
    /// First address of the heap; prepared entries are offsets from it.
    pub(crate) heap_base: u64,
    /// Size of the heap's reservation.
    pub(crate) heap_size: u64,
}

impl Shared {
    /// Turns a vacant cell into a function.
    pub(crate) fn allocate(&self, function: FunctionId) {
        let cell = self.cells.get(function);
        let trampoline = self.cells.trampoline(function);
        // Relaxed: the state word publishes it.
        cell.target.store(trampoline, Ordering::Relaxed);
        let before = cell.step(Step::Allocate);
        assert!(before.is_some(), "{function} handed out twice");
    }

    /// Stores an entry into the slot; see `StubTable::publish`.
    pub(crate) fn publish(&self, function: FunctionId, entry: u64) -> bool {
        self.change(function, |_, word| {
            if word.step(Step::Settle(Kind::Bound)).is_none() {
                return word.kind();
            }
            // Partner: the acquire loads of `target`, and instruction fetch; those of
            // kept words.
            self.place(function, word).store(entry, Ordering::Release);
            Kind::Bound
        }) == Kind::Bound
    }

    /// Stores the entry beside the slot; the first call moves it into the slot.
    pub(crate) fn prepare(&self, function: FunctionId, entry: u64) -> bool {
        let offset = entry.wrapping_sub(self.heap_base);
        let near = offset < self.heap_size;
        let kind = self.change(function, |cell, word| {
            let unasked = word.kind() != Kind::Bound;
            let unasked = unasked && word.step(Step::Settle(Kind::Prepared)).is_some();
            if unasked && near && !word.queued() {
                // Relaxed: `settle` publishes it.
                cell.next.store(offset as u32, Ordering::Relaxed);
                return Kind::Prepared;
            }
            if word.step(Step::Settle(Kind::Bound)).is_none() {
                return word.kind();
            }
            // Partner: as in `publish`.
            self.place(function, word).store(entry, Ordering::Release);
            Kind::Bound
        });
        matches!(kind, Kind::Prepared | Kind::Bound)
    }

    /// Sends waiting and later calls to the failure handler, unless there is
    /// code already.
    pub(crate) fn fail(&self, function: FunctionId) -> bool {
        self.change(function, |_, word| match word.kind() {
            Kind::Unbound | Kind::Requested => Kind::Failed,
            kind => kind,
        }) == Kind::Failed
    }

    /// Ends the waits for a function that was requested, where there is no service
    /// ([`Requests::set_unserved`]): the callers continue at the failure handler, and the next call
    /// asks again.
    pub(crate) fn end_waits(&self, function: FunctionId) {
        let cell = self.cells.get(function);
        if cell.word().kind() != Kind::Requested {
            return;
        }
        // Vacant by now, if it is `None`.
        if let Some(word) = cell.acquire() {
            let kind = match word.kind() {
                Kind::Requested => Kind::Unbound,
                kind => kind,
            };
            self.settle(cell, kind);
        }
    }

    /// Makes the next call of a function that failed ask again.
    pub(crate) fn retry(&self, function: FunctionId) -> bool {
        self.change(function, |_, word| match word.kind() {
            Kind::Failed => Kind::Unbound,
            kind => kind,
        }) == Kind::Unbound
    }

    /// Takes the code or failure back; the next call requests code again.
    pub(crate) fn unpublish(&self, function: FunctionId) -> bool {
        self.change(function, |_, word| match word.kind() {
            Kind::Bound | Kind::Prepared | Kind::Failed => {
                self.take_code(function, word);
                Kind::Unbound
            }
            kind => kind,
        }) == Kind::Unbound
    }

    /// Removes a function: its calls go to the failure handler.
    pub(crate) fn quarantine(&self, function: FunctionId) -> bool {
        let mut first = false;
        self.change(function, |_, word| {
            first = word.kind() != Kind::Quarantined;
            self.take_code(function, word);
            Kind::Quarantined
        });
        first
    }

    /// Puts a quarantined cell on the free list; `false` when it is not
    /// quarantined, or still linked as a request.
    pub(crate) fn recycle(&self, function: FunctionId) -> bool {
        let vacated = self.cells.get(function).step(Step::Recycle).is_some();
        if vacated {
            self.free.prepend(&self.cells, function, function);
        }
        vacated
    }

    /// Turns a quarantined cell into a function without code; `false` when it is not quarantined,
    /// or behind a gate.
    pub(crate) fn revive(&self, function: FunctionId) -> bool {
        self.cells.get(function).step(Step::Revive).is_some()
    }

    /// The published or prepared code; `None` while there is none. Also behind a closed gate.
    ///
    /// It does not wait for gates, because a handler may have interrupted the thread that closes or
    /// opens one. A gate stores the code in its new place before it removes it from the old one,
    /// both with release. So a reader of both places finds it in one of them, unless the code moved
    /// there and back meanwhile. A second read then finds it, unless a gate closed in between,
    /// which turns the state word.
    pub(crate) fn entry(&self, function: FunctionId) -> Option<u64> {
        let cell = self.cells.get(function);
        // Acquire, both; partner: the releases in `publish`, `bind`, `close` and `open`.
        let in_slot = || {
            let target = cell.target.load(Ordering::Acquire);
            (target != self.cells.trampoline(function)).then_some(target)
        };
        let kept = || {
            let kept = self.kept.word(function)?.load(Ordering::Acquire);
            (kept != 0).then_some(kept)
        };
        let mut turn = 0;
        loop {
            let word = cell.word();
            if word.kind() == Kind::Prepared {
                match self.prepared(cell, word) {
                    Some(entry) => return Some(entry),
                    None => spin(turn),
                }
                turn += 1;
                continue;
            }
            if word.kind() != Kind::Bound {
                return None;
            }
            let found = (0..2).find_map(|_| in_slot().or_else(kept));
            if found.is_some() || cell.word().turns() == word.turns() {
                return found;
            }
        }
    }

    /// The code of a function that is prepared, unless another thread is changing it.
    fn prepared(&self, cell: &Cell, word: Word) -> Option<u64> {
        // Like a guest that binds it, but the code stays in `next`.
        cell.try_step(word, Step::Acquire)?;
        // Relaxed: published by the state word that said Prepared.
        let entry = self.heap_base + u64::from(cell.next.load(Ordering::Relaxed));
        self.settle(cell, Kind::Prepared);
        Some(entry)
    }

    /// Takes over a function in the child of a `fork`: no gate, no waiting thread, no change under
    /// way. For the only thread of a process.
    pub(crate) fn inherit(&self, function: FunctionId) {
        let cell = self.cells.get(function);
        let word = cell.word();
        let trampoline = self.cells.trampoline(function);
        if let (true, Some(kept)) = (word.gated(), self.kept.word(function)) {
            // Zero: no code, or it is in the slot already.
            let code = kept.swap(0, Ordering::Relaxed);
            if code != 0 {
                cell.target.store(code, Ordering::Relaxed);
            }
        }
        // The fork came in the middle of `unpublish`.
        let none = word.kind() == Kind::Bound && cell.target.load(Ordering::Relaxed) == trampoline;
        let kind = if none { Kind::Unbound } else { word.kind() };
        let inherited = Word::inherited(kind);
        // Pages that need no change stay shared with the parent.
        if word != inherited {
            cell.reset(inherited);
        }
        if inherited.queued() {
            self.requests.push(&self.cells, function);
        }
    }

    /// The word that holds the code of a function: its slot, or its kept word behind a gate. For
    /// the thread that set *busy*.
    pub(crate) fn place(&self, function: FunctionId, word: Word) -> &AtomicU64 {
        match self.kept.word(function) {
            Some(kept) if word.gated() => kept,
            // Gated functions have a word.
            _ => &self.cells.get(function).target,
        }
    }

    fn take_code(&self, function: FunctionId, word: Word) {
        let none = match word.gated() {
            true => 0,
            false => self.cells.trampoline(function),
        };
        // Relaxed: no bytes of code are published with it. A thread that reads it reads the state
        // word again.
        self.place(function, word).store(none, Ordering::Relaxed);
    }

    /// One change of a function by the runtime: sets *busy*, lets `f` store and choose the kind,
    /// settles, wakes. Returns the kind that was set.
    pub(crate) fn change(&self, function: FunctionId, f: impl FnOnce(&Cell, Word) -> Kind) -> Kind {
        let cell = self.cells.get(function);
        let Some(before) = cell.acquire() else {
            panic!("{function} is not allocated in this table");
        };
        let acquired = before.step(Step::Acquire).expect("just taken");
        let kind = f(cell, acquired);
        self.settle(cell, kind);
        kind
    }

    /// Ends a change and wakes the threads that wait for it.
    pub(crate) fn settle(&self, cell: &Cell, kind: Kind) {
        let before = cell.step(Step::Settle(kind));
        debug_assert!(before.is_some(), "illegal change to {kind:?}");
        if before.is_some_and(Word::waiters) {
            self.waiting.wake_all(cell.futex());
        }
    }
}

#[cfg(not(loom))]
impl crate::table::StubTable {
    /// True if there is code: published, or [prepared](StubTable::prepare) for the first call.
    pub fn has_code(&self, function: FunctionId) -> bool {
        let kind = self.shared().cells.get(function).word().kind();
        matches!(kind, Kind::Bound | Kind::Prepared)
    }
}
