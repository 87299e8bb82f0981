//! Stacks an embedder tells of.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use uruk_roots::StackId;

use crate::api::error::Error;
use crate::core::Core;
use crate::fork::gate;

/// A stack that is scanned for return addresses while this lives; made by
/// [`Jit::register_stack`](crate::Jit::register_stack).
pub struct RegisteredStack {
    core: Arc<Core>,
    id: Option<StackId>,
}

impl RegisteredStack {
    /// Registers a stack, under the promises of `Jit::register_stack`.
    pub(crate) fn new(core: &Arc<Core>, stack: Range<u64>) -> Result<Self, Error> {
        let register = || core.roots()?.register_stack(stack);
        let id = register().map_err(Arc::new)?;
        Ok(RegisteredStack {
            core: Arc::clone(core),
            id: Some(id),
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
        if let (Some(id), Ok(roots)) = (self.id.take(), self.core.roots()) {
            roots.unregister_stack(id);
        }
    }
}
