//! Types of functions whose arguments and result are numbers in registers.

use inkwell::llvm_sys::LLVMTypeKind;
use inkwell::llvm_sys::core::{
    LLVMCountParamTypes, LLVMGetIntTypeWidth, LLVMGetParamTypes, LLVMGetReturnType,
    LLVMGetTypeKind, LLVMGlobalGetValueType, LLVMIsFunctionVarArg,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;

use crate::handles::FunctionRef;

/// Numbers that are passed in registers, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlainType {
    /// Integers.
    pub words: u8,
    /// Floating-point numbers.
    pub floats: u8,
    /// The result.
    pub result: PlainResult,
}

/// The result of a function, by the register that holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PlainResult {
    /// None.
    #[default]
    Nothing,
    /// `rax`: an integer or a pointer.
    Word,
    /// `xmm0`: a floating-point number.
    Float,
}

/// The arguments and the result of a function whose type has only numbers that registers have room
/// for.
pub(super) fn plain(function: FunctionRef<'_>) -> Option<PlainType> {
    // SAFETY: the type of a live function; the array has room for all parameter types.
    let (kinds, result) = unsafe {
        let kind = LLVMGlobalGetValueType(function.raw());
        if LLVMIsFunctionVarArg(kind) != 0 {
            return None;
        }
        let mut kinds = vec![std::ptr::null_mut(); LLVMCountParamTypes(kind) as usize];
        LLVMGetParamTypes(kind, kinds.as_mut_ptr());
        (kinds, LLVMGetReturnType(kind))
    };
    let mut plain = PlainType {
        result: match class(result) {
            LLVMTypeKind::LLVMVoidTypeKind => PlainResult::Nothing,
            LLVMTypeKind::LLVMPointerTypeKind => PlainResult::Word,
            _ if is_word(result) => PlainResult::Word,
            _ if is_float(result) => PlainResult::Float,
            _ => return None,
        },
        ..PlainType::default()
    };
    for kind in kinds {
        match (is_word(kind), is_float(kind)) {
            (true, _) => plain.words += 1,
            (_, true) => plain.floats += 1,
            _ => return None,
        }
        if plain.words > 6 || plain.floats > 8 {
            return None;
        }
    }
    Some(plain)
}

fn class(kind: LLVMTypeRef) -> LLVMTypeKind {
    // SAFETY: a live type.
    unsafe { LLVMGetTypeKind(kind) }
}

fn is_word(kind: LLVMTypeRef) -> bool {
    // SAFETY: a live type, of integers.
    class(kind) == LLVMTypeKind::LLVMIntegerTypeKind && unsafe { LLVMGetIntTypeWidth(kind) } <= 64
}

fn is_float(kind: LLVMTypeRef) -> bool {
    matches!(
        class(kind),
        LLVMTypeKind::LLVMFloatTypeKind | LLVMTypeKind::LLVMDoubleTypeKind
    )
}
