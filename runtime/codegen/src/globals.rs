//! The globals of a copy: declarations of mentioned symbols, definitions of those it holds.

use inkwell::llvm_sys::comdat::LLVMSetComdat;
use inkwell::llvm_sys::core::{
    LLVMAddAlias2, LLVMAddFunction, LLVMAddGlobal, LLVMConstArray2, LLVMGetFunctionCallConv,
    LLVMGetGC, LLVMGetLinkage, LLVMGetModuleInlineAsm, LLVMGetThreadLocalMode,
    LLVMGetUnnamedAddress, LLVMGlobalGetValueType, LLVMInt8TypeInContext,
    LLVMIsExternallyInitialized, LLVMIsGlobalConstant, LLVMSetExternallyInitialized,
    LLVMSetFunctionCallConv, LLVMSetGC, LLVMSetGlobalConstant, LLVMSetInitializer, LLVMSetLinkage,
    LLVMSetModuleInlineAsm2, LLVMSetThreadLocalMode, LLVMSetUnnamedAddress, LLVMTypeOf,
};
use inkwell::llvm_sys::{LLVMLinkage, LLVMThreadLocalMode, LLVMValueKind};

use crate::copying::{Copying, PlainLabels};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef, VariableRef, c_name};
use crate::instrument::remove_patchable;
use crate::offered;
use crate::plan::Access;
use crate::properties::{
    align_for_vectors, copy_alignment, copy_attributes, copy_placement, mark_dso_local,
};
use crate::reader::Verify;
use crate::summary::{Kind, Linkage, SymbolId};

/// Operands of a constant that is shown to the optimizer. Larger tables are rarely indexed by
/// constants, and each operand costs about as much as an instruction.
const CONSTANT_OPERANDS: u32 = 512;

