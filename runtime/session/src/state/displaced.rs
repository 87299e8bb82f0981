//! Definitions displaced by others that may still be undone.
//!
//! A definition under a *tentative* tracker displaces weak definitions that were never searched
//! for, as any strong definition does. But the units that lose a symbol are told only when the
//! tracker is confirmed, that is, when its definitions are transferred to another one. Until then
//! they still promise the symbol, and get it back when the tentative tracker is removed, or
//! dropped.
//!
//! Invariants:
//! - A unit with a displaced symbol counts it as `live`, so it is not dropped.
//! - Each end of a displacement takes it out of the list: confirming, undoing, removal of the older
//!   definition, or the start of its unit.

use super::State;
use super::entry::{Displaced, Owner, Place};
use crate::effects::Effects;
use crate::flags::SymbolState;
use crate::number::{DylibId, TrackerKey};
use crate::slab::Key;

impl State {
    /// Displaces the entry of a unit by a definition under `tracker`.
    pub(crate) fn displace(
        &mut self,
        place: Place,
        unit: Key,
        tracker: TrackerKey,
        effects: &mut Effects,
    ) {
        let alias = self.aliases.get(&place).copied();
        let old = self.entry(place).map(|entry| (entry.flags, entry.tracker));
        let list = self.trackers.get_mut(&tracker);
        let list = list.and_then(|tracker| tracker.displaced.as_mut());
        match (list, old) {
            (Some(list), Some((flags, tracker))) => list.push(Displaced {
                symbol: place.1,
                flags,
                unit,
                tracker,
                alias,
            }),
            _ => self.discard(unit, place.1, effects),
        }
    }

    /// Confirms the definitions of a tentative tracker: the older units are told.
    pub(crate) fn confirm(&mut self, displaced: Option<Vec<Displaced>>, effects: &mut Effects) {
        for old in displaced.into_iter().flatten() {
            self.discard(old.unit, old.symbol, effects);
        }
    }

    /// Undoes the definitions of a tentative tracker: the older ones are restored, where possible.
    pub(crate) fn undo(
        &mut self,
        dylib: DylibId,
        displaced: Option<Vec<Displaced>>,
        effects: &mut Effects,
    ) {
        for old in displaced.into_iter().flatten() {
            let place = (dylib, old.symbol);
            let free = self.entry(place).is_none() && self.dylib(dylib).is_some();
            if !free || !self.trackers.contains_key(&old.tracker) {
                self.discard(old.unit, old.symbol, effects);
                continue;
            }
            let owner = Owner::Unit(old.unit);
            let state = SymbolState::NeverSearched;
            self.put(place, old.flags, old.tracker, owner, state);
            if let Some(alias) = old.alias {
                self.aliases.insert(place, alias);
            }
            self.wake_waiting(&[(old.symbol, old.flags)], effects);
        }
    }

    /// Ends the displacements of a unit that starts: it works without these symbols.
    pub(crate) fn end_displacements(&mut self, unit: Key, effects: &mut Effects) {
        for old in self.take_displaced(|old| old.unit == unit) {
            self.discard(unit, old.symbol, effects);
        }
    }

    /// Ends the displacements of definitions under a tracker that is removed.
    pub(crate) fn forget_displaced(&mut self, tracker: TrackerKey, effects: &mut Effects) {
        for old in self.take_displaced(|old| old.tracker == tracker) {
            self.discard(old.unit, old.symbol, effects);
        }
    }

    /// Moves displaced definitions from one tracker to another.
    pub(crate) fn move_displaced(&mut self, from: TrackerKey, to: TrackerKey) {
        for tentative in &self.tentative {
            let list = self.trackers.get_mut(tentative);
            let list = list.and_then(|tracker| tracker.displaced.as_mut());
            let moved = list.into_iter().flatten().filter(|old| old.tracker == from);
            moved.for_each(|old| old.tracker = to);
        }
    }

    fn take_displaced(&mut self, which: impl Fn(&Displaced) -> bool) -> Vec<Displaced> {
        let mut taken = Vec::new();
        for tentative in &self.tentative {
            let list = self.trackers.get_mut(tentative);
            if let Some(list) = list.and_then(|tracker| tracker.displaced.as_mut()) {
                taken.extend(list.extract_if(.., |old| which(old)));
            }
        }
        taken
    }
}
