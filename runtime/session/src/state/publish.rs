//! The end of a materialization: resolved, emitted, ready, failed.

use super::State;
use super::entry::{Entry, Owner, Place};
use super::{Maker, ResponsibilityState};
use crate::effects::Effects;
use crate::error::SessionError;
use crate::flags::{Flags, SymbolState};
use crate::graph::NodeId;
use crate::lookup::{LookupResult, Required};
use crate::number::{DylibId, NumberMap, TrackerKey};
use crate::responsibility::DependenceGroup;
use crate::slab::Key;
use crate::symbol::Symbol;
use std::collections::HashSet;

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

impl State {
    /// The dylib and tracker of a responsibility that is neither finished nor defunct.
    pub(crate) fn at_work(&self, key: Key) -> Result<(DylibId, TrackerKey), SessionError> {
        match self.responsibilities.get(key) {
            Some(state) => Ok((state.dylib, state.tracker)),
            None if self.ended => Err(SessionError::Ended),
            None => Err(SessionError::TrackerDefunct {
                dylib: "(removed)".into(),
            }),
        }
    }

    /// Checks that all symbols are the responsibility's own.
    pub(crate) fn check_own(
        &self,
        key: Key,
        dylib: DylibId,
        symbols: impl Iterator<Item = Symbol>,
    ) -> Result<(), SessionError> {
        let own = Owner::Responsibility(key);
        let foreign: Vec<Place> = symbols
            .map(|symbol| (dylib, symbol))
            .filter(|place| self.entry(*place).is_none_or(|entry| entry.owner != own))
            .collect();
        match foreign.is_empty() {
            true => Ok(()),
            false => Err(SessionError::NotResponsible(self.name_set(foreign))),
        }
    }

    /// Checks that each symbol gets one address, and that no callable symbol gets address 0.
    fn check_addresses(
        &self,
        dylib: DylibId,
        addresses: &[(Symbol, u64)],
    ) -> Result<(), SessionError> {
        let mut given: NumberMap<Symbol, u64> = NumberMap::default();
        let mut several = Vec::new();
        let mut null = Vec::new();
        for &(symbol, address) in addresses {
            let place = (dylib, symbol);
            let Some(entry) = self.entry(place) else {
                continue;
            };
            if entry.flags.contains(Flags::SIDE_EFFECTS_ONLY) {
                continue;
            }
            let resolved = entry.state == SymbolState::Resolved;
            let before = resolved.then_some(entry.address);
            let before = given.insert(symbol, address).or(before);
            if before.is_some_and(|before| before != address) {
                if !several.contains(&place) {
                    several.push(place);
                }
            } else if address == 0 && entry.flags.contains(Flags::CALLABLE) {
                null.push(place);
            }
        }
        null.dedup();
        if !several.is_empty() {
            return Err(SessionError::SeveralAddresses(self.name_set(several)));
        }
        match null.is_empty() {
            true => Ok(()),
            false => Err(SessionError::NullCallable(self.name_set(null))),
        }
    }

    /// Gives symbols their addresses and answers the queries that wait for them.
    pub(crate) fn resolve(
        &mut self,
        key: Key,
        addresses: &[(Symbol, u64)],
        effects: &mut Effects,
    ) -> Result<(), SessionError> {
        let (dylib, _) = self.at_work(key)?;
        self.check_own(key, dylib, addresses.iter().map(|(symbol, _)| *symbol))?;
        self.check_addresses(dylib, addresses)?;
        for (symbol, address) in addresses {
            let place = (dylib, *symbol);
            if let Some(entry) = self.entry_mut(place)
                && !entry.flags.contains(Flags::SIDE_EFFECTS_ONLY)
            {
                entry.address = *address;
                entry.state = SymbolState::Resolved;
                if !entry.queries.is_empty() {
                    self.answer(place, effects);
                }
            }
        }
        Ok(())
    }

