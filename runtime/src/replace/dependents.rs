//! Finds the versions that depend on replaced functions, compiles them again, and makes the plans
//! that say which bodies modules offer to optimizers from then on.

use std::collections::HashSet;
use std::sync::Arc;

use uruk_base::{FunctionId, VersionId};
use uruk_codegen::{Linkage, ModulePlan, SymbolId};

use crate::code::body::Body;
use crate::code::module::Module;
use crate::code::names::Definition;
use crate::error::Error;
use crate::replace::state::Replacing;
use crate::version::BodyOf;

use super::commit::Change;
use super::prepare::BuiltCode;

/// Plans that hold after the commit, with their modules.
pub(super) type Plans = Vec<(Arc<Module>, Arc<ModulePlan>)>;

/// Functions whose code depends on a member.
#[derive(Default)]
pub(super) struct Dependents {
    /// Functions whose published version depends on one.
    pub(super) published: HashSet<FunctionId>,
    /// Functions whose fallback version depends on one.
    pub(super) fallback: HashSet<FunctionId>,
}

impl Replacing {
    /// Functions that depend on a member, and are not members.
    pub(super) fn dependents(&self, members: &HashSet<FunctionId>) -> Dependents {
        let depends = |on: &Arc<[FunctionId]>| on.iter().any(|id| members.contains(id));
        let mut suspects = Vec::new();
        for (&index, record) in self.versions.lock().iter() {
            let stale = record
                .built
                .iter()
                .filter(|version| depends(&version.depends));
            let stale: Vec<VersionId> = stale.map(|version| version.id).collect();
            if !stale.is_empty() {
                suspects.push((index, Arc::clone(&record.versions), stale));
            }
        }
        let mut found = Dependents::default();
        for (index, versions, stale) in suspects {
            let Some(id) = self.stubs.function(index) else {
                continue;
            };
            if members.contains(&id) {
                continue;
            }
            let now = versions.snapshot();
            if now
                .published
                .is_some_and(|version| stale.contains(&version.id))
            {
                found.published.insert(id);
            } else if now
                .fallback
                .is_some_and(|version| stale.contains(&version.id))
            {
                found.fallback.insert(id);
            }
        }
        found
    }

    /// Compiles functions under `plans`, on a thread that LLVM can take down.
    pub(super) fn recompile(
        self: &Arc<Self>,
        functions: Vec<FunctionId>,
        plans: &Plans,
    ) -> Result<Vec<(FunctionId, BuiltCode)>, Error> {
        let plans = plans.clone();
        let what = String::from("what depends on a replaced function");
        self.on_compile_thread(what, move |replacing| {
            let mut codes = Vec::with_capacity(functions.len());
            for id in functions {
                let Some(function) = replacing.function(id) else {
                    continue;
                };
                let next = plans
                    .iter()
                    .find(|(module, _)| Arc::ptr_eq(module, &function.module));
                let plan = match next {
                    Some((_, plan)) => Arc::clone(plan),
                    None => function.module.plan(),
                };
                let tier = replacing.first_in_exchange();
                let body = BodyOf {
                    id,
                    function,
                    plan,
                    crosses: false,
                };
                codes.push((id, replacing.prepare_code_at(body, tier)?));
            }
            Ok(codes)
        })
    }

    /// The plans that hold once `changes` are made: of the definitions of a function, only
    /// that of its body is offered to optimizers.
    pub(super) fn next_plans(&self, changes: &[Change]) -> Plans {
        let mut plans: Vec<(Arc<Module>, ModulePlan)> = Vec::new();
        for Change { id, body, .. } in changes {
            let Some(old) = self.body(*id) else {
                continue;
            };
            let link_name = link_name(body);
            let mut others = Vec::new();
            if let Body::Module(old) = old {
                others.push((old.module, old.symbol));
            }
            for module in self.bound.all() {
                // Also copies for optimizers, in dylibs that find the function by this name.
                let symbol = module.definition(&link_name);
                let symbol = symbol.filter(|&symbol| {
                    !is_replaced(&module, symbol) && {
                        let found = self.names.find(&module.dylib, &link_name);
                        found == Some(Definition::Function { id: *id })
                    }
                });
                others.extend(symbol.map(|symbol| (module, symbol)));
            }
            for (module, symbol) in others {
                let is_new = match body {
                    Body::Module(new) => Arc::ptr_eq(&module, &new.module) && symbol == new.symbol,
                    Body::Object(_) | Body::Unit(_) => false,
                };
                let linkage = module.readers.summary().symbols[symbol.index()].linkage;
                if is_new || linkage == Linkage::Declared || is_replaced(&module, symbol) {
                    continue;
                }
                let import = &mut plan_of(&mut plans, &module).imports[symbol.index()];
                import.defined = false;
                import.replaced = true;
            }
            if let Body::Module(new) = body {
                let import = &mut plan_of(&mut plans, &new.module).imports[new.symbol.index()];
                import.defined = true;
                import.replaced = false;
            }
        }
        let shared = plans.into_iter();
        shared
            .map(|(module, plan)| (module, Arc::new(plan)))
            .collect()
    }
}

/// Whether a definition is already replaced. A function that is defined and replaced again and
/// again leaves such definitions behind; new plans for all of them made each time longer.
fn is_replaced(module: &Module, symbol: SymbolId) -> bool {
    let plan = module.plan();
    let import = plan.import(symbol);
    import.replaced && !import.defined
}

fn link_name(body: &Body) -> Box<str> {
    match body {
        Body::Module(function) => {
            let plan = function.module.plan();
            plan.import(function.symbol).name.clone()
        }
        Body::Object(object) => Box::from(&*object.link_name),
        Body::Unit(unit) => unit.dylib.session().name(unit.own).into(),
    }
}

fn plan_of<'a>(
    plans: &'a mut Vec<(Arc<Module>, ModulePlan)>,
    module: &Arc<Module>,
) -> &'a mut ModulePlan {
    let known = plans.iter().position(|(held, _)| Arc::ptr_eq(held, module));
    let at = known.unwrap_or_else(|| {
        plans.push((Arc::clone(module), module.plan().successor()));
        plans.len() - 1
    });
    &mut plans[at].1
}
