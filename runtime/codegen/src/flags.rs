//! Results of one bit, as C knows them.
//!
//! A function that returns `i1` leaves the bits above as they come, unless it says `zeroext`.
//! Callers in C, and in Rust, read a `bool` from eight of them, and one that is neither 0 nor 1 is
//! anything at all. So each function that is compiled clears them, at every tier (the baseline
//! compiler is told so by `runtime/lower`); a caller that expects nothing loses nothing.
//!
//! Left out are functions that end in a tail call of such a result, which could be one no more: the
//! callee has cleared them, if it is compiled here.

use inkwell::llvm_sys::core::{
    LLVMAddAttributeAtIndex, LLVMCreateEnumAttribute, LLVMGetEnumAttributeAtIndex,
    LLVMGetGlobalParent, LLVMGetIntTypeWidth, LLVMGetModuleContext, LLVMGetPreviousInstruction,
    LLVMGetReturnType, LLVMGetTailCallKind, LLVMGetTypeKind, LLVMGlobalGetValueType,
};
use inkwell::llvm_sys::{LLVMAttributeReturnIndex, LLVMOpcode, LLVMTailCallKind, LLVMTypeKind};

use crate::handles::{FunctionRef, InstructionRef, ValueRef};

/// LLVM's numbers of `zeroext` and `signext`.
#[derive(Clone, Copy)]
pub(crate) struct Extensions {
    pub(crate) zero: u32,
    pub(crate) sign: u32,
}

/// Has a function that returns one bit clear those above it.
pub(crate) fn clear_above(function: FunctionRef<'_>, extensions: Extensions) {
    if !returns_flag(function)
        || function
            .blocks()
            .any(|block| ends_in_tail_call(block.terminator()))
    {
        return;
    }
    // SAFETY: a live function, of a module, and an attribute of its context.
    unsafe {
        let is = |kind| {
            let attribute =
                LLVMGetEnumAttributeAtIndex(function.raw(), LLVMAttributeReturnIndex, kind);
            !attribute.is_null()
        };
        if is(extensions.zero) || is(extensions.sign) {
            return;
        }
        let context = LLVMGetModuleContext(LLVMGetGlobalParent(function.raw()));
        let attribute = LLVMCreateEnumAttribute(context, extensions.zero, 0);
        LLVMAddAttributeAtIndex(function.raw(), LLVMAttributeReturnIndex, attribute);
    }
}

fn returns_flag(function: FunctionRef<'_>) -> bool {
    // SAFETY: a live function; only an integer is asked for its width.
    unsafe {
        let ty = LLVMGetReturnType(LLVMGlobalGetValueType(function.raw()));
        LLVMGetTypeKind(ty) == LLVMTypeKind::LLVMIntegerTypeKind && LLVMGetIntTypeWidth(ty) == 1
    }
}

/// Whether what is before the end of a block is a call in its place.
fn ends_in_tail_call(end: Option<InstructionRef<'_>>) -> bool {
    let Some(end) = end.filter(|end| end.opcode() == LLVMOpcode::LLVMRet) else {
        return false;
    };
    // SAFETY: a live instruction, whose block lives as it does; null at its beginning.
    let before = unsafe { ValueRef::from_raw(LLVMGetPreviousInstruction(end.raw())) };
    let Some(before) = before.and_then(ValueRef::as_instruction) else {
        return false;
    };
    if before.opcode() != LLVMOpcode::LLVMCall {
        return false;
    }
    // SAFETY: a call is asked as such.
    let kind = unsafe { LLVMGetTailCallKind(before.raw()) };
    matches!(
        kind,
        LLVMTailCallKind::LLVMTailCallKindTail | LLVMTailCallKind::LLVMTailCallKindMustTail
    )
}
