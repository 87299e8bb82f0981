//! Turns retired code back into free pages.
//!
//! Retired code moves by value: [`Sealed::retire`](crate::Sealed::retire) returns a [`Retired`].
//! The component that has proved that such blocks are dead passes a batch of them to
//! [`Heap::free`]. In this order, for a batch:
//!
//! 0. Blocks that a child of this process may still execute or read are left as they are, until no
//!    such process is left (`kin`). Blocks that waited so, and need not any more, join the batch.
//! 1. Adjacent blocks are joined. The bytes become `int3` through the alias; inherited
//!    pages stay as they are.
//! 2. One `membarrier(PRIVATE_EXPEDITED_SYNC_CORE)`: afterwards no core holds an
//!    instruction of the batch. Without it nothing is ever reused.
//! 3. Under the lock the blocks are counted as dead; pages without living code are removed from
//!    the books (limbo).
//! 4. Without the lock those pages are given to the kernel. They then read as zero.
//! 5. Under the lock they become free runs.
//!
//! A child that is made between the steps is harmless: the batch is dead in it as well. If it
//! continues with the batch itself, step 5 finds the pages frozen there.

use std::collections::VecDeque;
use std::ops::Range;

use crate::config::{Backing, Freed};
use crate::draft::Sealed;
use crate::heap::{Heap, Inner, Pool, State};
use crate::layout::PAGE;
use crate::memory::Protection;

/// Memory that is no longer used but may still be executed or read. Dropping it leaves it in that
/// state for ever.
#[must_use = "dropping it keeps the memory until the heap goes; `Heap::free` gives it back"]
#[derive(Debug, PartialEq, Eq)]
pub struct Retired {
    pub(crate) pool: Pool,
    pub(crate) space: usize,
    pub(crate) start: usize,
    pub(crate) size: usize,
    pub(crate) held: usize,
    /// The epoch of the allocation (`kin`).
    pub(crate) born: u32,
}

impl Retired {
    /// The address at which the memory was executed or read.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// Number of requested bytes.
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether no bytes were requested.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// For code, the number of its space, 0 or 1; otherwise 0.
    pub fn space(&self) -> usize {
        self.space
    }

    /// The pool it came from.
    pub fn pool(&self) -> Pool {
        self.pool
    }
}

/// The result of [`Heap::free`] for a batch, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reclaimed {
    /// Bytes taken back, with those lost to rounding; also of earlier batches, see [`Heap::free`].
    pub freed: usize,
    /// Whole pages that went back to the kernel and are free now.
    pub given_back: usize,
}

/// Pages that [`Freed::Protect`] keeps closed, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    runs: VecDeque<Range<usize>>,
    bytes: usize,
}

impl Quarantine {
    pub(crate) fn forget(&mut self) {
        *self = Quarantine::default();
    }

    /// Adds runs; returns the oldest ones beyond the limit.
    fn pass(&mut self, new: Vec<Range<usize>>, limit: usize) -> Vec<Range<usize>> {
        self.bytes += new.iter().map(Range::len).sum::<usize>();
        self.runs.extend(new);
        let mut out = Vec::new();
        while self.bytes > limit
            && let Some(run) = self.runs.pop_front()
        {
            self.bytes -= run.len();
            out.push(run);
        }
        out
    }
}

/// Contiguous retired code, all of it inherited through a `fork` or none.
struct Run {
    space: usize,
    range: Range<usize>,
    frozen: bool,
}

impl Heap {
    /// [`Sealed::retire`] for several allocations of this heap.
    ///
    /// # Panics
    /// If one is of another heap.
    pub fn retire(&self, batch: Vec<Sealed>) -> Vec<Retired> {
        let mut state = self.inner.lock();
        let retire = |memory: Sealed| memory.retire_in(&self.inner, &mut state);
        batch.into_iter().map(retire).collect()
    }

    /// Gives retired memory back. Besides the filling, it costs one `membarrier` and one system
    /// call per run of pages that became free. Two more system calls check for a living child of
    /// this process, or a child of one, that was made while the memory was in use. If there is one,
    /// the memory is given back with a later batch, or when memory is short.
    ///
    /// # Safety
    /// 1. No thread of this process executes or reads the memory or can return into it: no register,
    ///    stack or saved context of any thread holds an address in it that it will use.
    /// 2. Nothing refers to it: no slot, unwind row, table or data.
    /// 3. Samples taken while it was in use have been drained, or are not interpreted
    ///    by address any more.
    /// 4. Each value came from a [`Sealed`](crate::Sealed) of this heap.
    pub unsafe fn free(&self, batch: impl IntoIterator<Item = Retired>) -> Reclaimed {
        // SAFETY: passed on.
        unsafe { self.inner.free(batch.into_iter().collect()) }
    }
}

