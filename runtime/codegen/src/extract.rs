//! Copies definitions out of a reader's module into a fresh module of the same
//! context: one function with what cannot be separated from it, or the data.
//!
//! Everything else the copy mentions becomes a declaration with the name and the
//! access its [`ModulePlan`] gives. Three kinds of things are copied along:
//! `alwaysinline` callees (as internal functions that the inliner then removes),
//! constant tables of the function's own label addresses, and, should code refer
//! to a label of another function, that function.
//!
//! What is copied is decided here; `globals`, `body` and `constant` do the copying.

use std::collections::VecDeque;
use std::sync::Arc;

use inkwell::llvm_sys::core::{
    LLVMAddModuleFlag, LLVMConstInt, LLVMCreateBuilderInContext, LLVMCreateEnumAttribute,
    LLVMDisposeBuilder, LLVMGetEnumAttributeAtIndex, LLVMGetEnumAttributeKindForName,
    LLVMGetInitializer, LLVMInt32TypeInContext, LLVMIsAGlobalValue,
    LLVMModuleCreateWithNameInContext, LLVMSetInitializer, LLVMValueAsMetadata,
};
use inkwell::llvm_sys::debuginfo::LLVMStripModuleDebugInfo;
use inkwell::llvm_sys::prelude::{
    LLVMAttributeRef, LLVMBuilderRef, LLVMContextRef, LLVMModuleRef, LLVMValueRef,
};
use inkwell::llvm_sys::{LLVMAttributeFunctionIndex, LLVMLinkage, LLVMModuleFlagBehavior};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::compile::{Compile, Tier};
use crate::context::OwnedModule;
use crate::error::CodegenError;
use crate::facts::Summary;
use crate::globals::mark_dso_local;
use crate::plan::ModulePlan;
use crate::profile::{Profile, Refused};
use crate::reader::{Reader, c_name, value_name};
use crate::summary::{BODY_PREFIX, Kind, Linkage, Placement, SymbolId};

/// Attributes of a declaration that change how it is called. The others only help
/// optimizers, and each costs a microsecond to copy.
pub(crate) const OF_CALLS: [&str; 18] = [
    "alignstack",
    "byref",
    "byval",
    "convergent",
    "inalloca",
    "inreg",
    "naked",
    "nest",
    "nobuiltin",
    "noreturn",
    "preallocated",
    "returns_twice",
    "signext",
    "sret",
    "swiftasync",
    "swifterror",
    "swiftself",
    "zeroext",
];

/// Kind numbers of the attributes extraction looks at; fixed for the process.
pub(crate) struct AttributeKinds {
    pub(crate) always_inline: u32,
    pub(crate) presplit_coroutine: u32,
    pub(crate) naked: u32,
    pub(crate) noinline: u32,
    pub(crate) optnone: u32,
    /// A stack protector whatever the frame holds.
    pub(crate) protect_all: u32,
    pub(crate) returns_twice: u32,
    pub(crate) nonlazybind: LLVMAttributeRef,
    pub(crate) optnone_attribute: LLVMAttributeRef,
    /// What a caller must know of a callee: how values are passed, and that a call may
    /// return twice.
    pub(crate) of_calls: Vec<u32>,
}

impl AttributeKinds {
    pub(crate) fn new(context: LLVMContextRef) -> AttributeKinds {
        let kind = |name: &str| {
            // SAFETY: pointer and length describe `name`.
            unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
        };
        AttributeKinds {
            always_inline: kind("alwaysinline"),
            presplit_coroutine: kind("presplitcoroutine"),
            naked: kind("naked"),
            noinline: kind("noinline"),
            optnone: kind("optnone"),
            protect_all: kind("sspreq"),
            returns_twice: kind("returns_twice"),
            of_calls: OF_CALLS.iter().map(|name| kind(name)).collect(),
            // SAFETY: a live context and a kind number LLVM just gave.
            nonlazybind: unsafe { LLVMCreateEnumAttribute(context, kind("nonlazybind"), 0) },
            // SAFETY: as above.
            optnone_attribute: unsafe { LLVMCreateEnumAttribute(context, kind("optnone"), 0) },
        }
    }
}

/// True if `function` has the enum attribute `kind`.
pub(crate) fn has_function_attribute(function: LLVMValueRef, kind: u32) -> bool {
    // SAFETY: a live function.
    let attribute =
        unsafe { LLVMGetEnumAttributeAtIndex(function, LLVMAttributeFunctionIndex, kind) };
    !attribute.is_null()
}

