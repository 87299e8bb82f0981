//! Functions of the host by name, and their state. Their types: [`super::declared`].
//!
//! Invariant: the state of a function, or of a placeholder (`lazy`), lives as long as the module
//! whose IR refers to it, and as the code that was compiled from it or has its body inlined. A
//! frame of that code lies on the stack while the function runs. It belongs to the embedder, and
//! its destructor may use the session: it is dropped on a thread for code of embedders
//! ([`Parting`]).

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use uruk_base::FunctionId;
use uruk_base::locks::Mutex;

use super::declared::{HostTypes, Typed};
use super::host::{Code, HostFunction, forwarding};
use super::lazy::Lazy;
use super::types::FunctionType;
use crate::api::dylib::Dylib;
use crate::api::tracker::Tracker;
use crate::error::Error;
use crate::fork::gate;
use crate::load::names::{Definition, Name};
use crate::units::hands::Hands;

/// State of the embedder that is dropped with code; there, threads hold locks of the session.
struct Parting {
    states: Vec<State>,
    hands: Weak<Hands>,
}

impl Drop for Parting {
    fn drop(&mut self) {
        let states = std::mem::take(&mut self.states);
        match self.hands.upgrade() {
            Some(hands) => hands.drop_apart(states),
            None => drop(states),
        }
    }
}

/// State of a closure that code refers to.
pub(crate) type State = Arc<dyn Any + Send + Sync>;

/// The host's functions of a session.
#[derive(Default)]
pub(crate) struct HostFunctions {
    /// Types by name, with addresses: functions of several types may share code.
    types: HostTypes,
    states: Mutex<Vec<State>>,
    /// States of modules that are about to be read, by file, and whether the module was read.
    coming: Mutex<HashMap<Arc<str>, (State, bool)>>,
    /// Producers of functions whose placeholder is their body, or can become it again.
    lazy: Mutex<HashMap<FunctionId, Vec<Arc<dyn Lazy>>>>,
}

impl HostFunctions {
    pub(super) fn types(&self) -> &HostTypes {
        &self.types
    }

    pub(crate) fn keep(&self, state: State) {
        let mut states = self.states.lock();
        states.push(state);
    }

    /// Makes the module of a file, whose name is unique, hold a state, and all code compiled from
    /// its functions; until [`HostFunctions::came`].
    pub(super) fn announce(&self, file: &Arc<str>, state: State) {
        let mut coming = self.coming.lock();
        coming.insert(Arc::clone(file), (state, false));
    }

    /// Ends [`HostFunctions::announce`]: the module of a file was added, or not. A state that the
    /// module does not hold stays with the session.
    pub(super) fn came(&self, file: &str, added: bool) {
        let mut coming = self.coming.lock();
        let found = coming.remove(file);
        drop(coming);
        match found {
            Some((state, false)) if added => self.keep(state),
            // The state may be the embedder's, with a destructor of its own.
            found => gate::outside(|| drop(found)),
        }
    }

    /// The state to which the module of a file refers.
    pub(crate) fn state_for(&self, file: &str) -> Option<State> {
        let mut coming = self.coming.lock();
        let (state, held) = coming.get_mut(file)?;
        *held = true;
        Some(Arc::clone(state))
    }

    /// Notes the producer of a function; returns their number.
    pub(super) fn note_lazy(&self, id: FunctionId, producer: Arc<dyn Lazy>) -> usize {
        let mut lazy = self.lazy.lock();
        let all = lazy.entry(id).or_default();
        all.push(producer);
        all.len()
    }

    /// Takes the producers of a function that are no longer needed.
    pub(super) fn lapsed(
        &self,
        id: FunctionId,
        of_use: impl Fn(&dyn Lazy) -> bool,
    ) -> Vec<Arc<dyn Lazy>> {
        let mut lazy = self.lazy.lock();
        let all = lazy.get_mut(&id);
        let lapsed = all.map(|all| all.extract_if(.., |it| !of_use(&**it)).collect());
        lapsed.unwrap_or_default()
    }

