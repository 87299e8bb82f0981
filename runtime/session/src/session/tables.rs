//! The tables of a session: its dylibs, their trackers and definitions.

use std::sync::Arc;

use super::Session;
use crate::dump::{self, Dump};
use crate::dylib::Dylib;
use crate::error::SessionError;
use crate::flags::SymbolState;
use crate::number::{DylibId, NumberMap, NumberSet, TrackerKey};
use crate::resource::Resource;
use crate::shared::DylibShared;
use crate::state::DylibState;
use crate::state::entry::Place;
use crate::state::{State, lost};
use crate::symbol::Symbol;
use crate::tracker::Tracker;
use crate::unit::Unit;

impl Session {
    /// The number of a dylib, which must be one of this session.
    pub(crate) fn own(&self, dylib: &Dylib) -> Result<DylibId, SessionError> {
        match self.is(dylib.session()) {
            true => Ok(dylib.id()),
            false => Err(SessionError::ForeignDylib {
                dylib: Arc::clone(&dylib.shared().name),
            }),
        }
    }

    /// A new dylib.
    ///
    /// # Errors
    /// `DylibExists`, `Ended`.
    pub fn create_dylib(&self, name: &str) -> Result<Dylib, SessionError> {
        let mut state = self.lock();
        if state.ended {
            return Err(SessionError::Ended);
        }
        if let Some(dylib) = state.dylibs.named(name) {
            let dylib = Arc::clone(&dylib.shared.name);
            return Err(SessionError::DylibExists { dylib });
        }
        let id = state.dylibs.next_id().ok_or(SessionError::Unsupported {
            what: "more than 2^32 dylibs",
        })?;
        let shared = Arc::new(DylibShared::new(id, name));
        let dylib = DylibState {
            shared: shared.clone(),
            symbols: NumberMap::default(),
            default_tracker: TrackerKey::NONE,
            trackers: NumberSet::default(),
            link_order: Vec::new(),
            searchers: NumberSet::default(),
            generators: Vec::new(),
            inits: Vec::new(),
        };
        state.dylibs.insert(&shared, dylib);
        let tracker = state.add_tracker(shared.id);
        if let Some(dylib) = state.dylib_mut(shared.id) {
            dylib.default_tracker = tracker;
        }
        Ok(Dylib::new(self, &shared))
    }

    /// The dylib of that name.
    pub fn dylib(&self, name: &str) -> Option<Dylib> {
        let state = self.lock();
        let shared = &state.dylibs.named(name)?.shared;
        Some(Dylib::new(self, shared))
    }

    /// The dylib of that number.
    pub fn dylib_by_id(&self, id: DylibId) -> Option<Dylib> {
        let state = self.lock();
        Some(Dylib::new(self, &state.dylib(id)?.shared))
    }

    /// Removes dylibs and all their definitions, in this order. Later definitions and work in
    /// flight get an error.
    ///
    /// # Errors
    /// `DylibDefunct`, `ForeignDylib`; nothing is changed then.
    pub fn remove_dylibs(&self, dylibs: &[Dylib]) -> Result<(), SessionError> {
        for dylib in dylibs {
            self.own(dylib)?;
        }
        let shared: Vec<_> = dylibs.iter().map(|d| Arc::clone(d.shared())).collect();
        self.change(|state, effects| state.remove_dylibs(&shared, effects))
    }

    /// Removes everything, the youngest dylib first, and ends the workers. All later operations
    /// return `Ended`. Existing errors stay valid.
    ///
    /// # Errors
    /// `Ended`, the second time.
    pub fn end(&self) -> Result<(), SessionError> {
        let result = self.change(|state, effects| {
            if state.ended {
                return Err(SessionError::Ended);
            }
            let dylibs = state.dylibs.values().map(|dylib| &dylib.shared);
            let mut all: Vec<_> = dylibs.cloned().collect();
            all.sort_unstable_by_key(|dylib| std::cmp::Reverse(state.dylibs.number(dylib.id)));
            state.remove_dylibs(&all, effects)?;
            state.end_waits(effects);
            state.ended = true;
            Ok(())
        });
        self.0.pool.quit();
        result
    }

