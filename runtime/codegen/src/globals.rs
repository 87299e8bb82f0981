//! The globals of a copy: declarations of what it mentions, definitions of what it
//! holds.

use inkwell::llvm_sys::comdat::LLVMSetComdat;
use inkwell::llvm_sys::core::{
    LLVMAddAlias2, LLVMAddAttributeAtIndex, LLVMAddFunction, LLVMAddGlobal, LLVMAliasGetAliasee,
    LLVMConstArray2, LLVMCountParams, LLVMGetAlignment, LLVMGetAttributeCountAtIndex,
    LLVMGetAttributesAtIndex, LLVMGetEnumAttributeKind, LLVMGetFunctionCallConv, LLVMGetGC,
    LLVMGetInitializer, LLVMGetIntrinsicID, LLVMGetLinkage, LLVMGetModuleInlineAsm, LLVMGetSection,
    LLVMGetThreadLocalMode, LLVMGetUnnamedAddress, LLVMGetValueKind, LLVMGlobalGetValueType,
    LLVMIsExternallyInitialized, LLVMIsGlobalConstant, LLVMIsStringAttribute, LLVMSetAlignment,
    LLVMSetExternallyInitialized, LLVMSetFunctionCallConv, LLVMSetGC, LLVMSetGlobalConstant,
    LLVMSetInitializer, LLVMSetLinkage, LLVMSetModuleInlineAsm2, LLVMSetSection,
    LLVMSetThreadLocalMode, LLVMSetUnnamedAddress, LLVMSetVisibility, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMAttributeRef, LLVMValueRef};
use inkwell::llvm_sys::{
    LLVMAttributeFunctionIndex, LLVMLinkage, LLVMThreadLocalMode, LLVMValueKind, LLVMVisibility,
};

use crate::constant::is_small;
use crate::error::CodegenError;
use crate::extract::{Extraction, has_function_attribute};
use crate::instrument::remove_patchable;
use crate::plan::Access;
use crate::reader::{Verify, c_name, value_name};
use crate::summary::{Kind, Linkage, Placement, SymbolId};

/// Operands of a constant that is shown to the optimizer. Larger tables are rarely
/// indexed by constants, and each operand costs about as much as an instruction.
const CONSTANT_OPERANDS: u32 = 512;

