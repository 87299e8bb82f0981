//! Bodies from other modules: which are wanted, and how they get into a unit.
//!
//! A [`Parcel`] is parsed into the reader's context once and stays there; units copy the
//! function like one of the `library`. What it mentions is declared under the name it has
//! there. A name means one thing in a unit: where the unit has a global of that name, by
//! whatever module it was mentioned first, that is it.
//!
//! Which functions are offered is decided by the caller, who knows what names are bound
//! to; a unit takes them in that order until its budget is spent.

use std::collections::VecDeque;
use std::sync::Arc;

use inkwell::llvm_sys::bit_reader::LLVMParseBitcodeInContext2;
use inkwell::llvm_sys::core::{
    LLVMAddGlobal, LLVMGetAlignment, LLVMGetInitializer, LLVMGetLinkage, LLVMGetNamedFunction,
    LLVMGetNamedGlobal, LLVMGetUnnamedAddress, LLVMGetValueKind, LLVMGlobalGetValueType,
    LLVMIsGlobalConstant, LLVMIsThreadLocal, LLVMSetAlignment, LLVMSetGlobalConstant,
    LLVMSetLinkage, LLVMSetThreadLocalMode, LLVMSetUnnamedAddress,
};
use inkwell::llvm_sys::prelude::{LLVMModuleRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMLinkage, LLVMThreadLocalMode, LLVMValueKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::candidates::{TINY_KEPT, Wanted};
use crate::compile::{Compile, Tier};
use crate::context::{Buffer, OwnedModule};
use crate::error::CodegenError;
use crate::extract::Extraction;
use crate::globals::mark_dso_local;
use crate::parcel::Parcel;
use crate::plan::ModulePlan;
use crate::reader::{Reader, c_name, value_name};
use crate::summary::{Kind, SymbolId};
use crate::survey::scan;

/// Instructions of parcels a reader keeps: some 20 MB.
const MOST_INSTRUCTIONS: usize = 100_000;

/// A body of another module, for one compile.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The body.
    pub parcel: Arc<Parcel>,
    /// Symbols of the module that is compiled which are bound to it.
    pub symbols: Vec<SymbolId>,
}

/// Parcels that were parsed.
#[derive(Default)]
pub(crate) struct Foreign {
    parsed: FxHashMap<u64, Parsed>,
    instructions: usize,
}

struct Parsed {
    function: LLVMValueRef,
    _module: OwnedModule,
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
            let mut extraction = Extraction::new(reader, plan, "callees", how)?;
            let root = reader.table().values[function.index()];
            extraction.wanted(root)
        })
    }

    /// Parses the parcels among `offers` that are not there; what cannot be parsed is not
    /// used.
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
            // Said of a parcel, not of what is compiled.
            let _ = context.take_errors();
            return None;
        }
        // SAFETY: a fresh module, ours.
        let module = unsafe { OwnedModule::new(module) };
        let function = named(module.raw(), parcel.name())?;
        Some(Parsed {
            function,
            _module: module,
        })
    }
}

