//! Defining symbols in a dylib.

use super::State;
use super::entry::{Displaced, Entry, Owner, Place};
use super::{Launch, Maker, ResponsibilityState, UnitCell};
use crate::effects::Effects;
use crate::error::SessionError;
use crate::flags::{Flags, SymbolState};
use crate::number::{DylibId, TrackerKey};
use crate::shared::DylibShared;
use crate::slab::Key;
use crate::symbol::Symbol;
use crate::unit::{Interface, Unit};

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::SmallVec;

/// Up to this many symbols are compared pairwise.
const FEW: usize = 8;

/// The decision about a new definition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Take,
    /// The older unit loses the symbol.
    Override(Key),
    Discard,
    Duplicate,
}

impl State {
    fn choose(&self, place: Place, flags: Flags) -> Choice {
        match self.entry(place) {
            None => Choice::Take,
            Some(old) if old.state == SymbolState::Failed => Choice::Take,
            Some(_) if !flags.is_strong() => Choice::Discard,
            Some(old) => match old.owner {
                Owner::Unit(unit) if !old.flags.is_strong() => Choice::Override(unit),
                _ => Choice::Duplicate,
            },
        }
    }

    fn check_duplicates(
        &self,
        dylib: DylibId,
        symbols: &[(Symbol, Flags)],
    ) -> Result<(), SessionError> {
        let mut bad: Vec<Place> = symbols
            .iter()
            .filter(|(symbol, flags)| self.choose((dylib, *symbol), *flags) == Choice::Duplicate)
            .map(|(symbol, _)| (dylib, *symbol))
            .collect();
        if symbols.len() <= FEW {
            for (n, (symbol, _)) in symbols.iter().enumerate() {
                if symbols[..n].iter().any(|(other, _)| other == symbol) {
                    bad.push((dylib, *symbol));
                }
            }
        } else {
            let mut seen = HashSet::with_capacity(symbols.len());
            let twice = symbols.iter().filter(|(symbol, _)| !seen.insert(*symbol));
            bad.extend(twice.map(|(symbol, _)| (dylib, *symbol)));
        }
        match bad.is_empty() {
            true => Ok(()),
            false => Err(SessionError::Duplicate(self.name_set(bad))),
        }
    }

    /// Defines a unit's symbols. On error the unit is returned to be dropped outside the lock.
    pub(crate) fn define(
        &mut self,
        shared: &Arc<DylibShared>,
        tracker: Option<TrackerKey>,
        unit: Box<dyn Unit>,
        interface: Interface,
        effects: &mut Effects,
    ) -> Result<Key, SessionError> {
        let checked = self.check_define(shared, tracker, &interface.symbols);
        let tracker = match checked {
            Ok(tracker) => tracker,
            Err(error) => {
                effects.rare().units.push(unit);
                return Err(error);
            }
        };
        let dylib = shared.id;
        let Interface { symbols, init } = interface;
        let key = self.units.insert(UnitCell {
            unit: Some(unit),
            dylib,
            symbols: Vec::new(),
            init,
            live: 0,
            discards: Vec::new(),
            launch: None,
        });
        let mut live = 0;
        let mut discards = Vec::new();
        for (symbol, flags) in &symbols {
            let place = (dylib, *symbol);
            match self.choose(place, *flags) {
                Choice::Discard | Choice::Duplicate => {
                    discards.push(*symbol);
                    continue;
                }
                Choice::Override(old) => self.displace(place, old, tracker, effects),
                Choice::Take => {}
            }
            live += 1;
            self.put(
                place,
                *flags,
                tracker,
                Owner::Unit(key),
                SymbolState::NeverSearched,
            );
        }
        effects.resume_all(self.waiting.wake(&symbols));
        if let Some(cell) = self.units.get_mut(key) {
            cell.symbols = symbols;
            cell.live = live;
            if !discards.is_empty() || live == 0 {
                effects.rare().discards.push(key);
            }
            cell.discards = discards;
        }
        if let Some(init) = init
            && let Some(state) = self.dylib_mut(dylib)
        {
            state.inits.push(init);
        }
        Ok(key)
    }

