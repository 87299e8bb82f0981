//! The globals that constants and operands mention.

use std::collections::HashMap;

use inkwell::llvm_sys::LLVMValueKind;
use inkwell::llvm_sys::prelude::LLVMValueRef;

use crate::handles::ValueRef;

/// The globals that a constant or an operand refers to.
#[derive(Default)]
pub(super) struct MentionedGlobals {
    pub(super) variables: Vec<u32>,
    pub(super) functions: Vec<u32>,
    pub(super) labels: Vec<LLVMValueRef>,
}

/// Numbers of the listed globals, and functions that are mentioned outside of calls.
pub(super) struct MentionWalk {
    pub(super) functions: HashMap<LLVMValueRef, u32>,
    pub(super) variables: HashMap<LLVMValueRef, u32>,
    /// Functions that are mentioned outside of calls.
    pub(super) taken: Vec<bool>,
}

impl MentionWalk {
    /// Adds the mentions of `value`, an operand that is not called. Initializers are not entered.
    pub(super) fn mention(&mut self, value: ValueRef<'_>, found: &mut MentionedGlobals) {
        if let Some(&number) = self.functions.get(&value.raw()) {
            self.taken[number as usize] = true;
            found.functions.push(number);
        } else if let Some(&number) = self.variables.get(&value.raw()) {
            found.variables.push(number);
        } else if value.kind() == LLVMValueKind::LLVMBlockAddressValueKind {
            found.labels.push(value.raw());
        } else if let Some(aliasee) = value.aliasee() {
            self.mention(aliasee, found);
        } else {
            for part in value.parts() {
                self.mention(part, found);
            }
        }
    }
}

/// Numbers in their order, each once.
pub(super) fn numbers(mut list: Vec<u32>) -> Vec<u32> {
    list.sort_unstable();
    list.dedup();
    list
}
