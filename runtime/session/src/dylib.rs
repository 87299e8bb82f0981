//! Dylibs: named symbol tables with a link order, like dynamic libraries.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::alias::{Alias, Source};
use crate::error::SessionError;
use crate::flags::Flags;
use crate::generator::{Generator, GeneratorCell, GeneratorId};
pub use crate::number::DylibId;
use crate::order::Order;
use crate::ready::{Ready, ReadyTable};
use crate::session::Session;
use crate::symbol::Symbol;
use crate::tracker::{Tracker, TrackerKey};
use crate::unit::Unit;

/// The symbols of a dylib that a search sees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Visibility {
    /// The exported symbols.
    #[default]
    Exported,
    /// All, as the dylib itself does.
    All,
}

impl Visibility {
    #[inline]
    pub(crate) fn sees(self, flags: Flags) -> bool {
        self == Visibility::All || flags.is_exported()
    }
}

/// The part that all handles of a dylib share, and that is read without the lock.
///
/// `generators` is written under the session's lock, with release, and read with acquire by ready
/// lookups: if it is 0, an undefined symbol is not in this dylib.
#[derive(Debug)]
pub(crate) struct DylibShared {
    pub id: DylibId,
    pub name: Arc<str>,
    pub ready: ReadyTable,
    pub order: Order,
    generators: AtomicUsize,
}

impl DylibShared {
    pub(crate) fn new(id: DylibId, name: &str) -> Self {
        Self {
            id,
            name: name.into(),
            ready: ReadyTable::new(),
            order: Order::default(),
            generators: AtomicUsize::new(0),
        }
    }

    pub(crate) fn set_generators(&self, count: usize) {
        self.generators.store(count, Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_generators(&self) -> bool {
        self.generators.load(Ordering::Acquire) != 0
    }

    /// Adds the dylib's name to an error that was made without it.
    pub(crate) fn named(&self, error: SessionError) -> SessionError {
        match error {
            SessionError::TrackerDefunct { .. } => SessionError::TrackerDefunct {
                dylib: Arc::clone(&self.name),
            },
            other => other,
        }
    }
}

/// A handle to a dylib; the clones are one dylib.
#[derive(Clone)]
pub struct Dylib {
    session: Session,
    shared: Arc<DylibShared>,
}

impl fmt::Debug for Dylib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dylib({})", self.shared.name)
    }
}

