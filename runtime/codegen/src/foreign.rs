//! Bodies from other modules: which are wanted, and how they get into a unit.
//!
//! A [`Parcel`] is parsed into the reader's context once and stays there; units copy its function
//! like one of the `library`. Globals it mentions are declared under the names they have in the
//! parcel. A name means one thing in a unit. If the unit already has a global of that name, from
//! any module, the parcel's mention means that global.
//!
//! The caller, which knows the definitions that names are bound to, decides which functions are
//! offered. A unit takes them in that order until its budget is spent.

use std::collections::VecDeque;
use std::sync::Arc;

use inkwell::llvm_sys::bit_reader::LLVMParseBitcodeInContext2;
use inkwell::llvm_sys::core::{
    LLVMGetLinkage, LLVMGetUnnamedAddress, LLVMIsGlobalConstant, LLVMIsThreadLocal,
    LLVMSetGlobalConstant, LLVMSetLinkage, LLVMSetThreadLocalMode, LLVMSetUnnamedAddress,
};
use inkwell::llvm_sys::prelude::{LLVMModuleRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMLinkage, LLVMThreadLocalMode};
use rustc_hash::{FxHashMap, FxHashSet};

use uruk_base::Tier;

use crate::candidates::Wanted;
use crate::compile::Compile;
use crate::context::{Buffer, OwnedModule};
use crate::copying::Copying;
use crate::error::CodegenError;
use crate::globals::{copy_alignment, mark_dso_local};
use crate::handles::{FunctionRef, ValueRef, VariableRef, c_name};
use crate::parcel::Parcel;
use crate::plan::ModulePlan;
use crate::planning::Planning;
use crate::reader::Reader;
use crate::source::Source;
use crate::summary::{Kind, SymbolId};
use crate::survey::scan;

/// Instructions of parcels that a reader keeps: some 20 MB.
const MOST_INSTRUCTIONS: usize = 100_000;

/// A body of another module, for one compile.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The body.
    pub parcel: Arc<Parcel>,
    /// Symbols of the module that is compiled which are bound to it.
    pub symbols: Vec<SymbolId>,
}

/// The parsed parcels of a reader.
#[derive(Default)]
pub(crate) struct Foreign {
    parsed: FxHashMap<u64, Parsed>,
    instructions: usize,
}

struct Parsed {
    /// A function of the module beside it.
    function: LLVMValueRef,
    _module: OwnedModule,
}

impl Foreign {
    /// The function of a parcel, if it was parsed.
    pub(crate) fn function(&self, parcel: &Parcel) -> Option<FunctionRef<'_>> {
        let parsed = self.parsed.get(&parcel.number)?;
        // SAFETY: a function of a module that is kept as long.
        Some(unsafe { FunctionRef::of(parsed.function) })
    }
}

