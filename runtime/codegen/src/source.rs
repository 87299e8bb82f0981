//! The source of a copy: a module as its reader has it, and the plan of its names.

use uruk_base::Tier;

use crate::context::OwnedModule;
use crate::handles::{FunctionRef, ValueRef};
use crate::plan::ModulePlan;
use crate::reader::Reader;
use crate::summary::{Kind, Linkage, Placement, SymbolId, SymbolInfo};

/// A module and its plan. Only ever read.
#[derive(Clone, Copy)]
pub(crate) struct Source<'r> {
    pub(crate) reader: &'r Reader,
    pub(crate) plan: &'r ModulePlan,
}

impl<'r> Source<'r> {
    /// The global of that number.
    pub(crate) fn value(self, id: SymbolId) -> ValueRef<'r> {
        self.reader.table().value(id)
    }

    /// The number of a global of the module.
    pub(crate) fn id(self, value: ValueRef<'_>) -> Option<SymbolId> {
        self.reader.table().id(value)
    }

    /// The module's information on a symbol.
    pub(crate) fn info(self, id: SymbolId) -> &'r SymbolInfo {
        &self.reader.summary().symbols[id.index()]
    }

    /// Whether a function is local, and one call is all that mentions it, as far as a compile at `tier` is to
    /// find out.
    pub(crate) fn is_sole(self, id: SymbolId, tier: Tier) -> bool {
        self.info(id).linkage == Linkage::Local
            && (self.reader.bitcode().sole_calls(tier)).is_some_and(|sole| sole.has(id))
    }

    /// The kind of a symbol, behind all aliases.
    pub(crate) fn effective_kind(self, mut id: SymbolId) -> Kind {
        for _ in 0..64 {
            match self.info(id).kind {
                Kind::Alias {
                    base: Some(base), ..
                } => id = base,
                Kind::Alias { .. } => break,
                kind => return kind,
            }
        }
        Kind::Data
    }

    /// An empty module for the target, to copy into.
    pub(crate) fn fresh(self, name: &str) -> OwnedModule {
        let module = OwnedModule::empty(self.reader.context(), name);
        self.reader.prepare(&module);
        module.set_flag(self.reader.context(), "RtLibUseGOT", 1);
        module
    }

    /// True for an `alwaysinline` function whose body this module has.
    pub(crate) fn is_inline_body(self, function: ValueRef<'_>) -> bool {
        let copied = |id: SymbolId| self.info(id).always_inline && !self.plan.import(id).replaced;
        self.id(function).is_some_and(copied)
            && (function.as_function()).is_some_and(|function| !function.is_declaration())
    }

    /// The symbol a direct callee names, looking through aliases whose definition is
    /// the bound one.
    pub(crate) fn resolve(self, callee: ValueRef<'_>) -> Option<SymbolId> {
        let mut id = self.id(callee)?;
        for _ in 0..64 {
            match self.info(id).kind {
                Kind::Alias {
                    base: Some(base),
                    exact: true,
                } if self.plan.import(id).defined => id = base,
                _ => return Some(id),
            }
        }
        None
    }

    /// The function a direct call of `callee` reaches, if its body may be copied.
    pub(crate) fn candidate(self, callee: ValueRef<'_>) -> Option<FunctionRef<'r>> {
        let id = self.resolve(callee)?;
        let info = self.info(id);
        let copyable = info.kind == Kind::Function
            && info.placement == Placement::Own
            && !info.always_inline
            && !self.plan.import(id).replaced
            && (self.plan.import(id).defined || info.linkage == Linkage::Available);
        let old = self.reader.table().function(id).filter(|_| copyable)?;
        let kinds = self.reader.kinds();
        let inlinable = (!old.has(kinds.noinline) || old.has(kinds.optnone))
            && (!old.has(kinds.optnone) || !old.has(kinds.protect_all))
            && !old.has(kinds.naked)
            && !old.has(kinds.returns_twice)
            && !old.has(kinds.presplit_coroutine);
        inlinable.then_some(old)
    }
}