    /// Defines symbols whose production begins now, without a unit: nothing searches for them.
    pub(crate) fn begin(
        &mut self,
        shared: &Arc<DylibShared>,
        tracker: TrackerKey,
        symbols: &[(Symbol, Flags)],
        effects: &mut Effects,
    ) -> Result<Launch, SessionError> {
        let tracker = self.check_define(shared, Some(tracker), symbols)?;
        let maker = Maker::default();
        let responsibility = self.responsibilities.insert(ResponsibilityState {
            maker: Arc::clone(&maker),
            dylib: shared.id,
            tracker,
        });
        if let Some(state) = self.trackers.get_mut(&tracker) {
            state.responsibilities.insert(responsibility);
        }
        Ok(Launch {
            symbols: self.claim(responsibility, symbols, effects)?,
            maker,
            responsibility,
            shared: Arc::clone(shared),
            init: None,
        })
    }

    fn check_define(
        &mut self,
        shared: &Arc<DylibShared>,
        tracker: Option<TrackerKey>,
        symbols: &[(Symbol, Flags)],
    ) -> Result<TrackerKey, SessionError> {
        let default = self.open(shared)?.default_tracker;
        let tracker = tracker.unwrap_or(default);
        match self.trackers.get(&tracker) {
            None => {
                return Err(SessionError::TrackerDefunct {
                    dylib: Arc::clone(&shared.name),
                });
            }
            Some(state) if state.dylib != shared.id => {
                return Err(SessionError::ForeignTracker {
                    tracker: self.dylib_name(state.dylib),
                    dylib: Arc::clone(&shared.name),
                });
            }
            Some(_) => {}
        }
        self.check_duplicates(shared.id, symbols)?;
        Ok(tracker)
    }