impl Reader {
    /// The functions of other modules that `function` might inline, directly or after
    /// its own callees, in the order of their first call.
    ///
    /// # Errors
    /// A body that cannot be read; that it was cancelled.
    pub fn wanted(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Vec<SymbolId>, CodegenError> {
        if how.tier == Tier::Baseline || how.alone {
            return Ok(Vec::new());
        }
        self.watched(how, |reader| {
            reader.stock(plan, Wanted::CalleesOf(function), how);
            reader.proceed("callees")?;
            let root = reader.function(function)?;
            Planning::new(Source { reader, plan }, how).wanted(root)
        })
    }

    /// Parses the parcels among `offers` that are not parsed yet; parcels that cannot be parsed are
    /// not used.
    pub(crate) fn unpack(&mut self, offers: &[Offer]) {
        if self.foreign().instructions > MOST_INSTRUCTIONS {
            *self.foreign_mut() = Foreign::default();
        }
        for Offer { parcel, .. } in offers {
            if self.foreign().parsed.contains_key(&parcel.number) {
                continue;
            }
            if self.context().gate().look() {
                return;
            }
            if let Some(parsed) = self.parse(parcel) {
                let foreign = self.foreign_mut();
                foreign.instructions += parcel.instructions as usize;
                foreign.parsed.insert(parcel.number, parsed);
            }
        }
    }

    fn parse(&self, parcel: &Parcel) -> Option<Parsed> {
        let name = c_name(parcel.name());
        // SAFETY: the parcel outlives the parse, which reads everything.
        let buffer = unsafe { Buffer::view(&parcel.bitcode, &name) };
        let mut module: LLVMModuleRef = std::ptr::null_mut();
        let context = self.context();
        // SAFETY: live context and buffer; the buffer stays ours.
        let failed =
            unsafe { LLVMParseBitcodeInContext2(context.raw(), buffer.raw(), &mut module) };
        if failed != 0 || module.is_null() {
            // The errors are about a parcel, not about the unit being compiled.
            let _ = context.take_errors();
            return None;
        }
        // SAFETY: a fresh module, ours.
        let module = unsafe { OwnedModule::new(module) };
        let function = module.function(parcel.name())?.raw();
        Some(Parsed {
            function,
            _module: module,
        })
    }
}

impl<'r> Planning<'r> {
    fn wanted(&mut self, root: FunctionRef<'r>) -> Result<Vec<SymbolId>, CodegenError> {
        self.read_bodies(root)?;
        let mut wanted = Vec::new();
        let mut seen = FxHashSet::default();
        seen.insert(*root);
        let mut bodies = VecDeque::from([root]);
        while let Some(body) = bodies.pop_front() {
            for callee in scan(body).callees {
                let callee = self.source.reader.home(callee).unwrap_or(callee);
                if !seen.insert(callee) {
                    continue;
                }
                match (callee.as_function(), self.source.candidate(callee)) {
                    (Some(inline), _) if self.source.is_inline_body(callee) => {
                        bodies.extend(self.read_bodies(inline).is_ok().then_some(inline));
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
        let id = self.source.id(*old)?;
        if self.how.profiles.contains_key(&id) {
            return self.read_bodies(old).is_ok().then_some(old);
        }
        let entry = self.source.reader.library().entry(self.source.plan, id)?;
        (entry.instructions <= self.most_kept()).then(|| entry.function())
    }

    /// The symbol of `callee`, if its definition is not this module's.
    fn other_modules(&self, callee: ValueRef<'r>) -> Option<SymbolId> {
        let id = self.source.resolve(callee)?;
        let info = self.source.info(id);
        let function = matches!(info.kind, Kind::Function | Kind::Alias { .. });
        let elsewhere = !self.source.plan.import(id).defined && !info.name.starts_with("llvm.");
        (function && elsewhere).then_some(id)
    }
}

/// The offered function at an address seen at run time.
pub(crate) fn offered<'r>(
    source: Source<'r>,
    how: &Compile,
    address: u64,
) -> Option<FunctionRef<'r>> {
    let &index = how.offered_targets.get(&address)?;
    source
        .reader
        .foreign()
        .function(&how.offers.get(index)?.parcel)
}

impl<'r> Copying<'r> {
    /// Defines an offered function, by its place among the offers.
    pub(crate) fn define_offered(
        &mut self,
        index: usize,
        old: FunctionRef<'r>,
    ) -> Result<(), CodegenError> {
        let Some(offer) = self.how.offers.get(index) else {
            return Ok(());
        };
        let linkage = LLVMLinkage::LLVMAvailableExternallyLinkage;
        let new = self.define_function(old, offer.parcel.name(), linkage)?;
        let symbols = offer.symbols.iter().map(|&id| self.source.value(id));
        for known in symbols.chain([*old]).collect::<Vec<_>>() {
            self.stands_for(known, new);
        }
        self.pending.push_back((old, new));
        self.contents.kept.push(new.name());
        self.contents.candidate_instructions += offer.parcel.instructions;
        self.contents.taken.push(index);
        Ok(())
    }

    /// The global of the unit with that name, where one from another module may have it.
    pub(crate) fn shared(&self, name: &str) -> Option<ValueRef<'r>> {
        match self.contents.taken.is_empty() {
            true => None,
            false => named(self.module, name),
        }
    }

    /// The unit's global for one that a parcel mentions.
    pub(crate) fn map_foreign(&mut self, old: ValueRef<'r>) -> ValueRef<'r> {
        let name = old.name();
        if let Some(known) = named(self.module, &name) {
            return known;
        }
        let new = match (old.as_function(), old.as_variable()) {
            (None, Some(variable)) => *self.declare_foreign_data(variable, &name),
            _ => *self.declare_function(old, &name, true),
        };
        // SAFETY: a live global; a declaration of ours.
        unsafe {
            if LLVMGetLinkage(old.raw()) == LLVMLinkage::LLVMExternalWeakLinkage {
                LLVMSetLinkage(new.raw(), LLVMLinkage::LLVMExternalWeakLinkage);
            }
        }
        new
    }

    fn declare_foreign_data(&mut self, old: VariableRef<'r>, name: &str) -> VariableRef<'r> {
        let near = self.contents.taken.iter().any(|&index| {
            let parcel = &self.how.offers[index].parcel;
            parcel.is_near(name)
        });
        let new = self.declare_like(*old, name);
        // SAFETY: live variables of one type.
        let thread_local = unsafe {
            LLVMSetGlobalConstant(new.raw(), LLVMIsGlobalConstant(old.raw()));
            LLVMSetUnnamedAddress(new.raw(), LLVMGetUnnamedAddress(old.raw()));
            LLVMIsThreadLocal(old.raw()) != 0
        };
        copy_alignment(*old, *new);
        if thread_local {
            let general = LLVMThreadLocalMode::LLVMGeneralDynamicTLSModel;
            // SAFETY: a variable of ours.
            unsafe { LLVMSetThreadLocalMode(new.raw(), general) };
        } else if near {
            mark_dso_local(*new);
        }
        if old.initializer().is_some() {
            self.constants.push((old, new));
        }
        new
    }
}

/// The function or variable of that name.
pub(crate) fn named<'m>(module: &'m OwnedModule, name: &str) -> Option<ValueRef<'m>> {
    let function = module.function(name).map(|function| *function);
    function.or_else(|| Some(*module.variable(name)?))
}
