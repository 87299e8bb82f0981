//! Jumps by addresses of labels, in code where these are places in label spaces (`labels`).
//!
//! ```text
//! while it is copied                  once the copy is complete
//! indirectbr ptr %p, [%a, %b]         %d = sub (ptrtoint %p), (ptrtoint @space + least)
//!   !uruk.labels !{@space, 3, 7}      %e = load ptr, (gep ptr, @table, %d)
//!                                     indirectbr ptr %e, [%a, %b]
//!                                     @table = [5 x ptr] [&&a, null, null, null, &&b]
//! ```
//!
//! The note lists the block numbers of the destinations in the original body. So the jump can be
//! copied, and its destinations exchanged, before its table is made.
//!
//! # Why
//! A jump uses a table of the version's own, not a switch: code generation duplicates an
//! `indirectbr` into the blocks that lead to it, which interpreters are written for.

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMAddGlobal, LLVMArrayType2, LLVMBlockAddress, LLVMBuildInBoundsGEP2, LLVMBuildLoad2,
    LLVMBuildPtrToInt, LLVMBuildSub, LLVMConstAdd, LLVMConstArray2, LLVMConstInt,
    LLVMConstIntGetZExtValue, LLVMConstNull, LLVMConstPtrToInt, LLVMGetMDKindIDInContext,
    LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMetadata, LLVMGetNumSuccessors,
    LLVMGetOperand, LLVMGetSuccessor, LLVMInt64TypeInContext, LLVMMDNodeInContext2,
    LLVMMetadataAsValue, LLVMPointerTypeInContext, LLVMPositionBuilderBefore,
    LLVMSetGlobalConstant, LLVMSetInitializer, LLVMSetLinkage, LLVMSetMetadata, LLVMSetOperand,
    LLVMSetUnnamedAddress, LLVMValueAsMetadata,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMModuleRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMLinkage, LLVMUnnamedAddr};
use rustc_hash::FxHashMap;

use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::handles::{FunctionRef, InstructionRef, ValueRef};

/// Tables of a function, by their destinations and the labels of these.
type Tables = FxHashMap<(Vec<LLVMBasicBlockRef>, Vec<u64>), LLVMValueRef>;

fn kind(context: &LlvmContext) -> u32 {
    let name = "uruk.labels";
    // SAFETY: a live context; pointer and length describe the name.
    unsafe { LLVMGetMDKindIDInContext(context.raw(), name.as_ptr().cast(), name.len() as u32) }
}

/// Notes the labels of the destinations of `jump`, an `indirectbr`, in a label space.
pub(crate) fn note(
    context: &LlvmContext,
    jump: InstructionRef<'_>,
    space: ValueRef<'_>,
    labels: impl Iterator<Item = u32>,
) {
    // SAFETY: all of the context; the space is a global of the module of the jump.
    unsafe {
        let number = LLVMInt64TypeInContext(context.raw());
        let labels = labels.map(|it| LLVMConstInt(number, it.into(), 0));
        let mut parts: Vec<_> = std::iter::once(space.raw())
            .chain(labels)
            .map(|it| LLVMValueAsMetadata(it))
            .collect();
        let node = LLVMMDNodeInContext2(context.raw(), parts.as_mut_ptr(), parts.len());
        let node = LLVMMetadataAsValue(context.raw(), node);
        LLVMSetMetadata(jump.raw(), kind(context), node);
    }
}

/// Makes the noted jumps of a module look their destinations up.
pub(crate) fn complete(context: &LlvmContext, module: &OwnedModule) {
    let kind = kind(context);
    for function in module.functions() {
        let mut tables = Tables::default();
        let ends: Vec<InstructionRef<'_>> = function
            .blocks()
            .filter_map(|block| block.terminator())
            .filter(|end| end.opcode() == LLVMOpcode::LLVMIndirectBr)
            .collect();
        for jump in ends {
            // SAFETY: a live instruction.
            let note = unsafe { ValueRef::from_raw(LLVMGetMetadata(jump.raw(), kind)) };
            if let Some(note) = note {
                // SAFETY: a jump of the function with its note.
                unsafe { complete_one(context, module, function, jump, note, &mut tables) };
                // SAFETY: as above.
                unsafe { LLVMSetMetadata(jump.raw(), kind, std::ptr::null_mut()) };
            }
        }
    }
}

