//! Removes hints that come from the compiler's level rather than from the author, and adds others.
//!
//! At `-O1` clang forbids the unrolling of every loop, by metadata, as that level does not unroll.
//! Hot code deserves more: above tier 1 the hint is removed, like `optnone` and `noinline` of
//! `-O0`. A function with some loop without the hint got its hints loop by loop from its author,
//! and is left as it is.
//!
//! Options of a variant that LLVM's code generation takes only from metadata are written here too,
//! once passes are done.

use inkwell::llvm_sys::core::{
    LLVMConstInt, LLVMConstIntGetZExtValue, LLVMGetMDKindIDInContext, LLVMGetMDNodeNumOperands,
    LLVMGetMDNodeOperands, LLVMGetMDString, LLVMGetMetadata, LLVMGlobalEraseMetadata,
    LLVMInt32TypeInContext, LLVMIsAConstantInt, LLVMMDNodeInContext2, LLVMMDStringInContext2,
    LLVMMetadataAsValue, LLVMSetMetadata, LLVMValueAsMetadata,
};
use inkwell::llvm_sys::debuginfo::{LLVMMetadataReplaceAllUsesWith, LLVMTemporaryMDNode};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef, LLVMValueRef};
use rustc_hash::FxHashMap;

use crate::context::{LlvmContext, OwnedModule};
use crate::flow::Flow;
use crate::handles::InstructionRef;

const HINT: &[u8] = b"llvm.loop.unroll.disable";

/// Alignment of the first block of loops: block placement takes it from the loop's metadata.
const ALIGNMENT: (&str, u64) = ("llvm.loop.align", 64);

/// Least trip count that the vectorizer assumes for loops: by it the vectorizer finds short ones.
const TRIPS: (&str, u64) = ("llvm.loop.estimated_trip_count", 16);

/// The number of a kind of metadata.
fn kind_of(context: &LlvmContext, name: &str) -> u32 {
    // SAFETY: a live context; pointer and length describe the name.
    unsafe { LLVMGetMDKindIDInContext(context.raw(), name.as_ptr().cast(), name.len() as u32) }
}

/// Aligns loops of the functions to multiples of 64 bytes. No pass comes after it.
pub(crate) fn align_loops(context: &LlvmContext, module: &OwnedModule) {
    let wish = property(context, ALIGNMENT);
    wish_for_loops(context, module, |_, _| Some(wish));
}

/// Keeps the vectorizer from taking a loop for shorter than [`TRIPS`] passes because of low counts.
///
/// The vectorizer makes shorter loops without a scalar loop for the remainder: each lane has a
/// conditional store. That costs more than the vectorizer assumes: Lua's `luaH_resize`, whose loop
/// stores a byte every 16, took five times as long with counts as without.
pub(crate) fn lengthen_loops(context: &LlvmContext, module: &OwnedModule) {
    let wish = property(context, TRIPS);
    let weights = Weights::of(context);
    wish_for_loops(context, module, |end, back| {
        let weights = weights.of_ways(end);
        let around = *weights.get(back)?;
        let out: u64 = weights.iter().sum::<u64>() - around;
        (around < out.saturating_mul(TRIPS.1)).then_some(wish)
    });
}

/// The weights of branches.
pub(crate) struct Weights {
    kind: u32,
}

impl Weights {
    pub(crate) fn of(context: &LlvmContext) -> Weights {
        Weights {
            kind: kind_of(context, "prof"),
        }
    }

    /// The weights of a terminator's ways; empty if it has none.
    pub(crate) fn of_ways(&self, end: InstructionRef<'_>) -> Vec<u64> {
        // SAFETY: a live terminator, whose weights are a node; only integer constants are asked for
        // their values.
        unsafe {
            let node = LLVMGetMetadata(end.raw(), self.kind);
            if node.is_null() {
                return Vec::new();
            }
            let numbers = operands(node).into_iter();
            let numbers = numbers.filter(|it| !it.is_null() && !LLVMIsAConstantInt(*it).is_null());
            numbers.map(|it| LLVMConstIntGetZExtValue(it)).collect()
        }
    }
}

/// A property of a loop: a name and a number.
fn property(context: &LlvmContext, (name, number): (&str, u64)) -> LLVMMetadataRef {
    let raw = context.raw();
    // SAFETY: a live context; pointers and lengths fit.
    unsafe {
        let number = LLVMConstInt(LLVMInt32TypeInContext(raw), number, 0);
        let name = LLVMMDStringInContext2(raw, name.as_ptr().cast(), name.len());
        let mut both = [name, LLVMValueAsMetadata(number)];
        LLVMMDNodeInContext2(raw, both.as_mut_ptr(), both.len())
    }
}