impl Extraction<'_> {
    fn wanted(&mut self, root: LLVMValueRef) -> Result<Vec<SymbolId>, CodegenError> {
        self.read_bodies(root)?;
        let mut wanted = Vec::new();
        let mut seen = FxHashSet::default();
        seen.insert(root);
        let mut bodies = VecDeque::from([root]);
        while let Some(body) = bodies.pop_front() {
            for callee in scan(body).callees {
                let callee = self.reader.library().home(callee).unwrap_or(callee);
                if !seen.insert(callee) {
                    continue;
                }
                if self.is_inline_body(callee) {
                    bodies.extend(self.read_bodies(callee).is_ok().then_some(callee));
                } else if let Some(old) = self.candidate(callee) {
                    if old == callee || seen.insert(old) {
                        bodies.extend(self.body_in_sight(old));
                    }
                } else {
                    wanted.extend(self.other_modules(callee));
                }
            }
        }
        Ok(wanted)
    }

    /// The body of a candidate as units get it.
    fn body_in_sight(&mut self, old: LLVMValueRef) -> Option<LLVMValueRef> {
        let id = self.reader.table().index[&old];
        if self.how.profiles.contains_key(&id) {
            return self.read_bodies(old).is_ok().then_some(old);
        }
        let entry = self.reader.library().entry(self.plan, id)?;
        (entry.instructions <= self.most_kept()).then_some(entry.function)
    }

    /// The symbol of `callee`, if its definition is not this module's.
    fn other_modules(&self, callee: LLVMValueRef) -> Option<SymbolId> {
        let id = self.resolve(callee)?;
        let info = &self.reader.summary().symbols[id.index()];
        let function = matches!(info.kind, Kind::Function | Kind::Alias { .. });
        let elsewhere = !self.plan.import(id).defined && !info.name.starts_with("llvm.");
        (function && elsewhere).then_some(id)
    }

    /// Defines the functions that are offered, as far as the budget goes.
    pub(crate) fn add_offers(&mut self, budget: &mut u32) -> Result<(), CodegenError> {
        let reader = self.reader;
        let values = &reader.table().values;
        for (index, offer) in Arc::clone(&self.how.offers).iter().enumerate() {
            let parcel = &offer.parcel;
            let Some(parsed) = reader.foreign().parsed.get(&parcel.number) else {
                continue;
            };
            let symbols = offer.symbols.iter().map(|id| values[id.index()]);
            if parcel.instructions > self.most_kept()
                || symbols
                    .clone()
                    .any(|own| self.with_labels.contains_key(&own))
                || named(self.module.raw(), parcel.name()).is_some()
            {
                continue;
            }
            if parcel.instructions > TINY_KEPT {
                match budget.checked_sub(parcel.instructions) {
                    Some(left) => *budget = left,
                    None => continue,
                }
            }
            let old = parsed.function;
            self.bodies_read.insert(old);
            let linkage = LLVMLinkage::LLVMAvailableExternallyLinkage;
            let new = self.define_function(old, parcel.name(), linkage)?;
            for known in symbols.chain([old]) {
                self.values.insert(known, new);
                self.with_labels.insert(known, new);
            }
            self.pending.push_back((old, new));
            self.kept.push(new);
            self.candidate_instructions += parcel.instructions;
            self.taken.push(index);
        }
        Ok(())
    }

    /// The global of the unit with that name, where one from another module may have it.
    pub(crate) fn shared(&self, name: &str) -> Option<LLVMValueRef> {
        match self.taken.is_empty() {
            true => None,
            false => named(self.module.raw(), name),
        }
    }

    /// The function that is offered for an address seen at run time.
    pub(crate) fn offered(&self, address: u64) -> Option<LLVMValueRef> {
        let &index = self.how.offered_targets.get(&address)?;
        let number = self.how.offers.get(index)?.parcel.number;
        let parsed = self.reader.foreign().parsed.get(&number)?;
        Some(parsed.function)
    }

    /// What a parcel means by one of its globals.
    pub(crate) fn map_foreign(&mut self, old: LLVMValueRef) -> LLVMValueRef {
        let name = value_name(old);
        if let Some(known) = named(self.module.raw(), &name) {
            return known;
        }
        // SAFETY: a live global, here and below.
        let function = unsafe { LLVMGetValueKind(old) } == LLVMValueKind::LLVMFunctionValueKind;
        let new = match function {
            true => self.declare_function(old, &name, true),
            false => self.declare_foreign_data(old, &name),
        };
        // SAFETY: see above; a declaration of ours.
        unsafe {
            if LLVMGetLinkage(old) == LLVMLinkage::LLVMExternalWeakLinkage {
                LLVMSetLinkage(new, LLVMLinkage::LLVMExternalWeakLinkage);
            }
        }
        new
    }

    fn declare_foreign_data(&mut self, old: LLVMValueRef, name: &str) -> LLVMValueRef {
        let c = c_name(name);
        let near = self.taken.iter().any(|&index| {
            let parcel = &self.how.offers[index].parcel;
            parcel.is_near(name)
        });
        // SAFETY: live module, live variable and its own type and properties.
        unsafe {
            let ty = LLVMGlobalGetValueType(old);
            let new = LLVMAddGlobal(self.module.raw(), ty, c.as_ptr());
            LLVMSetGlobalConstant(new, LLVMIsGlobalConstant(old));
            LLVMSetUnnamedAddress(new, LLVMGetUnnamedAddress(old));
            let align = LLVMGetAlignment(old);
            if align != 0 {
                LLVMSetAlignment(new, align);
            }
            if LLVMIsThreadLocal(old) != 0 {
                LLVMSetThreadLocalMode(new, LLVMThreadLocalMode::LLVMGeneralDynamicTLSModel);
            } else if near {
                mark_dso_local(new);
            }
            if !LLVMGetInitializer(old).is_null() {
                self.constants.push((old, new));
            }
            new
        }
    }
}

/// The function or variable of that name.
fn named(module: LLVMModuleRef, name: &str) -> Option<LLVMValueRef> {
    // For some calling conventions names begin with LLVM's escape byte.
    [c_name(name), c_name(&format!("\u{1}{name}"))]
        .iter()
        .find_map(|name| {
            // SAFETY: a live module and C strings; null if there is none.
            let (function, variable) = unsafe {
                (
                    LLVMGetNamedFunction(module, name.as_ptr()),
                    LLVMGetNamedGlobal(module, name.as_ptr()),
                )
            };
            [function, variable].into_iter().find(|it| !it.is_null())
        })
}
