//! Copies a function's attributes to its continuation, where they hold.

use inkwell::llvm_sys::LLVMAttributeFunctionIndex;
use inkwell::llvm_sys::core::{
    LLVMAddAttributeAtIndex, LLVMGetAttributeCountAtIndex, LLVMGetAttributesAtIndex,
    LLVMGetEnumAttributeKind, LLVMGetEnumAttributeKindForName, LLVMGetStringAttributeKind,
    LLVMIsStringAttribute,
};
use inkwell::llvm_sys::prelude::{LLVMAttributeRef, LLVMValueRef};

/// Attributes that do not hold of a continuation: it reads memory of the old frame, and its
/// arguments are others.
const DROPPED: [&str; 5] = [
    "memory",
    "speculatable",
    "allocsize",
    "allockind",
    "alwaysinline",
];

/// String attributes that do not hold of a continuation. The hooks of entry and exit are called in
/// the old frame.
const DROPPED_TEXTS: [&str; 8] = [
    "uruk.entry",
    "uruk.entry.of",
    "uruk.exit",
    "uruk.exit.of",
    "fentry-call",
    "mnop-mcount",
    "mrecord-mcount",
    "alloc-family",
];
/// Copies the attributes of a function, except those that do not hold of a continuation.
///
/// # Safety
/// Functions of one context, with one return type.
pub(super) unsafe fn copy_promises(old: LLVMValueRef, new: LLVMValueRef) {
    let dropped = DROPPED.map(|name| {
        // SAFETY: pointer and length describe the name.
        unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
    });
    let holds = |attribute: LLVMAttributeRef| {
        // SAFETY: a live attribute, asked only for properties of its kind.
        unsafe {
            if LLVMIsStringAttribute(attribute) == 0 {
                return !dropped.contains(&LLVMGetEnumAttributeKind(attribute));
            }
            let mut length = 0;
            let key = LLVMGetStringAttributeKind(attribute, &mut length);
            let key = std::slice::from_raw_parts(key.cast::<u8>(), length as usize);
            !DROPPED_TEXTS.iter().any(|it| it.as_bytes() == key)
        }
    };
    // The function itself, and its result.
    for index in [LLVMAttributeFunctionIndex, 0] {
        // SAFETY: by the caller's promise; the buffer has room for the count.
        unsafe {
            let count = LLVMGetAttributeCountAtIndex(old, index) as usize;
            let mut found: Vec<LLVMAttributeRef> = vec![std::ptr::null_mut(); count];
            if count != 0 {
                LLVMGetAttributesAtIndex(old, index, found.as_mut_ptr());
            }
            for attribute in found.into_iter().filter(|it| holds(*it)) {
                LLVMAddAttributeAtIndex(new, index, attribute);
            }
        }
    }
}