    /// Answers the queries whose requirement the entry now meets.
    fn answer(&mut self, place: Place, effects: &mut Effects) {
        let Some(entry) = self.entry_mut(place) else {
            return;
        };
        let waiting = std::mem::take(&mut entry.queries);
        let far = [Required::Resolved, Required::Ready].map(|r| entry.satisfies(r));
        let found = entry.found(place);
        let addressless = entry.flags.contains(Flags::SIDE_EFFECTS_ONLY);
        let mut still = SmallVec::new();
        for (query, slot) in waiting {
            let Some(state) = self.queries.get_mut(query) else {
                continue;
            };
            let enough = far[state.required as usize] || (addressless && found.ready);
            if !enough {
                still.push((query, slot));
                continue;
            }
            if !addressless {
                state.slots[slot as usize] = Some(found);
            }
            state.remaining -= 1;
            if state.remaining == 0
                && let Some(done) = self.queries.remove(query)
            {
                let found = match done.slots[..] {
                    [Some(found)] => smallvec![found],
                    _ => done.slots.into_iter().flatten().collect(),
                };
                let result = Ok(LookupResult::new(found));
                effects.completions.push((done.completion, result));
            }
        }
        if !still.is_empty()
            && let Some(entry) = self.entry_mut(place)
        {
            entry.queries = still;
        }
    }

    /// Makes an entry ready: the last step, and the only one that publishes.
    fn publish(&mut self, place: Place, effects: &mut Effects) {
        let Some(dylib) = self.dylibs.get_mut(&place.0) else {
            return;
        };
        let Some(entry) = dylib.symbols.get_mut(&place.1) else {
            return;
        };
        entry.state = SymbolState::Ready;
        entry.owner = Owner::Nobody;
        entry.node = None;
        let addressless = entry.flags.contains(Flags::SIDE_EFFECTS_ONLY);
        if !addressless {
            dylib
                .shared
                .ready
                .publish(place.1, entry.address, entry.flags);
        }
        if !entry.queries.is_empty() {
            self.answer(place, effects);
        }
        if addressless {
            self.delete(place);
        }
    }

    /// Takes an entry out of its dylib.
    pub(crate) fn delete(&mut self, place: Place) -> Option<Entry> {
        let dylib = self.dylib_mut(place.0)?;
        let entry = dylib.symbols.remove(&place.1)?;
        dylib.shared.ready.clear(place.1);
        self.leave_tracker(entry.tracker);
        if !self.aliases.is_empty() {
            self.aliases.remove(&place);
        }
        Some(entry)
    }

    /// Emits a responsibility's symbols with their dependences.
    pub(crate) fn emit(
        &mut self,
        key: Key,
        symbols: &[(Symbol, Flags)],
        groups: &[DependenceGroup],
        effects: &mut Effects,
    ) -> Result<(), SessionError> {
        let (dylib, tracker) = self.at_work(key)?;
        self.check_emit(key, dylib, symbols, groups)?;
        self.responsibilities.remove(key);
        if let Some(tracker) = self.trackers.get_mut(&tracker) {
            tracker.responsibilities.remove(&key);
        }
        if groups.iter().all(|group| group.dependences.is_empty()) {
            let mut ready = Vec::new();
            for (symbol, _) in symbols {
                let place = (dylib, *symbol);
                match self.entry(place).and_then(|entry| entry.node) {
                    None => self.publish(place, effects),
                    Some(node) => self.graph.emit(node, &[], &mut ready),
                }
            }
            for place in ready {
                self.publish(place, effects);
            }
            return Ok(());
        }
        let mut below = self.dependence_nodes(dylib, groups);
        let mut ready = Vec::new();
        for (symbol, _) in symbols {
            let place = (dylib, *symbol);
            if let Some(entry) = self.entry_mut(place) {
                entry.state = SymbolState::Emitted;
                entry.owner = Owner::Nobody;
            }
            let nodes = below.remove(symbol).unwrap_or_default();
            let known = self.entry(place).is_some_and(|entry| entry.node.is_some());
            if nodes.is_empty() && !known {
                ready.push(place);
            } else if let Some(node) = self.node(place) {
                self.graph.emit(node, &nodes, &mut ready);
            }
        }
        for place in ready {
            self.publish(place, effects);
        }
        if !self.stalled.is_empty() {
            for (symbol, _) in symbols {
                self.ask_below((dylib, *symbol), effects);
            }
        }
        Ok(())
    }

