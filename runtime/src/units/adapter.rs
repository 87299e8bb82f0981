//! What the session sees of an embedder's unit, and of the stubs of its functions.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use uruk_base::FunctionId;
use uruk_session::{Dylib, Flags, Interface, Responsibility, SessionError, Symbol, Unit};

use super::bodies::BodyNames;
use super::hands;
use crate::api;
use crate::api::jit::WeakJit;
use crate::core::Core;
use crate::fork::gate;

/// A unit of an embedder's under the names that the session knows its symbols by.
pub(super) struct Adapter {
    core: Weak<Core>,
    jit: WeakJit,
    name: Box<str>,
    unit: Box<dyn api::unit::Unit>,
    interface: Interface,
    names: Arc<BodyNames>,
}

impl Adapter {
    pub(super) fn new(
        core: &Arc<Core>,
        jit: WeakJit,
        unit: Box<dyn api::unit::Unit>,
        interface: Interface,
        names: Arc<BodyNames>,
    ) -> Adapter {
        Adapter {
            core: Arc::downgrade(core),
            jit,
            name: unit.name().into(),
            unit,
            interface,
            names,
        }
    }
}

impl Unit for Adapter {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> Interface {
        self.interface.clone()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let (Some(core), Some(jit)) = (self.core.upgrade(), self.jit.upgrade()) else {
            return responsibility.fail(SessionError::Ended);
        };
        let Adapter { unit, names, .. } = *self;
        let responsibility = api::unit::Responsibility::new(jit, responsibility, names);
        let work = move || unit.materialize(responsibility);
        match hands::is_worker() {
            true => {
                let _pass = gate::enter();
                core.hands.start(work);
            }
            false => gate::outside(work),
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
struct Stub {
    flags: Flags,
    id: FunctionId,
    body: Symbol,
}

/// The stubs of a unit's callable symbols.
pub(super) struct Stubs {
    core: Weak<Core>,
    stubs: HashMap<Symbol, Stub>,
}

impl Stubs {
    pub(super) fn new(core: &Arc<Core>) -> Stubs {
        Stubs {
            core: Arc::downgrade(core),
            stubs: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, symbol: Symbol, flags: Flags, id: FunctionId, body: Symbol) {
        self.stubs.insert(symbol, Stub { flags, id, body });
    }
}

impl Unit for Stubs {
    fn name(&self) -> &str {
        "stubs of a unit"
    }

    fn interface(&self) -> Interface {
        let stubs = self.stubs.iter();
        stubs.map(|(symbol, stub)| (*symbol, stub.flags)).collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let Some(core) = self.core.upgrade() else {
            return responsibility.fail(SessionError::Ended);
        };
        let address = |stub: &Stub| core.stubs.stub_address(stub.id).0;
        let stubs = self.stubs.iter();
        let addresses: Vec<_> = stubs
            .map(|(symbol, stub)| (*symbol, address(stub)))
            .collect();
        // Both fail only if the tracker was removed, and then nobody waits.
        if responsibility.resolve(&addresses).is_ok() {
            let _ = responsibility.emit(&[]);
        }
    }

    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        let Some(stub) = self.stubs.remove(&symbol) else {
            return;
        };
        // The unit is told by this. It is there, for nobody knew it.
        let _ = dylib.remove(&[stub.body]);
        if let Some(core) = self.core.upgrade() {
            core.remove_function(stub.id);
        }
    }
}
