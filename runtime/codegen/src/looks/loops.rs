//! Inserts looks at the ends of loops, and the outer loops in which they ask.

use std::collections::HashSet;

use inkwell::llvm_sys::core::{
    LLVMAddIncoming, LLVMAppendBasicBlockInContext, LLVMBasicBlockAsValue, LLVMBlockAddress,
    LLVMBuildAlloca, LLVMBuildAnd, LLVMBuildBr, LLVMBuildCondBr, LLVMBuildICmp, LLVMBuildLoad2,
    LLVMBuildNot, LLVMBuildPhi, LLVMConstInt, LLVMCountIncoming, LLVMGetBasicBlockTerminator,
    LLVMGetCondition, LLVMGetFirstInstruction, LLVMGetIncomingBlock, LLVMGetIncomingValue,
    LLVMGetInstructionOpcode, LLVMGetInstructionParent, LLVMGetNextInstruction,
    LLVMGetNumSuccessors, LLVMGetSuccessor, LLVMInsertBasicBlockInContext, LLVMInsertIntoBuilder,
    LLVMInstructionClone, LLVMInstructionEraseFromParent, LLVMInt64TypeInContext,
    LLVMPositionBuilderAtEnd, LLVMPositionBuilderBefore, LLVMReplaceAllUsesWith, LLVMSetMetadata,
    LLVMSetSuccessor, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMIntPredicate, LLVMOpcode};

use super::is_plain;
use super::nests::Nests;
use super::writer::{CheckWriter, Word};
use crate::flow::Flow;
use crate::handles::ValueRef;

/// A latch that looks.
struct Latch {
    /// The rest of the latch: its terminator.
    block: LLVMBasicBlockRef,
    /// The block that asks, and goes on at `block`.
    ask: LLVMBasicBlockRef,
}

