//! Copies definitions out of a reader's module into a fresh module of the same context: one
//! function with its inseparable parts, or the data.
//!
//! Everything else the copy mentions becomes a declaration with the name and the
//! access its [`ModulePlan`](crate::ModulePlan) gives. Two kinds of things are copied along:
//! `alwaysinline` callees (as internal functions that the inliner then removes), and tables of the
//! function's labels that nothing else sees.
//!
//! Three values are each made of the one before. A plan ([`CopyPlan`], [`DataPlan`]) lists the
//! definitions, decided by reading alone. [`Copying`] does the work in LLVM, step by step, with
//! `globals`, `body` and `constant`. [`Contents`] describes the filled module for the caller. With
//! that module it is a [`Unit`].
//!
//! # Why
//! - Copying a body rather than splitting a module. Copying costs 10 to 40 us, does not change
//!   the reader's module and works from LLVM-C, so any function can be taken again at any tier.
//!   The reader's context keeps types and constants; readers are recycled.
//! - Bodies under a prefixed name. A body is emitted as `uruk.body.NAME`; the plain name always
//!   means the canonical address, also inside the body, so that a function that takes its own
//!   address gets its stub.

use std::collections::VecDeque;
use std::sync::Arc;

use inkwell::llvm_sys::LLVMLinkage;
use inkwell::llvm_sys::core::{LLVMGetUnnamedAddress, LLVMSetInitializer, LLVMSetUnnamedAddress};
use inkwell::llvm_sys::debuginfo::LLVMStripModuleDebugInfo;
use rustc_hash::{FxHashMap, FxHashSet};

use uruk_base::{Tier, Variant};

use crate::compile::{Compile, DependenceKind};
use crate::context::{Builder, OwnedModule};
use crate::data::DataPlan;
use crate::error::CodegenError;
use crate::facts::Summary;
use crate::flags::{self, Extensions};
use crate::globals::mark_dso_local;
use crate::handles::{FunctionRef, ValueRef, VariableRef};
use crate::library::Entry;
use crate::planning::{CopyPlan, Member, Profiled};
use crate::profile::{Profile, Refused};
use crate::source::Source;
use crate::summary::{BODY_PREFIX, Linkage, SymbolId};

/// A filled module, to be emitted.
pub(crate) struct Unit {
    pub(crate) module: OwnedModule,
    pub(crate) contents: Contents,
}

impl Unit {
    /// Requests unwind tables for each function's frame, also where nothing unwinds: backtraces of
    /// faults, debuggers and profilers pass such frames.
    pub(crate) fn describe_frames(&self, nounwind: u32, uwtable: u32) {
        /// Frames are described at each instruction.
        const EACH: u64 = 2;
        for function in self.module.functions() {
            if !function.is_declaration() && function.has(nounwind) && !function.has(uwtable) {
                function.add_number(uwtable, EACH);
            }
        }
    }
}

impl Unit {
    /// Makes each function that returns one bit clear the bits above it.
    pub(crate) fn clear_above_flags(&self, extensions: Extensions) {
        let functions = self.module.functions();
        for function in functions.filter(|function| !function.is_declaration()) {
            flags::clear_above(function, extensions);
        }
    }
}

