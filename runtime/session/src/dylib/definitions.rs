//! Operations on the definitions of a dylib: its units, aliases, generators and trackers.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Dylib;
use crate::alias::{Alias, Source};
use crate::error::SessionError;
use crate::generator::{Generator, GeneratorCell};
use crate::number::{GeneratorId, TrackerKey};
use crate::shared::Visibility;
use crate::symbol::Symbol;
use crate::tracker::Tracker;
use crate::unit::Unit;

impl Dylib {
    /// Defines a unit's symbols under the default tracker; see
    /// [`Tracker::define`].
    ///
    /// # Errors
    /// Those of [`Tracker::define`].
    pub fn define(&self, unit: impl Unit + 'static) -> Result<(), SessionError> {
        self.session.define(&self.shared, None, Box::new(unit))
    }

    /// The tracker of symbols that are defined without one.
    ///
    /// # Errors
    /// `DylibDefunct`, `Ended`.
    pub fn default_tracker(&self) -> Result<Tracker, SessionError> {
        let key = self.session.lock().open(&self.shared)?.default_tracker;
        Ok(Tracker::new(&self.session, &self.shared, key, true))
    }

    /// A new tracker.
    ///
    /// # Errors
    /// `DylibDefunct`, `Ended`.
    pub fn create_tracker(&self) -> Result<Tracker, SessionError> {
        let key = {
            let mut state = self.session.lock();
            state.open(&self.shared)?;
            state.add_tracker(self.shared.id)
        };
        Ok(Tracker::new(&self.session, &self.shared, key, false))
    }

    /// A new tracker that no handle keeps: its definitions stay until it is removed.
    /// [`Session::tracker`](crate::Session::tracker) makes handles to it.
    ///
    /// # Errors
    /// `DylibDefunct`, `Ended`.
    pub fn create_kept_tracker(&self) -> Result<TrackerKey, SessionError> {
        let mut state = self.session.lock();
        state.open(&self.shared)?;
        Ok(state.add_tracker(self.shared.id))
    }

    /// A new tracker whose definitions are undone unless they are transferred to another one. When
    /// it is removed or its last handle is dropped, the weak definitions that they displaced are
    /// restored.
    ///
    /// # Errors
    /// `DylibDefunct`, `Ended`.
    pub fn create_tentative_tracker(&self) -> Result<Tracker, SessionError> {
        let key = {
            let mut state = self.session.lock();
            state.open(&self.shared)?;
            state.new_tracker(self.shared.id, Some(Vec::new()))
        };
        Ok(Tracker::new(&self.session, &self.shared, key, false))
    }

    /// Removes symbols that are not in production: never searched, ready or failed ones. All or
    /// nothing.
    ///
    /// # Errors
    /// `NotFound` or `InFlight` with all such symbols.
    pub fn remove(&self, symbols: &[Symbol]) -> Result<(), SessionError> {
        self.session
            .change(|state, effects| state.remove_symbols(&self.shared, symbols, effects))
    }

    /// Removes all definitions, as if each tracker were removed.
    ///
    /// # Errors
    /// `DylibDefunct`, `Ended`.
    pub fn clear(&self) -> Result<(), SessionError> {
        self.session.change(|state, effects| {
            state.open(&self.shared)?;
            state.clear(self.shared.id, effects);
            Ok(())
        })
    }

    /// The init symbols of units defined so far, oldest first.
    pub fn init_symbols(&self) -> Vec<Symbol> {
        let state = self.session.lock();
        state
            .dylib(self.shared.id)
            .map_or_else(Vec::new, |dylib| dylib.inits.clone())
    }

    /// Adds a generator behind the existing ones.
    ///
    /// # Errors
    /// `DylibDefunct`, `Ended`.
    pub fn add_generator(
        &self,
        generator: impl Generator + 'static,
    ) -> Result<GeneratorId, SessionError> {
        let mut state = self.session.lock();
        let id = GeneratorId::new(state.next_generator);
        state.next_generator += 1;
        let dylib = state.open(&self.shared)?;
        dylib.generators.push(GeneratorCell {
            id,
            generator: Arc::new(generator),
            busy: false,
            inside: None,
            line: VecDeque::new(),
        });
        self.shared.set_generators(dylib.generators.len());
        Ok(id)
    }

    /// Removes a generator. Lookups that are inside it or in its queue fail. False if it was not
    /// found.
    pub fn remove_generator(&self, id: GeneratorId) -> bool {
        self.session.change(|state, effects| {
            let Some(dylib) = state.dylib_mut(self.shared.id) else {
                return false;
            };
            let Some(at) = dylib.generators.iter().position(|cell| cell.id == id) else {
                return false;
            };
            let cell = dylib.generators.remove(at);
            self.shared.set_generators(dylib.generators.len());
            effects.drop_generator(cell, &self.shared.name);
            true
        })
    }

    /// Defines other names for symbols of this dylib.
    ///
    /// # Errors
    /// Those of [`Tracker::define`], `AliasCycle`.
    pub fn alias(&self, aliases: impl IntoIterator<Item = Alias>) -> Result<(), SessionError> {
        self.reexport(self, Visibility::All, aliases)
    }

    /// Defines names for symbols of `source`. Only the requested ones are materialized there.
    ///
    /// # Errors
    /// Those of [`Tracker::define`], `AliasCycle`, `ForeignDylib`.
    pub fn reexport(
        &self,
        source: &Dylib,
        seen: Visibility,
        aliases: impl IntoIterator<Item = Alias>,
    ) -> Result<(), SessionError> {
        self.session.own(source)?;
        let source = Source::new(&source.shared, seen);
        crate::alias::define(&self.session, &self.shared, None, source, aliases)
    }
}
