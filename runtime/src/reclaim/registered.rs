//! Roots: the scanner of threads, and stacks that an embedder registers.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use uruk_roots::{Roots, RootsError, StackId};

use crate::error::Error;
use crate::fork::gate;
use crate::reclaim::Reclaim;

use super::PATIENCE;

/// A stack that is scanned for return addresses while this lives; made by
/// [`Jit::register_stack`](crate::Jit::register_stack).
pub struct RegisteredStack {
    reclaim: Arc<Reclaim>,
    id: Option<StackId>,
    /// Keeps the session: code may be called on the stack, and forks repair the scanner.
    _session: Arc<dyn Any + Send + Sync>,
}

impl RegisteredStack {
    /// Registers a stack, under the safety requirements of `Jit::register_stack`.
    pub(crate) fn new(
        reclaim: &Arc<Reclaim>,
        session: Arc<dyn Any + Send + Sync>,
        stack: Range<u64>,
    ) -> Result<Self, Error> {
        let register = || reclaim.roots()?.register_stack(stack);
        let id = register().map_err(Arc::new)?;
        Ok(RegisteredStack {
            reclaim: Arc::clone(reclaim),
            id: Some(id),
            _session: session,
        })
    }
}

impl fmt::Debug for RegisteredStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegisteredStack").field(&self.id).finish()
    }
}

impl Drop for RegisteredStack {
    fn drop(&mut self) {
        let _busy = gate::enter();
        if let (Some(id), Ok(roots)) = (self.id.take(), self.reclaim.roots()) {
            roots.unregister_stack(id);
        }
    }
}

impl Reclaim {
    /// The scanner of threads and registered stacks.
    pub(crate) fn roots(&self) -> Result<&Roots, RootsError> {
        let held = &self.roots;
        match held.get() {
            Some(roots) => Ok(roots),
            // Two at once share the handler; one of them is dropped.
            None => {
                let range = self.heap.pool_range(uruk_heap::Pool::Code);
                let mut config = uruk_roots::Config::default();
                // Threads of the runtime that compile block all signals.
                config.patience = PATIENCE;
                let made = Roots::new(range, config)?;
                Ok(held.get_or_init(|| made))
            }
        }
    }

    /// A scanner for native code, which lies elsewhere, between the ends of `range`.
    pub(crate) fn roots_of(&self, range: Range<u64>) -> Result<Roots, RootsError> {
        let mut config = uruk_roots::Config::default();
        config.patience = PATIENCE;
        Roots::new(range, config)
    }
}
