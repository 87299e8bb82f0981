//! The sites of a body, and the probes that count at them.
//!
//! Probes are branch-free: a branch adds its condition, an indirect call compares with
//! the target before. An edge of a switch is counted where it arrives, by a phi that is
//! one on the switch's edges and zero on others: no edge is split, and the control flow
//! of the probed body is that of the original.

use inkwell::llvm_sys::core::{
    LLVMAddGlobal, LLVMAddIncoming, LLVMArrayType2, LLVMBuildAdd, LLVMBuildICmp, LLVMBuildLoad2,
    LLVMBuildPhi, LLVMBuildPtrToInt, LLVMBuildStore, LLVMBuildZExt, LLVMConstInBoundsGEP2,
    LLVMConstInt, LLVMCreateBuilderInContext, LLVMGetBasicBlockTerminator, LLVMGetCalledValue,
    LLVMGetCondition, LLVMGetEnumAttributeKindForName, LLVMGetFirstBasicBlock,
    LLVMGetFirstInstruction, LLVMGetInstructionOpcode, LLVMGetInstructionParent,
    LLVMGetNextBasicBlock, LLVMGetNextInstruction, LLVMGetNumSuccessors, LLVMGetSuccessor,
    LLVMInt64TypeInContext, LLVMIsAInlineAsm, LLVMIsConditional, LLVMIsConstant,
    LLVMPositionBuilderBefore, LLVMRemoveEnumAttributeAtIndex, LLVMSetAlignment, LLVMSetLinkage,
    LLVMSetVisibility,
};
use inkwell::llvm_sys::prelude::{
    LLVMBasicBlockRef, LLVMContextRef, LLVMModuleRef, LLVMTypeRef, LLVMValueRef,
};
use inkwell::llvm_sys::{
    LLVMAttributeFunctionIndex, LLVMIntPredicate, LLVMLinkage, LLVMOpcode, LLVMVisibility,
};
use rustc_hash::FxHashMap;

use crate::body::is_call;
use crate::extract::Builder;
use crate::profile::{PROBES, Probes, Site};
use crate::reader::c_name;

/// The sites of a body in layout order, each with its instruction.
///
/// # Safety
/// `function` is a live function with a well-formed body.
pub(crate) unsafe fn sites(function: LLVMValueRef) -> Vec<(Site, LLVMValueRef)> {
    let mut found = Vec::new();
    // SAFETY: walks blocks and instructions of a live function.
    unsafe {
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                found.extend(site(instruction).map(|site| (site, instruction)));
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    found
}

/// # Safety
/// A live instruction.
unsafe fn site(instruction: LLVMValueRef) -> Option<Site> {
    // SAFETY: by the caller's promise; each question fits the opcode.
    unsafe {
        match LLVMGetInstructionOpcode(instruction) {
            LLVMOpcode::LLVMBr => (LLVMIsConditional(instruction) != 0).then_some(Site::Branch),
            LLVMOpcode::LLVMSwitch | LLVMOpcode::LLVMIndirectBr => {
                let ways = ways(instruction).len() as u32;
                Some(Site::Switch { ways })
            }
            opcode if is_call(opcode) => {
                let callee = LLVMGetCalledValue(instruction);
                let direct = LLVMIsConstant(callee) != 0 || !LLVMIsAInlineAsm(callee).is_null();
                (!direct).then_some(Site::Call)
            }
            _ => None,
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

/// Makes `body` count; what its probes are. `None`, and no change, if there would be
/// too many.
///
/// # Safety
/// A live context and module of it, and a function of that module with a well-formed
/// body that is neither naked nor a coroutine to be split.
pub(crate) unsafe fn insert(
    context: LLVMContextRef,
    module: LLVMModuleRef,
    body: LLVMValueRef,
) -> Option<Probes> {
    // SAFETY: by the caller's promise.
    let found = unsafe { sites(body) };
    let probes = Probes::of(found.iter().map(|&(site, _)| site).collect())?;
    // SAFETY: as above; the builder is ours. Probes are put before instructions of
    // `body`, and sites stay what they are.
    unsafe {
        let word = LLVMInt64TypeInContext(context);
        let writer = Writer {
            builder: Builder(LLVMCreateBuilderInContext(context)),
            word,
            words: declare(module, word, probes.words()),
        };
        let entry = LLVMGetFirstInstruction(LLVMGetFirstBasicBlock(body));
        let one = LLVMConstInt(word, 1, 0);
        LLVMPositionBuilderBefore(writer.builder.0, entry);
        writer.add(0, one);
        let edges = edges(body);
        for ((_, instruction), (site, first)) in found.into_iter().zip(probes.places()) {
            match site {
                Site::Branch => writer.count_branch(instruction, first),
                Site::Switch { .. } => writer.count_switch(instruction, first, &edges),
                Site::Call => writer.count_call(instruction, first),
            }
        }
        forget_purity(body);
    }
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

/// Drops the claims of a function that counting breaks.
///
/// # Safety
/// A live function.
unsafe fn forget_purity(body: LLVMValueRef) {
    for name in ["memory", "speculatable"] {
        // SAFETY: by the caller's promise; pointer and length describe the name.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
            LLVMRemoveEnumAttributeAtIndex(body, LLVMAttributeFunctionIndex, kind);
        }
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

struct Writer {
    builder: Builder,
    word: LLVMTypeRef,
    words: LLVMValueRef,
}

impl Writer {
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
        // SAFETY: by the caller's promise; what is called is a pointer.
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
