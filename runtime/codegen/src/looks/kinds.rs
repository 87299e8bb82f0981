//! Numbers and metadata nodes of one context that mark code with looks.

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMConstInt, LLVMGetEnumAttributeKindForName, LLVMGetMDKindIDInContext,
    LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMetadata, LLVMInt32TypeInContext,
    LLVMInt64TypeInContext, LLVMMDNodeInContext2, LLVMMDStringInContext2, LLVMMetadataAsValue,
    LLVMSetMetadata, LLVMValueAsMetadata,
};
use inkwell::llvm_sys::prelude::{LLVMMetadataRef, LLVMValueRef};

use super::PROMISES;
use crate::context::{LlvmContext, OwnedModule};
use crate::handles::FunctionRef;

/// Weight of the branch with fuel left, against 1 without.
const OFTEN: u64 = 1 << 20;

/// Most nested types of memory.
const DEPTH: usize = 100;

/// Kinds and nodes of one context.
pub(super) struct Kinds {
    pub(super) naked: u32,
    pub(super) promises: Vec<u32>,
    /// Kinds of metadata: types of memory, weights of branches, properties of loops.
    pub(super) memory: u32,
    pub(super) weights: u32,
    pub(super) loops: u32,
    /// The type of memory that the word has.
    pub(super) word: LLVMValueRef,
    /// The type of all other accesses, in a module without types of memory.
    other: Option<LLVMValueRef>,
    /// Weights of a branch that is seldom taken.
    pub(super) seldom: LLVMValueRef,
}

impl Kinds {
    pub(super) fn of(context: &LlvmContext, module: &OwnedModule) -> Kinds {
        let memory = kind(context, "tbaa");
        let known = module
            .functions()
            .flat_map(FunctionRef::instructions)
            // SAFETY: a live instruction; null if it has none.
            .map(|instruction| unsafe { LLVMGetMetadata(instruction.raw(), memory) })
            .find(|tag| !tag.is_null());
        let root = known.and_then(root_of);
        // SAFETY: nodes of the context, as all below.
        let (root, shared) = unsafe {
            match root {
                Some(root) => (root, true),
                None => (node(context, &mut [text(context, "uruk memory")]), false),
            }
        };
        Kinds {
            naked: attribute("naked"),
            promises: PROMISES.iter().map(|name| attribute(name)).collect(),
            memory,
            weights: kind(context, "prof"),
            loops: kind(context, "llvm.loop"),
            word: tag(context, root, "uruk passes"),
            other: (!shared).then(|| tag(context, root, "uruk other")),
            seldom: seldom(context),
        }
    }

    /// Marks a function's untyped accesses as other memory than the word.
    pub(super) fn mark(&self, function: FunctionRef<'_>) {
        let Some(other) = self.other else {
            return;
        };
        for instruction in function.instructions() {
            let accesses = match instruction.opcode() {
                LLVMOpcode::LLVMLoad
                | LLVMOpcode::LLVMStore
                | LLVMOpcode::LLVMAtomicRMW
                | LLVMOpcode::LLVMAtomicCmpXchg => true,
                LLVMOpcode::LLVMCall => instruction
                    .callee()
                    .is_some_and(|callee| callee.name().starts_with("llvm.mem")),
                _ => false,
            };
            if accesses {
                // SAFETY: a live instruction that accesses memory, and a node of its context.
                unsafe { LLVMSetMetadata(instruction.raw(), self.memory, other) };
            }
        }
    }
}

/// The number of an attribute.
pub(super) fn attribute(name: &str) -> u32 {
    // SAFETY: pointer and length describe `name`.
    unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
}

fn kind(context: &LlvmContext, name: &str) -> u32 {
    // SAFETY: a live context; pointer and length describe `name`.
    unsafe { LLVMGetMDKindIDInContext(context.raw(), name.as_ptr().cast(), name.len() as u32) }
}

fn text(context: &LlvmContext, text: &str) -> LLVMMetadataRef {
    // SAFETY: a live context; pointer and length describe the text.
    unsafe { LLVMMDStringInContext2(context.raw(), text.as_ptr().cast(), text.len()) }
}

/// # Safety
/// Operands of the context.
unsafe fn node(context: &LlvmContext, operands: &mut [LLVMMetadataRef]) -> LLVMMetadataRef {
    // SAFETY: by the caller's promise.
    unsafe { LLVMMDNodeInContext2(context.raw(), operands.as_mut_ptr(), operands.len()) }
}

/// The mark for an access of a type of memory of that name, right below `root`.
fn tag(context: &LlvmContext, root: LLVMMetadataRef, name: &str) -> LLVMValueRef {
    // SAFETY: nodes of the context.
    unsafe {
        let zero = LLVMConstInt(LLVMInt64TypeInContext(context.raw()), 0, 0);
        let zero = LLVMValueAsMetadata(zero);
        let ty = node(context, &mut [text(context, name), root, zero]);
        let tag = node(context, &mut [ty, ty, zero]);
        LLVMMetadataAsValue(context.raw(), tag)
    }
}

fn seldom(context: &LlvmContext) -> LLVMValueRef {
    // SAFETY: nodes of the context.
    unsafe {
        let number = LLVMInt32TypeInContext(context.raw());
        let weight = |weight| LLVMValueAsMetadata(LLVMConstInt(number, weight, 0));
        let mut weights = [text(context, "branch_weights"), weight(1), weight(OFTEN)];
        LLVMMetadataAsValue(context.raw(), node(context, &mut weights))
    }
}

/// The root of the types of memory, found from the mark of an access.
fn root_of(tag: LLVMValueRef) -> Option<LLVMMetadataRef> {
    let parts = |node: LLVMValueRef| -> Vec<LLVMValueRef> {
        // SAFETY: a live node; there is room for all of its operands.
        unsafe {
            let count = LLVMGetMDNodeNumOperands(node) as usize;
            let mut parts = vec![std::ptr::null_mut(); count];
            LLVMGetMDNodeOperands(node, parts.as_mut_ptr());
            parts
        }
    };
    // The accessed type; then each type's parent, or first member.
    let mut node = *parts(tag).get(1)?;
    for _ in 0..DEPTH {
        match parts(node).get(1) {
            None => {
                use inkwell::llvm_sys::core::LLVMValueAsMetadata as metadata;
                // SAFETY: a live node, as metadata is shown.
                return Some(unsafe { metadata(node) });
            }
            Some(above) if above.is_null() => return None,
            Some(&above) => node = above,
        }
    }
    None
}
