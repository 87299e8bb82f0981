//! Intrinsics whose calls become other code while a body is copied.
//!
//! # Why
//! - `llvm.fmuladd` may be fused by code generation, so floating-point bits would depend on the
//!   tier and the CPU. Every tier multiplies, rounds, and adds.
//! - `llvm.type.test` and `llvm.type.checked.load` are for link-time optimization, which knows every
//!   member of a type; code generation has no code for them. A session never knows all members,
//!   so each test passes: a valid program does the same, and calls of an invalid one are not caught.

use inkwell::llvm_sys::core::{
    LLVMBuildFAdd, LLVMBuildFMul, LLVMBuildGEP2, LLVMBuildInsertValue, LLVMBuildLoad2,
    LLVMConstAllOnes, LLVMGetFastMathFlags, LLVMGetOperand, LLVMGetPoison, LLVMInt8TypeInContext,
    LLVMInt32TypeInContext, LLVMSetAlignment, LLVMSetFastMathFlags, LLVMStructGetTypeAtIndex,
    LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::{LLVMFastMathAllowContract, LLVMOpcode};

use crate::copying::Copying;
use crate::handles::{InstructionRef, ValueRef};
use crate::table::Rewritten;

/// The kind of code that replaces an instruction, unless it is simply cloned.
pub(crate) fn rewritten(
    copying: &Copying<'_>,
    instruction: InstructionRef<'_>,
) -> Option<Rewritten> {
    if instruction.opcode() != LLVMOpcode::LLVMCall {
        return None;
    }
    let rewritten = copying
        .source
        .reader
        .table()
        .rewritten(instruction.callee()?)?;
    (rewritten != Rewritten::MulAdd || !copying.how.contract).then_some(rewritten)
}

/// Builds the code that replaces `call`; operands are mapped later.
///
/// # Safety
/// A call of that intrinsic; the builder is at the end of the block being copied.
pub(crate) unsafe fn rewrite<'r>(
    copying: &mut Copying<'r>,
    rewritten: Rewritten,
    call: InstructionRef<'r>,
    copies: &mut Vec<InstructionRef<'r>>,
) -> ValueRef<'r> {
    // SAFETY: by the caller's promise.
    unsafe {
        match rewritten {
            Rewritten::MulAdd => split_fmuladd(copying, call, copies),
            Rewritten::TypeTest => ValueRef::of(LLVMConstAllOnes(LLVMTypeOf(call.raw()))),
            Rewritten::CheckedLoad { relative } => plain_load(copying, call, relative, copies),
        }
    }
}

/// Notes an instruction that was built for a call; a folded constant is skipped.
///
/// # Safety
/// A value of the copy.
unsafe fn note<'r>(
    copying: &mut Copying<'r>,
    value: LLVMValueRef,
    copies: &mut Vec<InstructionRef<'r>>,
) {
    // SAFETY: by the caller's promise.
    if let Some(made) = unsafe { ValueRef::of(value) }.as_instruction() {
        copies.push(made);
        // An operand of the next one is a value of the copy already.
        copying.values.insert(*made, *made);
    }
}

/// Loads a pointer from a table, and pairs it with true.
///
/// # Safety
/// A call of `llvm.type.checked.load`, or of its relative form; the builder is at the end of
/// the block being copied.
unsafe fn plain_load<'r>(
    copying: &mut Copying<'r>,
    call: InstructionRef<'r>,
    relative: bool,
    copies: &mut Vec<InstructionRef<'r>>,
) -> ValueRef<'r> {
    let (builder, none) = (copying.builder.0, c"".as_ptr());
    // SAFETY: by the caller's promise a call with a pointer and an offset of 32 bits, whose
    // result is a pointer with a bit.
    unsafe {
        let context = copying.source.reader.context().raw();
        let byte = LLVMInt8TypeInContext(context);
        let [table, mut offset] = [0, 1].map(|i| LLVMGetOperand(call.raw(), i));
        let both = LLVMTypeOf(call.raw());
        let [pointer, bit] = [0, 1].map(|i| LLVMStructGetTypeAtIndex(both, i));
        let place = LLVMBuildGEP2(builder, byte, table, &mut offset, 1, none);
        note(copying, place, copies);
        let loaded = if relative {
            let int = LLVMInt32TypeInContext(context);
            let mut distance = LLVMBuildLoad2(builder, int, place, none);
            LLVMSetAlignment(distance, 4);
            note(copying, distance, copies);
            LLVMBuildGEP2(builder, byte, table, &mut distance, 1, none)
        } else {
            LLVMBuildLoad2(builder, pointer, place, none)
        };
        note(copying, loaded, copies);
        let half = LLVMBuildInsertValue(builder, LLVMGetPoison(both), loaded, 0, none);
        note(copying, half, copies);
        let whole = LLVMBuildInsertValue(builder, half, LLVMConstAllOnes(bit), 1, none);
        note(copying, whole, copies);
        ValueRef::of(whole)
    }
}

/// Builds a multiplication and an addition. Code generation may fuse `llvm.fmuladd` if the CPU
/// can, so floating-point bits would depend on the tier. Every tier multiplies, rounds, and
/// adds.
///
/// # Safety
/// A call of it; the builder is at the end of the block being copied.
unsafe fn split_fmuladd<'r>(
    copying: &mut Copying<'r>,
    call: InstructionRef<'r>,
    copies: &mut Vec<InstructionRef<'r>>,
) -> ValueRef<'r> {
    // SAFETY: by the caller's promise a call with three floating-point operands; both
    // instructions are remapped later. The multiplication cannot fold to a constant: only
    // its flags are read off the call when it is an instruction.
    unsafe {
        let [a, b, c] = [0, 1, 2].map(|i| LLVMGetOperand(call.raw(), i));
        let flags = LLVMGetFastMathFlags(call.raw());
        let product = LLVMBuildFMul(copying.builder.0, a, b, c"".as_ptr());
        let sum = LLVMBuildFAdd(copying.builder.0, product, c, c"".as_ptr());
        for value in [product, sum] {
            if let Some(made) = ValueRef::of(value).as_instruction() {
                // Fusing must not happen.
                LLVMSetFastMathFlags(value, exact_or(flags));
                copies.push(made);
                // The sum's operand is a value of the copy already.
                copying.values.insert(*made, *made);
            }
        }
        ValueRef::of(sum)
    }
}

/// The flags of a split `fmuladd`, without contraction if it is the only one.
fn exact_or(flags: u32) -> u32 {
    if flags == LLVMFastMathAllowContract {
        0
    } else {
        flags
    }
}
