//! Hints to passes that say how a module was compiled, not what its author wants.
//!
//! At `-O1` clang forbids the unrolling of every loop, by metadata, as that level does not unroll.
//! Code that turned out to be hot is worth more: above tier 1 the hint goes, as `optnone` and
//! `noinline` of `-O0` do. A function in which some loop does not have it was told so loop by
//! loop, and is left as it is.

use inkwell::llvm_sys::core::{
    LLVMGetMDKindIDInContext, LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMDString,
    LLVMGetMetadata, LLVMMDNodeInContext2, LLVMMetadataAsValue, LLVMSetMetadata,
    LLVMValueAsMetadata,
};
use inkwell::llvm_sys::debuginfo::{LLVMMetadataReplaceAllUsesWith, LLVMTemporaryMDNode};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMValueRef};
use rustc_hash::FxHashMap;

use crate::context::{LlvmContext, OwnedModule};

const HINT: &[u8] = b"llvm.loop.unroll.disable";

/// Allows the loops of functions to be unrolled where nothing but the level of the frontend
/// forbids it.
pub(crate) fn allow_unrolling(context: &LlvmContext, module: &OwnedModule) {
    let name = "llvm.loop";
    // SAFETY: a live context; pointer and length describe the name.
    let kind = unsafe {
        let (name, length) = (name.as_ptr().cast(), name.len() as u32);
        LLVMGetMDKindIDInContext(context.raw(), name, length)
    };
    let mut others: FxHashMap<LLVMValueRef, LLVMValueRef> = FxHashMap::default();
    for function in module.functions().filter(|it| !it.is_declaration()) {
        let ends = function.blocks().filter_map(|block| block.terminator());
        // SAFETY: live instructions, here and below.
        let named = ends.map(|end| (end, unsafe { LLVMGetMetadata(end.raw(), kind) }));
        let named: Vec<_> = named.filter(|(_, node)| !node.is_null()).collect();
        // SAFETY: what names a loop is a node.
        let all = named.iter().all(|(_, node)| unsafe { is_forbidden(*node) });
        if !all {
            continue;
        }
        for (end, node) in named {
            // SAFETY: as above; latches of one loop have one node.
            unsafe {
                let other = others.entry(node);
                let other = *other.or_insert_with(|| without_hint(context.raw(), node));
                LLVMSetMetadata(end.raw(), kind, other);
            }
        }
    }
}

/// The operands of a node.
///
/// # Safety
/// A node, as a value.
unsafe fn operands(node: LLVMValueRef) -> Vec<LLVMValueRef> {
    // SAFETY: by the caller's promise; there is room for the count.
    unsafe {
        let mut operands = vec![std::ptr::null_mut(); LLVMGetMDNodeNumOperands(node) as usize];
        LLVMGetMDNodeOperands(node, operands.as_mut_ptr());
        operands
    }
}

/// True for a node that is the hint.
///
/// # Safety
/// An operand of what names a loop; never null but for operands that are.
unsafe fn is_hint(property: LLVMValueRef) -> bool {
    use inkwell::llvm_sys::core::{LLVMIsAMDNode, LLVMIsAMDString};
    // SAFETY: by the caller's promise; each question is asked of what it is about.
    unsafe {
        if property.is_null() || LLVMIsAMDNode(property).is_null() {
            return false;
        }
        let [text] = operands(property)[..] else {
            return false;
        };
        if text.is_null() || LLVMIsAMDString(text).is_null() {
            return false;
        }
        let mut length = 0;
        let start = LLVMGetMDString(text, &mut length);
        std::slice::from_raw_parts(start.cast::<u8>(), length as usize) == HINT
    }
}

/// # Safety
/// What names a loop.
unsafe fn is_forbidden(node: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise. The first operand is the node itself.
    unsafe { operands(node).into_iter().skip(1).any(|it| is_hint(it)) }
}

/// A name for the same loop, without the hint.
///
/// # Safety
/// What names a loop, of that context.
unsafe fn without_hint(context: LLVMContextRef, node: LLVMValueRef) -> LLVMValueRef {
    // SAFETY: by the caller's promise. A node that names itself is told apart from all others.
    unsafe {
        let own = LLVMTemporaryMDNode(context, std::ptr::null_mut(), 0);
        let rest = operands(node).into_iter().skip(1);
        let rest = rest.filter(|it| !it.is_null() && !is_hint(*it));
        let rest = rest.map(|it| LLVMValueAsMetadata(it));
        let mut all: Vec<_> = std::iter::once(own).chain(rest).collect();
        let new = LLVMMDNodeInContext2(context, all.as_mut_ptr(), all.len());
        LLVMMetadataReplaceAllUsesWith(own, new);
        LLVMMetadataAsValue(context, new)
    }
}
