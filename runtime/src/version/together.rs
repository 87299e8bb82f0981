//! Functions that an embedder wants compiled together: [`Partition`].
//!
//! Each is a version of its own, so that each can be promoted, replaced and freed alone. The caller
//! of the first continues as soon as that is compiled; the worker goes on with the others
//! ([`ahead`](super::ahead)).

use std::collections::HashSet;
use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_codegen::Cancellation;

use crate::code::body::Body;
use crate::code::body::ModuleFunction;
use crate::fork::gate;
use crate::version::compiler::Compiler;
use crate::version::engines::OnLostThread;
use crate::version::partition::Partition;

impl Compiler {
    /// Compiles the functions of the part that `id` is in; returns the text of a panic. On a
    /// worker, without a pass. `lost` starts another thread in its place.
    pub(super) fn make_together(
        self: &Arc<Self>,
        id: FunctionId,
        lost: &OnLostThread,
    ) -> Option<String> {
        if matches!(self.layers.partition, Partition::Function) {
            return None;
        }
        let part = {
            let _pass = gate::enter();
            self.part_of(id)
        };
        part.into_iter().find_map(|other| {
            // One pass for each: a fork waits for no more than one of them.
            let _pass = gate::enter();
            match self.is_stopping() || self.stubs.entry(other).is_some() {
                true => None,
                false => {
                    let lost = Arc::clone(lost);
                    let lost = move |message: &str| lost(message);
                    self.make_ahead(other, &Cancellation::new(), lost).panic
                }
            }
        })
    }

    /// The other functions of a function's part, by the module's order.
    fn part_of(&self, id: FunctionId) -> Vec<FunctionId> {
        let Some(own) = self.function(id) else {
            return Vec::new();
        };
        let name = |function: &ModuleFunction| {
            let plan = function.module.plan();
            plan.import(function.symbol).name.to_string()
        };
        let chosen: Option<HashSet<String>> = match &self.layers.partition {
            Partition::Function => return Vec::new(),
            Partition::Module => None,
            Partition::Own(choose) => {
                let module = own.module.readers.bitcode().name();
                Some(choose(module, &name(&own)).into_iter().collect())
            }
        };
        let mut others = self.functions_where(|body| match body {
            Body::Module(function) => {
                let is_chosen = |names: &HashSet<String>| names.contains(&name(function));
                Arc::ptr_eq(&function.module, &own.module) && chosen.as_ref().is_none_or(is_chosen)
            }
            _ => false,
        });
        others.retain(|other| *other != id && !self.choices.is_entry_point(*other));
        others
    }
}
