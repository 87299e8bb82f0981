//! Functions that a version depends on: it took their bodies, or facts about them.

use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_codegen::{Dependence, DependenceKind, Kind, ModulePlan};

use crate::code::body::ModuleFunction;
use crate::code::module::Module;
use crate::code::names::Definition;
use crate::version::build::Built;
use crate::version::compiler::Compiler;

impl Compiler {
    /// Functions a version took bodies or facts from.
    pub(crate) fn depends(&self, id: FunctionId, built: &Built) -> Arc<[FunctionId]> {
        match self.function(id) {
            Some(function) => self.depends_of(&function, &function.module.plan(), built),
            None => Arc::default(),
        }
    }

    /// Functions of its own module whose bodies were visible to the compile.
    pub(super) fn bodies_in_sight(&self, id: FunctionId, built: &Built) -> Arc<[FunctionId]> {
        let depends = built.compiled.depends.iter().copied();
        let bodies: Vec<Dependence> = depends
            .filter(|on| on.kind == DependenceKind::Body)
            .collect();
        match self.function(id) {
            Some(function) if !bodies.is_empty() => {
                self.functions_of(&function.module, &function.module.plan(), &bodies)
            }
            _ => Arc::default(),
        }
    }

    /// Like [`Compiler::depends`], for a body that need not be the function's own yet.
    pub(crate) fn depends_of(
        &self,
        function: &ModuleFunction,
        plan: &ModulePlan,
        built: &Built,
    ) -> Arc<[FunctionId]> {
        let own = self.functions_of(&function.module, plan, &built.compiled.depends);
        if built.foreign.is_empty() {
            return own;
        }
        let mut depends: Vec<FunctionId> = built.foreign.clone();
        depends.extend(&*own);
        depends.sort_unstable_by_key(|id| id.index());
        depends.dedup();
        depends.into()
    }

    /// The functions among the dependences `uses` in `module`.
    pub(super) fn functions_of(
        &self,
        module: &Module,
        plan: &ModulePlan,
        uses: &[Dependence],
    ) -> Arc<[FunctionId]> {
        let summary = module.readers.summary();
        let mut depends: Vec<FunctionId> = uses
            .iter()
            .filter(|on| {
                !matches!(
                    summary.symbols[on.symbol.index()].kind,
                    Kind::Data | Kind::ThreadLocal
                )
            })
            .filter_map(|on| {
                let name = &plan.import(on.symbol).name;
                match self.names.find(&module.dylib, name)? {
                    Definition::Function { id } => Some(id),
                    _ => None,
                }
            })
            .collect();
        depends.sort_unstable_by_key(|id| id.index());
        depends.dedup();
        depends.into()
    }
}
