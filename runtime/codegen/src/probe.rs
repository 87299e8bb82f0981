//! The sites of a body, and the probes that count at them.
//!
//! Probes are branch-free: a branch adds its condition, an indirect call compares with the target
//! before. An edge of a switch is counted where it arrives, by a phi that is one on the switch's
//! edges and zero on others. No edge is split, so the control flow of the probed body is that of
//! the original. Arguments vote at the entry, by two selects.

use inkwell::llvm_sys::core::{
    LLVMAddGlobal, LLVMAddIncoming, LLVMArrayType2, LLVMBuildAdd, LLVMBuildBitCast, LLVMBuildICmp,
    LLVMBuildLoad2, LLVMBuildPhi, LLVMBuildPtrToInt, LLVMBuildSelect, LLVMBuildStore,
    LLVMBuildZExt, LLVMConstInBoundsGEP2, LLVMConstInt, LLVMGetBasicBlockTerminator,
    LLVMGetCalledValue, LLVMGetCondition, LLVMGetEnumAttributeKindForName, LLVMGetFirstBasicBlock,
    LLVMGetFirstInstruction, LLVMGetInstructionOpcode, LLVMGetInstructionParent,
    LLVMGetNextBasicBlock, LLVMGetNextInstruction, LLVMGetNumSuccessors, LLVMGetParam,
    LLVMGetSuccessor, LLVMInt64TypeInContext, LLVMIntTypeInContext, LLVMIsAInlineAsm,
    LLVMIsConditional, LLVMIsConstant, LLVMPositionBuilderBefore, LLVMSetAlignment, LLVMSetLinkage,
    LLVMSetVisibility,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMModuleRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMIntPredicate, LLVMLinkage, LLVMOpcode, LLVMVisibility};
use rustc_hash::FxHashMap;

use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::handles::{FunctionRef, InstructionRef, c_name};
use crate::profile::{PROBES, Probes, Site};
use crate::values;

/// The sites of a body in layout order, each with its instruction.
pub(crate) fn sites(function: FunctionRef<'_>) -> Vec<(Site, InstructionRef<'_>)> {
    let instructions = function.instructions();
    instructions
        .filter_map(|instruction| Some((site(instruction)?, instruction)))
        .collect()
}

fn site(instruction: InstructionRef<'_>) -> Option<Site> {
    match instruction.opcode() {
        LLVMOpcode::LLVMBr => {
            // SAFETY: a live branch.
            let conditional = unsafe { LLVMIsConditional(instruction.raw()) } != 0;
            conditional.then_some(Site::Branch)
        }
        LLVMOpcode::LLVMSwitch | LLVMOpcode::LLVMIndirectBr => {
            // SAFETY: a live terminator.
            let ways = unsafe { ways(instruction.raw()) }.len() as u32;
            Some(Site::Switch { ways })
        }
        _ => {
            let callee = instruction.callee()?.raw();
            // SAFETY: a live value.
            let direct =
                unsafe { LLVMIsConstant(callee) != 0 || !LLVMIsAInlineAsm(callee).is_null() };
            (!direct).then_some(Site::Call)
        }
    }
}

/// The distinct successors of a terminator, in their order, each with the number of
/// edges to it.
///
/// # Safety
/// A live terminator.
pub(crate) unsafe fn ways(terminator: LLVMValueRef) -> Vec<(LLVMBasicBlockRef, u32)> {
    let mut found: Vec<(LLVMBasicBlockRef, u32)> = Vec::new();
    let mut places: FxHashMap<LLVMBasicBlockRef, usize> = FxHashMap::default();
    // SAFETY: by the caller's promise; indices are below the count.
    unsafe {
        for index in 0..LLVMGetNumSuccessors(terminator) {
            let block = LLVMGetSuccessor(terminator, index);
            let place = *places.entry(block).or_insert(found.len());
            match found.get_mut(place) {
                Some((_, edges)) => *edges += 1,
                None => found.push((block, 1)),
            }
        }
    }
    found
}

