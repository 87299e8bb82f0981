//! Functions whose published version counts.

use uruk_base::FunctionId;
use uruk_base::allocated::{of_map, of_vec};
use uruk_reclaim::IdMap;

use crate::version::counts::Count;

/// Functions and their counts, in no order; each change costs the same however many
/// there are.
#[derive(Default)]
pub(crate) struct CountedFunctions {
    list: Vec<(FunctionId, Count)>,
    /// Where a function is in the list, by its index.
    places: IdMap<u32, usize>,
}

impl CountedFunctions {
    /// Bytes that the allocator took for them.
    pub(crate) fn bytes(&self) -> usize {
        of_vec(&self.list) + of_map(&self.places)
    }

    pub(super) fn set(&mut self, id: FunctionId, seen: Count) {
        match self.places.get(&id.index()) {
            Some(&at) => self.list[at].1 = seen,
            None => {
                self.places.insert(id.index(), self.list.len());
                self.list.push((id, seen));
            }
        }
    }

    pub(super) fn remove(&mut self, id: FunctionId) {
        let Some(at) = self.places.remove(&id.index()) else {
            return;
        };
        self.list.swap_remove(at);
        if let Some((moved, _)) = self.list.get(at) {
            self.places.insert(moved.index(), at);
        }
    }

    /// The counts last seen of a function that is watched.
    pub(super) fn seen(&self, id: FunctionId) -> Option<Count> {
        Some(self.list[*self.places.get(&id.index())?].1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn list(&mut self) -> &mut [(FunctionId, Count)] {
        &mut self.list
    }
}
