//! The two sides of a `fork`.
//!
//! The memfd pages are shared with the child, so without care a child would
//! write its new code over its parent's. The facade calls, from
//! `pthread_atfork` handlers of the forking thread: [`Heap::before_fork`], then
//! on the two sides [`Heap::after_fork_parent`] and [`Heap::after_fork_child`].
//!
//! - **Before**: the heap's lock is taken, so the bookkeeping is consistent.
//! - **Child**: memory handed out so far is frozen: executable and readable for ever, never
//!   written, never reused. The alias of all of it is closed. The page ranges above it get pages of
//!   a new memfd in the view and in the alias, at the same addresses. A page that was used in part
//!   is abandoned.
//! - **Parent**: it continues, also in the page that it was filling: the child sees these
//!   writes and never uses them. But the child may execute or read all blocks that were live
//!   at the fork, as long as it lives: giving them back has to wait (`kin`).
//!
//! Private memory (slots, data; with [`Backing::Flip`] everything) is copied on write by the kernel
//! and needs no special care.
//!
//! A draft that is open at the fork belongs to the parent. If its owner is another thread, the
//! draft does not exist in the child. The forking thread itself should have none; it gets
//! [`HeapError::CrossedFork`] from it in the child.
//!
//! A child that was made without these calls (`syscall(SYS_fork)`) executes inherited code like any
//! other; its parent detects it (`kin`). Before it uses the heap, it must make both calls, with
//! [`Heap::try_before_fork`]: until then its writes would go into its parent's pages.

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
    /// Takes the heap's lock for the calling thread. A second call without an `after_fork_*`
    /// between does nothing. Until `after_fork_*` this thread must not use the heap.
    pub fn before_fork(&self) {
        let inner = &*self.inner;
        if inner.fork_owner.load(Ordering::Relaxed) != thread_mark() {
            self.keep(inner.lock_for_fork());
        }
    }

    /// Like [`Heap::before_fork`], if the lock is free. It is for a child that was made without
    /// that call, in which another holder does not exist. Returns whether the calling thread has
    /// the lock.
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

    /// In the child: freezes inherited memory, maps new memory for later allocations, and releases
    /// the lock. Does nothing if this thread did not call [`Heap::before_fork`].
    ///
    /// # Errors
    /// [`HeapError::Detached`] when the kernel refuses; inherited code still runs, data can be
    /// allocated, code and constants cannot.
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
    /// Freezes the shared pools; returns their unused ranges in address order.
    fn freeze_in_child(&mut self, stubs: &Range<usize>) -> [Range<usize>; 4] {
        let [a, b] = &mut self.code;
        [
            stubs.start + self.stub_pages * PAGE..stubs.end,
            a.freeze_in_child(),
            b.freeze_in_child(),
            self.read_only.freeze_in_child(),
        ]
    }

    /// Counts blocks that waited for other children of the parent as dead. All of them are frozen.
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