/// Inserts probes into `body`; returns their layout. `None`, and no change, if they would need too
/// many words.
///
/// # Safety
/// All is of one context, and the function has a well-formed body that is neither naked nor a
/// coroutine to be split.
pub(crate) unsafe fn insert(
    context: &LlvmContext,
    module: &OwnedModule,
    body: FunctionRef<'_>,
) -> Option<Probes> {
    let found = sites(body);
    let watched = values::watched(body);
    let probes = Probes::of(
        found.iter().map(|&(site, _)| site).collect(),
        watched.iter().map(|&(argument, _)| argument).collect(),
    )?;
    // SAFETY: by the caller's promise; the builder is ours. Probes are put before instructions
    // of `body`, and sites stay what they are.
    unsafe {
        let word = LLVMInt64TypeInContext(context.raw());
        let writer = ProbeWriter {
            builder: Builder::new(context),
            word,
            words: declare(module.raw(), word, probes.words()),
        };
        let entry = LLVMGetFirstInstruction(LLVMGetFirstBasicBlock(body.raw()));
        let one = LLVMConstInt(word, 1, 0);
        LLVMPositionBuilderBefore(writer.builder.0, entry);
        writer.add(0, one);
        for (&(argument, width), (_, first)) in watched.iter().zip(probes.watched()) {
            let number = LLVMIntTypeInContext(context.raw(), width);
            writer.vote(LLVMGetParam(body.raw(), argument), number, first);
        }
        let edges = edges(body.raw());
        for ((_, instruction), (site, first)) in found.into_iter().zip(probes.places()) {
            match site {
                Site::Branch => writer.count_branch(instruction.raw(), first),
                Site::Switch { .. } => writer.count_switch(instruction.raw(), first, &edges),
                Site::Call => writer.count_call(instruction.raw(), first),
            }
        }
    }
    forget_purity(body);
    Some(probes)
}

/// The declaration of [`PROBES`]: hidden, so that it is reached relative to the
/// program counter.
///
/// # Safety
/// A live module, and a type of its context.
unsafe fn declare(module: LLVMModuleRef, word: LLVMTypeRef, words: u32) -> LLVMValueRef {
    let name = c_name(PROBES);
    // SAFETY: by the caller's promise; the name is a C string.
    unsafe {
        let ty = LLVMArrayType2(word, u64::from(words));
        let global = LLVMAddGlobal(module, ty, name.as_ptr());
        LLVMSetLinkage(global, LLVMLinkage::LLVMExternalLinkage);
        LLVMSetVisibility(global, LLVMVisibility::LLVMHiddenVisibility);
        LLVMSetAlignment(global, 8);
        global
    }
}

/// Removes attributes of a function that counting invalidates.
fn forget_purity(body: FunctionRef<'_>) {
    for name in ["memory", "speculatable"] {
        // SAFETY: pointer and length describe the name.
        body.remove(unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) });
    }
}

