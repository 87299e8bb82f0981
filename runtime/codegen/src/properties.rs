//! Properties of functions and variables, and their copies: placement, alignment, attributes.

use inkwell::llvm_sys::core::{
    LLVMAddAttributeAtIndex, LLVMCountParams, LLVMGetAlignment, LLVMGetAttributeCountAtIndex,
    LLVMGetAttributesAtIndex, LLVMGetEnumAttributeKind, LLVMGetLinkage, LLVMGetSection,
    LLVMGetThreadLocalMode, LLVMGlobalGetValueType, LLVMIsGlobalConstant, LLVMIsStringAttribute,
    LLVMSetAlignment, LLVMSetSection, LLVMSetVisibility,
};
use inkwell::llvm_sys::prelude::LLVMAttributeRef;
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};
use inkwell::llvm_sys::{
    LLVMAttributeFunctionIndex, LLVMLinkage, LLVMThreadLocalMode, LLVMVisibility,
};

use crate::context::OwnedModule;
use crate::handles::{FunctionRef, ValueRef, VariableRef};

/// `hidden` implies `dso_local`, and the flag stays when the visibility goes back:
/// LLVM-C has no setter for it.
pub(crate) fn mark_dso_local(global: ValueRef<'_>) {
    debug_assert!(global.is_global());
    // SAFETY: a live global with external or internal linkage.
    unsafe {
        if LLVMGetLinkage(global.raw()) == LLVMLinkage::LLVMInternalLinkage {
            return;
        }
        LLVMSetVisibility(global.raw(), LLVMVisibility::LLVMHiddenVisibility);
        LLVMSetVisibility(global.raw(), LLVMVisibility::LLVMDefaultVisibility);
    }
}

/// Copies the alignment of a function or variable, if it has one.
pub(crate) fn copy_alignment(old: ValueRef<'_>, new: ValueRef<'_>) {
    // SAFETY: live functions or variables.
    unsafe {
        let align = LLVMGetAlignment(old.raw());
        if align != 0 {
            LLVMSetAlignment(new.raw(), align);
        }
    }
}

/// Copies alignment and section of a function or variable.
pub(crate) fn copy_placement(old: ValueRef<'_>, new: ValueRef<'_>) {
    copy_alignment(old, new);
    // SAFETY: live functions or variables; a section name is null or a C string.
    unsafe {
        let section = LLVMGetSection(old.raw());
        if !section.is_null() && *section != 0 {
            LLVMSetSection(new.raw(), section);
        }
    }
}

/// Copies attributes: those of the kinds in `only`, or all.
pub(crate) fn copy_attributes(old: FunctionRef<'_>, new: FunctionRef<'_>, only: Option<&[u32]>) {
    let (old, new) = (old.raw(), new.raw());
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
