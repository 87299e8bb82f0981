//! Parts of a body: parameters, incoming values of phis, static `alloca`s.

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMCountIncoming, LLVMCountParams, LLVMGetIncomingBlock, LLVMGetIncomingValue, LLVMGetParam,
    LLVMIsAConstantInt,
};

use crate::handles::{FunctionRef, InstructionRef, ValueRef};

/// The parameters of a function.
pub(crate) fn parameters(function: FunctionRef<'_>) -> Vec<ValueRef<'_>> {
    // SAFETY: a live function, and indices below the count.
    unsafe {
        let count = LLVMCountParams(function.raw());
        (0..count)
            .map(|index| ValueRef::of(LLVMGetParam(function.raw(), index)))
            .collect()
    }
}

/// The values of a phi, and the blocks they come from, as numbers.
pub(crate) fn incoming<'m>(phi: InstructionRef<'m>) -> impl Iterator<Item = (ValueRef<'m>, usize)> {
    // SAFETY: a live phi, and indices below its count.
    let count = unsafe { LLVMCountIncoming(phi.raw()) };
    (0..count).map(move |index| {
        // SAFETY: as above.
        unsafe {
            let value = ValueRef::of(LLVMGetIncomingValue(phi.raw(), index));
            (value, LLVMGetIncomingBlock(phi.raw(), index) as usize)
        }
    })
}

/// True for an `alloca` of a known count, if it is in the entry block.
pub(crate) fn is_static(instruction: InstructionRef<'_>) -> bool {
    instruction.opcode() == LLVMOpcode::LLVMAlloca
        && instruction.operands().next().flatten().is_some_and(|it| {
            // SAFETY: a live value.
            unsafe { !LLVMIsAConstantInt(it.raw()).is_null() }
        })
}
