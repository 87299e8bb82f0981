//! Makes unreachable code trap.
//!
//! LLVM emits nothing for `unreachable`. If a program reaches one, through an error of its own or
//! of its front end, it executes the bytes that follow: another function, with unrelated contents
//! of registers. Before a module is emitted each `unreachable` gets a trap in front, so that such a
//! program ends there, or its guarded call does.
//!
//! Blocks that hold only `unreachable`, and that a `switch` goes to, get none. For them LLVM omits
//! the comparison with the number of cases, which costs interpreters time.

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMBuildCall2, LLVMCreateBuilderInContext, LLVMDisposeBuilder, LLVMGetFirstUse,
    LLVMGetIntrinsicDeclaration, LLVMGetModuleContext, LLVMGetNextUse, LLVMGetUser,
    LLVMGlobalGetValueType, LLVMIsASwitchInst, LLVMLookupIntrinsicID, LLVMPositionBuilderBefore,
};

use crate::context::OwnedModule;
use crate::handles::{BlockRef, InstructionRef};

const TRAP: &str = "llvm.trap";

/// Inserts a trap before each `unreachable`.
pub(crate) fn trap(module: &mut OwnedModule) {
    let mut ends = Vec::new();
    for function in module.functions() {
        let all = function.blocks().filter(|block| !is_of_switch(*block));
        ends.extend(
            all.filter_map(BlockRef::terminator)
                .filter(|end| end.opcode() == LLVMOpcode::LLVMUnreachable)
                .map(InstructionRef::raw),
        );
    }
    if ends.is_empty() {
        return;
    }
    // SAFETY: a live module, its context, and instructions of it; the builder is disposed here.
    unsafe {
        let id = LLVMLookupIntrinsicID(TRAP.as_ptr().cast(), TRAP.len());
        let trap = LLVMGetIntrinsicDeclaration(module.raw(), id, std::ptr::null_mut(), 0);
        let ty = LLVMGlobalGetValueType(trap);
        let builder = LLVMCreateBuilderInContext(LLVMGetModuleContext(module.raw()));
        for end in ends {
            LLVMPositionBuilderBefore(builder, end);
            LLVMBuildCall2(builder, ty, trap, std::ptr::null_mut(), 0, c"".as_ptr());
        }
        LLVMDisposeBuilder(builder);
    }
}

/// Whether a block contains only an `unreachable`, and a `switch` leads to it.
fn is_of_switch(block: BlockRef<'_>) -> bool {
    let mut own = block.instructions().map(InstructionRef::opcode);
    let first = own.find(|it| *it != LLVMOpcode::LLVMPHI);
    if first != Some(LLVMOpcode::LLVMUnreachable) {
        return false;
    }
    // SAFETY: a live block; its uses are walked to the null end.
    unsafe {
        let mut next = LLVMGetFirstUse(block.value().raw());
        while !next.is_null() {
            if !LLVMIsASwitchInst(LLVMGetUser(next)).is_null() {
                return true;
            }
            next = LLVMGetNextUse(next);
        }
    }
    false
}
