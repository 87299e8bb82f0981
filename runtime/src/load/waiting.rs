//! Inputs that are added before their dependences: dylibs in which `add` may leave names missing.
//!
//! Functions of such an input are defined as usual: one that needs a missing name fails when it is
//! called, and is tried again after new definitions. If its *data* refers to a missing name, the
//! data waits: it is a unit of the session, which is materialized by the first lookup that finds
//! everything defined. Constructors wait with it.
//!
//! A flags lookup checks whether all names are defined, before any of the data gets an address. A
//! unit that gives an address out must not fail for a missing name, as others may be linked against
//! it then. Inputs that refer to each other's data find each other's addresses, as units do
//! ([`units::link`](crate::units)).
//!
//! Waiting inputs are listed by image; they are removed with their trackers.

mod link;

use std::collections::{HashMap, HashSet};

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_session::{Dylib, DylibId, Symbol};

use crate::error::Missing;

/// The waiting inputs of a session.
#[derive(Default)]
pub(crate) struct WaitingInputs(Mutex<WaitingTable>);

#[derive(Default)]
struct WaitingTable {
    /// Dylibs in which names may be missing.
    dylibs: HashSet<DylibId>,
    /// Inputs by number.
    inputs: HashMap<u64, WaitingInput>,
}

/// An input that was added while it needed missing names.
struct WaitingInput {
    dylib: Dylib,
    missing: Vec<Missing>,
    /// The symbol whose lookup links its data and constructors, if they wait.
    init: Option<Symbol>,
}

impl WaitingInputs {
    fn lock(&self) -> MutexGuard<'_, WaitingTable> {
        self.0.lock()
    }

    /// Sets whether names may be missing in a dylib.
    pub(crate) fn allow(&self, dylib: &Dylib, allowed: bool) {
        let mut table = self.lock();
        match allowed {
            true => table.dylibs.insert(dylib.id()),
            false => table.dylibs.remove(&dylib.id()),
        };
    }

    /// Whether names may be missing in a dylib.
    pub(crate) fn is_allowed(&self, dylib: &Dylib) -> bool {
        self.lock().dylibs.contains(&dylib.id())
    }

    fn forget(&self, number: u64) {
        self.lock().inputs.remove(&number);
    }
}