impl CheckWriter<'_> {
    /// Inserts looks into the function's loops.
    pub(super) fn loops(&mut self) {
        let flow = Flow::of(self.function);
        let back = flow.graph.back_edges();
        let nests = Nests::of(&flow, &back);
        self.keep(&flow, &nests);
        let mut first: Vec<LLVMBasicBlockRef> = flow.blocks.iter().map(|it| it.raw()).collect();
        let mut latches: Vec<Option<Latch>> = Vec::new();
        latches.resize_with(first.len(), || None);
        for &(from, to) in &back {
            let at = from as usize;
            if latches[at].is_some() {
                continue;
            }
            let block = flow.blocks[at].raw();
            let word = if nests.inside[at] {
                Word::Kept
            } else {
                Word::Own
            };
            let alone = back.iter().filter(|edge| edge.0 == from).count() == 1;
            // SAFETY: a block of the function, which is changed once; the edge is one of its own.
            let ask = unsafe {
                match word {
                    Word::Kept
                        if alone && self.is_choice(block, flow.blocks[to as usize].raw()) =>
                    {
                        self.join(block, first[to as usize])
                    }
                    _ => {
                        let (begin, ask) = self.split(block, word);
                        first[at] = begin;
                        ask
                    }
                }
            };
            latches[at] = Some(Latch { block, ask });
        }
        let mut heads: Vec<u32> = back.iter().map(|&(_, to)| to).collect();
        heads.sort_unstable();
        heads.dedup();
        for head in heads {
            let own: Vec<&Latch> = back
                .iter()
                .filter(|&&(_, to)| to == head)
                .filter_map(|&(from, _)| latches[from as usize].as_ref())
                .collect();
            // SAFETY: a head and the blocks that lead back to it.
            unsafe { self.nest(first[head as usize], &own) };
        }
    }

    /// Keeps the word in a variable of the frame through nests.
    fn keep(&mut self, flow: &Flow<'_>, nests: &Nests) {
        if nests.before.is_empty() {
            return;
        }
        let builder = self.builder.0;
        // SAFETY: blocks of the function; a variable at its beginning.
        unsafe {
            let word = LLVMInt64TypeInContext(self.context.raw());
            LLVMPositionBuilderBefore(builder, LLVMGetFirstInstruction(flow.blocks[0].raw()));
            self.kept = LLVMBuildAlloca(builder, word, c"".as_ptr());
            for &before in &nests.before {
                let block = flow.blocks[before as usize].raw();
                LLVMPositionBuilderBefore(builder, LLVMGetBasicBlockTerminator(block));
                self.fetch();
            }
            for &behind in &nests.behind {
                let mut first = LLVMGetFirstInstruction(flow.blocks[behind as usize].raw());
                while LLVMGetInstructionOpcode(first) == LLVMOpcode::LLVMPHI {
                    first = LLVMGetNextInstruction(first);
                }
                LLVMPositionBuilderBefore(builder, first);
                self.give_back();
            }
        }
    }

    /// Whether a block conditionally goes back to `head` or elsewhere.
    ///
    /// # Safety
    /// Blocks of the function.
    unsafe fn is_choice(&self, block: LLVMBasicBlockRef, head: LLVMBasicBlockRef) -> bool {
        // SAFETY: by the caller's promise.
        unsafe {
            let end = LLVMGetBasicBlockTerminator(block);
            LLVMGetInstructionOpcode(end) == LLVMOpcode::LLVMBr
                && LLVMGetNumSuccessors(end) == 2
                && (LLVMGetSuccessor(end, 0) == head) != (LLVMGetSuccessor(end, 1) == head)
        }
    }

    /// Makes the condition of a latch one with the look: the loop has one end, as before. Returns
    /// the block that asks, and then goes back to `head`, or out.
    ///
    /// # Safety
    /// A latch by a choice, in a nest, and the first block of its loop.
    unsafe fn join(&self, latch: LLVMBasicBlockRef, head: LLVMBasicBlockRef) -> LLVMBasicBlockRef {
        let (builder, name, context) = (self.builder.0, c"".as_ptr(), self.context.raw());
        // SAFETY: by the caller's promise. The edge out comes from another block, which its phis
        // get as their source; the one back stays.
        unsafe {
            let append = || LLVMAppendBasicBlockInContext(context, self.function.raw(), name);
            let (decide, ask) = (append(), append());
            let end = LLVMGetBasicBlockTerminator(latch);
            let back_first = LLVMGetSuccessor(end, 0) == head;
            let out = LLVMGetSuccessor(end, u32::from(back_first));
            LLVMPositionBuilderBefore(builder, end);
            let again = match (LLVMGetCondition(end), back_first) {
                (condition, true) => condition,
                (condition, false) => LLVMBuildNot(builder, condition, name),
            };
            let none_left = self.count(Word::Kept);
            let some_left = LLVMBuildNot(builder, none_left, name);
            let both = LLVMBuildAnd(builder, again, some_left, name);
            LLVMInstructionEraseFromParent(end);
            LLVMPositionBuilderAtEnd(builder, latch);
            LLVMBuildCondBr(builder, both, head, decide);
            for phi in phis(out) {
                self.move_edge(phi, latch, [decide, ask]);
            }
            for phi in phis(head) {
                let (mut value, mut block) = (incoming(phi, latch), ask);
                LLVMAddIncoming(phi, &mut value, &mut block, 1);
            }
            LLVMPositionBuilderAtEnd(builder, decide);
            let word = LLVMInt64TypeInContext(context);
            let left = LLVMBuildLoad2(builder, word, self.kept, name);
            let less = LLVMIntPredicate::LLVMIntSLT;
            let none_left = LLVMBuildICmp(builder, less, left, LLVMConstInt(word, 0, 0), name);
            let branch = LLVMBuildCondBr(builder, none_left, ask, out);
            LLVMSetMetadata(branch, self.kinds.weights, self.kinds.seldom);
            LLVMPositionBuilderAtEnd(builder, ask);
            self.ask(Word::Kept);
            LLVMBuildCondBr(builder, again, head, out);
            ask
        }
    }

    /// Replaces a phi's edge from one block by edges from others.
    ///
    /// # Safety
    /// A phi with such an edge.
    unsafe fn move_edge(
        &self,
        phi: LLVMValueRef,
        from: LLVMBasicBlockRef,
        to: [LLVMBasicBlockRef; 2],
    ) {
        // SAFETY: by the caller's promise; the new phi stands before the old one.
        unsafe {
            LLVMPositionBuilderBefore(self.builder.0, phi);
            let new = LLVMBuildPhi(self.builder.0, LLVMTypeOf(phi), c"".as_ptr());
            for at in 0..LLVMCountIncoming(phi) {
                let block = LLVMGetIncomingBlock(phi, at);
                let mut value = LLVMGetIncomingValue(phi, at);
                let blocks = if block == from { &to[..] } else { &[block][..] };
                for &(mut block) in blocks {
                    LLVMAddIncoming(new, &mut value, &mut block, 1);
                }
            }
            LLVMReplaceAllUsesWith(phi, new);
            LLVMInstructionEraseFromParent(phi);
        }
    }

    /// Makes blocks that ask lead to a loop around that of `head`, where that is possible.
    ///
    /// # Safety
    /// The first block of a loop, and its latches.
    unsafe fn nest(&self, head: LLVMBasicBlockRef, latches: &[&Latch]) {
        // SAFETY: by the caller's promise. Edges and phis change together: those of the latches
        // stay, all others go to the new block.
        unsafe {
            if !may_have_block_before(head) {
                return;
            }
            let mut any = false;
            for latch in latches {
                any |= self.part(latch);
            }
            if !any {
                return;
            }
            let is_latch = |block| latches.iter().any(|latch| latch.block == block);
            let outer = LLVMInsertBasicBlockInContext(self.context.raw(), head, c"".as_ptr());
            self.redirect(head, outer, |from| !is_latch(from));
            for phi in phis(head) {
                self.divide(phi, outer, is_latch);
            }
            LLVMPositionBuilderAtEnd(self.builder.0, outer);
            LLVMBuildBr(self.builder.0, head);
        }
    }

    /// Redirects edges to `old`, from blocks that are `meant`, to `new`; labels, too. Phis stay.
    ///
    /// # Safety
    /// Blocks of the function.
    pub(super) unsafe fn redirect(
        &self,
        old: LLVMBasicBlockRef,
        new: LLVMBasicBlockRef,
        meant: impl Fn(LLVMBasicBlockRef) -> bool,
    ) {
        // SAFETY: by the caller's promise. Users of a block are terminators and its label.
        unsafe {
            let users: HashSet<LLVMValueRef> = ValueRef::of(LLVMBasicBlockAsValue(old))
                .users()
                .map(ValueRef::raw)
                .collect();
            for user in users {
                let Some(end) = ValueRef::of(user).as_instruction() else {
                    LLVMReplaceAllUsesWith(user, LLVMBlockAddress(self.function.raw(), new));
                    continue;
                };
                if !meant(LLVMGetInstructionParent(user)) {
                    continue;
                }
                for at in 0..LLVMGetNumSuccessors(end.raw()) {
                    if LLVMGetSuccessor(user, at) == old {
                        LLVMSetSuccessor(user, at, new);
                    }
                }
            }
        }
    }

    /// Makes the block that asks for a latch decide itself where to go on; returns whether it does.
    ///
    /// # Safety
    /// A latch that was made by `split`.
    unsafe fn part(&self, latch: &Latch) -> bool {
        // SAFETY: by the caller's promise. A terminator without a result is cloned, and each of
        // its edges noted in the phis that it leads to.
        unsafe {
            let end = LLVMGetBasicBlockTerminator(latch.block);
            if !is_plain(LLVMGetInstructionOpcode(end)) {
                return false;
            }
            let old = LLVMGetBasicBlockTerminator(latch.ask);
            if LLVMGetNumSuccessors(old) != 1 || LLVMGetSuccessor(old, 0) != latch.block {
                // It already does.
                return true;
            }
            LLVMInstructionEraseFromParent(old);
            let clone = LLVMInstructionClone(end);
            LLVMPositionBuilderAtEnd(self.builder.0, latch.ask);
            LLVMInsertIntoBuilder(self.builder.0, clone);
            // Properties of the loop belong to the inner one.
            LLVMSetMetadata(clone, self.kinds.loops, std::ptr::null_mut());
            for at in 0..LLVMGetNumSuccessors(clone) {
                for phi in phis(LLVMGetSuccessor(clone, at)) {
                    let mut value = incoming(phi, latch.block);
                    let mut block = latch.ask;
                    LLVMAddIncoming(phi, &mut value, &mut block, 1);
                }
            }
            true
        }
    }

    /// Divides a phi: one in `outer`, for edges that do not come from latches, and one in the old
    /// place.
    ///
    /// # Safety
    /// A phi of the block behind `outer`, whose edges were changed so.
    unsafe fn divide(
        &self,
        phi: LLVMValueRef,
        outer: LLVMBasicBlockRef,
        is_latch: impl Fn(LLVMBasicBlockRef) -> bool,
    ) {
        let (builder, name) = (self.builder.0, c"".as_ptr());
        // SAFETY: by the caller's promise.
        unsafe {
            let ty = LLVMTypeOf(phi);
            LLVMPositionBuilderAtEnd(builder, outer);
            let mut around = LLVMBuildPhi(builder, ty, name);
            LLVMPositionBuilderBefore(builder, phi);
            let within = LLVMBuildPhi(builder, ty, name);
            for at in 0..LLVMCountIncoming(phi) {
                let mut block = LLVMGetIncomingBlock(phi, at);
                let mut value = LLVMGetIncomingValue(phi, at);
                let to = if is_latch(block) { within } else { around };
                LLVMAddIncoming(to, &mut value, &mut block, 1);
            }
            let mut block = outer;
            LLVMAddIncoming(within, &mut around, &mut block, 1);
            LLVMReplaceAllUsesWith(phi, within);
            LLVMInstructionEraseFromParent(phi);
        }
    }
}