impl PartialEq for Dylib {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Dylib {}

impl Dylib {
    pub(crate) fn new(session: &Session, shared: &Arc<DylibShared>) -> Self {
        Self {
            session: session.clone(),
            shared: Arc::clone(shared),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<DylibShared> {
        &self.shared
    }

    /// Its number.
    pub fn id(&self) -> DylibId {
        self.shared.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether it was removed.
    pub fn is_defunct(&self) -> bool {
        self.session.lock().dylib(self.shared.id).is_none()
    }

    /// Defines a unit's symbols under the default tracker; see
    /// [`Tracker::define`].
    ///
    /// # Errors
    /// Those of [`Tracker::define`].
    pub fn define(&self, unit: impl Unit + 'static) -> Result<(), SessionError> {
        self.session.define(&self.shared, None, Box::new(unit))
    }

    /// Would replace definitions by a unit's in place, with no instant at which a lookup finds
    /// none. Not implemented yet.
    ///
    /// # Errors
    /// `Unsupported`, always. Until then: remove the tracker and define again,
    /// or keep the address and change the code behind it.
    pub fn redefine(&self, unit: impl Unit + 'static) -> Result<(), SessionError> {
        drop(unit);
        Err(SessionError::Unsupported {
            what: "redefinition in place",
        })
    }

    /// The address of a symbol if it is ready; hidden ones too. Takes no lock,
    /// starts nothing and asks no generator.
    #[inline]
    pub fn ready(&self, symbol: Symbol) -> Option<u64> {
        self.shared.ready.address(symbol)
    }

    /// Like [`Dylib::ready`], by name.
    #[inline]
    pub fn ready_name(&self, name: &str) -> Option<u64> {
        self.ready(self.session.symbols().find(name)?)
    }

    /// Like [`Dylib::ready`], continued through the link order. `None` also if a symbol that is not
    /// ready, or a generator, comes first.
    #[inline]
    pub fn ready_in_order(&self, symbol: Symbol) -> Option<u64> {
        self.shared.ready_in_order(symbol)
    }

    #[inline]
    pub(crate) fn peek(&self, symbol: Symbol) -> Ready {
        self.shared.ready.get(symbol)
    }

    /// The address of a symbol of this dylib (hidden or not), once it is ready.
    /// Takes no lock if it is.
    ///
    /// # Errors
    /// Those of [`Session::lookup`].
    #[inline]
    pub fn lookup(&self, symbol: Symbol) -> Result<u64, SessionError> {
        match self.ready(symbol) {
            Some(address) => Ok(address),
            None => self.lookup_slowly(symbol),
        }
    }

    /// Like [`Dylib::lookup`], by name.
    ///
    /// # Errors
    /// Those of [`Session::lookup`].
    #[inline]
    pub fn lookup_name(&self, name: &str) -> Result<u64, SessionError> {
        match self.ready_name(name) {
            Some(address) => Ok(address),
            None => self.lookup_slowly(self.session.intern(name)),
        }
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
    /// [`Session::tracker`] makes handles to it.
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
        let id = GeneratorId(state.next_generator);
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

    /// The search order for symbols that this dylib uses: itself with all symbols, then its link
    /// order.
    pub fn search_order(&self) -> Vec<(Dylib, Visibility)> {
        let mut order = vec![(self.clone(), Visibility::All)];
        order.extend(
            self.link_order()
                .into_iter()
                .filter(|(dylib, _)| dylib != self),
        );
        order
    }

    /// The link order.
    pub fn link_order(&self) -> Vec<(Dylib, Visibility)> {
        let state = self.session.lock();
        let order = state.dylib(self.shared.id).map(|dylib| &dylib.link_order);
        order
            .into_iter()
            .flatten()
            .filter_map(|(id, visibility)| {
                let shared = &state.dylib(*id)?.shared;
                Some((Dylib::new(&self.session, shared), *visibility))
            })
            .collect()
    }

    /// Changes the link order; `added` must be existing dylibs of this session.
    fn edit_link_order(
        &self,
        added: &[&Dylib],
        edit: impl FnOnce(&mut Vec<(DylibId, Visibility)>),
    ) -> Result<(), SessionError> {
        for dylib in added {
            self.session.own(dylib)?;
        }
        let mut state = self.session.lock();
        for dylib in added {
            state.open(&dylib.shared)?;
        }
        let mut order = state.open(&self.shared)?.link_order.clone();
        edit(&mut order);
        state.set_order(self.shared.id, order);
        Ok(())
    }

    /// Sets the link order.
    ///
    /// # Errors
    /// `DylibDefunct` of this dylib or one of `order`, `ForeignDylib`, `Ended`. Nothing is
    /// changed then.
    pub fn set_link_order(&self, order: &[(Dylib, Visibility)]) -> Result<(), SessionError> {
        let added: Vec<&Dylib> = order.iter().map(|(dylib, _)| dylib).collect();
        let order = order.iter().map(|(d, visibility)| (d.id(), *visibility));
        self.edit_link_order(&added, |old| *old = order.collect())
    }

    /// Appends to the link order unless the dylib is there already.
    ///
    /// # Errors
    /// `DylibDefunct` of either dylib, `ForeignDylib`, `Ended`.
    pub fn add_to_link_order(&self, dylib: &Dylib, seen: Visibility) -> Result<(), SessionError> {
        self.add_to_link_order_before(dylib, seen, None)
    }

    /// Like [`Dylib::add_to_link_order`], but before `last` if that ends the order.
    ///
    /// # Errors
    /// Those of [`Dylib::add_to_link_order`].
    pub fn add_to_link_order_before(
        &self,
        dylib: &Dylib,
        seen: Visibility,
        last: Option<&Dylib>,
    ) -> Result<(), SessionError> {
        self.edit_link_order(&[dylib], |order| {
            if !order.iter().any(|(id, _)| *id == dylib.id()) {
                let is_last = |last: &Dylib| order.last().is_some_and(|(id, _)| *id == last.id());
                let end = order.len() - usize::from(last.is_some_and(is_last));
                order.insert(end, (dylib.id(), seen));
            }
        })
    }

    /// Puts `new` in the place of `old`; does nothing if `old` is not in the order.
    ///
    /// # Errors
    /// `DylibDefunct` of this dylib or `new`, `ForeignDylib`, `Ended`.
    pub fn replace_in_link_order(
        &self,
        old: &Dylib,
        new: &Dylib,
        seen: Visibility,
    ) -> Result<(), SessionError> {
        let old = self.session.own(old)?;
        self.edit_link_order(&[new], |order| {
            for place in order.iter_mut().filter(|(id, _)| *id == old) {
                *place = (new.id(), seen);
            }
        })
    }

    /// Takes a dylib out of the link order.
    ///
    /// # Errors
    /// `DylibDefunct` of this dylib, `ForeignDylib`, `Ended`.
    pub fn remove_from_link_order(&self, dylib: &Dylib) -> Result<(), SessionError> {
        let gone = self.session.own(dylib)?;
        self.edit_link_order(&[], |order| order.retain(|(id, _)| *id != gone))
    }

    /// This dylib and all that it links against, each once, depth first.
    pub fn depth_first_order(&self) -> Vec<Dylib> {
        let state = self.session.lock();
        let mut order: Vec<DylibId> = Vec::new();
        let mut stack = vec![self.shared.id];
        while let Some(id) = stack.pop() {
            if order.contains(&id) {
                continue;
            }
            let Some(dylib) = state.dylib(id) else {
                continue;
            };
            order.push(id);
            stack.extend(dylib.link_order.iter().rev().map(|(next, _)| *next));
        }
        order
            .into_iter()
            .filter_map(|id| Some(Dylib::new(&self.session, &state.dylib(id)?.shared)))
            .collect()
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