/// A finished module, to be emitted.
pub(crate) struct Unit {
    pub(crate) module: OwnedModule,
    /// True if something in it only passes can lower: inline copies, coroutines,
    /// matrix intrinsics.
    pub(crate) needs_passes: bool,
    pub(crate) has_matrices: bool,
    /// There is assembly in it.
    pub(crate) has_asm: bool,
    /// True if it defines coroutines that are not split yet.
    pub(crate) has_coroutines: bool,
    /// Callees defined for the optimizer only, with their link names.
    pub(crate) candidates: Vec<(SymbolId, String)>,
    /// Constants defined for the optimizer only.
    pub(crate) constants: Vec<LLVMValueRef>,
    /// Callees defined likewise, with their simplified bodies.
    pub(crate) kept: Vec<LLVMValueRef>,
    pub(crate) optnone: LLVMAttributeRef,
    /// Instructions of both.
    pub(crate) candidate_instructions: u32,
    /// Functions whose bodies are in the unit besides.
    pub(crate) inlined: Vec<SymbolId>,
    /// Symbols of which something other than name and type was used.
    pub(crate) facts: FxHashSet<SymbolId>,
    /// Profiles that were given and do not fit.
    pub(crate) refused: Vec<Refused>,
    /// Functions with profiles applied.
    pub(crate) guided_functions: u32,
    /// Indirect calls made direct behind a comparison.
    pub(crate) promoted: u32,
    /// Which of the bodies that were offered are in the unit.
    pub(crate) taken: Vec<usize>,
    /// True if its code may go before the module does: it is a version of a function.
    pub(crate) is_version: bool,
    /// True if functions in it have notes of hooks, see `instrument`.
    pub(crate) has_late_hooks: bool,
}

pub(crate) struct Builder(pub(crate) LLVMBuilderRef);

impl Drop for Builder {
    fn drop(&mut self) {
        // SAFETY: created in `Extraction::new`, disposed once.
        unsafe { LLVMDisposeBuilder(self.0) };
    }
}

/// One copy in progress.
pub(crate) struct Extraction<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) plan: &'a ModulePlan,
    pub(crate) how: Compile,
    unit_name: String,
    pub(crate) builder: Builder,
    pub(crate) module: OwnedModule,
    /// Old value -> new value: globals, constants, arguments, blocks, instructions.
    pub(crate) values: FxHashMap<LLVMValueRef, LLVMValueRef>,
    /// Functions whose labels may be named, by old value.
    pub(crate) with_labels: FxHashMap<LLVMValueRef, LLVMValueRef>,
    pub(crate) inline_copies: FxHashMap<LLVMValueRef, LLVMValueRef>,
    pub(crate) pending: VecDeque<(LLVMValueRef, LLVMValueRef)>,
    pub(crate) tables: Vec<(LLVMValueRef, LLVMValueRef)>,
    pub(crate) copied_tables: FxHashSet<LLVMValueRef>,
    pub(crate) bodies_read: FxHashSet<LLVMValueRef>,
    pub(crate) needs_passes: bool,
    pub(crate) has_matrices: bool,
    pub(crate) has_asm: bool,
    pub(crate) has_coroutines: bool,
    /// The function the unit is made for, old and new, when it is optimized: it calls
    /// itself directly.
    pub(crate) root: Option<(LLVMValueRef, LLVMValueRef)>,
    pub(crate) candidates: Vec<(SymbolId, String)>,
    pub(crate) kept: Vec<LLVMValueRef>,
    pub(crate) candidate_instructions: u32,
    pub(crate) constants: Vec<(LLVMValueRef, LLVMValueRef)>,
    pub(crate) inlined: Vec<SymbolId>,
    pub(crate) facts: FxHashSet<SymbolId>,
    /// Declarations of functions that are known not to use some argument.
    pub(crate) with_dead: Vec<(LLVMValueRef, Arc<Summary>)>,
    /// Functions of the reader's module with profiles that fit.
    pub(crate) guided: Vec<(LLVMValueRef, Arc<Profile>)>,
    /// Functions defined here, old and new, if lines are asked for.
    pub(crate) defined: Vec<(LLVMValueRef, LLVMValueRef)>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) guided_functions: u32,
    pub(crate) promoted: u32,
    /// Bodies of other modules defined here, by their place among those offered.
    pub(crate) taken: Vec<usize>,
    pub(crate) is_version: bool,
    pub(crate) has_late_hooks: bool,
}

