//! The words of the loops of one version of tier 1: what is offered at each, and how often its
//! head was passed.
//!
//! | what | writer | ordering |
//! |---|---|---|
//! | a slot | `offer`, `close` | release; guest code reads it plainly, once |
//! | a count | guest code, without atomics | relaxed |
//! | the sign of a count | `ask`, in a race with guest code that may undo it: `insist` asks again | relaxed |
//!
//! Counts go up to 2^31 and begin again; the sign asks guest code to look at the slot.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use uruk_base::FunctionId;
use uruk_base::StubAddress;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_codegen::{Head, Heads};
use uruk_heap::{Heap, HeapError, Pool, Sealed};

use super::{Continuations, Ended};
use crate::core::Function;
use crate::fork::gate;

/// The sign of a count.
const ASKED: u32 = 1 << 31;

/// How often an offer asks.
const TRIES: u32 = 100;

/// After this, what a core had under way when somebody else wrote is in memory.
const STORED: Duration = Duration::from_micros(1);

/// The loops of one version.
#[derive(Debug)]
pub(crate) struct Loops {
    pub(crate) function: FunctionId,
    /// What the continuations are made from: whoever makes one needs the module to be there.
    pub(crate) of: WeakFunction,
    pub(crate) heads: Vec<Head>,
    memory: Arc<Memory>,
    state: Mutex<State>,
    ended: Arc<Ended>,
    /// How often loops were left whose versions are gone.
    gone: Arc<AtomicU64>,
}

/// The memory of the words of one version's loops: lives as long as the code that counts in it,
/// and as somebody reads it.
#[derive(Debug)]
struct Memory(Option<Sealed>);

impl Memory {
    fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, Sealed::address)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            // SAFETY: the code that counts in it holds its `Loops`, which holds `self`, until it
            // is freed, and it is freed when no thread can be in it.
            unsafe { memory.release() };
        }
    }
}

/// The counts of one version's loops, whether or not the version is still there.
#[derive(Debug)]
pub(super) struct Passes {
    /// What keeps them mapped.
    _memory: Arc<Memory>,
    first: u64,
    loops: usize,
}

impl Passes {
    /// Changes with every pass of any head, and with what is asked for.
    pub(super) fn sum(&self) -> u32 {
        let count = |place: usize| {
            let at = self.first + (place * size_of::<AtomicU32>()) as u64;
            // SAFETY: one of the counts, within the memory, aligned to 4; guest code writes it with
            // plain stores of its size.
            unsafe { &*(at as *const AtomicU32) }.load(Ordering::Relaxed)
        };
        (0..self.loops).map(count).fold(0, u32::wrapping_add)
    }
}

/// A function that does not keep its module.
#[derive(Debug)]
pub(crate) struct WeakFunction {
    module: Weak<crate::core::Module>,
    symbol: uruk_codegen::SymbolId,
    name: &'static std::ffi::CStr,
}

#[derive(Debug, Default)]
struct State {
    /// By loop.
    continuations: Vec<Option<FunctionId>>,
    /// Loops whose continuation could not be made.
    failed: Vec<usize>,
    closed: bool,
}

impl WeakFunction {
    fn of(function: &Function) -> WeakFunction {
        WeakFunction {
            module: Arc::downgrade(&function.module),
            symbol: function.symbol,
            name: function.name,
        }
    }

    pub(crate) fn is_in(&self, module: &Arc<crate::core::Module>) -> bool {
        std::ptr::eq(self.module.as_ptr(), Arc::as_ptr(module))
    }

    /// The function, if its module is there.
    pub(crate) fn upgrade(&self) -> Option<Function> {
        Some(Function {
            module: self.module.upgrade()?,
            symbol: self.symbol,
            name: self.name,
            origin: None,
        })
    }
}

