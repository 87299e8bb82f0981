//! What a gate keeps: for each gated function the code that its slot held, or was
//! to hold since.
//!
//! One word for each function that was ever gated, in pages beside those of the
//! stubs: a directory of one word for each stub page, made by the first gate,
//! and a page of 256 words, made by the first gate over one of its functions. They
//! lie in the heap and stay, because a guest may read its word late.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | `directory`, its words | who holds the table's gate | before the first `Close` of a function | release; partner: the acquire loads in `word` |
//! | a function's word | whoever set *busy* | gated, or closing | release; partner: the acquire loads in `guest` and `entry` |
//!
//! Zero means: there is no code (yet, or any more).

#[cfg(not(loom))]
pub(crate) use mapped::Kept;
#[cfg(loom)]
pub(crate) use model::Kept;

#[cfg(not(loom))]
mod mapped {
    use std::ptr;

    use uruk_heap::{Heap, HeapError, Pool};

    use crate::function::{CELLS_PER_PAGE, FunctionId};
    use crate::sync::{AtomicU64, Ordering};

    const WORD: usize = size_of::<AtomicU64>();

    /// The words of a table.
    #[derive(Debug, Default)]
    pub(crate) struct Kept {
        directory: AtomicU64,
    }

    impl Kept {
        /// The word of a function; `None` if no gate ever asked for it.
        pub(crate) fn word(&self, function: FunctionId) -> Option<&AtomicU64> {
            // SAFETY: an array of words that `array` made, one for each page.
            let page = unsafe { at(&self.directory, function.index() / CELLS_PER_PAGE) }?;
            // SAFETY: an array of words that `array` made, one for each cell.
            unsafe { at(page, function.index() % CELLS_PER_PAGE) }
        }

        /// Makes the word of a function, which is zero then, in a table of
        /// `pages` stub pages. By one thread at a time.
        pub(crate) fn ensure(
            &self,
            heap: &Heap,
            pages: usize,
            function: FunctionId,
        ) -> Result<(), HeapError> {
            array(&self.directory, heap, pages)?;
            // SAFETY: as in `word`.
            let page = unsafe { at(&self.directory, function.index() / CELLS_PER_PAGE) };
            let page = page.expect("just made");
            array(page, heap, CELLS_PER_PAGE as usize)
        }
    }

    /// Puts an array of zeroed words into the heap, unless it is there.
    fn array(place: &AtomicU64, heap: &Heap, words: usize) -> Result<(), HeapError> {
        if place.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let mut draft = heap.allocate(Pool::ReadWrite, words * WORD, WORD)?;
        draft.write(0, &vec![0; words * WORD])?;
        // Dropping it leaves it allocated. Partner: the acquire in `at`.
        place.store(draft.seal()?.address(), Ordering::Release);
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
        // SAFETY: duty 1: in bounds, aligned, zeroed before it was reachable, mapped
        // as long as the heap is, and accessed as an atomic only.
        Some(unsafe { &*word })
    }
}

#[cfg(loom)]
mod model {
    use crate::function::FunctionId;
    use crate::sync::AtomicU64;

    /// A word for each cell from the start.
    #[derive(Debug)]
    pub(crate) struct Kept(Box<[AtomicU64]>);

    impl Kept {
        pub(crate) fn new(count: u32) -> Kept {
            Kept((0..count).map(|_| AtomicU64::new(0)).collect())
        }

        pub(crate) fn word(&self, function: FunctionId) -> Option<&AtomicU64> {
            self.0.get(function.index() as usize)
        }
    }
}
