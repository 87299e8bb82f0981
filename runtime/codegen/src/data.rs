//! Plans the data unit of a module by reading, before anything is copied.

use inkwell::llvm_sys::LLVMThreadLocalMode;
use inkwell::llvm_sys::core::{
    LLVMGetAlignment, LLVMGetSection, LLVMGetThreadLocalMode, LLVMGlobalGetValueType,
    LLVMIsGlobalConstant, LLVMSetAlignment,
};
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};

use crate::compile::Compile;
use crate::context::OwnedModule;
use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef, VariableRef};
use crate::planning::Planning;
use crate::source::Source;
use crate::summary::{Kind, Placement, SymbolId};

/// The definitions of a data unit, each list in the order of the module.
#[derive(Default)]
pub(crate) struct DataPlan<'r> {
    pub(crate) functions: Vec<(SymbolId, FunctionRef<'r>)>,
    pub(crate) variables: Vec<(SymbolId, VariableRef<'r>)>,
    pub(crate) aliases: Vec<(SymbolId, ValueRef<'r>)>,
    /// True if the unit is not empty, even if it has only an alias of a definition elsewhere.
    pub(crate) any: bool,
}

impl<'r> DataPlan<'r> {
    /// The module's data, and with `everything` its functions too.
    pub(crate) fn of(source: Source<'r>, everything: bool) -> Result<DataPlan<'r>, CodegenError> {
        let how = Compile::baseline();
        let mut planning = Planning::new(source, &how);
        let mut plan = DataPlan::default();
        let is_here = |id: SymbolId| {
            let placement = source.info(id).placement;
            placement == Placement::DataUnit || (everything && placement == Placement::Own)
        };
        for (index, value) in source.reader.table().values().enumerate() {
            let id = SymbolId(index as u32);
            if !is_here(id) || !source.plan.import(id).defined {
                continue;
            }
            plan.any = true;
            if let Some(function) = value.as_function() {
                planning.read_bodies(function)?;
                plan.functions.push((id, function));
            } else if let Some(variable) = value.as_variable() {
                plan.variables.push((id, variable));
            } else if let Kind::Alias {
                base: Some(base), ..
            } = source.info(id).kind
                && is_here(base)
            {
                plan.aliases.push((id, value));
            }
        }
        Ok(plan)
    }
}

/// Bytes of a line of the cache.
const LINE: u32 = 64;

/// Aligns a variable of a cache line or more to a line, as GCC places aggregates on this target.
/// Loads of 32 bytes then touch one line each; with the ABI's 16 bytes half of them touch two. The
/// static compiler raises the alignment of variables defined beside the code it vectorizes; here
/// code and data are compiled apart. A variable with a section of its own may be part of a table
/// without gaps, so it is left alone.
pub(crate) fn align_for_vectors(module: &OwnedModule, variable: VariableRef<'_>) {
    let raw = variable.raw();
    // SAFETY: a live module, and a variable of it that is being defined, so of a type with a size.
    unsafe {
        let section = LLVMGetSection(raw);
        let is_plain = (section.is_null() || *section == 0)
            && LLVMIsGlobalConstant(raw) == 0
            && LLVMGetThreadLocalMode(raw) == LLVMThreadLocalMode::LLVMNotThreadLocal;
        let layout = LLVMGetModuleDataLayout(module.raw());
        let is_large =
            is_plain && LLVMABISizeOfType(layout, LLVMGlobalGetValueType(raw)) >= u64::from(LINE);
        if is_large && LLVMGetAlignment(raw) < LINE {
            LLVMSetAlignment(raw, LINE);
        }
    }
}