/// Description of a filled module. It holds names, as passes may drop the definitions.
#[derive(Default)]
pub(crate) struct Contents {
    /// True if something in it only passes can lower: inline copies, coroutines,
    /// matrix intrinsics.
    pub(crate) needs_passes: bool,
    pub(crate) has_matrices: bool,
    /// True if it contains assembly.
    pub(crate) has_asm: bool,
    /// True if it defines coroutines that are not split yet.
    pub(crate) has_coroutines: bool,
    /// Something in it was copied along with the function: tables of labels, `alwaysinline`
    /// callees.
    pub(crate) is_split: bool,
    /// Callees defined for the optimizer only, with their link names.
    pub(crate) candidates: Vec<(SymbolId, String)>,
    /// Names of constants defined for the optimizer only.
    pub(crate) constants: Vec<String>,
    /// Names of callees defined for the optimizer only, with their simplified bodies.
    pub(crate) kept: Vec<String>,
    /// Instructions of both.
    pub(crate) candidate_instructions: u32,
    /// Functions whose bodies are in the unit besides.
    pub(crate) inlined: Vec<SymbolId>,
    /// Symbols of which more than name and type was used.
    pub(crate) facts: FxHashSet<SymbolId>,
    /// Profiles that were given and do not fit.
    pub(crate) refused: Vec<Refused>,
    /// Functions with profiles applied.
    pub(crate) guided_functions: u32,
    /// Indirect calls made direct behind a comparison.
    pub(crate) promoted: u32,
    /// The offered bodies that are in the unit.
    pub(crate) taken: Vec<usize>,
    /// True if its code may be freed before the module is: it is a version of a function.
    pub(crate) is_version: bool,
    /// True if functions in it have notes of hooks, see `instrument`.
    pub(crate) has_late_hooks: bool,
    /// The variant by which it is optimized.
    pub(crate) variant: Variant,
    /// True if it has addresses of labels of other functions than the one it is for.
    pub(crate) foreign_labels: bool,
}

/// Functions whose labels have the addresses of their blocks in a copy, not places in a label space.
#[derive(Default)]
pub(crate) enum PlainLabels<'r> {
    /// None.
    #[default]
    None,
    /// One, whose labels stay inside of it, and the tables that it loads them from.
    Of(FunctionRef<'r>, FxHashSet<VariableRef<'r>>),
    /// All that are defined: all of the module is.
    All,
}

impl<'r> PlainLabels<'r> {
    /// Whether the labels of a function have block addresses.
    pub(crate) fn covers(&self, function: FunctionRef<'r>) -> bool {
        match self {
            PlainLabels::None => false,
            PlainLabels::Of(one, _) => *one == function,
            PlainLabels::All => true,
        }
    }
}