impl Extraction<'_> {
    /// The copy's name for a global of the reader's module.
    pub(crate) fn map_global(&mut self, old: LLVMValueRef) -> Result<LLVMValueRef, CodegenError> {
        if let Some(&new) = self.values.get(&old) {
            return Ok(new);
        }
        let new = match (
            self.reader.table().index.get(&old),
            self.reader.library().home(old),
        ) {
            (Some(&id), _) => self.import(id, old)?,
            (None, Some(home)) => self.map_global(home)?,
            // Of another module; or an intrinsic: reading a body can add some to the
            // module (upgrades of old ones), and so can passes.
            (None, None) => self.map_foreign(old),
        };
        self.values.insert(old, new);
        Ok(new)
    }

    fn import(&mut self, id: SymbolId, old: LLVMValueRef) -> Result<LLVMValueRef, CodegenError> {
        let info = &self.reader.summary().symbols[id.index()];
        let import = self.plan.import(id);
        if let Placement::WithFunction(owner) = info.placement {
            return self.copy_table(old, owner);
        }
        // Two declarations have two addresses, as far as the optimizer knows.
        if self.optimizes() && matches!(info.kind, Kind::Alias { .. }) && self.is_ours(id, 0) {
            self.facts.insert(id);
            // SAFETY: a live alias.
            return self.map_constant(unsafe { LLVMAliasGetAliasee(old) });
        }
        let kind = self.effective_kind(id, 0);
        if kind == Kind::Function || matches!(kind, Kind::Ifunc { .. }) {
            let matrix = info.name.starts_with("llvm.matrix.");
            self.has_matrices |= matrix;
            self.needs_passes |= matrix || info.name.starts_with("llvm.coro.");
            if self.optimizes() && import.defined {
                self.facts.insert(id);
            }
            // What is said of a definition that was replaced is said of no other.
            let promises = self.optimizes() && !import.replaced;
            if let Some(known) = self.shared(&import.name) {
                return Ok(known);
            }
            let new = self.declare_function(old, &import.name, promises);
            if self.optimizes() && import.defined {
                self.know(id, new);
            }
            if info.linkage == Linkage::DeclaredWeak {
                // SAFETY: a declaration of ours.
                unsafe { LLVMSetLinkage(new, LLVMLinkage::LLVMExternalWeakLinkage) };
            }
            return Ok(new);
        }
        if let Some(known) = self.shared(&import.name) {
            return Ok(known);
        }
        let name = c_name(&import.name);
        // SAFETY: live module and type.
        let new = unsafe {
            LLVMAddGlobal(
                self.module.raw(),
                LLVMGlobalGetValueType(old),
                name.as_ptr(),
            )
        };
        if kind == Kind::ThreadLocal {
            // SAFETY: a variable of ours. The model of the declaration must be the
            // general one: the variable lives in a module made at run time.
            unsafe {
                LLVMSetThreadLocalMode(new, LLVMThreadLocalMode::LLVMGeneralDynamicTLSModel);
            }
        } else if import.access == Access::Near {
            mark_dso_local(new);
        }
        if info.linkage == Linkage::DeclaredWeak {
            // SAFETY: a declaration of ours.
            unsafe { LLVMSetLinkage(new, LLVMLinkage::LLVMExternalWeakLinkage) };
        }
        if self.optimizes() {
            self.describe_data(id, old, new);
        }
        Ok(new)
    }

    /// Tells the optimizer what the bound definition of a variable says: its alignment, and, of
    /// a constant, the value, which is that of all if the language promises so.
    fn describe_data(&mut self, id: SymbolId, old: LLVMValueRef, new: LLVMValueRef) {
        let info = &self.reader.summary().symbols[id.index()];
        if !matches!(info.kind, Kind::Data | Kind::ThreadLocal) {
            return;
        }
        // SAFETY: both are live variables of one type.
        unsafe {
            LLVMSetGlobalConstant(new, LLVMIsGlobalConstant(old));
            let import = self.plan.import(id);
            if import.defined {
                LLVMSetUnnamedAddress(new, LLVMGetUnnamedAddress(old));
                let align = LLVMGetAlignment(old);
                if align != 0 {
                    LLVMSetAlignment(new, align);
                }
            } else if import.replaced || !info.odr {
                return;
            }
            if info.constant && LLVMIsExternallyInitialized(old) == 0 {
                let initializer = LLVMGetInitializer(old);
                if !initializer.is_null() && is_small(initializer, &mut CONSTANT_OPERANDS.clone()) {
                    self.constants.push((old, new));
                    self.facts.insert(id);
                }
            }
        }
    }

    /// True if `id`, and whatever it is an alias of, are bound to what this module has.
    fn is_ours(&self, id: SymbolId, depth: u32) -> bool {
        let base = match self.reader.summary().symbols[id.index()].kind {
            Kind::Alias { base, .. } => base,
            _ => Some(id),
        };
        self.plan.import(id).defined
            && depth < 64
            && base.is_some_and(|base| base == id || self.is_ours(base, depth + 1))
    }

    /// Looks through aliases: what a name finally is.
    fn effective_kind(&self, id: SymbolId, depth: u32) -> Kind {
        match self.reader.summary().symbols[id.index()].kind {
            Kind::Alias {
                base: Some(base), ..
            } if depth < 64 => self.effective_kind(base, depth + 1),
            Kind::Alias { .. } => Kind::Data,
            kind => kind,
        }
    }

    /// A declaration; with `promises`, it says all that `old` says of itself.
    pub(crate) fn declare_function(
        &self,
        old: LLVMValueRef,
        name: &str,
        promises: bool,
    ) -> LLVMValueRef {
        let c = c_name(&unmangled(old, name));
        // SAFETY: a live module; aliases and ifuncs of functions have the
        // function's type as their value type.
        let new =
            unsafe { LLVMAddFunction(self.module.raw(), c.as_ptr(), LLVMGlobalGetValueType(old)) };
        // SAFETY: a live global.
        let is_function = unsafe { LLVMGetValueKind(old) == LLVMValueKind::LLVMFunctionValueKind };
        if is_function {
            // SAFETY: a live function. What an intrinsic does is told by its attributes too.
            let intrinsic = unsafe { LLVMGetIntrinsicID(new) } != 0;
            let all = intrinsic || promises;
            let only = (!all).then_some(&*self.reader.kinds().of_calls);
            copy_attributes(old, new, only);
            // SAFETY: both are live functions.
            unsafe { LLVMSetFunctionCallConv(new, LLVMGetFunctionCallConv(old)) };
        }
        // SAFETY: a live function.
        if unsafe { LLVMGetIntrinsicID(new) } == 0 {
            // The call then loads its target from the GOT, which the linker makes
            // the slot itself.
            add_function_attribute(new, self.reader.kinds().nonlazybind);
        }
        new
    }

    pub(crate) fn define_function(
        &mut self,
        old: LLVMValueRef,
        name: &str,
        linkage: LLVMLinkage,
    ) -> Result<LLVMValueRef, CodegenError> {
        if self.bodies_read.insert(old) {
            // Named by its label only, which `read_bodies` does not look for.
            self.reader.materialize(old, Verify::No)?;
        }
        let c = c_name(&unmangled(old, name));
        // SAFETY: live module, live function, and its own type.
        let new = unsafe {
            let new = LLVMAddFunction(self.module.raw(), c.as_ptr(), LLVMGlobalGetValueType(old));
            LLVMSetLinkage(new, linkage);
            LLVMSetFunctionCallConv(new, LLVMGetFunctionCallConv(old));
            LLVMSetUnnamedAddress(new, LLVMGetUnnamedAddress(old));
            copy_placement(old, new);
            let gc = LLVMGetGC(old);
            if !gc.is_null() {
                LLVMSetGC(new, gc);
            }
            LLVMSetComdat(new, std::ptr::null_mut());
            new
        };
        if self.how.lines {
            self.defined.push((old, new));
        }
        copy_attributes(old, new, None);
        if self.is_version {
            remove_patchable(new);
        }
        if has_function_attribute(old, self.reader.kinds().presplit_coroutine) {
            self.needs_passes = true;
            self.has_coroutines = true;
        }
        Ok(new)
    }

    pub(crate) fn define_variable(&mut self, id: SymbolId, old: LLVMValueRef) -> LLVMValueRef {
        let import = self.plan.import(id);
        let name = c_name(&import.name);
        // SAFETY: live module, live variable and its own type and properties.
        let new = unsafe {
            let new = LLVMAddGlobal(
                self.module.raw(),
                LLVMGlobalGetValueType(old),
                name.as_ptr(),
            );
            let linkage = match LLVMGetLinkage(old) {
                LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage => {
                    LLVMLinkage::LLVMExternalLinkage
                }
                // Merging common ones by size is left to the linker.
                LLVMLinkage::LLVMCommonLinkage => LLVMLinkage::LLVMCommonLinkage,
                _ => self.linkage(id),
            };
            LLVMSetLinkage(new, linkage);
            LLVMSetGlobalConstant(new, LLVMIsGlobalConstant(old));
            LLVMSetThreadLocalMode(
                new,
                match LLVMGetThreadLocalMode(old) {
                    LLVMThreadLocalMode::LLVMNotThreadLocal => {
                        LLVMThreadLocalMode::LLVMNotThreadLocal
                    }
                    _ => LLVMThreadLocalMode::LLVMGeneralDynamicTLSModel,
                },
            );
            LLVMSetExternallyInitialized(new, LLVMIsExternallyInitialized(old));
            LLVMSetUnnamedAddress(new, LLVMGetUnnamedAddress(old));
            copy_placement(old, new);
            new
        };
        self.values.insert(old, new);
        new
    }

    /// Defines an alias, and before it those it goes through: whoever mentions one
    /// before it is defined would get a declaration of the same name.
    pub(crate) fn define_alias(
        &mut self,
        id: SymbolId,
        old: LLVMValueRef,
    ) -> Result<(), CodegenError> {
        if self.values.contains_key(&old) {
            return Ok(());
        }
        if let Kind::Alias {
            base: Some(base), ..
        } = self.reader.summary().symbols[id.index()].kind
            && matches!(
                self.reader.summary().symbols[base.index()].kind,
                Kind::Alias { .. }
            )
            && self.plan.import(base).defined
        {
            self.define_alias(base, self.reader.table().values[base.index()])?;
        }
        // SAFETY: a live alias.
        let aliasee = self.map_constant(unsafe { LLVMAliasGetAliasee(old) })?;
        let name = c_name(&self.plan.import(id).name);
        // SAFETY: live module, constant of this module, the alias's own type.
        let new = unsafe {
            LLVMAddAlias2(
                self.module.raw(),
                LLVMGlobalGetValueType(old),
                0,
                aliasee,
                name.as_ptr(),
            )
        };
        // SAFETY: an alias of ours.
        unsafe { LLVMSetLinkage(new, self.linkage(id)) };
        self.values.insert(old, new);
        Ok(())
    }

    /// Makes the data unit mention the bounds of sections that only functions use:
    /// the linker defines `__start_NAME` and `__stop_NAME` for those who ask.
    pub(crate) fn mention_section_bounds(&mut self) -> bool {
        let symbols = &self.reader.summary().symbols;
        let mut mentioned = Vec::new();
        for (index, info) in symbols.iter().enumerate() {
            let asks = info.name.starts_with("__start_") || info.name.starts_with("__stop_");
            if asks && !info.linkage.is_definition() {
                // A plain declaration: the mention must not change how it binds.
                let old = self.reader.table().values[index];
                if let Ok(value) = self.map_global(old) {
                    mentioned.push(value);
                }
            }
        }
        let Some(&first) = mentioned.first() else {
            return false;
        };
        // SAFETY: pointers of this module in a fresh private constant, kept by
        // `llvm.compiler.used`-like linkage: it is external under a name of ours.
        unsafe {
            let table = LLVMConstArray2(
                LLVMTypeOf(first),
                mentioned.as_mut_ptr(),
                mentioned.len() as u64,
            );
            let holder = LLVMAddGlobal(
                self.module.raw(),
                LLVMTypeOf(table),
                c"uruk.bounds".as_ptr(),
            );
            LLVMSetInitializer(holder, table);
            LLVMSetLinkage(holder, LLVMLinkage::LLVMPrivateLinkage);
        }
        true
    }

    pub(crate) fn copy_inline_asm(&mut self) -> bool {
        let mut length = 0;
        // SAFETY: a live module; LLVM returns pointer and length of its text.
        let text = unsafe { LLVMGetModuleInlineAsm(self.reader.module(), &mut length) };
        if length != 0 {
            // SAFETY: copies the text into our module.
            unsafe { LLVMSetModuleInlineAsm2(self.module.raw(), text, length) };
        }
        self.has_asm |= length != 0;
        length != 0
    }

    /// A constant table of labels of `owner`: a copy of its own for this unit.
    fn copy_table(
        &mut self,
        old: LLVMValueRef,
        owner: SymbolId,
    ) -> Result<LLVMValueRef, CodegenError> {
        let owner = self.reader.table().values[owner.index()];
        self.function_with_labels(owner)?;
        let name = c_name(&format!("uruk.labels.{}", self.tables.len()));
        // SAFETY: live module, live variable and its properties.
        let new = unsafe {
            let new = LLVMAddGlobal(
                self.module.raw(),
                LLVMGlobalGetValueType(old),
                name.as_ptr(),
            );
            LLVMSetLinkage(new, LLVMLinkage::LLVMInternalLinkage);
            LLVMSetGlobalConstant(new, 1);
            let align = LLVMGetAlignment(old);
            if align != 0 {
                LLVMSetAlignment(new, align);
            }
            new
        };
        if self.copied_tables.insert(old) {
            self.tables.push((old, new));
        }
        Ok(new)
    }

    /// The copy of `old` whose labels this unit may name; made if needed.
    pub(crate) fn function_with_labels(
        &mut self,
        old: LLVMValueRef,
    ) -> Result<LLVMValueRef, CodegenError> {
        if let Some(&new) = self.with_labels.get(&old) {
            return Ok(new);
        }
        let name = format!("uruk.labels.of.{}", value_name(old));
        let new = self.define_function(old, &name, LLVMLinkage::LLVMInternalLinkage)?;
        mark_dso_local(new);
        self.with_labels.insert(old, new);
        self.create_blocks(old, new);
        self.pending.push_back((old, new));
        Ok(new)
    }
}

