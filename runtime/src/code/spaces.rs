//! Label spaces: ranges of addresses, each of which represents a label of one function.
//!
//! Code and data that mention the address of a label have a place in the label space of its
//! function, so that it is the same in all versions and both compilers (`uruk_codegen`'s `labels`).
//! Nothing is stored there. A space is as long as its function has blocks, is made when it is first
//! linked against, and lives as long as the module.

use std::collections::HashMap;

use uruk_base::locks::Mutex;
use uruk_codegen::SymbolId;
use uruk_heap::{Heap, Pool, Sealed};

/// The label spaces of a module's functions.
#[derive(Default)]
pub(super) struct LabelSpaces(Mutex<HashMap<SymbolId, Space>>);

struct Space(Option<Sealed>);

impl Space {
    fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, Sealed::address)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            // SAFETY: it is never read or written.
            unsafe { memory.release() };
        }
    }
}

impl LabelSpaces {
    /// The address of the space of a function with so many blocks; `None` if there is no memory.
    pub(crate) fn address(
        &self,
        heap: &Heap,
        function: SymbolId,
        blocks: impl FnOnce() -> Option<usize>,
    ) -> Option<u64> {
        let known = |spaces: &HashMap<SymbolId, Space>| Some(spaces.get(&function)?.address());
        if let Some(known) = known(&self.0.lock()) {
            return Some(known);
        }
        let draft = heap.allocate(Pool::ReadWrite, blocks()?, 1).ok()?;
        let space = Space(Some(draft.seal().ok()?));
        let mut spaces = self.0.lock();
        // Another thread may have been first.
        Some(spaces.entry(function).or_insert(space).address())
    }
}
