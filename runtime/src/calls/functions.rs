//! The functions of the host that a session knows: their types, their states, and producers of IR.

use crate::calls::declared::HostTypes;
use crate::calls::producer::Lazy;
use crate::code::host_state::HostState;
use crate::fork::gate;
use crate::fork::hands::EmbedderThreads;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, ranks};

/// State of the embedder that is dropped with code, by threads that hold locks of the session. So
/// its destructors run on a thread for code of embedders.
pub(super) struct Parting {
    pub(super) states: Vec<HostState>,
    pub(super) hands: Weak<EmbedderThreads>,
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

/// The host's functions of a session.
#[derive(Default)]
pub(crate) struct HostFunctions {
    /// Types by name, with addresses: functions of several types may share code.
    types: HostTypes,
    states: Mutex<Vec<HostState>>,
    /// States of modules that are about to be read, by file, and whether the module was read.
    coming: Mutex<HashMap<Arc<str>, (HostState, bool)>>,
    /// Producers of functions whose placeholder is their body, or can become it again.
    lazy: Mutex<HashMap<FunctionId, Vec<Arc<dyn Lazy>>>, ranks::HostFunctionsLazy>,
}

impl HostFunctions {
    pub(crate) fn types(&self) -> &HostTypes {
        &self.types
    }

    pub(crate) fn keep(&self, state: HostState) {
        let mut states = self.states.lock();
        states.push(state);
    }

    /// Makes the module of a file hold a state, as well as all code compiled from the functions of
    /// the module. It applies until [`HostFunctions::came`]. The file's name is unique.
    pub(crate) fn announce(&self, file: &Arc<str>, state: HostState) {
        let mut coming = self.coming.lock();
        coming.insert(Arc::clone(file), (state, false));
    }

    /// Ends [`HostFunctions::announce`]: the module of a file was added, or not. A state that the
    /// module does not hold stays with the session.
    pub(crate) fn came(&self, file: &str, added: bool) {
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
    pub(crate) fn state_for(&self, file: &str) -> Option<HostState> {
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