impl Inner {
    /// # Safety
    /// As for [`Heap::free`].
    pub(crate) unsafe fn free(&self, batch: Vec<Retired>) -> Reclaimed {
        let (private, shared): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|block| block.pool == Pool::ReadWrite);
        let mut done = Reclaimed::default();
        for block in private {
            done.freed += block.held;
            // SAFETY: duties 1, 2 and 4.
            unsafe { self.release_data(&block) };
        }
        let free = self.lock().kin.free(shared);
        // SAFETY: passed on, for these blocks; the duty for those that waited was the earlier
        // caller's.
        let shared = unsafe { self.free_shared(free) };
        done.freed += shared.freed;
        done.given_back = shared.given_back;
        done
    }

    /// Frees blocks that had to wait for other processes and need not any more. Returns whether
    /// there were any.
    pub(crate) fn free_waiting(&self) -> bool {
        let free = self.lock().kin.free(Vec::new());
        // SAFETY: the duty of the caller that passed them to `free`.
        !free.is_empty() && unsafe { self.free_shared(free) } != Reclaimed::default()
    }

    /// # Safety
    /// As for [`Heap::free`], and no other process executes or reads the blocks.
    unsafe fn free_shared(&self, batch: Vec<Retired>) -> Reclaimed {
        let mut done = Reclaimed::default();
        let (code, data): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|block| block.pool == Pool::Code);
        for block in data {
            done.freed += block.held;
            // SAFETY: passed on.
            unsafe { self.release_data(&block) };
        }
        if code.is_empty() {
            return done;
        }
        done.freed += code.iter().map(|block| block.held).sum::<usize>();
        let runs = self.runs(code);
        // SAFETY: passed on.
        unsafe { self.fill_traps(&runs) };
        let reuse = self.freed != Freed::Poison && self.memory.sync_core();
        let whole = {
            let mut state = self.lock();
            for run in &runs {
                let space = &mut state.code[run.space];
                match reuse {
                    true => space.free(run.range.start, run.range.len()),
                    false => space.poison(run.range.start, run.range.len()),
                }
            }
            state.take_whole()
        };
        // SAFETY: pages of the limbo, of which each byte is dead.
        done.given_back = unsafe { self.recycle(whole) };
        done
    }

    /// # Safety
    /// The block is retired data that nothing accesses or refers to.
    unsafe fn release_data(&self, block: &Retired) {
        if block.pool == Pool::ReadWrite {
            // SAFETY: private memory of the block; passed on.
            unsafe { self.memory.discard(block.start..block.start + block.held) };
        }
        let mut state = self.lock();
        let pool = state.data(block.pool);
        pool.unretire(block.held);
        pool.give_back(block.start, block.held);
    }

    /// The retired code by address, adjacent blocks joined.
    fn runs(&self, mut code: Vec<Retired>) -> Vec<Run> {
        code.sort_unstable_by_key(|block| block.start);
        let state = self.lock();
        let mut runs: Vec<Run> = Vec::new();
        for block in code {
            let space = &state.code[block.space];
            assert!(space.contains(block.start), "memory of another heap");
            let frozen = space.is_frozen(block.start);
            let end = block.start + block.held;
            match runs.last_mut() {
                Some(run)
                    if run.range.end == block.start
                        && run.frozen == frozen
                        && run.space == block.space =>
                {
                    run.range.end = end;
                }
                _ => runs.push(Run {
                    space: block.space,
                    range: block.start..end,
                    frozen,
                }),
            }
        }
        runs
    }

    /// # Safety
    /// Nothing executes or reads the runs, which are retired code of this heap.
    unsafe fn fill_traps(&self, runs: &[Run]) {
        for run in runs {
            let (range, frozen) = (run.range.clone(), run.frozen);
            match self.memory.backing {
                Backing::Flip => {
                    // The kernel refuses only when mappings run out: then the old code stays, dead.
                    // SAFETY: whole pages of blocks, which no thread executes.
                    let _ = unsafe { self.memory.protect(range, Protection::Closed) };
                }
                Backing::Dual if frozen => {}
                // SAFETY: the caller's; the pages are of this generation.
                Backing::Dual => unsafe { self.memory.trap(range) },
            }
        }
    }

    /// Empties pages of the limbo and makes them free, or puts them into quarantine. Returns how
    /// many bytes became free.
    ///
    /// # Safety
    /// The pages are of the limbo, and nothing accesses them.
    pub(crate) unsafe fn recycle(&self, whole: Vec<Range<usize>>) -> usize {
        let mut runs = whole;
        if let Freed::Protect { quarantine } = self.freed {
            for run in &runs {
                // The kernel refuses only when mappings run out: then the traps stay.
                // SAFETY: pages without live code.
                let _ = unsafe { self.memory.protect(run.clone(), Protection::Closed) };
            }
            runs = self.lock().quarantine.pass(runs, quarantine);
            runs.retain(|run| {
                let dual = self.memory.backing == Backing::Dual;
                // SAFETY: pages without live code.
                !dual || unsafe { self.memory.protect(run.clone(), Protection::Executable) }.is_ok()
            });
        }
        let mut bytes = 0;
        for run in &runs {
            debug_assert!(run.start.is_multiple_of(PAGE) && run.end.is_multiple_of(PAGE));
            // SAFETY: passed on.
            unsafe { self.memory.empty(run.clone()) };
            bytes += run.len();
        }
        if !runs.is_empty() {
            let mut state = self.lock();
            state.given_back += bytes;
            for run in runs {
                let space = usize::from(state.code[1].contains(run.start));
                state.code[space].reuse(run);
            }
        }
        bytes
    }
}

impl State {
    /// Takes the pages of both spaces that became wholly dead.
    pub(crate) fn take_whole(&mut self) -> Vec<Range<usize>> {
        let mut whole = self.code[0].take_whole();
        whole.extend(self.code[1].take_whole());
        whole
    }
}