/// # Safety
/// An `indirectbr` of the function, and its note.
unsafe fn complete_one(
    context: &LlvmContext,
    module: &OwnedModule,
    function: FunctionRef<'_>,
    jump: InstructionRef<'_>,
    note: ValueRef<'_>,
    tables: &mut Tables,
) {
    let name = c"".as_ptr();
    // SAFETY: by the caller's promise; the note is a space and as many numbers as destinations.
    unsafe {
        let count = LLVMGetMDNodeNumOperands(note.raw());
        let mut parts = vec![std::ptr::null_mut(); count as usize];
        LLVMGetMDNodeOperands(note.raw(), parts.as_mut_ptr());
        let Some((&space, labels)) = parts.split_first() else {
            return;
        };
        let labels: Vec<u64> = labels
            .iter()
            .map(|&it| LLVMConstIntGetZExtValue(it))
            .collect();
        let Some(&least) = labels.iter().min() else {
            return;
        };
        let to = 0..LLVMGetNumSuccessors(jump.raw());
        let to: Vec<_> = to.map(|at| LLVMGetSuccessor(jump.raw(), at)).collect();
        debug_assert_eq!(to.len(), labels.len());
        let table = *tables
            .entry((to, labels))
            .or_insert_with_key(|(to, labels)| {
                make_table(context, module.raw(), function, to, labels, least)
            });
        let builder = Builder::new(context);
        LLVMPositionBuilderBefore(builder.0, jump.raw());
        let number = LLVMInt64TypeInContext(context.raw());
        let pointer = LLVMPointerTypeInContext(context.raw(), 0);
        let least = LLVMConstInt(number, least, 0);
        let start = LLVMConstAdd(LLVMConstPtrToInt(space, number), least);
        let place = LLVMBuildPtrToInt(builder.0, LLVMGetOperand(jump.raw(), 0), number, name);
        let mut index = LLVMBuildSub(builder.0, place, start, name);
        let entry = LLVMBuildInBoundsGEP2(builder.0, pointer, table, &mut index, 1, name);
        let target = LLVMBuildLoad2(builder.0, pointer, entry, name);
        LLVMSetOperand(jump.raw(), 0, target);
    }
}

/// Makes a table of the addresses of blocks, by their labels.
///
/// # Safety
/// A live module of the context; blocks of its function, as many as labels, none of which is less than `least`.
pub(crate) unsafe fn make_table(
    context: &LlvmContext,
    module: LLVMModuleRef,
    function: FunctionRef<'_>,
    to: &[LLVMBasicBlockRef],
    labels: &[u64],
    least: u64,
) -> LLVMValueRef {
    // SAFETY: by the caller's promise; all of one context.
    unsafe {
        let pointer = LLVMPointerTypeInContext(context.raw(), 0);
        let greatest = labels.iter().max().copied().unwrap_or(least);
        let size = (greatest - least + 1) as usize;
        let mut entries = vec![LLVMConstNull(pointer); size];
        for (&block, label) in to.iter().zip(labels) {
            entries[(label - least) as usize] = LLVMBlockAddress(function.raw(), block);
        }
        let value = LLVMConstArray2(pointer, entries.as_mut_ptr(), size as u64);
        let ty = LLVMArrayType2(pointer, size as u64);
        let table = LLVMAddGlobal(module, ty, c"uruk.jumps".as_ptr());
        LLVMSetInitializer(table, value);
        LLVMSetLinkage(table, LLVMLinkage::LLVMPrivateLinkage);
        LLVMSetGlobalConstant(table, 1);
        LLVMSetUnnamedAddress(table, LLVMUnnamedAddr::LLVMGlobalUnnamedAddr);
        table
    }
}
