//! Link orders of dylibs, and the copies of them that ready lookups see.

use std::sync::Arc;

use super::State;
use crate::number::DylibId;
use crate::shared::Visibility;

impl State {
    /// Sets the link order of a dylib.
    pub(crate) fn set_order(&mut self, id: DylibId, order: Vec<(DylibId, Visibility)>) {
        let Some(state) = self.dylib_mut(id) else {
            return;
        };
        let added: Vec<DylibId> = order.iter().map(|(other, _)| *other).collect();
        let before = std::mem::replace(&mut state.link_order, order);
        for (other, _) in before {
            if let Some(other) = self.dylib_mut(other) {
                other.searchers.remove(&id);
            }
        }
        for other in added {
            if let Some(other) = self.dylib_mut(other) {
                other.searchers.insert(id);
            }
        }
        self.show_order(id);
    }

    /// Updates the copy of a dylib's link order that ready lookups see.
    pub(crate) fn show_order(&self, id: DylibId) {
        let Some(state) = self.dylib(id) else {
            return;
        };
        let others = state.link_order.iter().filter(|(other, _)| *other != id);
        let order = others.filter_map(|(other, seen)| {
            let shared = &self.dylib(*other)?.shared;
            Some((Arc::clone(shared), *seen))
        });
        state.shared.order.set(order.collect());
    }
}
