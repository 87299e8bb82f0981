//! Cycles of aliases.

use super::State;
use super::entry::Place;
use crate::flags::SymbolState;
use crate::number::NumberSet;

impl State {
    /// The chain from `start` on, if it contains a cycle.
    pub(crate) fn alias_cycle(&mut self, start: Place) -> Option<Vec<Place>> {
        let mut way = vec![start];
        let mut seen = NumberSet::from_iter([start]);
        let mut at = start;
        while !self.aliases.is_free(&at) {
            let Some(next) = self.aliases.get(&at).copied() else {
                break;
            };
            let known = self.entry(next).is_some_and(|e| {
                use SymbolState::{Emitted, Ready, Resolved};
                matches!(e.state, Resolved | Emitted | Ready)
            });
            if known {
                break;
            }
            if !seen.insert(next) {
                return Some(way);
            }
            way.push(next);
            at = next;
        }
        self.aliases.note_free(way);
        None
    }
}
