//! Units of embedders: definitions of any origin, materialized when they are looked up.
//!
//! A unit's interface lists its definitions ([`crate::Unit`]). A callable symbol gets a stub, as
//! functions of modules do, and its name stands for the stub, ready at once. The unit itself
//! defines the *body*, a symbol of the same dylib under a private name. The first call looks the
//! body up, which makes the unit materialize it, and publishes its address in the slot once it is
//! ready. Other symbols are defined under their own names, and materialized by their first lookup.
//!
//! | file | holds |
//! |---|---|
//! | [`adapter`] | a unit and its stubs as the session uses them |
//! | [`code`] | bytes of embedders as objects |
//! | [`bodies`] | names of bodies, and the bodies behind such stubs |
//! | [`call`] | a first call, from the body's name to the slot |
//! | [`better`], [`reoptimize`], [`materialize`] | requests to units for better code, and their answers |
//! | [`link`] | objects from which a unit makes its definitions |
//! | [`object`], [`archive`] | units of the runtime: objects that are linked on their first lookup, archives of them |
//!
//! # Invariants
//! - Code of an embedder runs without a pass of the gate and without a lock
//!   ([`gate::outside`](crate::fork::gate::outside)), and on no worker: it may call JIT'd
//!   functions, which may wait for one.
//! - A slot gets the address of a body that is ready, never of one that is only resolved.
//! - A stub goes with its name: when the name is discarded or removed, so is the body.

mod adapter;
mod archive;
mod better;
mod bodies;
mod call;
mod code;
mod link;
mod materialize;
mod object;
pub(crate) mod reoptimize;

use std::sync::Arc;

use uruk_session::{Dylib, Flags, Interface, SessionError, Symbol, Tracker};

use crate::api::jit::WeakJit;
use crate::api::unit::{Given, Unit};
use crate::code::body::Body;
use crate::code::life::Life;
use crate::code::static_names::static_name;
use crate::error::Error;
use crate::fork::gate;
use crate::session::Session;

pub use self::archive::Members;
pub(crate) use self::archive::{add_helpers, add_members, add_needed};
pub(crate) use self::better::improve_now;
pub(crate) use self::bodies::BodyNames;
pub(crate) use self::bodies::Improving;
pub(crate) use self::call::compile_now;
pub use self::code::{ObjectBuilder, Reference};
pub use self::object::LazyObject;
pub(crate) use crate::code::unit_body::UnitBody;

use self::adapter::{UnitAdapter, UnitStubs};

/// Whether a symbol gets a stub.
fn has_stub(flags: Flags) -> bool {
    let without = Flags::SIDE_EFFECTS_ONLY.with(Flags::ABSOLUTE);
    flags.contains(Flags::CALLABLE) && flags.without(without) == flags
}

/// The unit for a part of a responsibility that was given back.
pub(crate) fn adapted(given: Given) -> impl uruk_session::Unit {
    let Given {
        jit,
        names,
        unit,
        interface,
    } = given;
    let interface = names.interface(interface);
    UnitAdapter::new(jit, unit, interface, names)
}

impl Session {
    /// Defines the symbols that `unit` promises in `dylib`, under `tracker` or its default one: all
    /// of them, or none. Under a pass.
    pub(crate) fn define_unit(
        self: &Arc<Self>,
        jit: WeakJit,
        (dylib, tracker): (&Dylib, Option<&Tracker>),
        unit: Box<dyn Unit>,
        interface: Interface,
    ) -> Result<(), Error> {
        let callable: Vec<(Symbol, Flags)> = interface
            .symbols
            .iter()
            .copied()
            .filter(|(_, flags)| has_stub(*flags))
            .collect();
        if callable.is_empty() {
            let adapter = UnitAdapter::new(jit, unit, interface, BodyNames::none());
            match tracker {
                Some(tracker) => tracker.define(adapter)?,
                None => dylib.define(adapter)?,
            }
            self.retry_failed();
            return Ok(());
        }
        let default;
        let tracker = match tracker {
            Some(tracker) => tracker,
            None => {
                default = dylib.default_tracker()?;
                &default
            }
        };
        let names = Arc::new(BodyNames::new(self, &callable));
        let interface = names.interface(interface);
        let improver = gate::outside(|| unit.improver());
        let improver = improver.map(|improver| Improving::new(jit.clone(), improver));
        let adapter = UnitAdapter::new(jit, unit, interface, Arc::clone(&names));
        let own = dylib.create_tentative_tracker()?;
        let life: Arc<Life> = Arc::default();
        self.names.lives.note(&own, &life);
        let mut stubs = UnitStubs::new(self);
        let mut functions = Vec::with_capacity(callable.len());
        for (symbol, flags) in callable {
            let name = self.names.session().name(symbol);
            let id = self.stub_again(dylib, name)?;
            functions.push(id);
            let body = UnitBody {
                dylib: dylib.clone(),
                symbol: names.body(symbol),
                own: symbol,
                name: static_name(name),
                improver: improver.clone().map(|it| it as _),
                life: Arc::clone(&life),
            };
            stubs.add(symbol, flags, id, names.body(symbol));
            self.set_body(id, Body::Unit(body));
        }
        own.attach(self.removal_of(&life, functions))?;
        own.define(adapter)?;
        own.define(stubs)?;
        own.transfer_to(tracker)?;
        self.retry_failed();
        Ok(())
    }

    /// Removes symbols of a dylib, and the bodies of units' functions: all of them, or none. Under
    /// a pass.
    pub(crate) fn undefine(
        self: &Arc<Self>,
        dylib: &Dylib,
        symbols: &[Symbol],
    ) -> Result<(), SessionError> {
        let session = self.names.session();
        let mut all = symbols.to_vec();
        let mut functions = Vec::new();
        let mut of_modules = Vec::new();
        for symbol in symbols {
            // A stub without a request takes its body along (`UnitStubs::discard`).
            let stub = dylib.ready(*symbol);
            let Some(id) = stub.and_then(|stub| self.stubs.function_at(stub)) else {
                continue;
            };
            let body = match self.body(id) {
                Some(Body::Unit(body)) => body,
                Some(Body::Module(function)) => {
                    of_modules.extend(self.is_named(&function, dylib, *symbol).then_some(id));
                    continue;
                }
                _ => continue,
            };
            // Not if the symbol is an alias of the function.
            if body.own == *symbol && body.dylib == *dylib {
                functions.push(id);
                let there = session.symbol_state(dylib, body.symbol).is_some();
                all.extend(there.then_some(body.symbol));
            }
        }
        dylib.remove(&all)?;
        for id in functions {
            self.removed.undefined.goes(id);
            self.remove_function(id);
        }
        self.note_undefined(of_modules);
        Ok(())
    }
}
