//! Names of bodies: the session's names for a unit's callable symbols.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use uruk_session::{Flags, Interface, Symbol};

use crate::api::improve::{ReoptimizeRequest, Reoptimizer};
use crate::api::jit::{Jit, WeakJit};
use crate::code::unit_body::UNIT_PREFIX;
use crate::code::unit_body::UnitBody;
use crate::fork::gate;
use crate::session::Session;

/// The embedder's object that makes better code of a unit's functions.
pub(crate) struct Improving {
    jit: WeakJit,
    /// `None` at its end.
    improver: Option<Arc<dyn Reoptimizer>>,
}

impl Improving {
    pub(super) fn new(jit: WeakJit, improver: Arc<dyn Reoptimizer>) -> Arc<Improving> {
        let improver = Some(improver);
        Arc::new(Improving { jit, improver })
    }

    /// The object of a unit's function, if it has one.
    pub(crate) fn of(unit: &UnitBody) -> Option<Arc<Improving>> {
        let improver = Arc::clone(unit.improver.as_ref()?);
        improver.downcast().ok()
    }

    pub(crate) fn jit(&self) -> Option<Jit> {
        self.jit.upgrade()
    }

    /// Requests better code; without a pass.
    pub(crate) fn improve(&self, improvement: ReoptimizeRequest) {
        if let Some(improver) = &self.improver {
            improver.improve(improvement);
        }
    }
}

impl Drop for Improving {
    fn drop(&mut self) {
        // Code of the embedder drops it.
        let improver = self.improver.take();
        gate::outside(|| drop(improver));
    }
}

/// The bodies of a unit by its own symbols, and the way back.
#[derive(Debug, Default)]
pub(crate) struct BodyNames {
    bodies: HashMap<Symbol, Symbol>,
    own: HashMap<Symbol, Symbol>,
}

impl BodyNames {
    /// For all units without callable symbols.
    pub(super) fn none() -> Arc<BodyNames> {
        static NONE: LazyLock<Arc<BodyNames>> = LazyLock::new(Arc::default);
        Arc::clone(&NONE)
    }

    /// Whether the session uses the unit's own names.
    pub(crate) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// Names for the bodies of a new unit.
    pub(super) fn new(session: &Session, callable: &[(Symbol, Flags)]) -> BodyNames {
        // Relaxed: only to be distinct.
        let number = session.next_unit();
        let symbols = session.names.session();
        let mut names = BodyNames::default();
        for (own, _) in callable {
            let body = symbols.intern(&format!("{UNIT_PREFIX}{number}.{}", symbols.name(*own)));
            names.bodies.insert(*own, body);
            names.own.insert(body, *own);
        }
        names
    }

    /// The session's name of the unit's `symbol`.
    pub(crate) fn body(&self, symbol: Symbol) -> Symbol {
        self.bodies.get(&symbol).copied().unwrap_or(symbol)
    }

    /// The unit's name of the session's `symbol`.
    pub(crate) fn own(&self, symbol: Symbol) -> Symbol {
        self.own.get(&symbol).copied().unwrap_or(symbol)
    }

    /// Whether the unit's `symbol` has a stub.
    pub(super) fn has_stub(&self, symbol: Symbol) -> bool {
        self.bodies.contains_key(&symbol)
    }

    /// The interface of a unit as the session gets it.
    pub(crate) fn interface(&self, interface: Interface) -> Interface {
        let symbols = interface.symbols.into_iter();
        let symbols = symbols.map(|(symbol, flags)| match self.has_stub(symbol) {
            // Such a symbol is found by its number only.
            true => (self.body(symbol), flags.without(Flags::EXPORTED)),
            false => (symbol, flags),
        });
        Interface {
            symbols: symbols.collect(),
            init: interface.init.map(|init| self.body(init)),
        }
    }
}