    /// Drops the producers of a removed function.
    pub(crate) fn forget_lazy(&self, id: FunctionId) {
        let mut lazy = self.lazy.lock();
        let gone = lazy.remove(&id);
        drop(lazy);
        for gone in gone.into_iter().flatten() {
            gate::outside(|| gone.lapse());
        }
    }

    /// Resets production in the child of a fork: no thread produces a body.
    pub(crate) fn after_fork_child(&self) {
        let lazy = self.lazy.lock();
        let all = lazy.values().flatten();
        all.for_each(|producer| producer.after_fork_child());
    }
}

/// Defines names for functions of the host, all or none; under the default tracker if none is
/// given.
pub(crate) fn define_fns_under(
    dylib: &Dylib,
    functions: Vec<(&str, HostFunction)>,
    under: Option<&Tracker>,
) -> Result<(), Error> {
    let core = dylib.jit.core();
    check_new(dylib, &functions)?;
    let mut direct = Vec::new();
    let mut ir = String::new();
    let mut with_state: Vec<(&str, FunctionType, Arc<dyn Any + Send + Sync>)> = Vec::new();
    for (name, HostFunction { ty, code }) in functions {
        match code {
            Code::At(address) => direct.push((name, ty, address)),
            Code::With { address, state, at } => {
                ir += &forwarding(name, &ty, address, at);
                with_state.push((name, ty, state));
            }
            Code::Receiving(receiver) => {
                ir += &receiver.forwarding(name, &ty);
                with_state.push((name, ty, receiver));
            }
        }
    }
    define_with_state(dylib, &ir, with_state, under)?;
    let define = |tracker: &uruk_session::Tracker| {
        let names = direct
            .iter()
            .map(|&(name, _, address)| Name::strong(name, Definition::Address(address)));
        let names: Vec<Name> = names.collect();
        core.change_names(|| {
            // Before the name can be found: declarations are compared with the type from then on.
            direct
                .iter()
                .for_each(|(name, ty, address)| note(dylib, name, *address, ty));
            core.names.define(tracker, names)
        })
    };
    match under {
        None => dylib.in_default_tracker(define),
        Some(tracker) => define(&tracker.tracker),
    }
}

/// Whether functions may be defined under these names.
fn check_new(dylib: &Dylib, functions: &[(&str, HostFunction)]) -> Result<(), Error> {
    let core = dylib.jit.core();
    let _pass = gate::enter();
    for (index, (name, function)) in functions.iter().enumerate() {
        let twice = functions[..index].iter().any(|(before, _)| before == name);
        if twice || core.names.is_own(&dylib.dylib, name) {
            return Err(Error::DuplicateSymbol {
                symbol: (*name).to_owned(),
                first: match twice {
                    true => String::from("the host"),
                    false => format!("dylib {}", dylib.name()),
                },
                second: String::from("the host"),
            });
        }
        core.check_waiting_types(&dylib.dylib, name, &function.ty)?;
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
    let core = dylib.jit.core();
    let names: Vec<&str> = functions.iter().map(|(name, ..)| *name).collect();
    let file: Arc<str> = format!("functions of the host: {} ({number})", names.join(", ")).into();
    let states = functions.iter().map(|(.., state)| Arc::clone(state));
    let parting = Parting {
        states: states.collect(),
        hands: Arc::downgrade(&core.hands),
    };
    {
        let _pass = gate::enter();
        core.host.announce(&file, Arc::new(parting));
    }
    let added = match under {
        None => dylib.add_ir(&file, ir),
        Some(tracker) => tracker.add_ir(&file, ir),
    };
    {
        let _pass = gate::enter();
        core.host.came(&file, added.is_ok());
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
    let core = dylib.jit.core();
    let _pass = gate::enter();
    core.host.types().note(name, typed, &core.names);
}
