//! Clears the upper bits of results of one bit, as C expects.
//!
//! A function that returns `i1` leaves the bits above undefined, unless it has `zeroext`. Callers
//! in C and in Rust read a `bool` from eight bits, and a value that is neither 0 nor 1 is undefined
//! behaviour. So each compiled function clears the bits, at every tier (`runtime/lower` tells the
//! baseline compiler). Callers without this need lose nothing.
//!
//! Functions that end in a tail call of such a result are left out, as the call would be no tail
//! call any more. The callee has cleared the bits, if it is compiled here.

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

/// Makes a function that returns one bit clear the bits above it.
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

/// Whether the instruction before the end of a block is a tail call.
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
