//! The trackers of a session, and which of them are tentative.
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

use uruk_base::allocated::of_map;

use super::entry::Displaced;
use crate::number::{DylibId, NumberMap, NumberSet, TrackerKey};
use crate::resource::Resource;
use crate::slab::Key;
use crate::symbol::Symbol;

/// A tracker.
pub(crate) struct TrackerState {
    pub dylib: DylibId,
    /// Symbols that were put under it; some may have been removed since.
    pub symbols: Vec<Symbol>,
    /// Entries that were put under it and removed since.
    pub stale: usize,
    pub responsibilities: NumberSet<Key>,
    pub resources: Vec<Box<dyn Resource>>,
    /// The definitions that its own displaced, while that may still be undone.
    pub displaced: Option<Vec<Displaced>>,
}

/// All trackers that are not defunct.
#[derive(Default)]
pub(crate) struct Trackers {
    all: NumberMap<TrackerKey, TrackerState>,
    next: u64,
    /// Trackers whose definitions may still be undone.
    tentative: NumberSet<TrackerKey>,
}

impl Trackers {
    /// Adds a tracker of a dylib; it is tentative if it has a list of the definitions that its own
    /// displace.
    pub(super) fn add(&mut self, dylib: DylibId, displaced: Option<Vec<Displaced>>) -> TrackerKey {
        let key = TrackerKey::new(self.next);
        self.next += 1;
        if displaced.is_some() {
            self.tentative.insert(key);
        }
        let tracker = TrackerState {
            dylib,
            symbols: Vec::new(),
            stale: 0,
            responsibilities: NumberSet::default(),
            resources: Vec::new(),
            displaced,
        };
        self.all.insert(key, tracker);
        key
    }

    pub(crate) fn get(&self, key: &TrackerKey) -> Option<&TrackerState> {
        self.all.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &TrackerKey) -> Option<&mut TrackerState> {
        self.all.get_mut(key)
    }

    pub(crate) fn contains_key(&self, key: &TrackerKey) -> bool {
        self.all.contains_key(key)
    }

    pub(super) fn remove(&mut self, key: &TrackerKey) -> Option<TrackerState> {
        self.tentative.remove(key);
        self.all.remove(key)
    }

    /// Whether the definitions of a tracker may still be undone.
    pub(crate) fn is_tentative(&self, key: &TrackerKey) -> bool {
        self.tentative.contains(key)
    }

    /// Whether there is a tentative tracker.
    pub(super) fn has_tentative(&self) -> bool {
        !self.tentative.is_empty()
    }

    /// The definitions that those of a tentative tracker displaced.
    pub(super) fn displaced_mut(&mut self, key: &TrackerKey) -> Option<&mut Vec<Displaced>> {
        self.all.get_mut(key)?.displaced.as_mut()
    }

    /// Moves displaced definitions from one tracker to another.
    pub(super) fn move_displaced(&mut self, from: TrackerKey, to: TrackerKey) {
        for tentative in &self.tentative {
            let list = self.all.get_mut(tentative);
            let list = list.and_then(|tracker| tracker.displaced.as_mut());
            let moved = list.into_iter().flatten().filter(|old| old.tracker == from);
            moved.for_each(|old| old.tracker = to);
        }
    }

    /// Takes some displaced definitions out of all lists.
    pub(super) fn take_displaced(&mut self, which: impl Fn(&Displaced) -> bool) -> Vec<Displaced> {
        let mut taken = Vec::new();
        for tentative in &self.tentative {
            let list = self.all.get_mut(tentative);
            if let Some(list) = list.and_then(|tracker| tracker.displaced.as_mut()) {
                taken.extend(list.extract_if(.., |old| which(old)));
            }
        }
        taken
    }

    /// Bytes of the tables.
    pub(super) fn bytes(&self) -> usize {
        let trackers: usize = self.all.values().map(TrackerState::bytes).sum();
        trackers + of_map(&self.all)
    }
}
