//! Changes that an embedder makes to IR between its extraction and its optimization.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use inkwell::module::Module;

use uruk_base::Tier;

use crate::cancel::Cancellation;
use crate::context::OwnedModule;

/// The input of a transform: the module of one function's body.
#[derive(Debug)]
pub struct IrUnit<'u, 'ctx> {
    /// The body, under its name with [`BODY_PREFIX`](crate::BODY_PREFIX), and copies of callees
    /// that may be inlined.
    pub module: &'u Module<'ctx>,
    /// The function's link name.
    pub function: &'u str,
    /// The tier it is compiled at.
    pub tier: Tier,
    cancel: Option<&'u Cancellation>,
}

impl IrUnit<'_, '_> {
    /// Whether the compile was cancelled. A long transform should check this regularly; it may then
    /// leave the module as it is.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(Cancellation::is_cancelled)
    }
}

type Change = dyn Fn(&IrUnit<'_, '_>) -> Result<(), String> + Send + Sync;

/// A change of IR, made on the compiling thread. It must give the same result for the same unit: a
/// function is compiled anew at each tier.
#[derive(Clone)]
pub struct Transform(Arc<Change>);

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}

impl Transform {
    /// A transform that calls `change`.
    pub fn new(
        change: impl Fn(&IrUnit<'_, '_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Transform {
        Transform(Arc::new(change))
    }

    /// Makes the change; returns its error message if it fails.
    pub(crate) fn apply(
        &self,
        module: &mut OwnedModule,
        function: &str,
        tier: Tier,
        cancel: Option<&Cancellation>,
    ) -> Result<(), String> {
        // SAFETY: a live module, ours alone meanwhile; it is lent, so not disposed of here.
        let module = ManuallyDrop::new(unsafe { Module::new(module.raw()) });
        (self.0)(&IrUnit {
            module: &module,
            function,
            tier,
            cancel,
        })
    }
}
