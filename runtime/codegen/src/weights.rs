//! Counts of executions as `!prof` metadata.

use inkwell::llvm_sys::core::{
    LLVMConstInt, LLVMGetMDKindIDInContext, LLVMGlobalSetMetadata, LLVMInt32TypeInContext,
    LLVMInt64TypeInContext, LLVMMDNodeInContext2, LLVMMDStringInContext2, LLVMMetadataAsValue,
    LLVMSetMetadata, LLVMValueAsMetadata,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef, LLVMValueRef};

use crate::context::LlvmContext;
use crate::handles::{FunctionRef, InstructionRef};
use crate::profile::weights;

/// Writes `!prof` metadata of one context.
pub(crate) struct ProfileNotes {
    context: LLVMContextRef,
    kind: u32,
}

impl ProfileNotes {
    pub(crate) fn new(context: &LlvmContext) -> ProfileNotes {
        let context = context.raw();
        let name = "prof";
        // SAFETY: a live context; pointer and length describe the name.
        let kind =
            unsafe { LLVMGetMDKindIDInContext(context, name.as_ptr().cast(), name.len() as u32) };
        ProfileNotes { context, kind }
    }

    /// # Safety
    /// The context is live, and the numbers are constants of it.
    unsafe fn node(&self, name: &str, numbers: &[LLVMValueRef]) -> LLVMMetadataRef {
        // SAFETY: by the caller's promise; pointers and lengths fit.
        unsafe {
            let name = LLVMMDStringInContext2(self.context, name.as_ptr().cast(), name.len());
            let numbers = numbers.iter().map(|&number| LLVMValueAsMetadata(number));
            let mut all: Vec<LLVMMetadataRef> = std::iter::once(name).chain(numbers).collect();
            LLVMMDNodeInContext2(self.context, all.as_mut_ptr(), all.len())
        }
    }

    /// `None` if nothing was counted.
    ///
    /// # Safety
    /// The context is live.
    pub(crate) unsafe fn weights(&self, counts: &[u64]) -> Option<LLVMMetadataRef> {
        let weights = weights(counts)?.into_iter();
        // SAFETY: by the caller's promise; the constants are of the context.
        unsafe {
            let ty = LLVMInt32TypeInContext(self.context);
            let weights = weights.map(|weight| LLVMConstInt(ty, u64::from(weight), 0));
            Some(self.node("branch_weights", &weights.collect::<Vec<_>>()))
        }
    }

    /// # Safety
    /// A terminator of the context with as many successors as counts.
    pub(crate) unsafe fn set_weights(&self, terminator: InstructionRef<'_>, counts: &[u64]) {
        // SAFETY: by the caller's promise.
        unsafe {
            if let Some(weights) = self.weights(counts) {
                let value = LLVMMetadataAsValue(self.context, weights);
                LLVMSetMetadata(terminator.raw(), self.kind, value);
            }
        }
    }

    /// Notes how often a function of the context was entered.
    pub(crate) fn set_entries(&self, function: FunctionRef<'_>, entries: u64) {
        // SAFETY: a live function, so the context is live. A function that runs was entered,
        // even if that was before it counted.
        unsafe {
            let count = LLVMConstInt(LLVMInt64TypeInContext(self.context), entries.max(1), 0);
            let node = self.node("function_entry_count", &[count]);
            LLVMGlobalSetMetadata(function.raw(), self.kind, node);
        }
    }
}
