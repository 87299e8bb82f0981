//! Adapts an embedder's unit, and the stubs of its functions, to the session.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tracing::error;
use uruk_base::FunctionId;
use uruk_session::{Dylib, Flags, Interface, Responsibility, SessionError, Symbol, Unit};

use super::bodies::BodyNames;
use crate::api;
use crate::api::jit::WeakJit;
use crate::fork::errands::Errand;
use crate::fork::gate;
use crate::fork::hands;
use crate::session::Session;

/// An embedder's unit with the session's names for its symbols.
pub(super) struct UnitAdapter {
    jit: WeakJit,
    unit: Box<dyn api::unit::Unit>,
    /// The interface until it is requested, once.
    interface: Cell<Interface>,
    names: Arc<BodyNames>,
}

impl UnitAdapter {
    pub(super) fn new(
        jit: WeakJit,
        unit: Box<dyn api::unit::Unit>,
        interface: Interface,
        names: Arc<BodyNames>,
    ) -> UnitAdapter {
        UnitAdapter {
            jit,
            unit,
            interface: Cell::new(interface),
            names,
        }
    }
}

impl Unit for UnitAdapter {
    fn name(&self) -> &str {
        self.unit.name()
    }

    fn interface(&self) -> Interface {
        self.interface.take()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let UnitAdapter {
            jit, unit, names, ..
        } = *self;
        let Some(jit) = jit.upgrade() else {
            return responsibility.fail(SessionError::Ended);
        };
        let session = Arc::clone(jit.session());
        if !hands::is_worker() {
            let _others = Errand::Others.begin();
            let responsibility = api::unit::Responsibility::new(jit, responsibility, names);
            return gate::outside(move || unit.materialize(responsibility));
        }
        let _pass = gate::enter();
        // Without a thread the responsibility is dropped, which fails the symbols.
        let started = session.hands.start(move || {
            let _others = Errand::Others.begin();
            let _making = responsibility.making();
            unit.materialize(api::unit::Responsibility::new(jit, responsibility, names));
        });
        if let Err(cause) = started {
            error!(%cause, "no thread for a unit");
        }
    }

    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        let Some(jit) = self.jit.upgrade() else {
            return;
        };
        let dylib = jit.dylib_of(dylib);
        let own = self.names.own(symbol);
        gate::outside(|| self.unit.discard(&dylib, own));
    }
}

/// One stub: its flags, its function, and the symbol of its body.
struct UnitStub {
    flags: Flags,
    id: FunctionId,
    body: Symbol,
}

/// The stubs of a unit's callable symbols.
pub(super) struct UnitStubs {
    session: Weak<Session>,
    stubs: HashMap<Symbol, UnitStub>,
}

impl UnitStubs {
    pub(super) fn new(session: &Arc<Session>) -> UnitStubs {
        UnitStubs {
            session: Arc::downgrade(session),
            stubs: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, symbol: Symbol, flags: Flags, id: FunctionId, body: Symbol) {
        self.stubs.insert(symbol, UnitStub { flags, id, body });
    }
}

impl Unit for UnitStubs {
    fn name(&self) -> &str {
        "stubs of a unit"
    }

    fn interface(&self) -> Interface {
        let stubs = self.stubs.iter();
        stubs.map(|(symbol, stub)| (*symbol, stub.flags)).collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let Some(session) = self.session.upgrade() else {
            return responsibility.fail(SessionError::Ended);
        };
        let address = |stub: &UnitStub| session.stubs.stub_address(stub.id).0;
        let stubs = self.stubs.iter();
        let addresses: Vec<_> = stubs
            .map(|(symbol, stub)| (*symbol, address(stub)))
            .collect();
        // It fails only if the tracker was removed, and then no thread waits.
        let _ = responsibility.publish(&addresses, &[]);
    }

    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        let Some(stub) = self.stubs.remove(&symbol) else {
            return;
        };
        // This tells the unit. The body is there, since no other code knew it.
        let _ = dylib.remove(&[stub.body]);
        if let Some(session) = self.session.upgrade() {
            session.remove_function(stub.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fork::shield;
    use crate::{Flags, Interface, Jit, Responsibility, Symbol, Unit};

    struct Fixed(Symbol);

    impl Unit for Fixed {
        fn name(&self) -> &str {
            "fixed"
        }

        fn interface(&self) -> Interface {
            [(self.0, Flags::EXPORTED)].into_iter().collect()
        }

        fn materialize(self: Box<Self>, responsibility: Responsibility) {
            assert!(shield::is_interruptible());
            let _ = responsibility.publish(&[(self.0, 8)], &[]);
        }
    }

    #[test]
    fn each_step_of_a_unit_blocks_signals_once() {
        let jit = Jit::new().expect("a session");
        let symbol = jit.intern("fixed");
        let tracker = jit.main().create_tracker().expect("a tracker");
        let mut before = shield::blocks();
        let mut since = || {
            let now = shield::blocks();
            now - std::mem::replace(&mut before, now)
        };
        tracker.define(Fixed(symbol)).expect("a new name");
        assert_eq!(since(), 1);
        // Once to start the unit, and once to end it.
        assert_eq!(jit.main().lookup_symbol(symbol).ok(), Some(8));
        assert_eq!(since(), 2);
        assert_eq!(jit.main().lookup_symbol(symbol).ok(), Some(8));
        assert_eq!(since(), 0);
        // SAFETY: there is nothing at that address.
        unsafe { tracker.remove() }.expect("it is there");
        assert_eq!(since(), 1);
        drop(tracker);
        assert_eq!(since(), 1);
    }
}
