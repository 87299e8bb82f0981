//! LLVM's verifier.

use inkwell::llvm_sys::analysis::{
    LLVMVerifierFailureAction, LLVMVerifyFunction, LLVMVerifyModule,
};

use crate::context::{OwnedModule, take_message};
use crate::handles::FunctionRef;

/// Verifies all of a module except unread bodies; returns the verifier's message if it is broken.
pub(crate) fn verify_module(module: &OwnedModule) -> Option<String> {
    let mut message = std::ptr::null_mut();
    let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
    // SAFETY: a live module and an out pointer; the message is ours either way.
    unsafe {
        let broken = LLVMVerifyModule(module.raw(), action, &mut message) != 0;
        let message = take_message(message);
        broken.then_some(message)
    }
}

/// True if LLVM's verifier accepts a function that was made here.
pub(crate) fn is_valid(made: FunctionRef<'_>) -> bool {
    let action = match cfg!(debug_assertions) {
        true => LLVMVerifierFailureAction::LLVMPrintMessageAction,
        false => LLVMVerifierFailureAction::LLVMReturnStatusAction,
    };
    // SAFETY: a live function.
    unsafe { LLVMVerifyFunction(made.raw(), action) == 0 }
}
