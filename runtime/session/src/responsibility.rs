//! The obligation to define the symbols of a unit.
//!
//! A [`Responsibility`] is handed to a unit when one of its symbols is looked up. It ends by `emit`
//! or `fail`, or is passed on in parts; dropping it fails its symbols, and nothing leaks. After its
//! tracker was removed each step returns `TrackerDefunct`, and any way to end it is fine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uruk_base::locks::thread_mark;

use crate::dylib::Dylib;
use crate::error::SessionError;
use crate::flags::Flags;
use crate::number::{DylibId, TrackerKey};
use crate::resource::Resource;
use crate::session::Session;
use crate::shared::DylibShared;
use crate::slab::Key;
use crate::state::State;
use crate::state::entry::Place;
use crate::state::{Launch, Maker};
use crate::symbol::Symbol;
use crate::unit::{Interface, Unit};

/// Symbols that become ready only when all of `dependences` are.
///
/// A symbol may be in several groups. Dependences among the symbols of one responsibility, cycles
/// and ready dependences are fine. A group waits for symbols that were never looked up, but does
/// not start them: that is done by the lookup that finds the dependences
/// ([`LookupResult::dependences`](crate::LookupResult::dependences)).
#[derive(Clone, Debug, Default)]
pub struct DependenceGroup {
    /// Symbols of the responsibility.
    pub symbols: Vec<Symbol>,
    /// The symbols that each of them uses.
    pub dependences: Vec<(DylibId, Symbol)>,
}

/// See the module text.
pub struct Responsibility {
    session: Session,
    shared: Arc<DylibShared>,
    key: Key,
    maker: Maker,
    symbols: Vec<(Symbol, Flags)>,
    init: Option<Symbol>,
    done: bool,
}

impl fmt::Debug for Responsibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responsibility")
            .field("dylib", &self.shared.name)
            .field("symbols", &self.symbols.len())
            .finish_non_exhaustive()
    }
}

