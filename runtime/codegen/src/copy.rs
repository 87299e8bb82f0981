//! Copies definitions out of a reader's module into a fresh module of the same context: one
//! function with its inseparable parts, or the data.
//!
//! Everything else the copy mentions becomes a declaration with the name and the
//! access its [`ModulePlan`](crate::ModulePlan) gives. Two kinds of things are copied along:
//! `alwaysinline` callees (as internal functions that the inliner then removes), and tables of the
//! function's labels that nothing else sees.
//!
//! Three values are each made of the one before. A plan ([`CopyPlan`], [`DataPlan`]) lists the
//! definitions, decided by reading alone. [`UnitCopy`] does the work in LLVM, step by step;
//! [`Copying`] maps the values. [`UnitContents`] describes the filled module for the caller. With that
//! module it is a [`Unit`](crate::unit::Unit).
//!
//! # Why
//! - Copying a body rather than splitting a module. Copying costs 10 to 40 us, does not change
//!   the reader's module and works from LLVM-C, so any function can be taken again at any tier.
//!   The reader's context keeps types and constants; readers are recycled.
//! - Bodies under a prefixed name. A body is emitted as `uruk.body.NAME`; the plain name always
//!   means the canonical address, also inside the body, so that a function that takes its own
//!   address gets its stub.

use std::sync::Arc;

use inkwell::llvm_sys::LLVMLinkage;
use inkwell::llvm_sys::core::{LLVMGetUnnamedAddress, LLVMSetInitializer, LLVMSetUnnamedAddress};
use inkwell::llvm_sys::debuginfo::LLVMStripModuleDebugInfo;
use rustc_hash::FxHashMap;

use crate::body;
use crate::compile::Compile;
use crate::context::OwnedModule;
use crate::copying::{Copying, PlainLabels};
use crate::data::DataPlan;
use crate::dependence::DependenceKind;
use crate::error::CodegenError;
use crate::guide;
use crate::handles::{FunctionRef, ValueRef, VariableRef};
use crate::host::for_host;
use crate::library::Entry;
use crate::lines;
use crate::planning::{CopyPlan, Member, Profiled};
use crate::profile::Profile;
use crate::properties::mark_dso_local;
use crate::sole;
use crate::source::Source;
use crate::summary::{BODY_PREFIX, Linkage, SymbolId};
use crate::unit::UnitContents;

/// One copy in progress, from a plan into a module.
pub(crate) struct UnitCopy<'r> {
    copying: Copying<'r>,
    /// Functions of the reader's module with profiles that fit.
    guided: Vec<(FunctionRef<'r>, Arc<Profile>)>,
}