/// The blocks each block is entered from, once per edge.
///
/// # Safety
/// A live function with a well-formed body.
unsafe fn edges(body: LLVMValueRef) -> FxHashMap<LLVMBasicBlockRef, Vec<LLVMBasicBlockRef>> {
    let mut edges: FxHashMap<_, Vec<_>> = FxHashMap::default();
    // SAFETY: walks the blocks of a live function; each has a terminator.
    unsafe {
        let mut block = LLVMGetFirstBasicBlock(body);
        while !block.is_null() {
            let end = LLVMGetBasicBlockTerminator(block);
            for index in 0..LLVMGetNumSuccessors(end) {
                let to = LLVMGetSuccessor(end, index);
                edges.entry(to).or_default().push(block);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    edges
}

struct ProbeWriter {
    builder: Builder,
    word: LLVMTypeRef,
    words: LLVMValueRef,
}

impl ProbeWriter {
    /// # Safety
    /// `index` is one of the words.
    unsafe fn place(&self, index: u32) -> LLVMValueRef {
        // SAFETY: by the caller's promise.
        unsafe {
            let mut offset = LLVMConstInt(self.word, u64::from(index), 0);
            LLVMConstInBoundsGEP2(self.word, self.words, &mut offset, 1)
        }
    }

    /// Adds `amount` to word `index`.
    ///
    /// # Safety
    /// The builder is positioned where `amount`, a word, is defined.
    unsafe fn add(&self, index: u32, amount: LLVMValueRef) {
        // SAFETY: by the caller's promise.
        unsafe {
            let place = self.place(index);
            let old = LLVMBuildLoad2(self.builder.0, self.word, place, c"".as_ptr());
            let new = LLVMBuildAdd(self.builder.0, old, amount, c"".as_ptr());
            LLVMBuildStore(self.builder.0, new, place);
        }
    }

    /// Makes an argument vote for its value.
    ///
    /// # Safety
    /// The builder is positioned in the argument's body, whose bits the type `number` has, and
    /// `first` is the first of its words.
    unsafe fn vote(&self, argument: LLVMValueRef, number: LLVMTypeRef, first: u32) {
        // SAFETY: by the caller's promise; a number has at most as many bits as a word.
        unsafe {
            let builder = self.builder.0;
            let bits = LLVMBuildBitCast(builder, argument, number, c"".as_ptr());
            let given = LLVMBuildZExt(builder, bits, self.word, c"".as_ptr());
            let (leader, lead) = (self.place(first), self.place(first + 1));
            let before = LLVMBuildLoad2(builder, self.word, leader, c"".as_ptr());
            let votes = LLVMBuildLoad2(builder, self.word, lead, c"".as_ptr());
            let (equal, zero) = (LLVMIntPredicate::LLVMIntEQ, LLVMConstInt(self.word, 0, 0));
            let free = LLVMBuildICmp(builder, equal, votes, zero, c"".as_ptr());
            let now = LLVMBuildSelect(builder, free, given, before, c"".as_ptr());
            let same = LLVMBuildICmp(builder, equal, now, given, c"".as_ptr());
            let (one, less) = (
                LLVMConstInt(self.word, 1, 0),
                LLVMConstInt(self.word, u64::MAX, 1),
            );
            let vote = LLVMBuildSelect(builder, same, one, less, c"".as_ptr());
            LLVMBuildStore(builder, now, leader);
            self.add(first + 1, vote);
        }
    }

    /// # Safety
    /// A live conditional branch, and the first of its words.
    unsafe fn count_branch(&self, branch: LLVMValueRef, first: u32) {
        // SAFETY: by the caller's promise; the condition is one bit.
        unsafe {
            LLVMPositionBuilderBefore(self.builder.0, branch);
            let condition = LLVMGetCondition(branch);
            let taken = LLVMBuildZExt(self.builder.0, condition, self.word, c"".as_ptr());
            self.add(first, LLVMConstInt(self.word, 1, 0));
            self.add(first + 1, taken);
        }
    }

    /// # Safety
    /// A live switch or computed goto, the first of its words, and the edges of its
    /// function.
    unsafe fn count_switch(
        &self,
        terminator: LLVMValueRef,
        first: u32,
        edges: &FxHashMap<LLVMBasicBlockRef, Vec<LLVMBasicBlockRef>>,
    ) {
        // SAFETY: by the caller's promise. A successor of these terminators is no
        // exception pad, so it takes instructions behind its phis; a new phi has one
        // entry per edge.
        unsafe {
            let from = LLVMGetInstructionParent(terminator);
            let one = LLVMConstInt(self.word, 1, 0);
            let zero = LLVMConstInt(self.word, 0, 0);
            for ((to, _), index) in ways(terminator).into_iter().zip(first..) {
                let mut blocks = edges[&to].clone();
                let amount = if blocks.iter().all(|&block| block == from) {
                    one
                } else {
                    LLVMPositionBuilderBefore(self.builder.0, LLVMGetFirstInstruction(to));
                    let phi = LLVMBuildPhi(self.builder.0, self.word, c"".as_ptr());
                    let amount = |&block| if block == from { one } else { zero };
                    let mut amounts: Vec<LLVMValueRef> = blocks.iter().map(amount).collect();
                    let count = blocks.len() as u32;
                    LLVMAddIncoming(phi, amounts.as_mut_ptr(), blocks.as_mut_ptr(), count);
                    phi
                };
                LLVMPositionBuilderBefore(self.builder.0, behind_phis(to));
                self.add(index, amount);
            }
        }
    }

    /// # Safety
    /// A live indirect call, and the first of its words.
    unsafe fn count_call(&self, call: LLVMValueRef, first: u32) {
        // SAFETY: by the caller's promise; the callee is a pointer.
        unsafe {
            let builder = self.builder.0;
            LLVMPositionBuilderBefore(builder, call);
            let callee = LLVMGetCalledValue(call);
            let target = LLVMBuildPtrToInt(builder, callee, self.word, c"".as_ptr());
            let last = self.place(first);
            let before = LLVMBuildLoad2(builder, self.word, last, c"".as_ptr());
            let equal = LLVMIntPredicate::LLVMIntEQ;
            let same = LLVMBuildICmp(builder, equal, before, target, c"".as_ptr());
            let same = LLVMBuildZExt(builder, same, self.word, c"".as_ptr());
            LLVMBuildStore(builder, target, last);
            self.add(first + 1, same);
            self.add(first + 2, LLVMConstInt(self.word, 1, 0));
        }
    }
}

/// The first instruction of a block that is no phi.
///
/// # Safety
/// A live, well-formed block.
unsafe fn behind_phis(block: LLVMBasicBlockRef) -> LLVMValueRef {
    // SAFETY: by the caller's promise there is a terminator, which is no phi.
    unsafe {
        let mut instruction = LLVMGetFirstInstruction(block);
        while LLVMGetInstructionOpcode(instruction) == LLVMOpcode::LLVMPHI {
            instruction = LLVMGetNextInstruction(instruction);
        }
        instruction
    }
}