    pub(crate) fn define(
        &self,
        shared: &Arc<DylibShared>,
        tracker: Option<TrackerKey>,
        unit: Box<dyn Unit>,
    ) -> Result<(), SessionError> {
        let interface = unit.interface();
        self.change(|state, effects| state.define(shared, tracker, unit, interface, effects))
            .map(|_| ())
    }

    pub(crate) fn drop_tracker(&self, shared: &Arc<DylibShared>, key: TrackerKey) {
        self.change(|state, effects| {
            if state.trackers.is_tentative(&key) {
                // The tracker exists.
                let _ = state.remove_tracker(key, effects);
                return;
            }
            let default = state.dylib(shared.id).map(|dylib| dylib.default_tracker);
            if let Some(default) = default
                && state.trackers.contains_key(&key)
            {
                // Both exist and belong to this dylib.
                let _ = state.transfer(key, default, effects);
            }
        });
    }

    pub(crate) fn attach(
        &self,
        shared: &Arc<DylibShared>,
        resource: Box<dyn Resource>,
        find: impl FnOnce(&State) -> Option<TrackerKey>,
    ) -> Result<(), SessionError> {
        self.change(|state, effects| {
            let key = find(state);
            match key.and_then(|key| state.trackers.get_mut(&key)) {
                Some(tracker) => {
                    tracker.resources.push(resource);
                    Ok(())
                }
                None => {
                    effects.rare().resources.push(resource);
                    let dylib = Arc::clone(&shared.name);
                    Err(SessionError::TrackerDefunct { dylib })
                }
            }
        })
    }

    /// The state of a symbol of a dylib; `None` if it is not defined there.
    pub fn symbol_state(&self, dylib: &Dylib, symbol: Symbol) -> Option<SymbolState> {
        let dylib = self.own(dylib).ok()?;
        Some(self.lock().entry((dylib, symbol))?.state)
    }

    /// The tracker that a symbol of a dylib is under; `None` if it is not defined there.
    pub fn tracker_of(&self, dylib: &Dylib, symbol: Symbol) -> Option<TrackerKey> {
        let dylib = self.own(dylib).ok()?;
        Some(self.lock().entry((dylib, symbol))?.tracker)
    }

    /// A handle to a tracker by its key, if it is not defunct. Dropping it never transfers the
    /// tracker's definitions.
    pub fn tracker(&self, key: TrackerKey) -> Option<Tracker> {
        let shared = {
            let state = self.lock();
            let dylib = state.trackers.get(&key)?.dylib;
            Arc::clone(&state.dylib(dylib)?.shared)
        };
        Some(Tracker::new(self, &shared, key, true))
    }

    /// The contents of all dylibs.
    pub fn dump(&self) -> Dump {
        let dylibs = dump::dylibs(&self.lock());
        Dump::new(dylibs)
    }

    /// Gives up lost work in the child of a `fork`, after
    /// [`Pool::after_fork_child`](crate::Pool::after_fork_child). Lookups no longer queue behind
    /// one that another thread was answering, and those that queue for a thread that is not in the
    /// child end. Symbols fail that another thread had declared to be making
    /// ([`making`](crate::Responsibility::making)). Other threads of the child must not answer a
    /// question or make a symbol meanwhile.
    ///
    /// It calls no code of embedders: generators that are asked next, completions of lookups that
    /// fail, and wakers are called by a task of the pool. Without workers that task waits for
    /// [`Pool::run_waiting`](crate::Pool::run_waiting), or for a thread that waits in a lookup.
    pub fn give_up_lost(&self) {
        self.change_later(|state, effects| {
            lost::drop_lookups(state);
            for (dylib, generator) in lost::answers(state) {
                state.leave_generator(dylib, generator, effects);
            }
            for (key, symbols) in lost::symbols(state) {
                let cause = |state: &State, places: &[Place]| {
                    SessionError::Abandoned(state.name_set(places.iter().copied()))
                };
                state.fail(key, &symbols, cause, effects);
            }
        });
    }
}