/// Adds a property to loops: `wish` is called with the end of each latch, and the index of its way
/// back.
fn wish_for_loops(
    context: &LlvmContext,
    module: &OwnedModule,
    wish: impl Fn(InstructionRef<'_>, usize) -> Option<LLVMMetadataRef>,
) {
    let kind = kind_of(context, "llvm.loop");
    let raw = context.raw();
    for function in module.functions().filter(|it| !it.is_declaration()) {
        let flow = Flow::of(function);
        let mut names: FxHashMap<u32, LLVMValueRef> = FxHashMap::default();
        for (latch, head) in flow.graph.back_edges() {
            let Some(end) = flow.blocks[latch as usize].terminator() else {
                continue;
            };
            let mut ways = flow.graph.successors(latch).iter();
            let back = ways.position(|&to| to == head).unwrap_or(0);
            let Some(wish) = wish(end, back) else {
                continue;
            };
            // SAFETY: a live terminator; the metadata of a loop is a node of the context.
            unsafe {
                let name = names.entry(head).or_insert_with(|| {
                    let old = LLVMGetMetadata(end.raw(), kind);
                    let had = match old.is_null() {
                        true => Vec::new(),
                        false => operands(old).into_iter().skip(1).collect(),
                    };
                    let had = had.into_iter().filter(|it: &LLVMValueRef| !it.is_null());
                    let had = had.map(|it| LLVMValueAsMetadata(it));
                    // Of two properties of one name the first counts.
                    named(raw, std::iter::once(wish).chain(had))
                });
                LLVMSetMetadata(end.raw(), kind, *name);
            }
        }
    }
}

/// Hides all counts from code generation. No pass comes after it.
pub(crate) fn forget_counts(context: &LlvmContext, module: &OwnedModule) {
    let kind = kind_of(context, "prof");
    for function in module.functions().filter(|it| !it.is_declaration()) {
        // SAFETY: a live function and its terminators; no node takes one away.
        unsafe {
            LLVMGlobalEraseMetadata(function.raw(), kind);
            for end in function.blocks().filter_map(|block| block.terminator()) {
                LLVMSetMetadata(end.raw(), kind, std::ptr::null_mut());
            }
        }
    }
}

/// Allows the loops of functions to be unrolled where only the level of the front end forbids it.
pub(crate) fn allow_unrolling(context: &LlvmContext, module: &OwnedModule) {
    let kind = kind_of(context, "llvm.loop");
    let mut others: FxHashMap<LLVMValueRef, LLVMValueRef> = FxHashMap::default();
    for function in module.functions().filter(|it| !it.is_declaration()) {
        let ends = function.blocks().filter_map(|block| block.terminator());
        // SAFETY: live instructions, here and below.
        let named = ends.map(|end| (end, unsafe { LLVMGetMetadata(end.raw(), kind) }));
        let named: Vec<_> = named.filter(|(_, node)| !node.is_null()).collect();
        // SAFETY: the metadata of a loop is a node.
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

/// True for the node of the hint.
///
/// # Safety
/// An operand of a loop's metadata; not null, except where the operand is null.
unsafe fn is_hint(property: LLVMValueRef) -> bool {
    use inkwell::llvm_sys::core::{LLVMIsAMDNode, LLVMIsAMDString};
    // SAFETY: by the caller's promise; each value is asked only for properties of its kind.
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
/// The metadata of a loop.
unsafe fn is_forbidden(node: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise. The first operand is the node itself.
    unsafe { operands(node).into_iter().skip(1).any(|it| is_hint(it)) }
}

/// Metadata for the same loop, without the hint.
///
/// # Safety
/// The metadata of a loop, of that context.
unsafe fn without_hint(context: LLVMContextRef, node: LLVMValueRef) -> LLVMValueRef {
    // SAFETY: by the caller's promise.
    unsafe {
        let rest = operands(node).into_iter().skip(1);
        let rest = rest.filter(|it| !it.is_null() && !is_hint(*it));
        named(context, rest.map(|it| LLVMValueAsMetadata(it)))
    }
}

/// Metadata for a loop, with these properties.
///
/// # Safety
/// All of a live context.
unsafe fn named(
    context: LLVMContextRef,
    properties: impl Iterator<Item = LLVMMetadataRef>,
) -> LLVMValueRef {
    // SAFETY: by the caller's promise. A node that contains itself is distinct from all others.
    unsafe {
        let own = LLVMTemporaryMDNode(context, std::ptr::null_mut(), 0);
        let mut all: Vec<_> = std::iter::once(own).chain(properties).collect();
        let new = LLVMMDNodeInContext2(context, all.as_mut_ptr(), all.len());
        LLVMMetadataReplaceAllUsesWith(own, new);
        LLVMMetadataAsValue(context, new)
    }
}