impl<'a> Extraction<'a> {
    pub(crate) fn new(
        reader: &'a Reader,
        plan: &'a ModulePlan,
        unit_name: &str,
        how: &Compile,
    ) -> Result<Extraction<'a>, CodegenError> {
        let context = reader.context().raw();
        let name = c_name(unit_name);
        // SAFETY: a live context; module and builder are ours.
        let (module, builder) = unsafe {
            (
                OwnedModule::new(LLVMModuleCreateWithNameInContext(name.as_ptr(), context)),
                Builder(LLVMCreateBuilderInContext(context)),
            )
        };
        reader.prepare(module.raw());
        set_flag(context, module.raw(), "RtLibUseGOT", 1);
        Ok(Extraction {
            reader,
            plan,
            how: how.clone(),
            unit_name: unit_name.to_owned(),
            builder,
            module,
            values: FxHashMap::default(),
            with_labels: FxHashMap::default(),
            inline_copies: FxHashMap::default(),
            pending: VecDeque::new(),
            tables: Vec::new(),
            copied_tables: FxHashSet::default(),
            bodies_read: FxHashSet::default(),
            needs_passes: false,
            has_matrices: false,
            has_asm: false,
            has_coroutines: false,
            root: None,
            candidates: Vec::new(),
            kept: Vec::new(),
            candidate_instructions: 0,
            constants: Vec::new(),
            inlined: Vec::new(),
            facts: FxHashSet::default(),
            with_dead: Vec::new(),
            guided: Vec::new(),
            defined: Vec::new(),
            refused: Vec::new(),
            guided_functions: 0,
            promoted: 0,
            taken: Vec::new(),
            is_version: false,
            has_late_hooks: false,
        })
    }

    /// True if more than the baseline compiler works on the unit.
    pub(crate) fn optimizes(&self) -> bool {
        self.how.tier > Tier::Baseline
    }

    /// Copies the body of `id` under its body name; the copy.
    pub(crate) fn add_function(&mut self, id: SymbolId) -> Result<LLVMValueRef, CodegenError> {
        self.is_version = true;
        let old = self.reader.table().values[id.index()];
        self.read_bodies(old)?;
        let name = format!("{BODY_PREFIX}{}", self.plan.import(id).name);
        let new = self.define_function(old, &name, LLVMLinkage::LLVMExternalLinkage)?;
        mark_dso_local(new);
        self.with_labels.insert(old, new);
        if self.optimizes() {
            self.root = Some((old, new));
            let scan = self.add_candidates(old)?;
            self.prepare_for_optimizing(old, new, scan.wide);
        }
        self.pending.push_back((old, new));
        self.copy_pending()?;
        Ok(new)
    }

    /// Copies the module's data, and with `everything` its functions too, under
    /// their plain names; false if there is nothing.
    pub(crate) fn add_data(&mut self, everything: bool) -> Result<bool, CodegenError> {
        let reader = self.reader;
        let mut variables = Vec::new();
        let mut aliases = Vec::new();
        let mut any = false;
        let is_here = |id: SymbolId| {
            let info = &reader.summary().symbols[id.index()];
            info.placement == Placement::DataUnit
                || (everything && info.placement == Placement::Own)
        };
        for (index, info) in reader.summary().symbols.iter().enumerate() {
            let id = SymbolId(index as u32);
            if is_here(id) && info.kind == Kind::Function && self.plan.import(id).defined {
                self.read_bodies(reader.table().values[index])?;
            }
        }
        for (index, info) in reader.summary().symbols.iter().enumerate() {
            let id = SymbolId(index as u32);
            let old = reader.table().values[index];
            if !is_here(id) || !self.plan.import(id).defined {
                continue;
            }
            any = true;
            match info.kind {
                Kind::Function => {
                    let name = self.plan.import(id).name.to_string();
                    let new = self.define_function(old, &name, self.linkage(id))?;
                    mark_dso_local(new);
                    self.values.insert(old, new);
                    self.with_labels.insert(old, new);
                    self.create_blocks(old, new);
                    self.pending.push_back((old, new));
                }
                Kind::Data | Kind::ThreadLocal => {
                    variables.push((old, self.define_variable(id, old)))
                }
                Kind::Alias {
                    base: Some(base), ..
                } if is_here(base) => {
                    aliases.push((id, old));
                }
                Kind::Alias { .. } | Kind::Ifunc { .. } => {}
            }
        }
        for (id, old) in aliases {
            self.define_alias(id, old)?;
        }
        let has_asm = self.copy_inline_asm();
        for (old, new) in variables {
            // SAFETY: a defined variable has an initializer.
            let initializer = self.map_constant(unsafe { LLVMGetInitializer(old) })?;
            // SAFETY: same type, same context, and all globals in it are of this module.
            unsafe { LLVMSetInitializer(new, initializer) };
        }
        self.copy_pending()?;
        any |= self.mention_section_bounds();
        Ok(any || has_asm)
    }

    /// The linkage of a definition of the data unit. A weak one is told to be so to the linker,
    /// as others yield to it. Which definition counts has been decided already: the optimizer
    /// may look into this one.
    pub(crate) fn linkage(&self, id: SymbolId) -> LLVMLinkage {
        match self.reader.summary().symbols[id.index()].linkage {
            Linkage::Weak => LLVMLinkage::LLVMWeakODRLinkage,
            _ => LLVMLinkage::LLVMExternalLinkage,
        }
    }

    /// As [`Extraction::finish`], and for the names of functions and variables in the
    /// module the globals they stand for.
    pub(crate) fn finish_with_homes(
        mut self,
    ) -> Result<(Unit, FxHashMap<String, LLVMValueRef>), CodegenError> {
        self.initialize()?;
        let index = &self.reader.table().index;
        let mut homes = FxHashMap::default();
        for (&old, &new) in self
            .values
            .iter()
            .filter(|(old, _)| index.contains_key(old))
        {
            // SAFETY: what globals are mapped to is a live constant.
            let is_global = unsafe { !LLVMIsAGlobalValue(new).is_null() };
            if is_global {
                homes.insert(value_name(new), old);
            }
        }
        Ok((self.into_unit(), homes))
    }

    /// Initializes the copied label tables and constants, and hands the module out.
    pub(crate) fn finish(mut self) -> Result<Unit, CodegenError> {
        self.initialize()?;
        Ok(self.into_unit())
    }

    fn initialize(&mut self) -> Result<(), CodegenError> {
        while let Some((old, new)) = self.tables.pop() {
            // SAFETY: label tables are defined constants.
            let initializer = self.map_constant(unsafe { LLVMGetInitializer(old) })?;
            // SAFETY: same type, same context.
            unsafe { LLVMSetInitializer(new, initializer) };
            self.copy_pending()?;
        }
        let mut done = 0;
        while let Some(&(old, new)) = self.constants.get(done) {
            // SAFETY: a constant that is defined in the reader's module.
            let initializer = self.map_constant(unsafe { LLVMGetInitializer(old) })?;
            // SAFETY: same type, same context.
            unsafe { LLVMSetInitializer(new, initializer) };
            done += 1;
        }
        let lines = self.take_lines();
        // SAFETY: a live module. Debug information of one function would carry its
        // whole compile unit along.
        unsafe { LLVMStripModuleDebugInfo(self.module.raw()) };
        self.put_lines(lines);
        Ok(())
    }

    fn into_unit(self) -> Unit {
        Unit {
            module: self.module,
            needs_passes: self.needs_passes,
            has_matrices: self.has_matrices,
            has_asm: self.has_asm,
            has_coroutines: self.has_coroutines,
            candidates: self.candidates,
            constants: self.constants.into_iter().map(|(_, new)| new).collect(),
            kept: self.kept,
            optnone: self.reader.kinds().optnone_attribute,
            candidate_instructions: self.candidate_instructions,
            inlined: self.inlined,
            facts: self.facts,
            refused: self.refused,
            guided_functions: self.guided_functions,
            promoted: self.promoted,
            taken: self.taken,
            is_version: self.is_version,
            has_late_hooks: self.has_late_hooks,
        }
    }

    pub(crate) fn unit_name(&self) -> &str {
        &self.unit_name
    }

    pub(crate) fn unsupported(&self, construct: &str) -> CodegenError {
        CodegenError::Unsupported {
            module: self.reader.name().to_owned(),
            unit: self.unit_name.clone(),
            construct: construct.to_owned(),
        }
    }
}

pub(crate) fn set_flag(context: LLVMContextRef, module: LLVMModuleRef, name: &str, value: u64) {
    // SAFETY: live context and module; pointer and length describe `name`.
    unsafe {
        let constant = LLVMConstInt(LLVMInt32TypeInContext(context), value, 0);
        LLVMAddModuleFlag(
            module,
            LLVMModuleFlagBehavior::LLVMModuleFlagBehaviorWarning,
            name.as_ptr().cast(),
            name.len(),
            LLVMValueAsMetadata(constant),
        );
    }
}
