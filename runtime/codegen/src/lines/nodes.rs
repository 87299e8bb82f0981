//! Reads properties of debug information nodes that LLVM-C does not offer: operands, by place, and
//! numbers, from the printed text.
//!
//! # Invariants
//! - Nothing is changed.
//!
//! # Why
//! LLVM-C has getters for few of a node's fields, and none for a variable's argument number. A node
//! is printed without a module here: no table of a module's metadata is made for that.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::slice::from_raw_parts;

use inkwell::llvm_sys::core::{
    LLVMDisposeMessage, LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMDString,
    LLVMMetadataAsValue, LLVMPrintValueToString, LLVMValueAsMetadata,
};
use inkwell::llvm_sys::debuginfo::{LLVMGetMetadataKind, LLVMMetadataKind};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef, LLVMValueRef};

/// The operands of a node, as values; null where there is none.
///
/// # Safety
/// A live node of the context.
pub(super) unsafe fn operands(context: LLVMContextRef, node: LLVMMetadataRef) -> Vec<LLVMValueRef> {
    // SAFETY: by the caller's promise; there is room for all operands.
    unsafe {
        let value = LLVMMetadataAsValue(context, node);
        let mut operands = vec![null_mut(); LLVMGetMDNodeNumOperands(value) as usize];
        LLVMGetMDNodeOperands(value, operands.as_mut_ptr());
        operands
    }
}

/// An operand of a node, as a value; `None` if there is none.
///
/// # Safety
/// A live node of the context.
pub(super) unsafe fn operand(
    context: LLVMContextRef,
    node: LLVMMetadataRef,
    index: usize,
) -> Option<LLVMValueRef> {
    // SAFETY: by the caller's promise.
    let found = *unsafe { operands(context, node) }.get(index)?;
    (!found.is_null()).then_some(found)
}

/// An operand that is a node; null if there is none.
///
/// # Safety
/// A live node of the context.
pub(super) unsafe fn child(
    context: LLVMContextRef,
    node: LLVMMetadataRef,
    index: usize,
) -> LLVMMetadataRef {
    // SAFETY: by the caller's promise; operands live as the node does.
    unsafe { operand(context, node, index).map_or(null_mut(), |found| LLVMValueAsMetadata(found)) }
}

/// Whether a node is a namespace, nested only in namespaces.
///
/// # Safety
/// Null, or a live node of the context.
pub(super) unsafe fn is_namespace(context: LLVMContextRef, node: LLVMMetadataRef) -> bool {
    /// Operand of a namespace: file, scope, name.
    const SCOPE: usize = 1;
    /// Namespaces in each other, at most.
    const DEPTH: usize = 100;
    let mut node = node;
    for _ in 0..DEPTH {
        // SAFETY: by the caller's promise; operands live as the node does.
        unsafe {
            let is_one = !node.is_null()
                && matches!(
                    LLVMGetMetadataKind(node),
                    LLVMMetadataKind::LLVMDINamespaceMetadataKind
                );
            if !is_one {
                return false;
            }
            node = child(context, node, SCOPE);
        }
        if node.is_null() {
            return true;
        }
    }
    false
}

/// The text of a metadata string.
///
/// # Safety
/// A live value.
pub(super) unsafe fn text(value: LLVMValueRef) -> Option<String> {
    let mut length = 0;
    // SAFETY: by the caller's promise; LLVM returns a string it keeps, or null.
    unsafe {
        let start = LLVMGetMDString(value, &mut length);
        let bytes = (!start.is_null()).then(|| from_raw_parts(start.cast(), length as usize))?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// A node as LLVM prints it, without the text in quotes.
///
/// # Safety
/// A live node of the context.
pub(super) unsafe fn printed(context: LLVMContextRef, node: LLVMMetadataRef) -> String {
    // SAFETY: by the caller's promise; the text is given back once.
    unsafe {
        let text = LLVMPrintValueToString(LLVMMetadataAsValue(context, node));
        let whole = CStr::from_ptr(text).to_string_lossy().into_owned();
        LLVMDisposeMessage(text);
        // A quote within a string is written as its number.
        whole.split('"').step_by(2).collect()
    }
}

/// The number that `field`, with its colon, has in the text of a node; 0 if it is not there.
pub(super) fn number(text: &str, field: &str) -> u32 {
    let digits = text.split(field).nth(1).map(str::trim_start);
    let digits = digits.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_those_of_their_fields() {
        let text = "!DILocalVariable(name: , arg: 12, scope: !4, line: 7)";
        assert_eq!(number(text, ", arg:"), 12);
        assert_eq!(number(text, ", line:"), 7);
        assert_eq!(number(text, ", align:"), 0);
        assert_eq!(number("arg:", "arg:"), 0);
    }
}