pub(crate) fn add_function_attribute(function: LLVMValueRef, attribute: LLVMAttributeRef) {
    // SAFETY: a live function and an attribute of its context.
    unsafe { LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, attribute) };
}

/// The name to give a copy so that it is emitted as `name`: for some calling
/// conventions LLVM decorates names, unless they begin with its escape byte.
fn unmangled(function: LLVMValueRef, name: &str) -> String {
    /// `fastcall`, `stdcall` and `vectorcall`, by LLVM's numbers.
    const DECORATED: [u32; 3] = [65, 64, 80];
    // SAFETY: a live function where it is asked for its convention.
    let decorated = unsafe {
        LLVMGetValueKind(function) == LLVMValueKind::LLVMFunctionValueKind
            && DECORATED.contains(&LLVMGetFunctionCallConv(function))
    };
    if decorated {
        format!("\u{1}{name}")
    } else {
        name.to_owned()
    }
}

/// `hidden` implies `dso_local`, and the flag stays when the visibility goes back:
/// LLVM-C has no setter for it.
pub(crate) fn mark_dso_local(global: LLVMValueRef) {
    // SAFETY: a live global with external or internal linkage.
    unsafe {
        if LLVMGetLinkage(global) == LLVMLinkage::LLVMInternalLinkage {
            return;
        }
        LLVMSetVisibility(global, LLVMVisibility::LLVMHiddenVisibility);
        LLVMSetVisibility(global, LLVMVisibility::LLVMDefaultVisibility);
    }
}

