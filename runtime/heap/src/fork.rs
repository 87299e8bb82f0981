//! The two sides of a `fork`.
//!
//! The memfd pages are shared with the child, so without care a child would
//! write its new code over its parent's. The facade calls, from
//! `pthread_atfork` handlers of the forking thread: [`Heap::before_fork`], then
//! on the two sides [`Heap::after_fork_parent`] and [`Heap::after_fork_child`].
//!
//! - **Before**: the heap's lock is taken, so the bookkeeping is whole.
//! - **Child**: what was handed out so far is frozen: executable and readable
//!   for ever, never written, never reused. The alias of all of it is closed.
//!   The page ranges above it get pages of a new memfd in the view and in the
//!   alias, at the same addresses. A page that was used in part is abandoned.
//! - **Parent**: it goes on where it was, also in the page that it was filling: what it
//!   writes there the child sees and never uses. But whatever lived at the fork the child
//!   may be executing or reading, as long as it lives: giving that back has to wait (`kin`).
//!
//! Private memory (slots, data; with [`Backing::Flip`] everything) is copied on
//! write by the kernel and needs no care.
//!
//! A draft that is open at the fork belongs to the parent. If its owner is
//! another thread it does not exist in the child; the forking thread itself
//! should have none, and gets [`HeapError::CrossedFork`] from it in the child.
//!
//! A child that was made without these calls (`syscall(SYS_fork)`) executes what it inherited
//! like any other: its parent finds it by itself (`kin`). It has to catch up on the calls,
//! both, before it uses the heap, with [`Heap::try_before_fork`]: until then whatever it
//! would write goes into its parent's pages.

use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use uruk_base::locks::thread_mark;

use crate::config::Backing;
use crate::error::HeapError;
use crate::heap::{ForkGuard, Heap, Inner, Pool, State};
use crate::layout::PAGE;

impl Heap {
    /// Takes the heap's lock for the calling thread. A second call without an
    /// `after_fork_*` between does nothing. The heap must not be used by this
    /// thread until then.
    pub fn before_fork(&self) {
        let inner = &*self.inner;
        if inner.fork_owner.load(Ordering::Relaxed) != thread_mark() {
            self.keep(inner.lock());
        }
    }

    /// As [`Heap::before_fork`], if nobody has the lock: in a child that was made without,
    /// where who has it does not exist. Whether it was to be had.
    pub fn try_before_fork(&self) -> bool {
        let inner = &*self.inner;
        if inner.fork_owner.load(Ordering::Relaxed) == thread_mark() {
            return true;
        }
        let guard = inner.try_lock();
        guard.map(|guard| self.keep(guard)).is_some()
    }

    /// Stores the lock until `after_fork_*`.
    fn keep(&self, guard: MutexGuard<'_, State>) {
        let inner = &*self.inner;
        let guard = ManuallyDrop::new(guard);
        // SAFETY: only the lifetime changes. The guard refers to `inner`, in
        // which it is stored; it is either taken out again while a caller's
        // handle keeps `inner` alive, or never touched (ManuallyDrop).
        let guard =
            unsafe { mem::transmute::<ManuallyDrop<MutexGuard<'_, State>>, ForkGuard>(guard) };
        // SAFETY: we hold the lock, so no other thread is between `before_fork`
        // and `after_fork_*`, and only such a thread accesses the cell.
        unsafe { *inner.fork_guard.get() = Some(guard) };
        inner.fork_owner.store(thread_mark(), Ordering::Relaxed);
    }

    /// In the parent: notes that there is a child and releases the lock.
    /// Does nothing if this thread did not call [`Heap::before_fork`].
    pub fn after_fork_parent(&self) {
        if let Some(mut state) = self.inner.take_fork_guard() {
            state.kin.note_fork();
        }
    }

    /// In the child: freezes what was inherited, gets memory of its own for
    /// what comes, and releases the lock. Does nothing if this thread did not
    /// call [`Heap::before_fork`].
    ///
    /// # Errors
    /// [`HeapError::Detached`] when the kernel refuses; inherited code runs on,
    /// data can be allocated, code and constants cannot.
    pub fn after_fork_child(&self) -> Result<(), HeapError> {
        let Some(mut guard) = self.inner.take_fork_guard() else {
            return Ok(());
        };
        let memory = &self.inner.memory;
        memory.register_sync_core();
        if memory.backing == Backing::Flip {
            return Ok(());
        }
        let generation = self.inner.generation.load(Ordering::Relaxed) + 1;
        self.inner.generation.store(generation, Ordering::Relaxed);
        let state = &mut *guard;
        state.quarantine.forget();
        let unused = state.freeze_in_child(&memory.layout.stubs);
        state.free_frozen();
        match memory.detach(&unused, generation, &mut state.spans) {
            Ok(()) => {
                state.detached = None;
                Ok(())
            }
            Err(errno) => {
                state.detached = Some(errno);
                Err(HeapError::Detached { errno })
            }
        }
    }
}

impl Inner {
    fn take_fork_guard(&self) -> Option<MutexGuard<'_, State>> {
        if self.fork_owner.load(Ordering::Relaxed) != thread_mark() {
            return None;
        }
        self.fork_owner.store(0, Ordering::Relaxed);
        // SAFETY: this thread stored its mark, so it holds the lock and is the
        // only one that accesses the cell.
        let guard = unsafe { (*self.fork_guard.get()).take() };
        guard.map(ManuallyDrop::into_inner)
    }
}

impl State {
    /// Freezes the shared pools; gives their unused ranges in address order.
    fn freeze_in_child(&mut self, stubs: &Range<usize>) -> [Range<usize>; 4] {
        let [a, b] = &mut self.code;
        [
            stubs.start + self.stub_pages * PAGE..stubs.end,
            a.freeze_in_child(),
            b.freeze_in_child(),
            self.read_only.freeze_in_child(),
        ]
    }

    /// Counts what waited for other children of the parent as dead. All of it is frozen.
    fn free_frozen(&mut self) {
        for block in self.kin.after_fork_child() {
            match block.pool {
                Pool::Code => self.code[block.space].free(block.start, block.held),
                Pool::ReadOnly | Pool::ReadWrite => {
                    let pool = self.data(block.pool);
                    pool.unretire(block.held);
                    pool.give_back(block.start, block.held);
                }
            }
        }
    }
}
