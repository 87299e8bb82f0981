//! Functions of modules whose names were undefined ([`Dylib::undefine`](crate::Dylib::undefine)).
//!
//! Such a function stays as long as it may be called: by code or data that was linked against it,
//! by an address that the host was given ([`KnownFunctions`](super::known)), a handle, or a thread
//! that found the name before. Else it is removed. The tracker of its image still lists it: each
//! function has a *generation*, which grows when it is removed in this way, and the tracker removes
//! only functions of the generation that it was given.
//!
//! | the function | its end |
//! |---|---|
//! | is linked against, or its address was given away | with its tracker |
//! | has handles | when a name is undefined after the last was dropped |
//! | was found by a thread in the library | when a name is undefined after all threads had left |
//! | none of these | when the next name is undefined |
//!
//! # Why
//! A host that defines, calls and undefines functions for months must not grow, and each
//! replacement searches all modules. The next look waits until names were undefined as often as
//! functions were left by the last look. So the cost of a call does not depend on the number of
//! handles.
//!
//! A name that was never requested has no function here. Such a function goes with its tracker.

use crate::code::known::KnownFunctions;
use crate::fork::gate;
use std::collections::HashMap;
use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard, ranks};

/// Functions whose names were undefined; see the module.
#[derive(Default)]
pub(crate) struct Undefined(Mutex<UndefinedState, ranks::Undefined>);

#[derive(Default)]
struct UndefinedState {
    /// Value of the idle count of the gate when the name was undefined.
    waiting: HashMap<FunctionId, u64>,
    /// Functions left by the last look, and calls since then.
    left: usize,
    calls: usize,
    /// Generations of functions that were removed in this way; 0 for others.
    generations: HashMap<FunctionId, u32>,
}

impl UndefinedState {
    fn generation(&self, id: FunctionId) -> u32 {
        self.generations.get(&id).copied().unwrap_or(0)
    }
}

/// A function on the list of a tracker.
pub(crate) struct TrackedFunction {
    pub(crate) id: FunctionId,
    generation: u32,
}

impl Undefined {
    fn lock(&self) -> MutexGuard<'_, UndefinedState> {
        self.0.lock()
    }

    /// Functions as a tracker lists them. Under a pass, as all of these.
    pub(crate) fn owned(&self, functions: Vec<FunctionId>) -> Vec<TrackedFunction> {
        let state = self.lock();
        let generation = |id| state.generation(id);
        let owned = functions.into_iter().map(|id| TrackedFunction {
            id,
            generation: generation(id),
        });
        owned.collect()
    }

    /// Notes that a function is removed without its tracker.
    pub(crate) fn goes(&self, id: FunctionId) {
        *self.lock().generations.entry(id).or_default() += 1;
    }

    /// Adds functions whose names were undefined; returns those that nothing can call any more,
    /// which are to be removed.
    pub(crate) fn add(
        &self,
        functions: Vec<FunctionId>,
        known: &KnownFunctions,
        is_leased: impl Fn(FunctionId) -> bool,
    ) -> Vec<FunctionId> {
        let now = gate::idle();
        let mut gone = Vec::new();
        let mut locked = self.lock();
        let state = &mut *locked;
        state.calls += 1;
        if state.calls > state.left {
            state.waiting.retain(|&id, &mut since| {
                if known.is_known(id) {
                    return false;
                }
                let stays = since >= now || is_leased(id);
                gone.extend((!stays).then_some(id));
                stays
            });
            state.left = state.waiting.len();
            state.calls = 0;
        }
        for id in &gone {
            *state.generations.entry(*id).or_default() += 1;
        }
        let added = functions.into_iter().map(|id| (id, now));
        state.waiting.extend(added);
        gone
    }

    /// Whether a tracker must remove a function that it lists, which it does then.
    pub(crate) fn claim(&self, own: &TrackedFunction) -> bool {
        let mut state = self.lock();
        let claimed = state.generation(own.id) == own.generation;
        if claimed {
            state.waiting.remove(&own.id);
        }
        claimed
    }
}