impl Responsibility {
    pub(crate) fn new(session: &Session, launch: Launch) -> Self {
        Self {
            session: session.clone(),
            shared: launch.shared,
            key: launch.responsibility,
            maker: launch.maker,
            symbols: launch.symbols,
            init: launch.init,
            done: false,
        }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The dylib that the symbols are in.
    pub fn dylib(&self) -> Dylib {
        Dylib::new(&self.session, &self.shared)
    }

    /// The symbols, without those that were passed on.
    pub fn symbols(&self) -> &[(Symbol, Flags)] {
        &self.symbols
    }

    /// Whether `symbol` is one of them.
    pub fn covers(&self, symbol: Symbol) -> bool {
        self.symbols.iter().any(|(own, _)| *own == symbol)
    }

    /// The symbol that stands for the initializers, if it is one of them.
    pub fn init_symbol(&self) -> Option<Symbol> {
        self.init.filter(|init| self.covers(*init))
    }

    /// The symbols that a lookup or dependent waits for now. The others may be given back with
    /// `replace`.
    pub fn requested(&self) -> Vec<Symbol> {
        let state = self.session.lock();
        let wanted = |symbol: &Symbol| {
            let place = (self.shared.id, *symbol);
            state.is_asked(place) || state.is_needed(place)
        };
        self.symbols
            .iter()
            .map(|(s, _)| *s)
            .filter(wanted)
            .collect()
    }

    /// The tracker that the symbols are under now.
    ///
    /// # Errors
    /// `TrackerDefunct`.
    pub fn tracker(&self) -> Result<TrackerKey, SessionError> {
        let at_work = self.session.lock().at_work(self.key);
        self.named(at_work.map(|(_, tracker)| tracker))
    }

    /// Adds the dylib's name to an error that was made without it.
    fn named<R>(&self, result: Result<R, SessionError>) -> Result<R, SessionError> {
        result.map_err(|error| self.shared.named(error))
    }

    /// Gives symbols their addresses; lookups that require no more are answered. Addresses of
    /// side-effects-only symbols are ignored.
    ///
    /// # Errors
    /// `NotResponsible`, `SeveralAddresses`, `NullCallable`, `TrackerDefunct`; nothing is changed
    /// then.
    pub fn resolve(&self, addresses: &[(Symbol, u64)]) -> Result<(), SessionError> {
        let session = &self.session;
        self.named(session.change(|state, effects| state.resolve(self.key, addresses, effects)))
    }

    /// All symbols are in memory. Each becomes ready as soon as the dependences
    /// of its groups are; one without a group at once.
    ///
    /// # Errors
    /// `Unresolved` if one has no address, `NotResponsible` if a group names
    /// another's, `DependenceFailed` if a dependence failed or is gone,
    /// `ForeignDylib` if one is of another session: the symbols have failed then. `TrackerDefunct`.
    pub fn emit(mut self, groups: &[DependenceGroup]) -> Result<(), SessionError> {
        self.done = true;
        let (key, symbols) = (self.key, std::mem::take(&mut self.symbols));
        let emitted = self.session.change(|state, effects| {
            let emitted = state.emit(key, &symbols, groups, effects);
            if let Err(error) = &emitted {
                state.fail(key, &symbols, |_, _| error.clone(), effects);
            }
            emitted
        });
        self.named(emitted)
    }

    /// Resolves and emits in one step: the intermediate state, resolved and not emitted, is never
    /// visible.
    ///
    /// # Errors
    /// Those of `resolve` and of `emit`; the symbols have failed then.
    pub fn publish(
        mut self,
        addresses: &[(Symbol, u64)],
        groups: &[DependenceGroup],
    ) -> Result<(), SessionError> {
        self.done = true;
        let (key, symbols) = (self.key, std::mem::take(&mut self.symbols));
        let emitted = self.session.change(|state, effects| {
            let resolved = state.resolve(key, addresses, effects);
            let emitted = resolved.and_then(|()| state.emit(key, &symbols, groups, effects));
            if let Err(error) = &emitted {
                state.fail(key, &symbols, |_, _| error.clone(), effects);
            }
            emitted
        });
        self.named(emitted)
    }

    /// Adds symbols found during materialization. Weak ones that are defined elsewhere are skipped;
    /// returns those that were added.
    ///
    /// # Errors
    /// `Duplicate`, `TrackerDefunct`; nothing is changed then.
    pub fn claim(&mut self, symbols: &[(Symbol, Flags)]) -> Result<Vec<Symbol>, SessionError> {
        let claimed = self
            .session
            .change(|state, effects| state.claim(self.key, symbols, effects));
        let claimed = self.named(claimed)?;
        self.symbols.extend_from_slice(&claimed);
        Ok(claimed.into_iter().map(|(symbol, _)| symbol).collect())
    }

    fn without(&mut self, symbols: impl Iterator<Item = Symbol>) {
        let gone: std::collections::HashSet<Symbol> = symbols.collect();
        self.symbols.retain(|(symbol, _)| !gone.contains(symbol));
    }

    /// Gives symbols back to another unit, which is materialized when they are looked up: at once
    /// if a lookup waits for one already.
    ///
    /// # Errors
    /// `NotResponsible`, `TrackerDefunct`; the unit was dropped.
    pub fn replace(&mut self, unit: impl Unit + 'static) -> Result<(), SessionError> {
        let interface = unit.interface();
        let symbols = interface.symbols.clone();
        let key = self.key;
        let replaced = self
            .session
            .change(|state, effects| state.replace(key, Box::new(unit), interface, false, effects));
        self.named(replaced)?;
        self.without(symbols.into_iter().map(|(symbol, _)| symbol));
        Ok(())
    }

    /// Splits some of the symbols off into a responsibility of their own.
    ///
    /// # Errors
    /// `NotResponsible`, `TrackerDefunct`; nothing is changed then.
    pub fn delegate(&mut self, symbols: &[Symbol]) -> Result<Responsibility, SessionError> {
        let key = self.key;
        let maker = Maker::default();
        let session = &self.session;
        let new = self.named(session.change(|state, _| state.delegate(key, symbols, &maker)))?;
        let taken: std::collections::HashSet<Symbol> = symbols.iter().copied().collect();
        let split = self.symbols.iter().copied();
        let split: Vec<_> = split.filter(|(symbol, _)| taken.contains(symbol)).collect();
        self.without(symbols.iter().copied());
        Ok(Responsibility {
            session: self.session.clone(),
            shared: Arc::clone(&self.shared),
            key: new,
            maker,
            symbols: split,
            init: self.init,
            done: false,
        })
    }

    /// Keeps a resource until the definitions are removed.
    ///
    /// # Errors
    /// `TrackerDefunct`; the resource was released.
    pub fn attach(&self, resource: Box<dyn Resource>) -> Result<(), SessionError> {
        self.session.attach(&self.shared, resource, |state| {
            state.at_work(self.key).ok().map(|(_, tracker)| tracker)
        })
    }

    /// Fails the symbols and their dependents. `error` goes to all waiting lookups, or else to the
    /// reporter.
    pub fn fail(mut self, error: SessionError) {
        self.give_up(|_, _| error);
    }

    /// Fails the symbols for now, e.g. because an external is missing. All waiting lookups fail,
    /// and the next lookup of one of them, or of a dependent, materializes `unit`. Emitted code
    /// that depends on them keeps waiting instead of failing.
    ///
    /// # Errors
    /// `NotResponsible` if the unit defines other symbols; they have failed
    /// then. `TrackerDefunct`.
    pub fn fail_retryable(
        mut self,
        error: SessionError,
        unit: impl Unit + 'static,
    ) -> Result<(), SessionError> {
        let interface: Interface = unit.interface();
        let symbols: Vec<Symbol> = interface.symbols.iter().map(|(s, _)| *s).collect();
        let key = self.key;
        let replaced = self.session.change(|state, effects| {
            let dylib = state.at_work(key)?.0;
            state.check_own(key, dylib, symbols.iter().copied())?;
            state.disappoint(key, &symbols, error, effects)?;
            state.replace(key, Box::new(unit), interface, true, effects)
        });
        self.named(replaced)?;
        self.without(symbols.into_iter());
        Ok(())
    }

    fn give_up(&mut self, cause: impl FnOnce(&State, &[Place]) -> SessionError) {
        self.done = true;
        let (key, symbols) = (self.key, std::mem::take(&mut self.symbols));
        self.session
            .change(|state, effects| state.fail(key, &symbols, cause, effects));
    }
}

impl Responsibility {
    /// Declares that the calling thread is making the symbols, until the guard is dropped: in a
    /// fork's child made by another thread they fail. Within [`Unit::materialize`] this is set
    /// already.
    pub fn making(&self) -> Making {
        self.maker.store(thread_mark(), Ordering::Relaxed);
        Making(Arc::clone(&self.maker))
    }
}

/// Guard: the calling thread is making symbols while it lives.
#[derive(Debug)]
pub struct Making(Maker);

impl Drop for Making {
    fn drop(&mut self) {
        // Cleared unless another thread makes them by now.
        let (own, relaxed) = (thread_mark(), Ordering::Relaxed);
        let _ = self.0.compare_exchange(own, 0, relaxed, relaxed);
    }
}

impl Drop for Responsibility {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if self.symbols.is_empty() {
            // All symbols were passed on.
            self.session.forget(self.key);
        } else {
            self.give_up(|state, places| {
                SessionError::Abandoned(state.name_set(places.iter().copied()))
            });
        }
    }
}
