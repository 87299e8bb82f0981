//! The targets of aliases.

use super::entry::Place;
use crate::number::{NumberMap, NumberSet};

/// The target of each alias, to find cycles.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    targets: NumberMap<Place, Place>,
    /// Aliases that are on no cycle, as long as no alias is added. Removing one closes no cycle.
    free: NumberSet<Place>,
}

impl Aliases {
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Place> {
        self.targets.get(place)
    }

    pub(crate) fn insert(&mut self, place: Place, target: Place) {
        self.targets.insert(place, target);
        if !self.free.is_empty() {
            self.free = NumberSet::default();
        }
    }

    pub(crate) fn remove(&mut self, place: &Place) {
        self.targets.remove(place);
    }

    /// Whether the alias is known to be on no cycle.
    pub(crate) fn is_free(&self, place: &Place) -> bool {
        self.free.contains(place)
    }

    /// Notes aliases that are on no cycle.
    pub(crate) fn note_free(&mut self, places: impl IntoIterator<Item = Place>) {
        self.free.extend(places);
    }
}
