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

    /// The chain from `start` on, if it contains a cycle; `ends` tells whether a chain ends at a
    /// symbol, since it has an address.
    pub(crate) fn cycle(
        &mut self,
        start: Place,
        ends: impl Fn(Place) -> bool,
    ) -> Option<Vec<Place>> {
        let mut way = vec![start];
        let mut seen = NumberSet::from_iter([start]);
        let mut at = start;
        while !self.free.contains(&at) {
            let Some(next) = self.targets.get(&at).copied() else {
                break;
            };
            if ends(next) {
                break;
            }
            if !seen.insert(next) {
                return Some(way);
            }
            way.push(next);
            at = next;
        }
        self.free.extend(way);
        None
    }
}
