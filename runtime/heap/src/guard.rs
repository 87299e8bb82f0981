//! The guard of the heap's lock.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use uruk_base::locks::Ordered;

use crate::heap::State;

/// The lock, with its place in the order of locks.
pub(crate) struct StateGuard<'a> {
    state: MutexGuard<'a, State>,
    _order: Ordered,
}

impl<'a> StateGuard<'a> {
    /// The guard of a lock that was taken in that place of the order.
    pub(crate) fn new(state: MutexGuard<'a, State>, order: Ordered) -> Self {
        Self {
            state,
            _order: order,
        }
    }
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
