//! Ownership of one allocation: [`Draft`], then [`Sealed`].
//!
//! A draft is the only way to write code, and only its owner can reach it, so writes need no lock.
//! Sealing ends writing: the bytes of a sealed allocation in [`Pool::Code`] and [`Pool::ReadOnly`]
//! never change while the value exists.

use std::fmt;
use std::ops::Range;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::config::Backing;
use crate::error::HeapError;
use crate::heap::{Granted, Inner, Pool, State};
use crate::memory::Protection;
use crate::reclaim::Retired;

/// One allocation: `held` bytes from `start`, of which `size` were requested.
struct Block {
    inner: Arc<Inner>,
    pool: Pool,
    start: usize,
    size: usize,
    held: usize,
    /// The epoch of the allocation (`kin`).
    born: u32,
}

/// Memory that is being written and has no other user yet. Dropping it gives the memory back: code
/// by whole pages, the last block at once.
pub struct Draft {
    /// `None` once sealed.
    block: Option<Block>,
    /// The heap's generation at allocation.
    generation: u64,
}

/// Memory whose address may be published.
///
/// Dropping it leaves the memory allocated, on purpose: reachable code must outlive the values that
/// describe it. End its use with [`Sealed::retire`] or [`Sealed::release`].
#[must_use = "dropping it leaks the memory until the heap goes"]
pub struct Sealed {
    block: Block,
}

impl Block {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.held
    }

    fn check(&self, offset: usize, len: usize) -> Result<usize, HeapError> {
        let size = self.size;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(self.start + offset),
            _ => Err(HeapError::Bounds { offset, len, size }),
        }
    }

    fn flips(&self) -> bool {
        self.inner.memory.backing == Backing::Flip && self.pool != Pool::ReadWrite
    }

    fn protect(&self, step: &'static str, to: Protection) -> Result<(), HeapError> {
        let range = self.range();
        // SAFETY: called only when `flips`, with whole pages that this block owns alone; drafts are
        // unpublished, so no thread executes or reads them.
        unsafe { self.inner.memory.protect(range, to) }.map_err(|errno| HeapError::Map {
            step,
            address: self.start as u64,
            len: self.held,
            errno,
        })
    }

    /// Whether this process may write the pages: they are its own.
    fn writable_here(&self, generation: u64) -> bool {
        self.pool == Pool::ReadWrite
            || self.inner.memory.backing == Backing::Flip
            || generation == self.inner.generation.load(Ordering::Relaxed)
    }

    /// Takes back memory that was never published.
    fn give_back(&self) {
        let whole = {
            let mut state = self.inner.lock();
            if self.pool != Pool::Code {
                return state.data(self.pool).give_back(self.start, self.held);
            }
            let space = self.space();
            state.code[space].give_back(self.start, self.held);
            state.take_whole()
        };
        // SAFETY: pages of the limbo: this block's, which is unpublished, and others' that were
        // freed before.
        unsafe { self.inner.recycle(whole) };
    }

    /// Number of the code space, or 0.
    fn space(&self) -> usize {
        usize::from(self.inner.memory.layout.code[1].contains(&self.start))
    }

    /// Counts the memory as retired.
    fn retire(&self, state: &mut State) -> Retired {
        let space = self.space();
        match self.pool {
            Pool::Code => state.code[space].retire(self.held),
            Pool::ReadOnly | Pool::ReadWrite => state.data(self.pool).retire(self.held),
        }
        Retired {
            pool: self.pool,
            space,
            start: self.start,
            size: self.size,
            held: self.held,
            born: self.born,
        }
    }
}

impl Draft {
    pub(crate) fn new(
        inner: Arc<Inner>,
        pool: Pool,
        grant: Granted,
        size: usize,
        held: usize,
    ) -> Result<Draft, HeapError> {
        let generation = inner.generation.load(Ordering::Relaxed);
        let start = grant.start;
        let block = Block {
            inner,
            pool,
            start,
            size,
            held,
            born: grant.born,
        };
        if block.flips()
            && let Err(error) = block.protect("make writable", Protection::Writable)
        {
            block.give_back();
            return Err(error);
        }
        if grant.dirty > 0 {
            // SAFETY: the bytes were just granted to this block alone and are
            // writable: flipped above, or of this generation, because frozen
            // memory is never granted.
            unsafe { block.inner.memory.clear(start..start + grant.dirty) };
        }
        Ok(Draft {
            block: Some(block),
            generation,
        })
    }

    fn block(&self) -> &Block {
        self.block
            .as_ref()
            .expect("a draft has its block until it is sealed")
    }

    /// The address at which the memory will be executed or read.
    pub fn address(&self) -> u64 {
        self.block().start as u64
    }

    /// Number of requested bytes.
    pub fn len(&self) -> usize {
        self.block().size
    }

    /// Whether no bytes were requested.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pool it came from.
    pub fn pool(&self) -> Pool {
        self.block().pool
    }

