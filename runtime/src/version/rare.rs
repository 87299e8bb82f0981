//! The callees of a function that are worth inlining, by the counts of tier 1.
//!
//! ```text
//! rare(callee) = never compiled, or entries(callee) * RATIO < entries(f) + back edges(f)
//! ```
//!
//! where `f` is the function that is compiled. Entries of a callee are counted over all its
//! callers, so a rare one is rare in `f`. The bound lies between LLVM's for cold call sites (2 % of
//! the caller's entries, `cold-callsite-rel-freq`) and HotSpot's for calls it never inlines unless
//! they are trivial (0.85 % of the method's invocations, `MinInlineFrequencyRatio`).
//!
//! Code that does not count is not rare. This is code above tier 1, which was worth a compile
//! itself, and bodies in the published version of `f`, whose calls there are not counted any more.
//! Nothing is known of callees before `f` has counted [`LEAST`] events, nor while native code of
//! `f` runs. Over native code nothing is known of callees without code: natively they are parts of
//! their callers.
//!
//! # Why
//! Functions with few calls at tier 1 are not inlined unless they are tiny (`rare`): one entry to a
//! hundred entries and back edges of the caller, or none at all. Lua's `luaD_precall` reaches the
//! whole collector by functions small enough to be inlined. Simplifying them took ten times as long
//! as the function, which the policy then learned as its cost, and the interpreter's loop was not
//! promoted in a run of three seconds.

use std::sync::Arc;

use uruk_base::{FunctionId, Tier};
use uruk_codegen::Rare;

use crate::code::names::Definition;
use crate::version::compiler::Compiler;

/// Events of the caller per entry, from which a callee is rare.
const RATIO: u64 = 100;

/// Minimal events of the caller for a decision.
const LEAST: u64 = 1_000;

impl Compiler {
    /// Entries and passes of loops that a function counted; for a continuation, those of its
    /// original function.
    fn events_of(&self, id: FunctionId) -> u64 {
        let origin = self.function(id).and_then(|function| function.origin);
        let loops = origin.and_then(|origin| origin.loops.upgrade());
        let id = loops.map_or(id, |loops| loops.whose);
        let counted = self.counts.now(id);
        u64::from(counted.entries) + u64::from(counted.loops) + self.engines().passes(id)
    }

    /// The functions of its module that `id` rarely calls.
    pub(super) fn rare(self: &Arc<Self>, id: FunctionId) -> Rare {
        let events = self.events_of(id);
        let Some(function) = self.function(id).filter(|_| events >= LEAST) else {
            return Rare::default();
        };
        let plan = function.module.plan();
        let dylib = function.module.dylib.clone();
        if self.versions.tier(id) == Some(Tier::Native) {
            return Rare::default();
        }
        let over_native = self.choices.is_over_native();
        let in_sight = self.versions.bodies(id);
        let compiler = Arc::clone(self);
        Rare::new(move |symbol| {
            let Some(Definition::Function { id }) =
                compiler.names.find(&dylib, &plan.import(symbol).name)
            else {
                return false;
            };
            let (tier, entries) = (compiler.versions.tier(id), compiler.counts.now(id).entries);
            let unknown = over_native && tier.is_none();
            !unknown && is_rare(tier, entries, events) && !in_sight.contains(&id)
        })
    }
}

fn is_rare(tier: Option<Tier>, entries: u32, events: u64) -> bool {
    match tier {
        None => true,
        Some(Tier::Baseline) => u64::from(entries) * RATIO < events,
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_compared_with_the_caller() {
        assert!(is_rare(None, 0, LEAST));
        assert!(is_rare(Some(Tier::Baseline), 9, LEAST));
        assert!(!is_rare(Some(Tier::Baseline), 10, LEAST));
        assert!(is_rare(Some(Tier::Baseline), u32::MAX, u64::MAX));
        // It counted until it was promoted.
        assert!(!is_rare(Some(Tier::Optimized), 0, u64::MAX));
    }
}