/// The phis of a block.
///
/// # Safety
/// A live block.
unsafe fn phis(block: LLVMBasicBlockRef) -> Vec<LLVMValueRef> {
    let mut found = Vec::new();
    // SAFETY: by the caller's promise.
    unsafe {
        let mut next = LLVMGetFirstInstruction(block);
        while !next.is_null() && LLVMGetInstructionOpcode(next) == LLVMOpcode::LLVMPHI {
            found.push(next);
            next = LLVMGetNextInstruction(next);
        }
    }
    found
}

/// The value of a phi on an edge from a block.
///
/// # Safety
/// A phi that has such an edge.
unsafe fn incoming(phi: LLVMValueRef, from: LLVMBasicBlockRef) -> LLVMValueRef {
    // SAFETY: by the caller's promise.
    unsafe {
        let all = 0..LLVMCountIncoming(phi);
        let mut of = all.filter(|&at| LLVMGetIncomingBlock(phi, at) == from);
        LLVMGetIncomingValue(phi, of.next().unwrap_or(0))
    }
}

/// Whether all edges to a block can be redirected.
///
/// # Safety
/// A live block with an instruction.
unsafe fn may_have_block_before(block: LLVMBasicBlockRef) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut first = LLVMGetFirstInstruction(block);
        while LLVMGetInstructionOpcode(first) == LLVMOpcode::LLVMPHI {
            first = LLVMGetNextInstruction(first);
        }
        let is_pad = matches!(
            LLVMGetInstructionOpcode(first),
            LLVMOpcode::LLVMLandingPad
                | LLVMOpcode::LLVMCatchPad
                | LLVMOpcode::LLVMCleanupPad
                | LLVMOpcode::LLVMCatchSwitch
        );
        let mut users = ValueRef::of(LLVMBasicBlockAsValue(block)).users();
        !is_pad
            && users.all(|user| {
                user.as_instruction().is_some_and(|end| {
                    is_plain(end.opcode()) || end.opcode() == LLVMOpcode::LLVMInvoke
                })
            })
    }
}
