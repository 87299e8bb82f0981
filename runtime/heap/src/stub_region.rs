//! Slots and stubs: two regions at one fixed distance.
//!
//! Slot `i` is at `slots_base + 16 * i`, stub `i` at `stubs_base + 16 * i`.
//! Slots are private writable memory, zero until written, and the stubs' owner
//! accesses them directly. Stubs come in pages of a constant image, committed
//! in order and never changed afterwards; a page that has no image yet must not
//! be executed.

use std::fmt;
use std::sync::Arc;

use crate::config::Backing;
use crate::error::HeapError;
use crate::heap::Inner;
use crate::layout::{CELL, PAGE};
use crate::memory::Protection;

/// The image of one page of stubs.
pub type StubPage = [u8; PAGE];

/// Handle to the slots and stubs of a heap, which it keeps alive.
#[derive(Clone)]
pub struct StubRegion {
    inner: Arc<Inner>,
}

impl StubRegion {
    pub(crate) fn new(inner: Arc<Inner>) -> StubRegion {
        StubRegion { inner }
    }

    /// Address of slot 0.
    pub fn slots_base(&self) -> u64 {
        self.inner.memory.layout.slots.start as u64
    }

    /// Address of stub 0 (page aligned).
    pub fn stubs_base(&self) -> u64 {
        self.inner.memory.layout.stubs.start as u64
    }

    /// `slot - stub` in bytes, the same for every cell; negative.
    pub fn distance(&self) -> i32 {
        let slots = self.inner.memory.layout.slots.len();
        -i32::try_from(slots).expect("a region is smaller than the reservation")
    }

    /// Cells of 16 bytes that each of the two regions has.
    pub fn capacity(&self) -> usize {
        self.inner.memory.layout.slots.len() / CELL
    }

    /// Pages of 256 cells that each of the two regions has.
    pub fn pages(&self) -> usize {
        self.inner.memory.layout.slots.len() / PAGE
    }

    /// Pages that have their image: `0..committed`.
    pub fn committed(&self) -> usize {
        self.inner.lock().stub_pages
    }

    /// Writes the image to pages `first..first + count` and makes them executable. Pages that have
    /// their image are left as they are, so racing callers may commit the same pages; gaps are
    /// refused.
    ///
    /// # Errors
    /// [`HeapError::StubGap`], [`HeapError::StubCapacity`],
    /// [`HeapError::Detached`]; with [`Backing::Flip`] also [`HeapError::Map`].
    pub fn commit_stub_pages(
        &self,
        first: usize,
        image: &StubPage,
        count: usize,
    ) -> Result<(), HeapError> {
        let memory = &self.inner.memory;
        let capacity = self.pages();
        let end = first.saturating_add(count);
        if end > capacity {
            return Err(HeapError::StubCapacity {
                first,
                end,
                capacity,
            });
        }
        let mut state = self.inner.lock();
        let expected = state.stub_pages;
        if first > expected {
            return Err(HeapError::StubGap { first, expected });
        }
        if end <= expected {
            return Ok(());
        }
        if let Some(errno) = state.detached {
            return Err(HeapError::Detached { errno });
        }
        let base = memory.layout.stubs.start;
        let range = base + expected * PAGE..base + end * PAGE;
        let flip = |to, step| {
            if memory.backing != Backing::Flip {
                return Ok(());
            }
            // SAFETY: pages without an image, which no thread executes, under the heap's lock.
            unsafe { memory.protect(range.clone(), to) }.map_err(|errno| HeapError::Map {
                step,
                address: range.start as u64,
                len: range.len(),
                errno,
            })
        };
        flip(Protection::Writable, "make writable")?;
        for page in range.clone().step_by(PAGE) {
            // SAFETY: a page of `range`, not executed yet, written under the
            // lock; of this generation, because inherited pages are below
            // `stub_pages`.
            unsafe { memory.write(page, image) };
        }
        flip(Protection::Executable, "make executable")?;
        state.stub_pages = end;
        Ok(())
    }
}

impl fmt::Debug for StubRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = &self.inner.memory.layout;
        f.debug_struct("StubRegion")
            .field("slots", &layout.slots)
            .field("stubs", &layout.stubs)
            .finish()
    }
}
