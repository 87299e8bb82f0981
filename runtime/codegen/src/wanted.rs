//! Finds the functions of other modules that a function might inline.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;
use uruk_base::Tier;

use crate::candidates::Wanted;
use crate::compile::Compile;
use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef};
use crate::library::stock::stock;
use crate::plan::ModulePlan;
use crate::planning::Planning;
use crate::reader::Reader;
use crate::source::Source;
use crate::summary::{Kind, SymbolId};
use crate::survey::scan;

/// The functions of other modules that `function` might inline, directly or after its own callees,
/// in the order of their first call.
pub(crate) fn wanted(
    reader: &mut Reader,
    plan: &ModulePlan,
    function: SymbolId,
    how: &Compile,
) -> Result<Vec<SymbolId>, CodegenError> {
    if how.tier == Tier::Baseline || how.alone {
        return Ok(Vec::new());
    }
    reader.watched(how, |reader| {
        stock(reader, plan, Wanted::CalleesOf(function), how);
        reader.proceed("callees")?;
        let root = reader.function(function)?;
        let planning = Planning::new(Source { reader, plan }, how);
        Search { planning }.wanted(root)
    })
}

/// A search through bodies in sight.
struct Search<'r> {
    planning: Planning<'r>,
}

impl<'r> Search<'r> {
    fn wanted(&mut self, root: FunctionRef<'r>) -> Result<Vec<SymbolId>, CodegenError> {
        self.planning.read_bodies(root)?;
        let mut wanted = Vec::new();
        let mut seen = FxHashSet::default();
        seen.insert(*root);
        let mut bodies = VecDeque::from([root]);
        while let Some(body) = bodies.pop_front() {
            for callee in scan(body).callees {
                let callee = self.planning.source.reader.home(callee).unwrap_or(callee);
                if !seen.insert(callee) {
                    continue;
                }
                match (callee.as_function(), self.planning.source.candidate(callee)) {
                    (Some(inline), _) if self.planning.source.is_inline_body(callee) => {
                        bodies.extend(self.planning.read_bodies(inline).is_ok().then_some(inline));
                    }
                    (_, Some(old)) => {
                        if *old == callee || seen.insert(*old) {
                            bodies.extend(self.body_in_sight(old));
                        }
                    }
                    (_, None) => wanted.extend(self.other_modules(callee)),
                }
            }
        }
        Ok(wanted)
    }

    /// The body of a candidate in the form that units get.
    fn body_in_sight(&mut self, old: FunctionRef<'r>) -> Option<FunctionRef<'r>> {
        let id = self.planning.source.id(*old)?;
        if self.planning.how.profiles.contains_key(&id) {
            return self.planning.read_bodies(old).is_ok().then_some(old);
        }
        let entry = self
            .planning
            .source
            .reader
            .library()
            .entry(self.planning.source.plan, id)?;
        (entry.instructions <= self.planning.most_kept()).then(|| entry.function())
    }

    /// The symbol of `callee`, if its definition is not this module's.
    fn other_modules(&self, callee: ValueRef<'r>) -> Option<SymbolId> {
        let id = self.planning.source.resolve(callee)?;
        let info = self.planning.source.info(id);
        let function = matches!(info.kind, Kind::Function | Kind::Alias { .. });
        let elsewhere =
            !self.planning.source.plan.import(id).defined && !info.name.starts_with("llvm.");
        (function && elsewhere).then_some(id)
    }
}
