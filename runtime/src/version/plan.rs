//! The first phase of a version: the body to compile, its binding, and its settings.

use std::sync::Arc;

use uruk_base::{FunctionId, Tier};
use uruk_codegen::{Compile, Knowledge, ModulePlan};
use uruk_tiering::Purpose;

use crate::code::body::ModuleFunction;
use crate::error::{Error, Refusal};
use crate::version::compiler::Compiler;
use crate::version::request::Request;

/// The input of a compile: a body, and how its module is bound.
#[derive(Clone)]
pub(crate) struct BodyOf {
    pub(crate) id: FunctionId,
    pub(crate) function: ModuleFunction,
    pub(crate) plan: Arc<ModulePlan>,
    /// Whether bodies of other modules may be inlined.
    pub(crate) crosses: bool,
}

impl Compiler {
    /// The body from which a version of `id` is compiled.
    pub(super) fn body_of(&self, id: FunctionId) -> Result<BodyOf, Error> {
        let function = self.function(id).ok_or_else(|| {
            let function = self.name_of(id);
            match self.body(id) {
                Some(_) => Error::NotAFunction {
                    name: function.to_owned(),
                },
                None => Error::Version {
                    function,
                    cause: Refusal::Removed,
                },
            }
        })?;
        let plan = function.module.plan();
        Ok(BodyOf {
            id,
            function,
            plan,
            crosses: true,
        })
    }

    /// The settings of a compile, with the current facts about the function's surroundings.
    pub(crate) fn plan(self: &Arc<Self>, request: &Request, how: Compile) -> Compile {
        let mut how = how.knowing(self.knowledge(request));
        how.uncounted = self.choices.is_over_native();
        let guided = how.tier == Tier::Guided;
        if guided || how.variant.values && how.tier > Tier::Baseline {
            how = how.assuming(self.engines().steady(request.function));
        }
        match request.purpose {
            Purpose::Change if self.choices.counts_at_baseline() => {
                how.sparing(self.rare(request.function))
            }
            _ => how,
        }
    }

    /// The assumptions that a compile may make of callees out of sight. Tier 3 infers them, unless
    /// a first call waits; tier 2 takes known facts. Measured, the hottest 70 functions: 1.5 %
    /// (sqlite) and 5 % (Lua) more time to compile, 0.0 % and 0.35 % fewer instructions executed;
    /// with all functions at tier 2 the code gained nothing.
    fn knowledge(&self, request: &Request) -> Knowledge {
        let Some(function) = self.function(request.function) else {
            return Knowledge::Declared;
        };
        let facts = function.module.facts();
        let waited_for = request.purpose == Purpose::First && self.choices.is_auto();
        match request.tier == Tier::Guided && !waited_for {
            true => Knowledge::Inferred(facts),
            false => Knowledge::Known(facts),
        }
    }
}
