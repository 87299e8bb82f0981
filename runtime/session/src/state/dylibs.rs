//! The dylibs of a session by number and by name.

use std::collections::HashMap;
use std::sync::Arc;

use uruk_base::allocated::of_map;

use crate::number::{DylibId, DylibNumbers, NumberMap};
use crate::shared::DylibShared;

/// All dylibs that exist, each with its row.
pub(crate) struct DylibTable<D> {
    rows: NumberMap<DylibId, D>,
    numbers: DylibNumbers,
    names: HashMap<Arc<str>, DylibId>,
}

impl<D> DylibTable<D> {
    pub(super) fn new() -> Self {
        Self {
            rows: NumberMap::default(),
            numbers: DylibNumbers::new(),
            names: HashMap::new(),
        }
    }

    pub(crate) fn get(&self, id: &DylibId) -> Option<&D> {
        self.rows.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &DylibId) -> Option<&mut D> {
        self.rows.get_mut(id)
    }

    /// All dylibs, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &D> {
        self.rows.values()
    }

    /// All dylibs, in no order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut D> {
        self.rows.values_mut()
    }

    /// The dylib of that name.
    pub(crate) fn named(&self, name: &str) -> Option<&D> {
        self.rows.get(self.names.get(name)?)
    }

    /// The id of the next dylib to be made; `None` after 2^32 of them.
    pub(crate) fn next_id(&mut self) -> Option<DylibId> {
        self.numbers.next()
    }

    /// How many dylibs the session made before a dylib; `None` for one of another session.
    pub(crate) fn number(&self, id: DylibId) -> Option<u32> {
        self.numbers.place(id)
    }

    /// Enters a new dylib.
    pub(crate) fn insert(&mut self, shared: &DylibShared, row: D) {
        self.names.insert(Arc::clone(&shared.name), shared.id);
        self.rows.insert(shared.id, row);
    }

    /// Takes a dylib out.
    pub(super) fn remove(&mut self, shared: &DylibShared) -> Option<D> {
        self.names.remove(&shared.name);
        self.rows.remove(&shared.id)
    }

    /// Bytes of the tables, without those of the rows.
    pub(super) fn bytes(&self) -> usize {
        of_map(&self.rows) + of_map(&self.names)
    }
}
