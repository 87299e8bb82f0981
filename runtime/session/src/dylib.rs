//! Dylibs: named symbol tables with a link order, like dynamic libraries. Operations that change
//! definitions are in `dylib/definitions.rs`.

mod definitions;

use std::fmt;
use std::sync::Arc;

use crate::error::{Names, SessionError};
use crate::number::DylibId;
use crate::ready::Ready;
use crate::session::Session;
use crate::shared::{DylibShared, Visibility};
use crate::symbol::Symbol;

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

    /// The dylibs in whose link order this one is, itself not counted.
    pub fn searchers(&self) -> Vec<Dylib> {
        let state = self.session.lock();
        let searchers = state.dylib(self.id()).map(|dylib| &dylib.searchers);
        let mut ids: Vec<DylibId> = searchers.into_iter().flatten().copied().collect();
        ids.sort_unstable();
        let others = ids.iter().filter(|id| **id != self.id());
        others
            .filter_map(|id| Some(Dylib::new(&self.session, &state.dylib(*id)?.shared)))
            .collect()
    }

    /// Whether a symbol that is defined here is exported. Takes no lock, starts nothing and asks no
    /// generator.
    pub fn exports(&self, symbol: Symbol) -> bool {
        match self.peek(symbol) {
            Ready::At(_, flags) | Ready::Defined(flags) => flags.is_exported(),
            Ready::Undefined => false,
        }
    }

    /// An exported symbol that is ready here at an address. Examines all symbols.
    pub fn exported_at(&self, address: u64) -> Option<Symbol> {
        let state = self.session.lock();
        let symbols = state.dylib(self.id())?.symbols.keys();
        let mut symbols = symbols.copied();
        symbols.find(|symbol| {
            matches!(self.peek(*symbol), Ready::At(at, flags) if at == address && flags.is_exported())
        })
    }
}

impl SessionError {
    /// Makes the error that no dylib in the search order of `dylib` defines `symbols`.
    pub fn not_found(dylib: &Dylib, symbols: Vec<Symbol>) -> Self {
        let set = (Arc::from(dylib.name()), symbols);
        SessionError::NotFound(Names::new(dylib.session.symbols(), vec![set]))
    }
}