/// One copy in progress, from a source into a module.
pub(crate) struct Copying<'r> {
    pub(crate) source: Source<'r>,
    pub(crate) how: &'r Compile,
    unit_name: &'r str,
    pub(crate) builder: Builder,
    pub(crate) module: &'r OwnedModule,
    /// Old value -> new value: globals, constants, arguments, blocks, instructions.
    pub(crate) values: FxHashMap<ValueRef<'r>, ValueRef<'r>>,
    /// Functions that are defined here, by old value.
    pub(crate) with_labels: FxHashMap<ValueRef<'r>, FunctionRef<'r>>,
    pub(crate) inline_copies: FxHashMap<ValueRef<'r>, FunctionRef<'r>>,
    pub(crate) pending: VecDeque<(FunctionRef<'r>, FunctionRef<'r>)>,
    pub(crate) tables: Vec<(VariableRef<'r>, VariableRef<'r>)>,
    /// Functions whose labels have plain addresses here.
    pub(crate) plain_labels: PlainLabels<'r>,
    /// Numbers of blocks in their bodies, of functions whose labels were needed.
    pub(crate) labels: FxHashMap<ValueRef<'r>, u32>,
    /// The function the unit is made for, old and new, when it is optimized: it calls
    /// itself directly.
    pub(crate) root: Option<(FunctionRef<'r>, FunctionRef<'r>)>,
    pub(crate) constants: Vec<(VariableRef<'r>, VariableRef<'r>)>,
    /// Declarations of functions that are known not to use some argument.
    pub(crate) with_dead: Vec<(FunctionRef<'r>, Arc<Summary>)>,
    /// Functions of the reader's module with profiles that fit.
    pub(crate) guided: Vec<(FunctionRef<'r>, Arc<Profile>)>,
    /// Functions defined here, old and new, if lines are requested.
    pub(crate) defined: Vec<(FunctionRef<'r>, FunctionRef<'r>)>,
    /// The description of the module so far.
    pub(crate) contents: Contents,
}

impl<'r> Copying<'r> {
    pub(crate) fn new(
        source: Source<'r>,
        how: &'r Compile,
        unit_name: &'r str,
        module: &'r OwnedModule,
    ) -> Copying<'r> {
        Copying {
            source,
            how,
            unit_name,
            builder: Builder::new(source.reader.context()),
            module,
            values: FxHashMap::default(),
            with_labels: FxHashMap::default(),
            inline_copies: FxHashMap::default(),
            pending: VecDeque::new(),
            tables: Vec::new(),
            plain_labels: PlainLabels::None,
            labels: FxHashMap::default(),
            root: None,
            constants: Vec::new(),
            with_dead: Vec::new(),
            guided: Vec::new(),
            defined: Vec::new(),
            contents: Contents::default(),
        }
    }

    /// True if more than the baseline compiler works on the unit.
    pub(crate) fn optimizes(&self) -> bool {
        self.how.tier > Tier::Baseline
    }

    /// Copies the planned definitions; returns the copy of the body, under its body name.
    pub(crate) fn function(&mut self, plan: CopyPlan<'r>) -> Result<FunctionRef<'r>, CodegenError> {
        self.contents.is_version = true;
        self.contents.refused = plan.refused;
        self.guided = plan.guided;
        let old = plan.root;
        let name = format!("{BODY_PREFIX}{}", self.source.plan.import(plan.id).name);
        let new = self.define_function(old, &name, LLVMLinkage::LLVMExternalLinkage)?;
        mark_dso_local(*new);
        self.with_labels.insert(*old, new);
        if self.optimizes() {
            self.root = Some((old, new));
            for member in plan.members {
                self.member(member)?;
            }
            self.prepare_for_optimizing(plan.id, new, plan.wide);
        }
        self.pending.push_back((old, new));
        self.copy_pending()?;
        Ok(new)
    }

    fn member(&mut self, member: Member<'r>) -> Result<(), CodegenError> {
        match member {
            Member::Profiled(callee) => {
                self.contents.candidate_instructions += callee.instructions;
                let name = self.define_candidate(&callee)?;
                self.contents.candidates.push((callee.id, name));
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
        let name = self.source.plan.import(callee.id).name.to_string();
        let new = self.define_function(old, &name, LLVMLinkage::LLVMWeakODRLinkage)?;
        new.add(self.source.reader.kinds().nonlazybind);
        self.prepare_for_optimizing(callee.id, new, callee.wide);
        self.stands_for(*old, new);
        self.pending.push_back((old, new));
        Ok(name)
    }

    /// Defines a candidate from its simplified body, unless it is defined already.
    pub(crate) fn define_kept(
        &mut self,
        id: SymbolId,
        entry: &'r Entry,
    ) -> Result<(), CodegenError> {
        let old = self.source.value(id);
        if self.with_labels.contains_key(&old) {
            return Ok(());
        }
        let name = &*self.source.plan.import(id).name;
        let linkage = LLVMLinkage::LLVMAvailableExternallyLinkage;
        let new = self.define_simplified(old, entry, name, linkage)?;
        self.contents.kept.push(new.name());
        self.contents.candidate_instructions += entry.instructions;
        for used in &entry.uses {
            match used.kind {
                DependenceKind::Body => self.contents.inlined.push(used.symbol),
                DependenceKind::Fact => {
                    self.contents.facts.insert(used.symbol);
                }
            }
        }
        Ok(())
    }

    /// Defines `old`, a function of the reader's module, from its simplified body.
    pub(crate) fn define_simplified(
        &mut self,
        old: ValueRef<'r>,
        entry: &'r Entry,
        name: &str,
        linkage: LLVMLinkage,
    ) -> Result<FunctionRef<'r>, CodegenError> {
        let new = self.define_function(entry.function(), name, linkage)?;
        // Passes saw only the library's module, so they do not know uses of its address elsewhere.
        // SAFETY: live functions of one type.
        unsafe { LLVMSetUnnamedAddress(new.raw(), LLVMGetUnnamedAddress(old.raw())) };
        self.stands_for(old, new);
        self.pending.push_back((entry.function(), new));
        Ok(new)
    }

    /// Maps `old` to `new` from now on.
    pub(crate) fn stands_for(&mut self, old: ValueRef<'r>, new: FunctionRef<'r>) {
        self.values.insert(old, *new);
        self.with_labels.insert(old, new);
    }

    /// Copies the module's data, and functions that are planned too, under their plain names;
    /// false if there is nothing.
    pub(crate) fn data(&mut self, plan: &DataPlan<'r>) -> Result<bool, CodegenError> {
        for &(id, old) in &plan.functions {
            let name = &*self.source.plan.import(id).name;
            let new = self.define_function(old, name, self.linkage(id))?;
            mark_dso_local(*new);
            self.stands_for(*old, new);
            self.create_blocks(old, new);
            self.pending.push_back((old, new));
        }
        let mut variables = Vec::new();
        for &(id, old) in &plan.variables {
            variables.push((old, self.define_variable(id, old)));
        }
        for &(id, old) in &plan.aliases {
            self.define_alias(id, old)?;
        }
        let has_asm = self.copy_inline_asm();
        for (old, new) in variables {
            self.initialize(old, new)?;
        }
        self.copy_pending()?;
        let mentions = self.mention_section_bounds();
        Ok(plan.any || mentions || has_asm)
    }

    /// The linkage of a definition of the data unit. A weak one stays weak for the linker, as other
    /// definitions may override it. Binding has chosen the definition already, so the optimizer may
    /// look into this one.
    pub(crate) fn linkage(&self, id: SymbolId) -> LLVMLinkage {
        match self.source.info(id).linkage {
            Linkage::Weak => LLVMLinkage::LLVMWeakODRLinkage,
            _ => LLVMLinkage::LLVMExternalLinkage,
        }
    }

    /// Like [`Copying::finish`], and returns the symbol of each function and variable name in the
    /// module.
    pub(crate) fn finish_with_homes(
        mut self,
    ) -> Result<(Contents, FxHashMap<String, SymbolId>), CodegenError> {
        self.complete()?;
        let home = |(&old, new): (&ValueRef<'r>, &ValueRef<'r>)| {
            let id = self.source.id(old)?;
            new.is_global().then(|| (new.name(), id))
        };
        let homes = self.values.iter().filter_map(home).collect();
        Ok((self.into_contents(), homes))
    }

    /// Initializes the copied label tables and constants; returns the module's contents.
    pub(crate) fn finish(mut self) -> Result<Contents, CodegenError> {
        self.complete()?;
        Ok(self.into_contents())
    }

    fn complete(&mut self) -> Result<(), CodegenError> {
        self.contents.is_split = !self.tables.is_empty() || !self.inline_copies.is_empty();
        while let Some((old, new)) = self.tables.pop() {
            self.initialize(old, new)?;
            self.copy_pending()?;
        }
        let mut done = 0;
        while let Some(&(old, new)) = self.constants.get(done) {
            self.initialize(old, new)?;
            done += 1;
        }
        let lines = self.take_lines();
        // SAFETY: a live module. Debug information of one function would carry its
        // whole compile unit along. No handle names what goes.
        unsafe { LLVMStripModuleDebugInfo(self.module.raw()) };
        self.put_lines(lines);
        Ok(())
    }

    /// Gives `new` the value of `old`, a variable with a value.
    fn initialize(
        &mut self,
        old: VariableRef<'r>,
        new: VariableRef<'r>,
    ) -> Result<(), CodegenError> {
        if let Some(value) = old.initializer() {
            let value = self.map_constant(value)?;
            // SAFETY: same type, same context, and all globals in it are of this module.
            unsafe { LLVMSetInitializer(new.raw(), value.raw()) };
        }
        Ok(())
    }

    fn into_contents(self) -> Contents {
        let constants = self.constants.into_iter().map(|(_, new)| new.name());
        Contents {
            constants: constants.collect(),
            ..self.contents
        }
    }

    pub(crate) fn unit_name(&self) -> &str {
        self.unit_name
    }

    pub(crate) fn unsupported(&self, construct: &str) -> CodegenError {
        CodegenError::Unsupported {
            module: self.source.reader.name().to_owned(),
            unit: self.unit_name.to_owned(),
            construct: construct.to_owned(),
        }
    }
}