impl<'r> Copying<'r> {
    /// The copy's value for a global of the reader's module.
    pub(crate) fn map_global(&mut self, old: ValueRef<'r>) -> Result<ValueRef<'r>, CodegenError> {
        if let Some(&new) = self.values.get(&old) {
            return Ok(new);
        }
        let new = match (self.source.id(old), self.source.reader.home(old)) {
            (Some(id), _) => self.import(id, old)?,
            (None, Some(home)) => self.map_global(home)?,
            // Of another module; or an intrinsic: reading a body can add some to the
            // module (upgrades of old ones), and so can passes.
            (None, None) => offered::map_global(self, old),
        };
        self.values.insert(old, new);
        Ok(new)
    }

    fn import(&mut self, id: SymbolId, old: ValueRef<'r>) -> Result<ValueRef<'r>, CodegenError> {
        if let (PlainLabels::Of(_, tables), Some(table)) = (&self.plain_labels, old.as_variable())
            && tables.contains(&table)
        {
            return Ok(self.copy_table(table));
        }
        // Two declarations have two addresses, as far as the optimizer knows.
        if self.optimizes()
            && let Some(aliasee) = old.aliasee()
            && self.is_ours(id, 0)
        {
            self.contents.facts.insert(id);
            return self.map_constant(aliasee);
        }
        let kind = self.source.effective_kind(id);
        if kind == Kind::Function || matches!(kind, Kind::Ifunc { .. }) {
            return Ok(self.import_function(id, old));
        }
        if let Some(known) = self.shared(&self.source.plan.import(id).name) {
            return Ok(known);
        }
        Ok(*self.import_data(id, old, kind))
    }

    /// Declares a symbol that is called.
    fn import_function(&mut self, id: SymbolId, old: ValueRef<'r>) -> ValueRef<'r> {
        let (info, import) = (self.source.info(id), self.source.plan.import(id));
        let matrix = info.name.starts_with("llvm.matrix.");
        self.contents.has_matrices |= matrix;
        self.contents.needs_passes |= matrix || info.name.starts_with("llvm.coro.");
        if self.optimizes() && import.defined {
            self.contents.facts.insert(id);
        }
        // Attributes recorded for a replaced definition are not carried over to the new one.
        let promises = self.optimizes() && !import.replaced;
        if let Some(known) = self.shared(&import.name) {
            return known;
        }
        let new = self.declare_function(old, &import.name, promises);
        if self.optimizes() && import.defined {
            self.declare_facts(id, new);
        }
        if info.linkage == Linkage::DeclaredWeak {
            // SAFETY: a declaration of ours.
            unsafe { LLVMSetLinkage(new.raw(), LLVMLinkage::LLVMExternalWeakLinkage) };
        }
        *new
    }

    /// Adds the known facts about the bound function `id` to its declaration `new`.
    fn declare_facts(&mut self, id: SymbolId, new: FunctionRef<'r>) {
        if let Some(store) = self.how.facts.store() {
            let context = self.source.reader.context();
            let depends = &mut self.contents.facts;
            self.facts.add(store, context, id, new, depends);
        }
    }

    /// Declares a symbol that is not called.
    fn import_data(&mut self, id: SymbolId, old: ValueRef<'r>, kind: Kind) -> VariableRef<'r> {
        let (info, import) = (self.source.info(id), self.source.plan.import(id));
        let new = self.declare_like(old, &import.name);
        if kind == Kind::ThreadLocal {
            // SAFETY: a variable of ours. The model of the declaration must be the
            // general one: the variable lives in a module made at run time.
            unsafe {
                let general = LLVMThreadLocalMode::LLVMGeneralDynamicTLSModel;
                LLVMSetThreadLocalMode(new.raw(), general);
            }
        } else if import.access == Access::Near {
            mark_dso_local(*new);
        }
        if info.linkage == Linkage::DeclaredWeak {
            // SAFETY: a declaration of ours.
            unsafe { LLVMSetLinkage(new.raw(), LLVMLinkage::LLVMExternalWeakLinkage) };
        }
        if self.optimizes()
            && let Some(old) = old.as_variable()
        {
            self.describe_data(id, old, new);
        }
        new
    }

    /// A variable of the type of `old`, a global.
    pub(crate) fn declare_like(&self, old: ValueRef<'r>, name: &str) -> VariableRef<'r> {
        let name = c_name(name);
        // SAFETY: live module, and the type of a live global.
        unsafe {
            let ty = LLVMGlobalGetValueType(old.raw());
            VariableRef::of(LLVMAddGlobal(self.module.raw(), ty, name.as_ptr()))
        }
    }

    /// Describes the bound definition of a variable to the optimizer: its alignment and, for a
    /// constant, its value. Under the one-definition rule the value is that of all definitions.
    fn describe_data(&mut self, id: SymbolId, old: VariableRef<'r>, new: VariableRef<'r>) {
        let (info, import) = (self.source.info(id), self.source.plan.import(id));
        // SAFETY: both are live variables of one type.
        let written_elsewhere = unsafe {
            LLVMSetGlobalConstant(new.raw(), LLVMIsGlobalConstant(old.raw()));
            if import.defined {
                LLVMSetUnnamedAddress(new.raw(), LLVMGetUnnamedAddress(old.raw()));
                copy_alignment(*old, *new);
            } else if import.replaced || !info.odr {
                return;
            }
            LLVMIsExternallyInitialized(old.raw()) != 0
        };
        // The unit knows it by its name from then on.
        if info.constant
            && !written_elsewhere
            && !import.name.is_empty()
            && let Some(value) = old.initializer()
            && is_small(value, &mut CONSTANT_OPERANDS.clone())
        {
            self.constants.push((old, new));
            self.contents.facts.insert(id);
        }
    }

    /// True if `id`, and each symbol it is an alias of, is bound to this module's definition.
    fn is_ours(&self, id: SymbolId, depth: u32) -> bool {
        let base = match self.source.info(id).kind {
            Kind::Alias { base, .. } => base,
            _ => Some(id),
        };
        self.source.plan.import(id).defined
            && depth < 64
            && base.is_some_and(|base| base == id || self.is_ours(base, depth + 1))
    }

    /// A declaration of a global that is called; with `promises`, it gets all attributes of `old`.
    pub(crate) fn declare_function(
        &self,
        old: ValueRef<'r>,
        name: &str,
        promises: bool,
    ) -> FunctionRef<'r> {
        let kinds = self.source.reader.kinds();
        let new = self.add_function(old, name);
        if let Some(old) = old.as_function() {
            // Attributes are also part of an intrinsic's meaning.
            let all = new.is_intrinsic() || promises;
            copy_attributes(old, new, (!all).then_some(&*kinds.of_calls));
            // SAFETY: both are live functions.
            unsafe { LLVMSetFunctionCallConv(new.raw(), LLVMGetFunctionCallConv(old.raw())) };
        }
        if !new.is_intrinsic() {
            // The call then loads its target from the GOT, which the linker makes
            // the slot itself.
            new.add(kinds.nonlazybind);
        }
        new
    }

    /// A function of the type of `old`, a global that is called.
    fn add_function(&self, old: ValueRef<'r>, name: &str) -> FunctionRef<'r> {
        let name = c_name(&unmangled(old, name));
        // SAFETY: a live module; aliases and ifuncs of functions have the function's type as
        // their value type.
        unsafe {
            let ty = LLVMGlobalGetValueType(old.raw());
            FunctionRef::of(LLVMAddFunction(self.module.raw(), name.as_ptr(), ty))
        }
    }

    pub(crate) fn define_function(
        &mut self,
        old: FunctionRef<'r>,
        name: &str,
        linkage: LLVMLinkage,
    ) -> Result<FunctionRef<'r>, CodegenError> {
        // A function that is copied along may not be read yet.
        self.source.reader.materialize(old, Verify::No)?;
        let new = self.add_function(*old, name);
        // SAFETY: live functions of one type.
        unsafe {
            LLVMSetLinkage(new.raw(), linkage);
            LLVMSetFunctionCallConv(new.raw(), LLVMGetFunctionCallConv(old.raw()));
            LLVMSetUnnamedAddress(new.raw(), LLVMGetUnnamedAddress(old.raw()));
            copy_placement(*old, *new);
            let gc = LLVMGetGC(old.raw());
            if !gc.is_null() {
                LLVMSetGC(new.raw(), gc);
            }
            LLVMSetComdat(new.raw(), std::ptr::null_mut());
        }
        if self.how.lines {
            self.defined.push((old, new));
        }
        copy_attributes(old, new, None);
        if self.contents.is_version {
            remove_patchable(new);
        }
        if old.has(self.source.reader.kinds().presplit_coroutine) {
            self.contents.needs_passes = true;
            self.contents.has_coroutines = true;
        }
        Ok(new)
    }

    pub(crate) fn define_variable(
        &mut self,
        id: SymbolId,
        variable: VariableRef<'r>,
    ) -> VariableRef<'r> {
        let copy = self.declare_like(*variable, &self.source.plan.import(id).name);
        let (old, new) = (variable.raw(), copy.raw());
        // SAFETY: live variables of one type.
        unsafe {
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
        }
        copy_placement(*variable, *copy);
        align_for_vectors(self.module, copy);
        self.values.insert(*variable, *copy);
        copy
    }

    /// Defines an alias, and before it the aliases it goes through: a mention before the definition
    /// would create a declaration of the same name.
    pub(crate) fn define_alias(
        &mut self,
        id: SymbolId,
        old: ValueRef<'r>,
    ) -> Result<(), CodegenError> {
        let Some(aliasee) = old.aliasee().filter(|_| !self.values.contains_key(&old)) else {
            return Ok(());
        };
        if let Kind::Alias {
            base: Some(base), ..
        } = self.source.info(id).kind
            && matches!(self.source.info(base).kind, Kind::Alias { .. })
            && self.source.plan.import(base).defined
        {
            self.define_alias(base, self.source.value(base))?;
        }
        let aliasee = self.map_constant(aliasee)?;
        let name = c_name(&self.source.plan.import(id).name);
        // SAFETY: live module, constant of this module, the alias's own type.
        let new = unsafe {
            let ty = LLVMGlobalGetValueType(old.raw());
            let module = self.module.raw();
            let new = LLVMAddAlias2(module, ty, 0, aliasee.raw(), name.as_ptr());
            LLVMSetLinkage(new, self.linkage(id));
            ValueRef::of(new)
        };
        self.values.insert(old, new);
        Ok(())
    }

    /// Makes the data unit mention the bounds of sections that only functions use: the linker
    /// defines `__start_NAME` and `__stop_NAME` for objects that mention them.
    pub(crate) fn mention_section_bounds(&mut self) -> bool {
        let source = self.source;
        let mut mentioned = Vec::new();
        for (index, info) in source.reader.summary().symbols.iter().enumerate() {
            let asks = info.name.starts_with("__start_") || info.name.starts_with("__stop_");
            if asks && !info.linkage.is_definition() {
                // A plain declaration: the mention must not change how it binds.
                let old = source.value(SymbolId(index as u32));
                if let Ok(value) = self.map_global(old) {
                    mentioned.push(value.raw());
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
        let text =
            unsafe { LLVMGetModuleInlineAsm(self.source.reader.module().raw(), &mut length) };
        if length != 0 {
            // SAFETY: copies the text into our module.
            unsafe { LLVMSetModuleInlineAsm2(self.module.raw(), text, length) };
        }
        self.contents.has_asm |= length != 0;
        length != 0
    }

    /// Copies a table of labels that nothing else sees: it becomes a constant of this unit.
    fn copy_table(&mut self, old: VariableRef<'r>) -> ValueRef<'r> {
        let new = self.declare_like(*old, &format!("uruk.table.{}", self.tables.len()));
        // SAFETY: a variable of ours.
        unsafe {
            LLVMSetLinkage(new.raw(), LLVMLinkage::LLVMInternalLinkage);
            LLVMSetGlobalConstant(new.raw(), 1);
        }
        copy_alignment(*old, *new);
        self.tables.push((old, new));
        *new
    }

    /// A declaration of a byte near code and data.
    pub(crate) fn declare_byte(&self, name: &str) -> VariableRef<'r> {
        let name = c_name(name);
        // SAFETY: a live module and context.
        let new = unsafe {
            let byte = LLVMInt8TypeInContext(self.source.reader.context().raw());
            VariableRef::of(LLVMAddGlobal(self.module.raw(), byte, name.as_ptr()))
        };
        mark_dso_local(*new);
        new
    }
}

/// The name to give a copy so that it is emitted as `name`. For some calling conventions LLVM
/// decorates names, unless they begin with its escape byte.
fn unmangled(called: ValueRef<'_>, name: &str) -> String {
    /// `fastcall`, `stdcall` and `vectorcall`, by LLVM's numbers.
    const DECORATED: [u32; 3] = [65, 64, 80];
    // SAFETY: a live function.
    let convention = |function: FunctionRef<'_>| unsafe { LLVMGetFunctionCallConv(function.raw()) };
    match called.as_function().map(convention) {
        Some(number) if DECORATED.contains(&number) => format!("\u{1}{name}"),
        _ => name.to_owned(),
    }
}

/// True if a constant has no more than `left` operands that would have to be rebuilt;
/// strings and tables of numbers have none.
fn is_small(constant: ValueRef<'_>, left: &mut u32) -> bool {
    let count = constant.parts().len() as u32;
    if count > *left {
        return false;
    }
    *left -= count;
    constant.kind() != LLVMValueKind::LLVMBlockAddressValueKind
        && constant.parts().all(|part| is_small(part, left))
}
