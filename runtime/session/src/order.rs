//! Copies of dylibs' link orders, read by ready lookups without a lock.
//!
//! The link order itself is under the session's lock (`state.rs`). This is a copy of it with the
//! dylibs' shared parts, replaced as a whole when the order changes. A reader sees the old or the
//! new one.
//!
//! Two dylibs may be in each other's order, so the copies can form a reference cycle: they are
//! emptied when their dylib is removed, and with the session.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::dylib::{Dylib, DylibId, DylibShared, Visibility};
use crate::ready::{Ready, ReadyTable};
use crate::state::State;
use crate::symbol::Symbol;

/// See the module text.
#[derive(Default)]
pub(crate) struct Order(ArcSwap<Vec<(Arc<DylibShared>, Visibility)>>);

impl fmt::Debug for Order {
    /// Prints no dylibs: they may be in each other's order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({} dylibs)", self.0.load().len())
    }
}

impl Order {
    /// Drops the references to the dylibs.
    pub(crate) fn clear(&self) {
        self.0.store(Arc::default());
    }
}

impl DylibShared {
    /// The address of a ready symbol that a lookup starting here finds: in this dylib or in its
    /// link order. `None` if it is not ready, or if a generator would have to be asked before.
    #[inline]
    pub(crate) fn ready_in_order(&self, symbol: Symbol) -> Option<u64> {
        let spot = ReadyTable::spot(symbol);
        let step = |shared: &DylibShared, seen: Visibility| match shared.ready.get_at(&spot) {
            Ready::At(address, flags) if seen.sees(flags) => Some(Some(address)),
            Ready::Defined(flags) if seen.sees(flags) => Some(None),
            Ready::Undefined if shared.has_generators() => Some(None),
            _ => None,
        };
        if let Some(answer) = step(self, Visibility::All) {
            return answer;
        }
        let order = self.order.0.load();
        order
            .iter()
            .find_map(|(shared, seen)| step(shared, *seen))?
    }
}

impl Dylib {
    /// The dylibs in whose link order this one is, itself not counted.
    pub fn searchers(&self) -> Vec<Dylib> {
        let state = self.session().lock();
        let searchers = state.dylib(self.id()).map(|dylib| &dylib.searchers);
        let mut ids: Vec<DylibId> = searchers.into_iter().flatten().copied().collect();
        ids.sort_unstable();
        let others = ids.iter().filter(|id| **id != self.id());
        others
            .filter_map(|id| Some(Dylib::new(self.session(), &state.dylib(*id)?.shared)))
            .collect()
    }
}

impl Dylib {
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
        let state = self.session().lock();
        let symbols = state.dylib(self.id())?.symbols.keys();
        let mut symbols = symbols.copied();
        symbols.find(|symbol| {
            matches!(self.peek(*symbol), Ready::At(at, flags) if at == address && flags.is_exported())
        })
    }
}

impl State {
    /// Sets the link order of a dylib.
    pub(crate) fn set_order(&mut self, id: DylibId, order: Vec<(DylibId, Visibility)>) {
        let Some(state) = self.dylib_mut(id) else {
            return;
        };
        let added: Vec<DylibId> = order.iter().map(|(other, _)| *other).collect();
        let before = std::mem::replace(&mut state.link_order, order);
        for (other, _) in before {
            if let Some(other) = self.dylib_mut(other) {
                other.searchers.remove(&id);
            }
        }
        for other in added {
            if let Some(other) = self.dylib_mut(other) {
                other.searchers.insert(id);
            }
        }
        self.show_order(id);
    }

    /// Updates the copy of a dylib's link order that ready lookups see.
    pub(crate) fn show_order(&self, id: DylibId) {
        let Some(state) = self.dylib(id) else {
            return;
        };
        let others = state.link_order.iter().filter(|(other, _)| *other != id);
        let order = others.filter_map(|(other, seen)| {
            let shared = &self.dylib(*other)?.shared;
            Some((Arc::clone(shared), *seen))
        });
        state.shared.order.0.store(Arc::new(order.collect()));
    }
}
