//! Removal of functions whose names were undefined.

use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_session::{Dylib, Symbol};

use crate::code::body::ModuleFunction;
use crate::session::Session;

impl Session {
    /// Whether `symbol` of `dylib` is the name of a function, and no alias of it.
    pub(crate) fn is_named(
        &self,
        function: &ModuleFunction,
        dylib: &Dylib,
        symbol: Symbol,
    ) -> bool {
        let plan = function.module.plan();
        let name = self.names.session().name(symbol);
        function.origin.is_none()
            && function.module.dylib == *dylib
            && *plan.import(function.symbol).name == *name
    }

    /// Notes functions of modules whose names were undefined, and removes those that nothing can
    /// call any more. A program's own functions stay, and so do functions with native code.
    pub(crate) fn note_undefined(self: &Arc<Self>, functions: Vec<FunctionId>) {
        if self.is_program() || self.choices.is_over_native() {
            return;
        }
        let leased = |id| self.removed.waiting.is_leased(id);
        let gone = self
            .removed
            .undefined
            .add(functions, &self.names.known, leased);
        for id in gone {
            self.remove_function(id);
        }
    }
}