impl Loops {
    /// Words for the loops of a version of `function`.
    ///
    /// # Errors
    /// No room.
    pub(crate) fn new(
        heap: &Heap,
        id: FunctionId,
        function: &Function,
        heads: &[Head],
        all: &Continuations,
    ) -> Result<Arc<Loops>, HeapError> {
        let bytes = Heads::bytes(heads.len());
        let draft = heap.allocate(Pool::ReadWrite, bytes, align_of::<u64>())?;
        Ok(Arc::new(Loops {
            function: id,
            of: WeakFunction::of(function),
            heads: heads.to_vec(),
            memory: Arc::new(Memory(Some(draft.seal()?))),
            state: Mutex::new(State {
                continuations: vec![None; heads.len()],
                ..State::default()
            }),
            ended: Arc::clone(&all.ended),
            gone: Arc::clone(&all.gone),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Its counts.
    pub(super) fn counts(&self) -> Passes {
        let loops = self.heads.len();
        Passes {
            _memory: Arc::clone(&self.memory),
            first: self.address() + Heads::places(0, loops).count as u64,
            loops,
        }
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.0.as_ref().map_or(0, Sealed::held)
    }

    fn slot(&self, place: usize) -> &AtomicU64 {
        debug_assert!(place < self.heads.len());
        let slot = Heads::places(place, self.heads.len()).slot;
        // SAFETY: within the memory, which was allocated for so many loops and lives as long as
        // `self`; aligned to 8. Guest code only reads it.
        unsafe { &*((self.address() + slot as u64) as *const AtomicU64) }
    }

    fn word(&self, place: usize) -> &AtomicU32 {
        self.at(Heads::places(place, self.heads.len()).count)
    }

    fn at(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset < Heads::bytes(self.heads.len()));
        // SAFETY: as above, aligned to 4; guest code writes it with plain stores of its size.
        unsafe { &*((self.address() + offset as u64) as *const AtomicU32) }
    }

    /// How often its loops were left.
    pub(crate) fn left(&self) -> u64 {
        let loops = self.heads.len();
        let left = |place| self.at(Heads::places(place, loops).left);
        let all = (0..loops).map(|place| u64::from(left(place).load(Ordering::Relaxed)));
        all.sum()
    }

    /// How often the head of a loop was passed, modulo 2^31.
    pub(crate) fn count(&self, place: usize) -> u32 {
        self.word(place).load(Ordering::Relaxed) & !ASKED
    }

    /// How often all heads were passed.
    pub(crate) fn passes(&self) -> u64 {
        (0..self.heads.len())
            .map(|it| u64::from(self.count(it)))
            .sum()
    }

    /// The continuation of a loop, if one was made.
    pub(crate) fn continuation(&self, place: usize) -> Option<FunctionId> {
        self.state().continuations.get(place).copied().flatten()
    }

    /// Notes the continuation of a loop; false if there is one, or none is wanted any more.
    pub(crate) fn note(&self, place: usize, continuation: FunctionId) -> bool {
        let mut state = self.state();
        let closed = state.closed;
        match state.continuations.get_mut(place) {
            Some(free @ None) if !closed => {
                *free = Some(continuation);
                true
            }
            _ => false,
        }
    }

    /// Notes that the continuation of a loop cannot be made.
    pub(crate) fn fail(&self, place: usize) {
        self.state().failed.push(place);
    }

    pub(crate) fn has_failed(&self, place: usize) -> bool {
        self.state().failed.contains(&place)
    }

    /// Offers a continuation at the head of a loop; false if nothing is offered any more.
    pub(crate) fn offer(&self, place: usize, stub: StubAddress) -> bool {
        let state = self.state();
        if state.closed {
            return false;
        }
        self.slot(place).store(stub.0, Ordering::Release);
        drop(state);
        self.insist(place);
        true
    }

    /// True if something is offered at the head of a loop.
    pub(crate) fn is_offered(&self, place: usize) -> bool {
        self.slot(place).load(Ordering::Relaxed) != 0
    }

    /// True if something is offered at any.
    pub(crate) fn offers(&self) -> bool {
        (0..self.heads.len()).any(|place| self.is_offered(place))
    }

    /// Asks until the sign stays, or a hundred times: see [`Loops::ask`].
    fn insist(&self, place: usize) {
        for _ in 0..TRIES {
            self.ask(place);
            let asked = Instant::now();
            while asked.elapsed() < STORED {
                std::hint::spin_loop();
            }
            if self.word(place).load(Ordering::Relaxed) & ASKED != 0 {
                return;
            }
        }
    }

    /// Has guest code look at the slot at its next pass, or not: a core in a short loop has a
    /// store of its own count under way nearly all the time, which ends up over the sign, and goes
    /// on with what it stored itself. So a sign is lost about every other time, and whoever wants
    /// to be sure asks again.
    pub(crate) fn ask(&self, place: usize) {
        self.word(place).fetch_or(ASKED, Ordering::Relaxed);
    }

    /// Has guest code look at the slot after so many passes.
    pub(crate) fn ask_after(&self, place: usize, passes: u32) {
        let begin = ASKED.wrapping_sub(passes.max(1));
        self.word(place).store(begin, Ordering::Relaxed);
    }

    /// Nothing is offered any more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        for place in 0..self.heads.len() {
            self.slot(place).store(0, Ordering::Release);
        }
    }

    /// Something may be offered again.
    pub(crate) fn open(&self) {
        self.state().closed = false;
    }

    /// Takes back what is offered, until something is offered again.
    pub(crate) fn take_back(&self) {
        let _state = self.state();
        for place in 0..self.heads.len() {
            self.slot(place).store(0, Ordering::Release);
        }
    }

    /// True if nothing is offered any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        let left = self.left();
        self.gone.fetch_add(left, Ordering::Relaxed);
        let _pass = gate::enter();
        let continuations = std::mem::take(&mut self.state().continuations);
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.versions.push(self.function);
        let continuations = continuations.into_iter().flatten();
        ended.continuations.extend(continuations);
    }
}
