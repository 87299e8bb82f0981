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
        // Another thread may have been first. The own space is then released after the lock, which is
        // a leaf: the heap takes locks.
        let mut spaces = self.0.lock();
        if let Some(known) = known(&spaces) {
            return Some(known);
        }
        Some(spaces.entry(function).or_insert(space).address())
    }
}

#[cfg(test)]
mod tests {
    use uruk_codegen::SymbolId;
    use uruk_heap::{Heap, HeapConfig};

    use super::LabelSpaces;

    #[test]
    fn the_first_of_two_spaces_is_kept() {
        let heap = Heap::new(HeapConfig::default()).expect("a heap");
        let spaces = LabelSpaces::default();
        let function = SymbolId(0);
        let mut first = None;
        let second = spaces.address(&heap, function, || {
            // Another thread, between both looks at the table.
            first = spaces.address(&heap, function, || Some(3));
            Some(3)
        });
        assert!(first.is_some());
        assert_eq!(first, second);
        assert_eq!(spaces.address(&heap, function, || None), first);
    }
}
