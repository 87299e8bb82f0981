//! Definitions that gave way to others which may still be taken back.
//!
//! What is defined under a *tentative* tracker displaces weak definitions that nobody has
//! searched for, as any strong definition does. But the units that lose a symbol are told
//! only when the tracker is confirmed, that is, when its definitions are transferred to
//! another one. Until then they promise the symbol still, and have it back when the tentative
//! tracker is removed, or dropped.
//!
//! Invariants:
//! - A unit with a displaced symbol counts it as `live`, so it is not dropped.
//! - Whoever ends a displacement takes it out of the list: by confirming or undoing it,
//!   because the older definition was removed itself, or because its unit went to work.

use super::{Owner, Place, State};
use crate::dylib::DylibId;
use crate::effects::Effects;
use crate::flags::{Flags, SymbolState};
use crate::slab::Key;
use crate::symbol::Symbol;
use crate::tracker::TrackerKey;

/// A definition that was there before.
#[derive(Debug)]
pub(crate) struct Displaced {
    symbol: Symbol,
    flags: Flags,
    unit: Key,
    tracker: TrackerKey,
    /// What it stood for, if it is an alias.
    alias: Option<Place>,
}

impl State {
    /// The unit of an entry loses it to what `tracker` gets.
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

    /// The definitions of a tentative tracker stay: the older units are told.
    pub(crate) fn confirm(&mut self, displaced: Option<Vec<Displaced>>, effects: &mut Effects) {
        for old in displaced.into_iter().flatten() {
            self.discard(old.unit, old.symbol, effects);
        }
    }

    /// The definitions of a tentative tracker are gone: the older ones come back, where they
    /// still can.
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

    /// Ends the displacements of a unit that goes to work: it works without these symbols.
    pub(crate) fn end_displacements(&mut self, unit: Key, effects: &mut Effects) {
        for old in self.take_displaced(|old| old.unit == unit) {
            self.discard(unit, old.symbol, effects);
        }
    }

    /// Ends the displacements of what was under a tracker that is removed.
    pub(crate) fn forget_displaced(&mut self, tracker: TrackerKey, effects: &mut Effects) {
        for old in self.take_displaced(|old| old.tracker == tracker) {
            self.discard(old.unit, old.symbol, effects);
        }
    }

    /// What was under one tracker is under another.
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