    /// Copies `bytes` to `offset`. Pages that are never written stay untouched
    /// and zero.
    ///
    /// # Errors
    /// [`HeapError::Bounds`]; [`HeapError::CrossedFork`] in the child of a
    /// `fork` that happened since [`allocate`](crate::Heap::allocate).
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), HeapError> {
        let block = self.block();
        let start = block.check(offset, bytes.len())?;
        if !block.writable_here(self.generation) {
            return Err(HeapError::CrossedFork);
        }
        // SAFETY: `check` gave a range inside this unsealed block, which is writable here; `&mut
        // self` excludes other writers, and no other code knows the memory.
        unsafe { block.inner.memory.write(start, bytes) };
        Ok(())
    }

    /// Ends writing. After it the address may be published by any store from which other threads
    /// read it. x86-64 keeps instruction fetch coherent with writes through another mapping, and
    /// the addresses were not executed since they last changed.
    ///
    /// # Errors
    /// [`HeapError::CrossedFork`] as for [`Draft::write`]; [`HeapError::Map`]
    /// with [`Backing::Flip`]. The memory is given back.
    pub fn seal(mut self) -> Result<Sealed, HeapError> {
        let block = self.block();
        if !block.writable_here(self.generation) {
            return Err(HeapError::CrossedFork);
        }
        if block.flips() {
            let to = match block.pool {
                Pool::Code => Protection::Executable,
                Pool::ReadOnly | Pool::ReadWrite => Protection::Constant,
            };
            block.protect("seal", to)?;
        }
        let block = self.block.take().expect("checked above");
        Ok(Sealed { block })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        if block.flips() {
            // On failure unused pages stay writable, which does no harm.
            let _ = block.protect("close", Protection::Closed);
        }
        if block.pool == Pool::ReadWrite {
            // SAFETY: private memory of this block, which ends here.
            unsafe { block.inner.memory.discard(block.range()) };
        }
        block.give_back();
    }
}

impl Sealed {
    /// The address at which the memory is executed or read.
    pub fn address(&self) -> u64 {
        self.block.start as u64
    }

    /// Number of requested bytes.
    pub fn len(&self) -> usize {
        self.block.size
    }

    /// Whether no bytes were requested.
    pub fn is_empty(&self) -> bool {
        self.block.size == 0
    }

    /// Bytes that it takes: the requested size, rounded up. The heap's counts are sums of these.
    pub fn held(&self) -> usize {
        self.block.held
    }

    /// The pool it came from.
    pub fn pool(&self) -> Pool {
        self.block.pool
    }

    /// The bytes, for code and constants; `None` for writable data, which the
    /// program may be changing.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.block.pool == Pool::ReadWrite {
            return None;
        }
        let start = ptr::with_exposed_provenance::<u8>(self.block.start);
        // SAFETY: the range is mapped readable while the block holds the heap,
        // and sealed code and constants are not written while `self` exists.
        Some(unsafe { slice::from_raw_parts(start, self.block.size) })
    }

    /// Stores one aligned 8-byte word into writable data, with release ordering (its partner is the
    /// program's load of the word).
    ///
    /// # Errors
    /// [`HeapError::NotWritable`] for other pools, [`HeapError::Bounds`],
    /// [`HeapError::Misaligned`].
    pub fn store_word(&self, offset: usize, value: u64) -> Result<(), HeapError> {
        let pool = self.block.pool;
        if pool != Pool::ReadWrite {
            return Err(HeapError::NotWritable { pool });
        }
        let start = self.block.check(offset, 8)?;
        if !start.is_multiple_of(8) {
            let address = start as u64;
            return Err(HeapError::Misaligned { address });
        }
        let word = ptr::with_exposed_provenance_mut::<u64>(start);
        // SAFETY: eight aligned bytes of private writable memory that this block
        // owns; Rust code accesses sealed data by atomics only.
        unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
        Ok(())
    }

    /// The whole words of 4 bytes of writable data, which code may be counting in; none of other
    /// pools, or of an address that is not aligned.
    pub fn words32(&self) -> &[AtomicU32] {
        // SAFETY: `AtomicU32` has the size and the alignment of 4 bytes, any of which it may hold.
        unsafe { self.words(4) }
    }

    /// Like [`Sealed::words32`], of 8 bytes.
    pub fn words64(&self) -> &[AtomicU64] {
        // SAFETY: as above, of 8 bytes.
        unsafe { self.words(8) }
    }

    /// # Safety
    /// `T` is an atomic of `size` bytes.
    unsafe fn words<T>(&self, size: usize) -> &[T] {
        let start = self.block.start;
        if self.block.pool != Pool::ReadWrite || !start.is_multiple_of(size) {
            return &[];
        }
        let first = ptr::with_exposed_provenance::<T>(start);
        // SAFETY: private writable memory that this block owns and keeps mapped; Rust code accesses
        // sealed data by atomics only, and machine code by plain stores of the words' size.
        unsafe { slice::from_raw_parts(first, self.block.size / size) }
    }

    /// Counts the memory as retired. Its contents stay until [`Heap::free`](crate::Heap::free)
    /// takes it back, because its address may still be on some stack.
    pub fn retire(self) -> Retired {
        self.block.retire(&mut self.block.inner.lock())
    }

    /// Counts the memory as retired, under the lock of its heap.
    ///
    /// # Panics
    /// If the memory is of another heap.
    pub(crate) fn retire_in(self, heap: &Arc<Inner>, state: &mut State) -> Retired {
        assert!(
            Arc::ptr_eq(heap, &self.block.inner),
            "memory of another heap"
        );
        self.block.retire(state)
    }

    /// For code, the number of its space, 0 or 1; otherwise 0.
    pub fn space(&self) -> usize {
        self.block.space()
    }

    /// Gives data or constants back for reuse. Code is only retired.
    ///
    /// # Safety
    /// 1. Nothing accesses the memory any more: no code that runs or can still
    ///    be reached refers to it.
    pub unsafe fn release(self) {
        match self.block.pool {
            Pool::Code => {
                let _ = self.retire();
            }
            Pool::ReadOnly | Pool::ReadWrite => {
                let inner = Arc::clone(&self.block.inner);
                let retired = self.retire();
                // SAFETY: data that no thread of this process accesses (duty 1).
                unsafe { inner.free(vec![retired]) };
            }
        }
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = self.block();
        write!(f, "Draft({} {:#x}+{})", block.pool, block.start, block.size)
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Block {
            pool, start, size, ..
        } = &self.block;
        write!(f, "Sealed({pool} {start:#x}+{size})")
    }
}
