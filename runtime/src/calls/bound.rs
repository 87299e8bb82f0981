//! Functions of the host by name, and their state. Their types: [`super::declared`].
//!
//! Invariant: the state of a function, or of a placeholder (`lazy`), lives as long as the module
//! whose IR refers to it, and as the code that was compiled from it or has its body inlined. A
//! frame of that code lies on the stack while the function runs. It belongs to the embedder, and
//! its destructor may use the session: it is dropped on a thread for code of embedders
//! ([`Parting`]).

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::declared::Typed;
use super::host::{HostCode, HostFunction, forwarding};
use super::types::FunctionType;
use crate::api::dylib::Dylib;
use crate::api::tracker::Tracker;
use crate::calls::functions::Parting;
use crate::code::names::{Definition, NewName};
use crate::error::Error;
use crate::fork::gate;

/// Defines names for functions of the host, all or none; under the default tracker if none is
/// given.
pub(crate) fn define_fns_under(
    dylib: &Dylib,
    functions: Vec<(&str, HostFunction)>,
    under: Option<&Tracker>,
) -> Result<(), Error> {
    let session = dylib.jit.session();
    check_new(dylib, &functions)?;
    let mut direct = Vec::new();
    let mut ir = String::new();
    let mut with_state: Vec<(&str, FunctionType, Arc<dyn Any + Send + Sync>)> = Vec::new();
    for (name, HostFunction { ty, code }) in functions {
        match code {
            HostCode::At(address) => direct.push((name, ty, address)),
            HostCode::With { address, state, at } => {
                ir += &forwarding(name, &ty, address, at);
                with_state.push((name, ty, state));
            }
            HostCode::Receiving(receiver) => {
                ir += &receiver.forwarding(name, &ty);
                with_state.push((name, ty, receiver));
            }
        }
    }
    define_with_state(dylib, &ir, with_state, under)?;
    let define = |tracker: &uruk_session::Tracker| {
        let names = direct
            .iter()
            .map(|&(name, _, address)| NewName::strong(name, Definition::Address(address)));
        let names: Vec<NewName> = names.collect();
        session.change_names(|| {
            // Before the name can be found: declarations are compared with the type from then on.
            direct
                .iter()
                .for_each(|(name, ty, address)| note(dylib, name, *address, ty));
            session.names.define(tracker, names)
        })
    };
    match under {
        None => dylib.in_default_tracker(define),
        Some(tracker) => define(&tracker.tracker),
    }
}

/// Whether functions may be defined under these names.
fn check_new(dylib: &Dylib, functions: &[(&str, HostFunction)]) -> Result<(), Error> {
    let session = dylib.jit.session();
    let _pass = gate::enter();
    for (index, (name, function)) in functions.iter().enumerate() {
        let twice = functions[..index].iter().any(|(before, _)| before == name);
        if twice || session.names.is_own(&dylib.dylib, name) {
            return Err(Error::DuplicateSymbol {
                symbol: (*name).to_owned(),
                first: match twice {
                    true => String::from("the host"),
                    false => format!("dylib {}", dylib.name()),
                },
                second: String::from("the host"),
            });
        }
        session.check_waiting_types(&dylib.dylib, name, &function.ty)?;
    }
    Ok(())
}

/// Defines functions with state by `ir`, which refers to the states.
fn define_with_state(
    dylib: &Dylib,
    ir: &str,
    functions: Vec<(&str, FunctionType, Arc<dyn Any + Send + Sync>)>,
    under: Option<&Tracker>,
) -> Result<(), Error> {
    if functions.is_empty() {
        return Ok(());
    }
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: the number must only be unique.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let session = dylib.jit.session();
    let names: Vec<&str> = functions.iter().map(|(name, ..)| *name).collect();
    let file: Arc<str> = format!("functions of the host: {} ({number})", names.join(", ")).into();
    let states = functions.iter().map(|(.., state)| Arc::clone(state));
    let parting = Parting {
        states: states.collect(),
        hands: Arc::downgrade(&session.hands),
    };
    {
        let _pass = gate::enter();
        session.host.announce(&file, Arc::new(parting));
    }
    let added = match under {
        None => dylib.add_ir(&file, ir),
        Some(tracker) => tracker.add_ir(&file, ir),
    };
    {
        let _pass = gate::enter();
        session.host.came(&file, added.is_ok());
    }
    added?;
    for (name, ty, _) in &functions {
        let address = dylib.lookup(name)?;
        note(dylib, name, address, ty);
    }
    Ok(())
}

fn note(dylib: &Dylib, name: &str, address: u64, ty: &FunctionType) {
    let typed = Typed {
        dylib: dylib.dylib.clone(),
        address,
        ty: ty.clone(),
    };
    let session = dylib.jit.session();
    let _pass = gate::enter();
    session.host.types().note(name, typed, &session.names);
}