/// Copies alignment and section.
///
/// # Safety
/// Both are live globals with a body or an initializer to come.
unsafe fn copy_placement(old: LLVMValueRef, new: LLVMValueRef) {
    // SAFETY: by the caller's promise; a section name is null or a C string.
    unsafe {
        let align = LLVMGetAlignment(old);
        if align != 0 {
            LLVMSetAlignment(new, align);
        }
        let section = LLVMGetSection(old);
        if !section.is_null() && *section != 0 {
            LLVMSetSection(new, section);
        }
    }
}

/// Copies attributes: those of the kinds in `only`, or all.
fn copy_attributes(old: LLVMValueRef, new: LLVMValueRef, only: Option<&[u32]>) {
    let wanted = |attribute: LLVMAttributeRef| {
        // SAFETY: a live attribute; its kind is asked for where it has one.
        only.is_none_or(|kinds| unsafe {
            LLVMIsStringAttribute(attribute) == 0
                && kinds.contains(&LLVMGetEnumAttributeKind(attribute))
        })
    };
    // SAFETY: a live function.
    let parameters = unsafe { LLVMCountParams(old) };
    let mut buffer: Vec<LLVMAttributeRef> = Vec::new();
    // The function itself, the return value (0), and the parameters (1..).
    for index in std::iter::once(LLVMAttributeFunctionIndex).chain(0..=parameters) {
        // SAFETY: live functions of one context; the buffer has room for the count.
        unsafe {
            let count = LLVMGetAttributeCountAtIndex(old, index) as usize;
            if count == 0 {
                continue;
            }
            buffer.clear();
            buffer.resize(count, std::ptr::null_mut());
            LLVMGetAttributesAtIndex(old, index, buffer.as_mut_ptr());
            for &attribute in buffer.iter().filter(|a| wanted(**a)) {
                LLVMAddAttributeAtIndex(new, index, attribute);
            }
        }
    }
}
