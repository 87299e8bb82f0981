//! Removal of definitions: symbols, trackers, dylibs.

use super::State;
use super::entry::Displaced;
use super::entry::{Owner, Place};
use super::trackers::TrackerState;
use crate::effects::Effects;
use crate::error::SessionError;
use crate::flags::SymbolState;
use crate::number::{DylibId, TrackerKey};
use crate::resource::TrackerEvent;
use crate::shared::DylibShared;
use crate::symbol::Symbol;

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::SmallVec;

impl State {
    /// A new tracker of a dylib.
    pub(crate) fn add_tracker(&mut self, dylib: DylibId) -> TrackerKey {
        self.new_tracker(dylib, None)
    }

    /// Like `add_tracker`, with a list of the definitions that its own displace.
    pub(crate) fn new_tracker(
        &mut self,
        dylib: DylibId,
        displaced: Option<Vec<Displaced>>,
    ) -> TrackerKey {
        let key = self.trackers.add(dylib, displaced);
        if let Some(dylib) = self.dylib_mut(dylib) {
            dylib.trackers.insert(key);
        }
        key
    }

    /// Removes symbols that are not in production. All or nothing.
    pub(crate) fn remove_symbols(
        &mut self,
        shared: &Arc<DylibShared>,
        symbols: &[Symbol],
        effects: &mut Effects,
    ) -> Result<(), SessionError> {
        self.open(shared)?;
        let mut missing = Vec::new();
        let mut busy = Vec::new();
        for symbol in symbols {
            let place = (shared.id, *symbol);
            match self.entry(place).map(|entry| entry.state) {
                None => missing.push(place),
                Some(SymbolState::Materializing | SymbolState::Resolved | SymbolState::Emitted) => {
                    busy.push(place)
                }
                Some(_) => {}
            }
        }
        if !missing.is_empty() {
            return Err(SessionError::NotFound(self.name_set(missing)));
        }
        if !busy.is_empty() {
            return Err(SessionError::InFlight(self.name_set(busy)));
        }
        let places: SmallVec<[Place; 1]> =
            symbols.iter().map(|symbol| (shared.id, *symbol)).collect();
        self.take_out(places, effects, false);
        Ok(())
    }

    /// Deletes entries in any state; fails waiting queries and dependents. With `whole`, their
    /// units are dropped too, without being told.
    fn take_out(&mut self, places: SmallVec<[Place; 1]>, effects: &mut Effects, whole: bool) {
        let mut entries: SmallVec<[_; 1]> = SmallVec::with_capacity(places.len());
        let mut awaited = false;
        for place in places {
            if !self.stalled.is_empty() {
                self.stalled.remove(&place);
            }
            if let Some(entry) = self.delete(place) {
                awaited |= entry.node.is_some() || !entry.queries.is_empty();
                entries.push((place, entry));
            }
        }
        if awaited {
            let removed = self.name_set(entries.iter().map(|(place, _)| *place));
            let error = SessionError::Removed(removed);
            let nodes: Vec<_> = entries.iter().filter_map(|(_, e)| e.node).collect();
            let own: HashSet<Place> = entries.iter().map(|(place, _)| *place).collect();
            let mut dependents = self.graph.fail(nodes);
            dependents.retain(|place| !own.contains(place));
            if !dependents.is_empty() {
                self.fail_places(dependents, error.clone(), effects);
            }
            for (_, entry) in &mut entries {
                let queries = std::mem::take(&mut entry.queries);
                self.fail_queries(queries, &error, effects);
            }
        }
        for (place, entry) in entries {
            let Owner::Unit(unit) = entry.owner else {
                continue;
            };
            if !whole {
                self.discard(unit, place.1, effects);
            } else if let Some(cell) = self.units.get_mut(unit) {
                cell.live -= 1;
                if cell.live == 0
                    && let Some(unit) = cell.unit.take()
                {
                    effects.rare().units.push(unit);
                }
                if cell.live == 0 {
                    self.units.remove(unit);
                }
            }
        }
    }

    /// Removes all definitions under a tracker, which is defunct from then on.
    pub(crate) fn remove_tracker(
        &mut self,
        key: TrackerKey,
        effects: &mut Effects,
    ) -> Result<(), SessionError> {
        if !self.trackers.contains_key(&key) {
            return Err(SessionError::TrackerDefunct {
                dylib: "(removed)".into(),
            });
        }
        self.remove_trackers(&[key], effects);
        Ok(())
    }

    /// Removes the definitions of several trackers in one step: a waiting query is told that its
    /// own symbol was removed, and not that a dependence was.
    fn remove_trackers(&mut self, keys: &[TrackerKey], effects: &mut Effects) {
        let mut places = SmallVec::new();
        let mut removed: SmallVec<[_; 1]> = SmallVec::with_capacity(keys.len());
        for key in keys {
            let Some(mut tracker) = self.trackers.remove(key) else {
                continue;
            };
            self.close_tracker(*key, &mut tracker, &mut places);
            removed.push((*key, tracker));
        }
        self.take_out(places, effects, true);
        for (key, mut tracker) in removed {
            if self.trackers.has_tentative() {
                self.forget_displaced(key, effects);
            }
            self.undo(tracker.dylib, tracker.displaced.take(), effects);
            let rare = effects.rare();
            rare.resources.append(&mut tracker.resources);
            rare.events.push(TrackerEvent::Removed {
                dylib: tracker.dylib,
                tracker: key,
            });
        }
    }