    fn check_emit(
        &self,
        key: Key,
        dylib: DylibId,
        symbols: &[(Symbol, Flags)],
        groups: &[DependenceGroup],
    ) -> Result<(), SessionError> {
        let places = symbols.iter().map(|(symbol, _)| (dylib, *symbol));
        let early: Vec<Place> = places
            .filter(|place| {
                self.entry(*place).is_some_and(|entry| {
                    entry.state == SymbolState::Materializing
                        && !entry.flags.contains(Flags::SIDE_EFFECTS_ONLY)
                })
            })
            .collect();
        if !early.is_empty() {
            return Err(SessionError::Unresolved(self.name_set(early)));
        }
        for group in groups {
            self.check_own(key, dylib, group.symbols.iter().copied())?;
            let foreign = |(dylib, _): &&Place| self.dylibs.number(*dylib).is_none();
            if let Some((foreign, _)) = group.dependences.iter().find(foreign) {
                // Only the other session knows its name.
                let dylib = format!("{foreign:?}").into();
                return Err(SessionError::ForeignDylib { dylib });
            }
        }
        let gone: Vec<Place> = groups
            .iter()
            .flat_map(|group| group.dependences.iter().copied())
            .filter(|place| {
                self.entry(*place)
                    .is_none_or(|entry| entry.state == SymbolState::Failed)
            })
            .collect();
        match gone.is_empty() {
            true => Ok(()),
            false => Err(SessionError::DependenceFailed(self.name_set(gone))),
        }
    }

    /// For each symbol of the groups, the nodes of its dependences that are not ready. Symbols that
    /// share a set share one node in front of it.
    fn dependence_nodes(
        &mut self,
        dylib: DylibId,
        groups: &[DependenceGroup],
    ) -> NumberMap<Symbol, Vec<NodeId>> {
        let mut below: NumberMap<Symbol, Vec<NodeId>> = NumberMap::default();
        for group in groups {
            let mut nodes = Vec::new();
            for place in &group.dependences {
                let alone = group.symbols.len() == 1 && *place == (dylib, group.symbols[0]);
                let ready = self
                    .entry(*place)
                    .is_none_or(|entry| entry.state == SymbolState::Ready);
                if !ready && !alone {
                    nodes.extend(self.node(*place));
                }
            }
            if nodes.is_empty() {
                continue;
            }
            if group.symbols.len() > 1 && nodes.len() > 1 {
                let front = self.graph.add_group();
                self.graph.emit(front, &nodes, &mut Vec::new());
                nodes = vec![front];
            }
            for symbol in &group.symbols {
                below.entry(*symbol).or_default().extend_from_slice(&nodes);
            }
        }
        below
    }

    /// Fails the symbols that a responsibility still owns, and their dependents. If no query
    /// waited, the error is reported.
    pub(crate) fn fail(
        &mut self,
        key: Key,
        symbols: &[(Symbol, Flags)],
        cause: impl FnOnce(&Self, &[Place]) -> SessionError,
        effects: &mut Effects,
    ) {
        let Some(state) = self.responsibilities.remove(key) else {
            return;
        };
        if let Some(tracker) = self.trackers.get_mut(&state.tracker) {
            tracker.responsibilities.remove(&key);
        }
        let own = Owner::Responsibility(key);
        let places: Vec<Place> = symbols
            .iter()
            .map(|(symbol, _)| (state.dylib, *symbol))
            .filter(|place| self.entry(*place).is_some_and(|entry| entry.owner == own))
            .collect();
        let cause = cause(self, &places);
        let told = self.fail_places(places, cause.clone(), effects);
        if !told {
            effects.rare().reports.push(cause);
        }
    }

