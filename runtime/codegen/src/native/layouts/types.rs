//! Layouts from types of the IR.

use inkwell::llvm_sys::LLVMTypeKind;
use inkwell::llvm_sys::core::{
    LLVMCountStructElementTypes, LLVMGetArrayLength2, LLVMGetElementType, LLVMGetStructName,
    LLVMGetTypeKind, LLVMGlobalGetValueType, LLVMStructGetTypeAtIndex,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;
use inkwell::llvm_sys::target::{
    LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMOffsetOfElement, LLVMTargetDataRef,
};

use super::{DEEPEST, Leaf, MOST, NumberKind, TypeLayout};
use crate::context::OwnedModule;
use crate::handles::VariableRef;

/// The layout of a variable from types of the IR; `None` if it contains unions, or structures
/// without a name, which clang makes of unions.
pub(in crate::native) fn of_type(
    module: &OwnedModule,
    variable: VariableRef<'_>,
) -> Option<TypeLayout> {
    let mut leaves = Vec::new();
    // SAFETY: a live module and variable.
    unsafe {
        let layout = LLVMGetModuleDataLayout(module.raw());
        let kind = LLVMGlobalGetValueType(variable.raw());
        add_type(layout, kind, (0, 0), 0, &mut leaves)?;
    }
    leaves.sort();
    Some(TypeLayout(leaves))
}

/// # Safety
/// A live type and layout.
unsafe fn add_type(
    layout: LLVMTargetDataRef,
    kind: LLVMTypeRef,
    (offset, array): (u64, u64),
    depth: usize,
    to: &mut Vec<Leaf>,
) -> Option<()> {
    if to.len() >= MOST || depth >= DEEPEST {
        return None;
    }
    // SAFETY: by the caller's promise; indices of elements are below their number.
    unsafe {
        let leaf = |is| Leaf {
            offset,
            size: 8 * LLVMABISizeOfType(layout, kind),
            kind: is,
            array,
            path: String::new(),
        };
        match LLVMGetTypeKind(kind) {
            LLVMTypeKind::LLVMIntegerTypeKind => to.push(leaf(NumberKind::Integer)),
            LLVMTypeKind::LLVMPointerTypeKind => to.push(leaf(NumberKind::Pointer)),
            LLVMTypeKind::LLVMHalfTypeKind
            | LLVMTypeKind::LLVMBFloatTypeKind
            | LLVMTypeKind::LLVMFloatTypeKind
            | LLVMTypeKind::LLVMDoubleTypeKind
            | LLVMTypeKind::LLVMX86_FP80TypeKind
            | LLVMTypeKind::LLVMFP128TypeKind => to.push(leaf(NumberKind::Float)),
            LLVMTypeKind::LLVMArrayTypeKind if LLVMGetArrayLength2(kind) != 0 => {
                let array = array + 8 * LLVMABISizeOfType(layout, kind);
                let element = LLVMGetElementType(kind);
                add_type(layout, element, (offset, array), depth + 1, to)?;
            }
            LLVMTypeKind::LLVMStructTypeKind => {
                let name = LLVMGetStructName(kind);
                let name = (!name.is_null()).then(|| std::ffi::CStr::from_ptr(name));
                if name?.to_bytes().starts_with(b"union.") {
                    return None;
                }
                for number in 0..LLVMCountStructElementTypes(kind) {
                    let element = LLVMStructGetTypeAtIndex(kind, number);
                    let at = offset + 8 * LLVMOffsetOfElement(layout, kind, number);
                    add_type(layout, element, (at, array), depth + 1, to)?;
                }
            }
            _ => return None,
        }
    }
    Some(())
}