    /// Takes a removed tracker out of its dylib's tables, and adds its definitions to `places`.
    fn close_tracker(
        &mut self,
        key: TrackerKey,
        tracker: &mut TrackerState,
        places: &mut SmallVec<[Place; 1]>,
    ) {
        let dylib = tracker.dylib;
        if let Some(state) = self.dylib_mut(dylib) {
            state.trackers.remove(&key);
            if state.default_tracker == key {
                let new = self.add_tracker(dylib);
                if let Some(state) = self.dylib_mut(dylib) {
                    state.default_tracker = new;
                }
            }
        }
        for responsibility in &tracker.responsibilities {
            self.responsibilities.remove(*responsibility);
        }
        let mut symbols = std::mem::take(&mut tracker.symbols);
        if tracker.stale > 0 {
            symbols.sort_unstable();
            symbols.dedup();
        }
        symbols.retain(|s| self.entry((dylib, *s)).is_some_and(|e| e.tracker == key));
        places.extend(symbols.into_iter().map(|symbol| (dylib, symbol)));
    }

    /// Moves all definitions of one tracker to another of the same dylib. The first is defunct from
    /// then on.
    pub(crate) fn transfer(
        &mut self,
        from: TrackerKey,
        to: TrackerKey,
        effects: &mut Effects,
    ) -> Result<(), SessionError> {
        if from == to {
            return Ok(());
        }
        let (Some(source), Some(target)) = (self.trackers.get(&from), self.trackers.get(&to))
        else {
            return Err(SessionError::TrackerDefunct {
                dylib: "(removed)".into(),
            });
        };
        if source.dylib != target.dylib {
            return Err(SessionError::ForeignTracker {
                tracker: self.dylib_name(target.dylib),
                dylib: self.dylib_name(source.dylib),
            });
        }
        let dylib = source.dylib;
        let Some(mut source) = self.trackers.remove(&from) else {
            return Ok(());
        };
        let mut symbols = std::mem::take(&mut source.symbols);
        symbols.retain(|symbol| match self.entry_mut((dylib, *symbol)) {
            Some(entry) if entry.tracker == from => {
                entry.tracker = to;
                true
            }
            _ => false,
        });
        for responsibility in &source.responsibilities {
            if let Some(state) = self.responsibilities.get_mut(*responsibility) {
                state.tracker = to;
            }
        }
        if let Some(target) = self.trackers.get_mut(&to) {
            target.symbols.append(&mut symbols);
            target.responsibilities.extend(source.responsibilities);
            target.resources.append(&mut source.resources);
        }
        if let Some(state) = self.dylib_mut(dylib) {
            state.trackers.remove(&from);
            if state.default_tracker == from {
                state.default_tracker = to;
            }
        }
        self.confirm(source.displaced.take(), effects);
        self.trackers.move_displaced(from, to);
        effects
            .rare()
            .events
            .push(TrackerEvent::Transferred { dylib, from, to });
        Ok(())
    }

    /// Puts definitions of a tracker's dylib under it, except those in production: they stay under
    /// their responsibility's tracker.
    pub(crate) fn adopt(
        &mut self,
        key: TrackerKey,
        symbols: &[Symbol],
    ) -> Result<(), SessionError> {
        let Some(dylib) = self.trackers.get(&key).map(|tracker| tracker.dylib) else {
            return Err(SessionError::TrackerDefunct {
                dylib: "(removed)".into(),
            });
        };
        for symbol in symbols {
            let Some(entry) = self.entry_mut((dylib, *symbol)) else {
                continue;
            };
            if entry.tracker == key || matches!(entry.owner, Owner::Responsibility(_)) {
                continue;
            }
            let old = std::mem::replace(&mut entry.tracker, key);
            self.leave_tracker(old);
            if let Some(tracker) = self.trackers.get_mut(&key) {
                tracker.symbols.push(*symbol);
            }
        }
        Ok(())
    }

    /// Empties a dylib; resources are released tracker by tracker, the youngest first.
    pub(crate) fn clear(&mut self, dylib: DylibId, effects: &mut Effects) {
        let Some(state) = self.dylib_mut(dylib) else {
            return;
        };
        state.inits.clear();
        let mut trackers: Vec<_> = state.trackers.iter().copied().collect();
        trackers.sort_unstable_by(|a, b| b.cmp(a));
        self.remove_trackers(&trackers, effects);
    }

    /// Removes dylibs in the given order. All are defunct before the first is emptied, so callbacks
    /// that run meanwhile cannot define into the others.
    pub(crate) fn remove_dylibs(
        &mut self,
        dylibs: &[Arc<DylibShared>],
        effects: &mut Effects,
    ) -> Result<(), SessionError> {
        for shared in dylibs {
            self.open(shared)?;
        }
        for shared in dylibs {
            self.clear(shared.id, effects);
            // Its own order first, so that the dylibs it searched no longer refer to it.
            self.set_order(shared.id, Vec::new());
            let Some(state) = self.dylibs.remove(shared) else {
                continue;
            };
            for tracker in &state.trackers {
                self.trackers.remove(tracker);
            }
            for cell in state.generators {
                effects.drop_generator(cell, &shared.name);
            }
            shared.set_generators(0);
            shared.order.clear();
            for id in state.searchers {
                if let Some(other) = self.dylib_mut(id) {
                    other.link_order.retain(|(id, _)| *id != shared.id);
                }
                self.show_order(id);
            }
        }
        self.give_up_waiting(effects);
        Ok(())
    }
}