    /// Fails entries and their dependents; returns whether any query was answered.
    pub(crate) fn fail_places(
        &mut self,
        mut places: Vec<Place>,
        cause: SessionError,
        effects: &mut Effects,
    ) -> bool {
        let nodes: Vec<NodeId> = places
            .iter()
            .filter_map(|place| self.entry(*place)?.node)
            .collect();
        let own = places.len();
        let known: HashSet<Place> = match nodes.is_empty() {
            true => Default::default(),
            false => places.iter().copied().collect(),
        };
        let failed = self.graph.fail(nodes);
        places.extend(failed.into_iter().filter(|place| !known.contains(place)));
        debug_assert!(places.len() >= own);
        let error = SessionError::Failed {
            symbols: self.name_set(places.iter().copied()),
            cause: Some(Arc::new(cause)),
        };
        let mut told = false;
        for place in places {
            if !self.stalled.is_empty() {
                self.stalled.remove(&place);
            }
            let Some(entry) = self.entry_mut(place) else {
                continue;
            };
            entry.state = SymbolState::Failed;
            entry.owner = Owner::Nobody;
            entry.node = None;
            entry.error = Some(Box::new(error.clone()));
            let waiting = std::mem::take(&mut entry.queries);
            told |= self.fail_queries(waiting, &error, effects);
        }
        told
    }

    /// Answers queries with an error; whether there were any.
    pub(crate) fn fail_queries(
        &mut self,
        queries: SmallVec<[(Key, u32); 1]>,
        error: &SessionError,
        effects: &mut Effects,
    ) -> bool {
        let mut told = false;
        for (query, _) in queries {
            if let Some(query) = self.queries.remove(query) {
                told = true;
                effects
                    .completions
                    .push((query.completion, Err(error.clone())));
            }
        }
        told
    }

    /// Answers all queries that wait for these symbols, or for their dependents, with an error, and
    /// leaves the symbols as they are: their unit is given back.
    pub(crate) fn disappoint(
        &mut self,
        key: Key,
        symbols: &[Symbol],
        cause: SessionError,
        effects: &mut Effects,
    ) -> Result<(), SessionError> {
        let (dylib, _) = self.at_work(key)?;
        let own = symbols.iter().map(|symbol| (dylib, *symbol));
        let mut places: Vec<Place> = own.collect();
        for symbol in symbols {
            if let Some(node) = self.entry((dylib, *symbol)).and_then(|entry| entry.node) {
                places.extend(self.graph.dependents(node));
            }
        }
        places.sort_unstable();
        places.dedup();
        let error = SessionError::Failed {
            symbols: self.name_set(places.iter().copied()),
            cause: Some(Arc::new(cause)),
        };
        for place in places {
            if let Some(entry) = self.entry_mut(place) {
                let waiting = std::mem::take(&mut entry.queries);
                self.fail_queries(waiting, &error, effects);
            }
        }
        Ok(())
    }

    /// Splits symbols off into a responsibility of their own.
    pub(crate) fn delegate(
        &mut self,
        key: Key,
        symbols: &[Symbol],
        maker: &Maker,
    ) -> Result<Key, SessionError> {
        let (dylib, tracker) = self.at_work(key)?;
        self.check_own(key, dylib, symbols.iter().copied())?;
        let new = self.responsibilities.insert(ResponsibilityState {
            dylib,
            tracker,
            maker: Arc::clone(maker),
        });
        if let Some(tracker) = self.trackers.get_mut(&tracker) {
            tracker.responsibilities.insert(new);
        }
        for symbol in symbols {
            if let Some(entry) = self.entry_mut((dylib, *symbol)) {
                entry.owner = Owner::Responsibility(new);
            }
        }
        Ok(new)
    }
}