impl<'r> UnitCopy<'r> {
    pub(crate) fn new(
        source: Source<'r>,
        how: &'r Compile,
        unit_name: &'r str,
        module: &'r OwnedModule,
    ) -> UnitCopy<'r> {
        UnitCopy {
            copying: Copying::new(source, how, unit_name, module),
            guided: Vec::new(),
        }
    }

    /// Sets which functions have labels with plain addresses in the unit.
    pub(crate) fn set_plain_labels(&mut self, labels: PlainLabels<'r>) {
        self.copying.plain_labels = labels;
    }

    /// The label space of a function of the reader's module.
    pub(crate) fn label_space(
        &mut self,
        function: FunctionRef<'r>,
    ) -> Result<ValueRef<'r>, CodegenError> {
        self.copying.label_space(function)
    }

    /// Copies the planned definitions; returns the copy of the body, under its body name.
    pub(crate) fn function(&mut self, plan: CopyPlan<'r>) -> Result<FunctionRef<'r>, CodegenError> {
        self.copying.contents.is_version = true;
        self.copying.contents.refused = plan.refused;
        self.guided = plan.guided;
        let old = plan.root;
        let name = format!(
            "{BODY_PREFIX}{}",
            self.copying.source.plan.import(plan.id).name
        );
        let new = self
            .copying
            .define_function(old, &name, LLVMLinkage::LLVMExternalLinkage)?;
        mark_dso_local(*new);
        self.copying.with_labels.insert(*old, new);
        if self.copying.optimizes() {
            self.copying.root = Some((old, new));
            for member in plan.members {
                self.member(member)?;
            }
            self.prepare_for_optimizing(plan.id, new, plan.wide);
        }
        self.copying.pending.push_back((old, new));
        body::copy_pending(&mut self.copying)?;
        Ok(new)
    }

    fn member(&mut self, member: Member<'r>) -> Result<(), CodegenError> {
        match member {
            Member::Profiled(callee) => {
                let name = self.define_candidate(&callee)?;
                self.copying.contents.candidates.push((callee.id, name));
                Ok(())
            }
            Member::Kept(id, entry) => self.define_kept(id, entry),
            Member::Offered(index, function) => self.define_offered(index, function),
        }
    }

    /// Defines a candidate from its body in the reader's module; returns its link name.
    pub(crate) fn define_candidate(
        &mut self,
        callee: &Profiled<'r>,
    ) -> Result<String, CodegenError> {
        let old = callee.function;
        let name = self.copying.source.plan.import(callee.id).name.to_string();
        let new = self
            .copying
            .define_function(old, &name, LLVMLinkage::LLVMWeakODRLinkage)?;
        new.add(self.copying.source.reader.kinds().nonlazybind);
        self.prepare_for_optimizing(callee.id, new, callee.wide);
        self.prefer_sole(callee.id, new);
        self.copying.stands_for(*old, new);
        self.copying.pending.push_back((old, new));
        self.copying.contents.candidate_instructions += callee.instructions;
        Ok(name)
    }

    /// Defines a candidate from its simplified body, unless it is defined already.
    pub(crate) fn define_kept(
        &mut self,
        id: SymbolId,
        entry: &'r Entry,
    ) -> Result<(), CodegenError> {
        let old = self.copying.source.value(id);
        if self.copying.with_labels.contains_key(&old) {
            return Ok(());
        }
        let name = &*self.copying.source.plan.import(id).name;
        let linkage = LLVMLinkage::LLVMAvailableExternallyLinkage;
        let new = self.define_simplified(old, entry, name, linkage)?;
        self.prefer_sole(id, new);
        self.copying.contents.kept.push(new.name());
        self.copying.contents.candidate_instructions += entry.instructions;
        for used in &entry.uses {
            match used.kind {
                DependenceKind::Body => self.copying.contents.inlined.push(used.symbol),
                DependenceKind::Fact => {
                    self.copying.contents.facts.insert(used.symbol);
                }
            }
        }
        Ok(())
    }

    /// Defines `old`, a function of the reader's module, from its simplified body.
    fn define_simplified(
        &mut self,
        old: ValueRef<'r>,
        entry: &'r Entry,
        name: &str,
        linkage: LLVMLinkage,
    ) -> Result<FunctionRef<'r>, CodegenError> {
        let new = self
            .copying
            .define_function(entry.function(), name, linkage)?;
        // Passes saw only the library's module, so they do not know uses of its address elsewhere.
        // SAFETY: live functions of one type.
        unsafe { LLVMSetUnnamedAddress(new.raw(), LLVMGetUnnamedAddress(old.raw())) };
        self.copying.stands_for(old, new);
        self.copying.pending.push_back((entry.function(), new));
        Ok(new)
    }

    /// Copies one function only, from its simplified body, under `name`.
    pub(crate) fn simplified(
        &mut self,
        id: SymbolId,
        entry: &'r Entry,
        name: &str,
    ) -> Result<(), CodegenError> {
        let linkage = LLVMLinkage::LLVMExternalLinkage;
        self.define_simplified(self.copying.source.value(id), entry, name, linkage)?;
        self.copy_pending()
    }

    /// Copies functions for analysis, each under a name of its own, without attributes that keep
    /// passes from them.
    pub(crate) fn for_analysis(
        &mut self,
        functions: &[(FunctionRef<'r>, &str)],
    ) -> Result<(), CodegenError> {
        let kinds = self.copying.source.reader.kinds();
        for &(old, name) in functions {
            let linkage = LLVMLinkage::LLVMExternalLinkage;
            let new = self.copying.define_function(old, name, linkage)?;
            new.remove(kinds.optnone);
            new.remove(kinds.noinline);
            self.copying.stands_for(*old, new);
            self.copying.pending.push_back((old, new));
        }
        self.copy_pending()?;
        // Values of constants are no matter here.
        self.copying.constants.clear();
        Ok(())
    }

    /// Copies the bodies of all functions that were defined and wait for theirs.
    pub(crate) fn copy_pending(&mut self) -> Result<(), CodegenError> {
        body::copy_pending(&mut self.copying)
    }

    /// Defines an offered function, by its place among the offers.
    fn define_offered(&mut self, index: usize, old: FunctionRef<'r>) -> Result<(), CodegenError> {
        let Some(offer) = self.copying.how.offers.get(index) else {
            return Ok(());
        };
        let linkage = LLVMLinkage::LLVMAvailableExternallyLinkage;
        let new = self
            .copying
            .define_function(old, offer.parcel.name(), linkage)?;
        let symbols = offer
            .symbols
            .iter()
            .map(|&id| self.copying.source.value(id));
        for known in symbols.chain([*old]).collect::<Vec<_>>() {
            self.copying.stands_for(known, new);
        }
        self.copying.pending.push_back((old, new));
        self.copying.contents.kept.push(new.name());
        self.copying.contents.candidate_instructions += offer.parcel.instructions();
        self.copying.contents.taken.push(index);
        Ok(())
    }

    /// Has the call of `new`, a candidate copied from function `id`, inlined if it is the only one.
    fn prefer_sole(&self, id: SymbolId, new: FunctionRef<'r>) {
        if self.copying.source.is_sole(id, self.copying.how.tier) {
            new.set_text("function-inline-threshold", sole::THRESHOLD);
        }
    }

    /// Sets the attributes of `new`, a definition copied from function `id`, for optimizing.
    fn prepare_for_optimizing(&self, id: SymbolId, new: FunctionRef<'r>, wide: bool) {
        let kinds = self.copying.source.reader.kinds();
        if new.has(kinds.optnone) {
            new.remove(kinds.optnone);
            new.remove(kinds.noinline);
        }
        if !wide {
            for_host(new);
        }
        // LLVM turns a copying loop into a call of `memcpy`, unless the function is named so. The
        // body of the program's own `memcpy` has another name here.
        let info = self.copying.source.info(id);
        if info.linkage != Linkage::Local {
            new.set_text(&format!("no-builtin-{}", info.name), "");
        }
    }

    /// Copies the module's data, and functions that are planned too, under their plain names;
    /// false if there is nothing.
    pub(crate) fn data(&mut self, plan: &DataPlan<'r>) -> Result<bool, CodegenError> {
        for &(id, old) in &plan.functions {
            let name = &*self.copying.source.plan.import(id).name;
            let new = self
                .copying
                .define_function(old, name, self.copying.linkage(id))?;
            mark_dso_local(*new);
            self.copying.stands_for(*old, new);
            body::create_blocks(&mut self.copying, old, new);
            self.copying.pending.push_back((old, new));
        }
        let mut variables = Vec::new();
        for &(id, old) in &plan.variables {
            variables.push((old, self.copying.define_variable(id, old)));
        }
        for &(id, old) in &plan.aliases {
            self.copying.define_alias(id, old)?;
        }
        let has_asm = self.copying.copy_inline_asm();
        for (old, new) in variables {
            self.initialize(old, new)?;
        }
        body::copy_pending(&mut self.copying)?;
        let mentions = self.copying.mention_section_bounds();
        Ok(plan.any || mentions || has_asm)
    }

    /// Applies the profiles of the plan; after the bodies were copied.
    pub(crate) fn apply_profiles(&mut self) -> Result<(), CodegenError> {
        guide::apply(&mut self.copying, std::mem::take(&mut self.guided))
    }

    /// Makes calls pass poison for parameters that are known to be dead.
    pub(crate) fn drop_dead_arguments(&mut self) {
        self.copying.facts.drop_dead_arguments();
    }

    /// Like [`UnitCopy::finish`], and returns the symbol of each function and variable name in the
    /// module.
    pub(crate) fn finish_with_homes(
        mut self,
    ) -> Result<(UnitContents, FxHashMap<String, SymbolId>), CodegenError> {
        self.complete()?;
        let home = |(&old, new): (&ValueRef<'r>, &ValueRef<'r>)| {
            let id = self.copying.source.id(old)?;
            new.is_global().then(|| (new.name(), id))
        };
        let homes = self.copying.values.iter().filter_map(home).collect();
        Ok((self.into_contents(), homes))
    }

    /// Initializes the copied label tables and constants; returns the module's contents.
    pub(crate) fn finish(mut self) -> Result<UnitContents, CodegenError> {
        self.complete()?;
        Ok(self.into_contents())
    }

    fn complete(&mut self) -> Result<(), CodegenError> {
        self.copying.contents.is_split =
            !self.copying.tables.is_empty() || !self.copying.inline_copies.is_empty();
        while let Some((old, new)) = self.copying.tables.pop() {
            self.initialize(old, new)?;
            body::copy_pending(&mut self.copying)?;
        }
        let mut done = 0;
        while let Some(&(old, new)) = self.copying.constants.get(done) {
            self.initialize(old, new)?;
            done += 1;
        }
        let lines = lines::read(&self.copying);
        // SAFETY: a live module. Debug information of one function would carry its
        // whole compile unit along. No handle names what goes.
        unsafe { LLVMStripModuleDebugInfo(self.copying.module.raw()) };
        lines::write(&self.copying, lines);
        Ok(())
    }

    /// Gives `new` the value of `old`, a variable with a value.
    fn initialize(
        &mut self,
        old: VariableRef<'r>,
        new: VariableRef<'r>,
    ) -> Result<(), CodegenError> {
        if let Some(value) = old.initializer() {
            let value = self.copying.map_constant(value)?;
            // SAFETY: same type, same context, and all globals in it are of this module.
            unsafe { LLVMSetInitializer(new.raw(), value.raw()) };
        }
        Ok(())
    }

    fn into_contents(self) -> UnitContents {
        let Copying {
            constants,
            contents,
            ..
        } = self.copying;
        let constants = constants.into_iter().map(|(_, new)| new.name());
        UnitContents {
            constants: constants.collect(),
            ..contents
        }
    }
}
