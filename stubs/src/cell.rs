//! The cell: 16 bytes in the slot region, shared with machine code.
//!
//! | field | read | written | when | ordering |
//! |---|---|---|---|---|
//! | `target` | stubs (plain `jmp`), GOT-like calls, guests, `entry` | the thread that set *busy* | publish, bind (neither while gated), close, open | release; partner: the acquire loads in `guest` and `entry`, and for machine code x86's own order |
//! | `target` | the same | the thread that set *busy* | allocate, unpublish: the trampoline | relaxed: the trampoline reads the state word |
//! | `state` | all | all, by `Word::step` | always | compare-exchange, acquire and release |
//! | `next` | list owner | guest that requests | *queued* | relaxed; the list's head publishes it |
//! | `next` | the guest that binds; `entry` | `prepare`, `rest` | *busy*, kind Prepared | relaxed; the state word publishes it |
//! | `next` | allocation | recycle | Vacant | relaxed; the free list's head publishes it |

use crate::state::{Step, Word};
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin};

/// Bytes of a stub and of a cell.
pub(crate) const CELL_BYTES: u64 = 16;

/// One function's slot, state and link.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Cell {
    /// The slot: the address that the stub jumps to. Code, or the trampoline.
    pub(crate) target: AtomicU64,
    /// A [`Word`]; the futex word of waiting guests.
    state: AtomicU32,
    /// A link (`index + 1`, zero for none), or the offset of prepared code.
    pub(crate) next: AtomicU32,
}

// The stub image is `jmp [rip + slot - stub]`: the slot is the cell's first
// word, and cells are as far apart as stubs.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Cell>() as u64 == CELL_BYTES);
    assert!(align_of::<Cell>() == 16);
    assert!(std::mem::offset_of!(Cell, target) == 0);
    assert!(std::mem::offset_of!(Cell, state) == 8);
    assert!(std::mem::offset_of!(Cell, next) == 12);
};

impl Cell {
    #[cfg(loom)]
    pub(crate) fn new(target: u64) -> Cell {
        Cell {
            target: AtomicU64::new(target),
            state: AtomicU32::new(0),
            next: AtomicU32::new(0),
        }
    }

    /// The present state. Acquire; partner: the release of `try_step`, so that a target stored
    /// before `Bound` is seen.
    pub(crate) fn word(&self) -> Word {
        Word::from_bits(self.state.load(Ordering::Acquire))
    }

    /// The futex word.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.state
    }

    /// Takes a step if the state is still `from` and the step is legal.
    pub(crate) fn try_step(&self, from: Word, step: Step) -> Option<Word> {
        let to = from.step(step)?;
        // Partner: itself, and `word`.
        self.state
            .compare_exchange(from.bits(), to.bits(), Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .map(|_| to)
    }

    /// Takes a step, retrying while other threads change the word; returns the state before it.
    /// `None` if the step is not legal.
    pub(crate) fn step(&self, step: Step) -> Option<Word> {
        let mut from = self.word();
        loop {
            from.step(step)?;
            if self.try_step(from, step).is_some() {
                return Some(from);
            }
            from = self.word();
        }
    }

    /// Sets *busy*, waiting for another thread's change to end; returns the state before it. `None`
    /// for a vacant cell.
    ///
    /// Not for guest threads: a signal handler could wait for its own thread.
    pub(crate) fn acquire(&self) -> Option<Word> {
        let mut turn = 0;
        loop {
            let from = self.word();
            if from.busy() {
                spin(turn);
                turn += 1;
                continue;
            }
            from.step(Step::Acquire)?;
            if self.try_step(from, Step::Acquire).is_some() {
                return Some(from);
            }
        }
    }

    /// Overwrites the state, for the only thread of a process.
    pub(crate) fn reset(&self, word: Word) {
        // Relaxed: threads made later see all writes of this one.
        self.state.store(word.bits(), Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
pub(crate) use mapped::Cells;
#[cfg(loom)]
pub(crate) use model::Cells;

#[cfg(not(loom))]
mod mapped {
    use std::ptr;

    use super::{CELL_BYTES, Cell};
    use crate::function::ordinal_of;
    use crate::image::{CALL_RETURN, TRAMPOLINE};
    use uruk_base::FunctionId;

    /// The slot and stub regions, as plain addresses.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Cells {
        slots: u64,
        stubs: u64,
        count: u32,
    }

    impl Cells {
        /// # Safety
        /// 1. `slots` is the first of `count` cells of zeroed, readable and
        ///    writable memory, aligned to a page, that lives as long as the
        ///    value and all its copies and is accessed through them and by
        ///    machine code only.
        pub(crate) unsafe fn new(slots: u64, stubs: u64, count: u32) -> Cells {
            Cells {
                slots,
                stubs,
                count,
            }
        }

        pub(crate) fn get(&self, function: FunctionId) -> &Cell {
            assert!(function.index() < self.count, "{function} of another table");
            let cell = ptr::with_exposed_provenance::<Cell>(self.slot(function) as usize);
            // SAFETY: in bounds of the region that `new` vouches for, aligned,
            // and all zeros is a valid cell.
            unsafe { &*cell }
        }

        pub(crate) fn slot(&self, function: FunctionId) -> u64 {
            self.slots + CELL_BYTES * u64::from(function.index())
        }

        pub(crate) fn stub(&self, function: FunctionId) -> u64 {
            self.stubs + CELL_BYTES * u64::from(function.index())
        }

        /// The content of an unbound slot.
        pub(crate) fn trampoline(&self, function: FunctionId) -> u64 {
            self.stub(function) + TRAMPOLINE
        }

        /// The function whose stub called the page's common jump.
        pub(crate) fn by_return_address(&self, address: u64) -> FunctionId {
            let offset = address.wrapping_sub(self.stubs + CALL_RETURN);
            FunctionId((offset / CELL_BYTES) as u32)
        }

        /// The function whose stub is at an address.
        pub(crate) fn by_stub(&self, address: u64) -> Option<FunctionId> {
            let offset = address.checked_sub(self.stubs)?;
            let index = u32::try_from(offset / CELL_BYTES).ok()?;
            let function = FunctionId(index);
            let exact = offset % CELL_BYTES == 0 && index < self.count;
            (exact && ordinal_of(function).is_some()).then_some(function)
        }
    }
}

#[cfg(loom)]
mod model {
    use super::Cell;
    use uruk_base::FunctionId;

    /// A few cells on the heap; stubs and trampolines are just numbers.
    #[derive(Debug)]
    pub(crate) struct Cells(Box<[Cell]>);

    impl Cells {
        pub(crate) fn new(count: u32) -> Cells {
            Cells((0..count).map(|i| Cell::new(u64::from(i))).collect())
        }

        pub(crate) fn get(&self, function: FunctionId) -> &Cell {
            &self.0[function.index() as usize]
        }

        pub(crate) fn count(&self) -> u32 {
            self.0.len() as u32
        }

        pub(crate) fn trampoline(&self, function: FunctionId) -> u64 {
            u64::from(function.index())
        }
    }
}
