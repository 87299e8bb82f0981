//! Gives facts to the declarations of a unit.

use std::sync::Arc;

use inkwell::llvm_sys::core::{
    LLVMAddAttributeAtIndex, LLVMCreateEnumAttribute, LLVMGetCalledFunctionType,
    LLVMGetNumArgOperands, LLVMGetOperand, LLVMGetPoison, LLVMGlobalGetValueType,
    LLVMRemoveCallSiteEnumAttribute, LLVMRemoveEnumAttributeAtIndex, LLVMSetOperand, LLVMTypeOf,
};
use rustc_hash::FxHashSet;

use super::{FactStore, Summary, kinds};
use crate::context::LlvmContext;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::summary::SymbolId;

/// The facts that declarations of one unit got.
#[derive(Default)]
pub(crate) struct DeclaredFacts<'r> {
    /// Declarations of functions that are known not to use some argument.
    with_dead: Vec<(FunctionRef<'r>, Arc<Summary>)>,
}

impl<'r> DeclaredFacts<'r> {
    /// Adds the facts in `store` about the bound function `id` to its declaration `new`, and the
    /// symbols that they depend on to `depends`.
    pub(crate) fn add(
        &mut self,
        store: &FactStore,
        context: &LlvmContext,
        id: SymbolId,
        new: FunctionRef<'r>,
        depends: &mut FxHashSet<SymbolId>,
    ) {
        let Some(summary) = store.look_up(id, depends) else {
            return;
        };
        let (kinds, context) = (kinds(), context.raw());
        for fact in &summary.facts {
            if kinds.read_write.contains(&fact.kind) {
                remove(new, fact.place, &kinds.read_write);
            }
            // SAFETY: a live function and context; kind and value are of an attribute
            // that LLVM made for this place. One of the same kind is replaced.
            unsafe {
                let attribute = LLVMCreateEnumAttribute(context, fact.kind, fact.value);
                LLVMAddAttributeAtIndex(new.raw(), fact.place, attribute);
            }
        }
        if !summary.dead.is_empty() {
            for parameter in &summary.dead {
                remove(new, parameter + 1, &kinds.want_a_value);
            }
            self.with_dead.push((new, summary));
        }
    }

    /// Makes calls pass poison for parameters that are known to be dead.
    pub(crate) fn drop_dead_arguments(&mut self) {
        for (callee, summary) in std::mem::take(&mut self.with_dead) {
            for call in calls_of(callee) {
                for &parameter in &summary.dead {
                    // SAFETY: a live call; the parameter is below the count of its
                    // arguments, and poison is of the argument's type.
                    unsafe {
                        let call = call.raw();
                        if parameter >= LLVMGetNumArgOperands(call) {
                            continue;
                        }
                        for &kind in &kinds().want_a_value {
                            LLVMRemoveCallSiteEnumAttribute(call, parameter + 1, kind);
                        }
                        let ty = LLVMTypeOf(LLVMGetOperand(call, parameter));
                        LLVMSetOperand(call, parameter, LLVMGetPoison(ty));
                    }
                }
            }
        }
    }
}

fn remove(function: FunctionRef<'_>, place: u32, kinds: &[u32]) {
    for &kind in kinds {
        // SAFETY: a live function; removing an absent attribute does nothing.
        unsafe { LLVMRemoveEnumAttributeAtIndex(function.raw(), place, kind) };
    }
}

/// The direct calls of `function` with its own type.
fn calls_of(function: FunctionRef<'_>) -> Vec<InstructionRef<'_>> {
    let mut calls = Vec::new();
    for call in function.users().filter_map(ValueRef::as_instruction) {
        // SAFETY: a live function; calls are asked as such.
        let fits = || unsafe {
            LLVMGetCalledFunctionType(call.raw()) == LLVMGlobalGetValueType(function.raw())
        };
        if call.callee() == Some(*function) && fits() && !calls.contains(&call) {
            calls.push(call);
        }
    }
    calls
}