    /// Writes an entry over a possible old one; keeps the waiting queries.
    pub(crate) fn put(
        &mut self,
        place: Place,
        flags: Flags,
        tracker: TrackerKey,
        owner: Owner,
        state: SymbolState,
    ) {
        if !self.aliases.is_empty() {
            self.aliases.remove(&place);
        }
        let Some(dylib) = self.dylib_mut(place.0) else {
            return;
        };
        let new = Entry {
            flags,
            state,
            address: 0,
            tracker,
            owner,
            node: None,
            queries: SmallVec::new(),
            error: None,
        };
        dylib.shared.ready.define(place.1, flags);
        let mut old_tracker = None;
        match dylib.symbols.entry(place.1) {
            std::collections::hash_map::Entry::Occupied(mut old) => {
                let old = old.get_mut();
                old_tracker = Some(old.tracker);
                let (node, queries) = (old.node, std::mem::take(&mut old.queries));
                *old = Entry {
                    node,
                    queries,
                    ..new
                };
            }
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(new);
            }
        }
        if old_tracker == Some(tracker) {
            return;
        }
        if let Some(old) = old_tracker {
            self.leave_tracker(old);
        }
        if let Some(state) = self.trackers.get_mut(&tracker) {
            state.symbols.push(place.1);
        }
    }

    /// Counts one entry fewer under a tracker; drops the stale half of its list.
    pub(crate) fn leave_tracker(&mut self, key: TrackerKey) {
        let Some(tracker) = self.trackers.get_mut(&key) else {
            return;
        };
        tracker.stale += 1;
        if tracker.stale * 2 <= tracker.symbols.len() || tracker.stale < FEW {
            return;
        }
        tracker.stale = 0;
        let dylib = tracker.dylib;
        let mut symbols = std::mem::take(&mut tracker.symbols);
        symbols.sort_unstable();
        symbols.dedup();
        symbols.retain(|s| self.entry((dylib, *s)).is_some_and(|e| e.tracker == key));
        if let Some(tracker) = self.trackers.get_mut(&key) {
            tracker.symbols = symbols;
        }
    }

    /// Takes a symbol from a unit; the unit is told, and dropped with its last symbol, outside the
    /// lock.
    pub(crate) fn discard(&mut self, unit: Key, symbol: Symbol, effects: &mut Effects) {
        if let Some(cell) = self.units.get_mut(unit) {
            cell.live -= 1;
            cell.discards.push(symbol);
            effects.rare().discards.push(unit);
        }
    }

    /// Defines new symbols of a responsibility in progress. Returns the accepted ones; weak ones
    /// may be refused.
    pub(crate) fn claim(
        &mut self,
        responsibility: Key,
        symbols: &[(Symbol, Flags)],
        effects: &mut Effects,
    ) -> Result<Vec<(Symbol, Flags)>, SessionError> {
        let (dylib, tracker) = self.at_work(responsibility)?;
        self.check_duplicates(dylib, symbols)?;
        let mut accepted = Vec::new();
        for (symbol, flags) in symbols {
            let place = (dylib, *symbol);
            match self.choose(place, *flags) {
                Choice::Discard | Choice::Duplicate => continue,
                Choice::Override(old) => self.displace(place, old, tracker, effects),
                Choice::Take => {}
            }
            accepted.push((*symbol, *flags));
            let owner = Owner::Responsibility(responsibility);
            self.put(place, *flags, tracker, owner, SymbolState::Materializing);
        }
        effects.resume_all(self.waiting.wake(&accepted));
        Ok(accepted)
    }

    /// Gives symbols of a responsibility back to a unit. If a lookup waits for one, the unit is
    /// materialized at once. With `asleep`, no lookup waits any more, and emitted code that depends
    /// on them has to request them again.
    pub(crate) fn replace(
        &mut self,
        responsibility: Key,
        unit: Box<dyn Unit>,
        interface: Interface,
        asleep: bool,
        effects: &mut Effects,
    ) -> Result<(), SessionError> {
        let checked = self.at_work(responsibility).and_then(|(dylib, _)| {
            self.check_own(
                responsibility,
                dylib,
                interface.symbols.iter().map(|(s, _)| *s),
            )?;
            Ok(dylib)
        });
        let dylib = match checked {
            Ok(dylib) => dylib,
            Err(error) => {
                effects.rare().units.push(unit);
                return Err(error);
            }
        };
        let key = self.units.insert(UnitCell {
            unit: Some(unit),
            dylib,
            symbols: interface.symbols.clone(),
            init: interface.init,
            live: interface.symbols.len(),
            discards: Vec::new(),
            launch: None,
        });
        let mut wanted = false;
        for (symbol, flags) in interface.symbols {
            let place = (dylib, symbol);
            let is_needed = self.is_needed(place);
            wanted |= self.is_asked(place) || (!asleep && is_needed);
            let Some(entry) = self.entry_mut(place) else {
                continue;
            };
            entry.owner = Owner::Unit(key);
            entry.state = SymbolState::NeverSearched;
            entry.flags = flags;
            entry.address = 0;
            if asleep && is_needed {
                self.stalled.insert(place);
            }
            if let Some(dylib) = self.dylib_mut(dylib) {
                dylib.shared.ready.define(symbol, flags);
            }
        }
        if wanted {
            self.launch(key, effects);
        }
        Ok(())
    }

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
        match (self.trackers.displaced_mut(&tracker), old) {
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
            effects.resume_all(self.waiting.wake(&[(old.symbol, old.flags)]));
        }
    }

    /// Ends the displacements of a unit that starts: it works without these symbols.
    pub(crate) fn end_displacements(&mut self, unit: Key, effects: &mut Effects) {
        for old in self.trackers.take_displaced(|old| old.unit == unit) {
            self.discard(unit, old.symbol, effects);
        }
    }

    /// Ends the displacements of definitions under a tracker that is removed.
    pub(crate) fn forget_displaced(&mut self, tracker: TrackerKey, effects: &mut Effects) {
        for old in self.trackers.take_displaced(|old| old.tracker == tracker) {
            self.discard(old.unit, old.symbol, effects);
        }
    }
}
