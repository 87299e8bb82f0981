//! The words in which a gate keeps code: for each gated function the code that its slot held, or
//! that was published since.
//!
//! One word for each function that was ever gated, in pages beside those of the stubs: a directory
//! of one word for each stub page, made by the first gate, and a page of 256 words, made by the
//! first gate over one of its functions. They lie in the heap and are never freed, because a guest
//! may read its word late.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | `directory`, its words | the holder of the table's gate | before the first `Close` of a function | release; partner: the acquire loads in `word` |
//! | a function's word | the thread that set *busy* | gated, closing or opening | release, but for zero by `unpublish`; partner: the acquire loads in `guest` and `entry` |
//!
//! Zero means: no code (yet, or any more).

use std::ptr;

use crate::sync::{AtomicU64, Ordering};
use uruk_base::FunctionId;

const WORD: usize = size_of::<AtomicU64>();

/// Words of one page.
#[cfg(not(loom))]
const PAGE: u32 = crate::function::CELLS_PER_PAGE;
#[cfg(loom)]
const PAGE: u32 = 2;

/// The words of a table.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    directory: AtomicU64,
    #[cfg(loom)]
    made: model::Made,
}

impl Kept {
    /// The word of a function; `None` if no gate ever made it.
    pub(crate) fn word(&self, function: FunctionId) -> Option<&AtomicU64> {
        // SAFETY: an array of words that `array` made, one for each page.
        let page = unsafe { at(&self.directory, function.index() / PAGE) }?;
        // SAFETY: an array of words that `array` made, one for each cell.
        unsafe { at(page, function.index() % PAGE) }
    }

    /// Makes the word of a function, with value zero, in a table of `pages` stub pages. One thread
    /// at a time may call it, each after the one before.
    ///
    /// # Safety
    /// 1. `allocate` gives the address of so many words, zero, aligned, used for nothing
    ///    else, that live as long as this does.
    unsafe fn make<E>(
        &self,
        pages: usize,
        function: FunctionId,
        allocate: impl Fn(usize) -> Result<u64, E>,
    ) -> Result<(), E> {
        array(&self.directory, || allocate(pages))?;
        // SAFETY: as in `word`.
        let page = unsafe { at(&self.directory, function.index() / PAGE) };
        let page = page.expect("just made");
        array(page, || allocate(PAGE as usize))
    }
}

/// Stores an array of zeroed words into its place, unless the place has one.
fn array<E>(place: &AtomicU64, allocate: impl FnOnce() -> Result<u64, E>) -> Result<(), E> {
    // Relaxed: stored by this thread or, before it held the gate, by another.
    if place.load(Ordering::Relaxed) == 0 {
        // Partner: the acquire in `at`.
        place.store(allocate()?, Ordering::Release);
    }
    Ok(())
}

/// The `i`-th word of the array at `place`.
///
/// # Safety
/// 1. `place` is zero or was set by `array`, with more than `i` words.
unsafe fn at(place: &AtomicU64, i: u32) -> Option<&AtomicU64> {
    // Partner: the release in `array`.
    let array = place.load(Ordering::Acquire);
    if array == 0 {
        return None;
    }
    let address = array as usize + i as usize * WORD;
    let word = ptr::with_exposed_provenance::<AtomicU64>(address);
    // SAFETY: duty 1: in bounds, aligned, zeroed before it was reachable, alive as long as the
    // table is, and accessed as an atomic only.
    Some(unsafe { &*word })
}

#[cfg(not(loom))]
mod mapped {
    use uruk_heap::{Heap, HeapError, Pool};

    use super::{Kept, WORD};
    use uruk_base::FunctionId;

    impl Kept {
        /// Makes the word of a function in the table's heap; see `make`.
        pub(crate) fn ensure(
            &self,
            heap: &Heap,
            pages: usize,
            function: FunctionId,
        ) -> Result<(), HeapError> {
            let allocate = |words: usize| {
                let mut draft = heap.allocate(Pool::ReadWrite, words * WORD, WORD)?;
                draft.write(0, &vec![0; words * WORD])?;
                // Dropping the sealed draft leaves it allocated.
                Ok(draft.seal()?.address())
            };
            // SAFETY: new zeroed memory of the heap, which the table lies in, too.
            unsafe { self.make(pages, function, allocate) }
        }
    }
}

#[cfg(loom)]
mod model {
    use std::convert::Infallible;

    use loom::cell::UnsafeCell;

    use super::Kept;
    use crate::sync::AtomicU64;
    use uruk_base::FunctionId;

    type Arrays = Vec<Box<[AtomicU64]>>;

    /// The arrays made, to be dropped with the table. Loom reports two threads that make one at
    /// once.
    #[derive(Debug, Default)]
    pub(super) struct Made(UnsafeCell<Arrays>);

    // SAFETY: loom checks all accesses.
    unsafe impl Sync for Made {}

    impl Kept {
        /// Makes the word of a function in a small table.
        pub(crate) fn ensure(&self, function: FunctionId) {
            let allocate = |words| {
                let array: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
                let address = array.as_ptr().expose_provenance() as u64;
                self.made.0.with_mut(|arrays| {
                    // SAFETY: loom checks that no other thread is here.
                    unsafe { (*arrays).push(array) };
                });
                Ok::<u64, Infallible>(address)
            };
            // SAFETY: new words, dropped with the table.
            let made = unsafe { self.make(2, function, allocate) };
            made.expect("memory for a few words");
        }

        /// The number of arrays made.
        pub(crate) fn arrays(&self) -> usize {
            // SAFETY: loom checks that no thread makes one.
            self.made.0.with(|arrays| unsafe { (*arrays).len() })
        }
    }
}
