//! Code that looks, at entries and loops, whether it should stop.
//!
//! A module is changed once, when it is added, so that all that is compiled of it, at every tier,
//! inlined or as a continuation, looks at the same places. What it looks at is a word of the
//! calling thread, at a distance from the thread pointer: how many *passes* are left.
//!
//! ```text
//! look:   left = word; left -= 1; word = left
//!         if left < 0: call ask        ; which sets the word anew, or does not return
//! ```
//!
//! | where | when |
//! |---|---|
//! | entry | of a function that calls another: what calls nothing and has no loop ends soon |
//! | loop | at the end of each latch, before it is decided whether there is another pass |
//!
//! # Loops
//! ```text
//! before                 after
//! head:  phis            outer: phis of what comes from elsewhere, and from ask
//!        ...                    goto head
//! latch: ...             head:  phis of outer, and of the latch
//!        if c: head             ...
//!        else: exit             look; if left < 0: ask
//!                        latch: if c: head else: exit
//!                        ask:   call ask; if c: outer else: exit
//! ```
//! The call is not in the inner loop but around it: passes of LLVM then keep the word in a register
//! through a loop that calls nothing, count its passes ahead as they do for any loop that ends after
//! so many, and vectorize it. Where a latch ends otherwise than by a branch or a switch, or the head
//! is reached by jumps to labels or is a landing pad, the call returns into the loop.
//!
//! That the word is no variable of the program's LLVM is told by types of memory (TBAA): a type of
//! its own beside those that the module has, or, in a module without any, beside one that
//! everything else gets.
//!
//! # Invariants
//! - How often a run looks is a matter of the IR alone: what is counted is memory, which passes may
//!   not change. So attributes go that promise of a function that it writes none
//!   ([`PROMISES`]), from calls too.
//! - Blocks that end with a terminator keep it, so that phis elsewhere stay as they are.
//!
//! # Why
//! Not in each compiler: the baseline compiler, LLVM's tiers and continuations would have to agree
//! to the pass. Not a flag that somebody sets: it is one load less, and one comparison like this
//! one, but neither counts nor can be moved out of a loop. Entries of functions that call nothing
//! are left out because they are what is inlined into loops.

use std::collections::HashSet;

use inkwell::llvm_sys::bit_reader::LLVMParseBitcodeInContext2;
use inkwell::llvm_sys::core::{
    LLVMAddIncoming, LLVMAppendBasicBlockInContext, LLVMBasicBlockAsValue, LLVMBlockAddress,
    LLVMBuildBr, LLVMBuildCall2, LLVMBuildCondBr, LLVMBuildGEP2, LLVMBuildICmp, LLVMBuildLoad2,
    LLVMBuildNSWSub, LLVMBuildPhi, LLVMBuildStore, LLVMConstInt, LLVMConstIntToPtr,
    LLVMCountIncoming, LLVMFunctionType, LLVMGetBasicBlockTerminator, LLVMGetFirstInstruction,
    LLVMGetIncomingBlock, LLVMGetIncomingValue, LLVMGetInstructionOpcode, LLVMGetInstructionParent,
    LLVMGetIntrinsicDeclaration, LLVMGetNextInstruction, LLVMGetNumSuccessors, LLVMGetSuccessor,
    LLVMInsertBasicBlockInContext, LLVMInsertIntoBuilder, LLVMInstructionClone,
    LLVMInstructionEraseFromParent, LLVMInstructionRemoveFromParent, LLVMInt8TypeInContext,
    LLVMInt64TypeInContext, LLVMIntrinsicGetType, LLVMIsAConstant, LLVMLookupIntrinsicID,
    LLVMPointerTypeInContext, LLVMPositionBuilderAtEnd, LLVMPositionBuilderBefore,
    LLVMRemoveCallSiteEnumAttribute, LLVMReplaceAllUsesWith, LLVMSetAlignment, LLVMSetMetadata,
    LLVMSetSuccessor, LLVMTypeOf, LLVMVoidTypeInContext,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMAttributeFunctionIndex, LLVMIntPredicate, LLVMOpcode};

use crate::bitcode::Bitcode;
use crate::context::{Buffer, Builder, LlvmContext, OwnedModule};
use crate::error::CodegenError;
use crate::flow::Flow;
use crate::handles::{BlockRef, FunctionRef, InstructionRef, ValueRef, c_name};

mod kinds;

use kinds::Kinds;

/// Attributes that do not hold of code that looks, or of what calls it.
const PROMISES: [&str; 3] = ["memory", "willreturn", "speculatable"];

/// What code looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Where the word is, from the thread pointer.
    pub distance: i64,
    /// The address of the function that is called when nothing is left. It takes and returns
    /// nothing.
    pub ask: u64,
}

impl Bitcode {
    /// The module with code that looks. Under a [`guard`](crate::fatal::guard).
    ///
    /// # Errors
    /// Bitcode that LLVM does not read.
    pub fn looking(&self, look: Look) -> Result<Bitcode, CodegenError> {
        self.check()?;
        let context = LlvmContext::new()?;
        let module = read(&context, self)?;
        insert(&context, &module, look);
        match context.take_errors() {
            Some(message) => Err(unreadable(self, message)),
            None => Ok(Bitcode::write(self.name(), &module)),
        }
    }
}

fn unreadable(bitcode: &Bitcode, message: String) -> CodegenError {
    CodegenError::Load {
        module: bitcode.name().to_owned(),
        message,
    }
}

fn read(context: &LlvmContext, bitcode: &Bitcode) -> Result<OwnedModule, CodegenError> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the buffer lives until the module was read whole; `raw` is written on success.
    let failed = unsafe {
        let buffer = Buffer::view(bitcode.bytes(), &c_name(bitcode.name()));
        LLVMParseBitcodeInContext2(context.raw(), buffer.raw(), &mut raw)
    };
    if failed != 0 || raw.is_null() {
        let message = context.take_errors();
        return Err(unreadable(bitcode, message.unwrap_or_default()));
    }
    // SAFETY: a live module, which is ours.
    Ok(unsafe { OwnedModule::new(raw) })
}

/// Has a module look.
fn insert(context: &LlvmContext, module: &OwnedModule, look: Look) {
    let kinds = Kinds::of(context, module);
    let functions: Vec<LLVMValueRef> = module.functions().map(|it| it.raw()).collect();
    for &function in &functions {
        // SAFETY: a function of the module; no pass deletes one.
        let function = unsafe { FunctionRef::of(function) };
        if function.is_intrinsic() {
            continue;
        }
        for &promise in &kinds.promises {
            function.remove(promise);
        }
        if function.is_declaration() || function.has(kinds.naked) {
            continue;
        }
        let calls = soften(function, &kinds);
        kinds.mark(function);
        let writer = Writer::new(context, module, &kinds, function, look);
        writer.loops();
        if calls {
            writer.entry();
        }
    }
}

/// Takes promises from calls; whether there are any of functions.
fn soften(function: FunctionRef<'_>, kinds: &Kinds) -> bool {
    let mut calls = false;
    for call in function.instructions() {
        let Some(callee) = call.callee() else {
            continue;
        };
        if callee.as_function().is_some_and(FunctionRef::is_intrinsic) {
            continue;
        }
        calls = true;
        for &promise in &kinds.promises {
            // SAFETY: a live call; an attribute that is not there is no matter.
            unsafe {
                LLVMRemoveCallSiteEnumAttribute(call.raw(), LLVMAttributeFunctionIndex, promise);
            }
        }
    }
    calls
}

/// What is written into one function.
struct Writer<'a> {
    context: &'a LlvmContext,
    kinds: &'a Kinds,
    function: FunctionRef<'a>,
    builder: Builder,
    pointer: (LLVMTypeRef, LLVMValueRef),
    look: Look,
}

/// A latch that looks.
struct Latch {
    /// What is left of it: its terminator.
    block: LLVMBasicBlockRef,
    /// Where it asks, and goes on at `block`.
    ask: LLVMBasicBlockRef,
}

impl<'a> Writer<'a> {
    fn new(
        context: &'a LlvmContext,
        module: &OwnedModule,
        kinds: &'a Kinds,
        function: FunctionRef<'a>,
        look: Look,
    ) -> Writer<'a> {
        const NAME: &str = "llvm.thread.pointer";
        // SAFETY: an intrinsic that this LLVM has, of one type that it is made for.
        let pointer = unsafe {
            let number = LLVMLookupIntrinsicID(NAME.as_ptr().cast(), NAME.len());
            let mut over = [LLVMPointerTypeInContext(context.raw(), 0)];
            (
                LLVMIntrinsicGetType(context.raw(), number, over.as_mut_ptr(), 1),
                LLVMGetIntrinsicDeclaration(module.raw(), number, over.as_mut_ptr(), 1),
            )
        };
        Writer {
            context,
            kinds,
            function,
            builder: Builder::new(context),
            pointer,
            look,
        }
    }

    /// Has it look when it is entered.
    fn entry(&self) {
        let Some(entry) = self.function.blocks().next().map(BlockRef::raw) else {
            return;
        };
        // SAFETY: the first block of a function of ours; nothing leads there. Room in the frame
        // stays in the first block, as it is taken once.
        unsafe {
            let first = LLVMInsertBasicBlockInContext(self.context.raw(), entry, c"".as_ptr());
            LLVMPositionBuilderAtEnd(self.builder.0, first);
            let mut next = LLVMGetFirstInstruction(entry);
            while !next.is_null() {
                let instruction = next;
                next = LLVMGetNextInstruction(next);
                if is_fixed_room(InstructionRef::of(instruction)) {
                    LLVMInstructionRemoveFromParent(instruction);
                    LLVMInsertIntoBuilder(self.builder.0, instruction);
                }
            }
            self.look(first, entry);
        }
    }

    /// Has its loops look.
    fn loops(&self) {
        let flow = Flow::of(self.function);
        let back = flow.graph.back_edges();
        let mut first: Vec<LLVMBasicBlockRef> = flow.blocks.iter().map(|it| it.raw()).collect();
        let mut latches: Vec<Option<Latch>> = Vec::new();
        latches.resize_with(first.len(), || None);
        for &(from, _) in &back {
            let from = from as usize;
            if latches[from].is_none() {
                let block = flow.blocks[from].raw();
                // SAFETY: a block of the function, which is split once.
                let (begin, ask) = unsafe { self.split(block) };
                first[from] = begin;
                latches[from] = Some(Latch { block, ask });
            }
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

    /// Has a block look before its terminator, which it keeps: all else goes to a block before it,
    /// which is returned with the one that asks.
    ///
    /// # Safety
    /// A block of the function that is not its entry.
    unsafe fn split(&self, block: LLVMBasicBlockRef) -> (LLVMBasicBlockRef, LLVMBasicBlockRef) {
        // SAFETY: by the caller's promise. Who led to the block leads to the new one, which takes
        // its phis; what is left has one edge from there and one from who asks.
        unsafe {
            let begin = LLVMInsertBasicBlockInContext(self.context.raw(), block, c"".as_ptr());
            self.redirect(block, begin, |_| true);
            let end = LLVMGetBasicBlockTerminator(block);
            LLVMPositionBuilderAtEnd(self.builder.0, begin);
            loop {
                let first = LLVMGetFirstInstruction(block);
                if first == end || first.is_null() {
                    break;
                }
                LLVMInstructionRemoveFromParent(first);
                LLVMInsertIntoBuilder(self.builder.0, first);
            }
            (begin, self.look(begin, block))
        }
    }

    /// Looks at the end of `from`, and goes on to `to`; where it asks.
    ///
    /// # Safety
    /// Blocks of the function, the first without a terminator, the second without phis.
    unsafe fn look(&self, from: LLVMBasicBlockRef, to: LLVMBasicBlockRef) -> LLVMBasicBlockRef {
        let (builder, name) = (self.builder.0, c"".as_ptr());
        // SAFETY: by the caller's promise; a distance is a constant, the word is aligned.
        unsafe {
            let context = self.context.raw();
            let ask = LLVMAppendBasicBlockInContext(context, self.function.raw(), name);
            let word = LLVMInt64TypeInContext(context);
            LLVMPositionBuilderAtEnd(builder, from);
            let (kind, function) = self.pointer;
            let none: *mut LLVMValueRef = std::ptr::null_mut();
            let start = LLVMBuildCall2(builder, kind, function, none, 0, name);
            let mut distance = LLVMConstInt(word, self.look.distance as u64, 1);
            let byte = LLVMInt8TypeInContext(context);
            let place = LLVMBuildGEP2(builder, byte, start, &mut distance, 1, name);
            let before = LLVMBuildLoad2(builder, word, place, name);
            let left = LLVMBuildNSWSub(builder, before, LLVMConstInt(word, 1, 0), name);
            let store = LLVMBuildStore(builder, left, place);
            for access in [before, store] {
                LLVMSetAlignment(access, 8);
                LLVMSetMetadata(access, self.kinds.memory, self.kinds.word);
            }
            let less = LLVMIntPredicate::LLVMIntSLT;
            let none_left = LLVMBuildICmp(builder, less, left, LLVMConstInt(word, 0, 0), name);
            let branch = LLVMBuildCondBr(builder, none_left, ask, to);
            LLVMSetMetadata(branch, self.kinds.weights, self.kinds.seldom);
            LLVMPositionBuilderAtEnd(builder, ask);
            let address = LLVMConstInt(word, self.look.ask, 0);
            let address = LLVMConstIntToPtr(address, LLVMPointerTypeInContext(context, 0));
            let void = LLVMVoidTypeInContext(context);
            let ty = LLVMFunctionType(void, std::ptr::null_mut(), 0, 0);
            LLVMBuildCall2(builder, ty, address, std::ptr::null_mut(), 0, name);
            LLVMBuildBr(builder, to);
            ask
        }
    }

    /// Has who asks lead to a loop around that of `head`, where that can be.
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

    /// Has what leads to `old`, from blocks that are `meant`, lead to `new`; labels, too. Phis stay.
    ///
    /// # Safety
    /// Blocks of the function.
    unsafe fn redirect(
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

    /// Has who asks for a latch decide itself where to go on; whether it does.
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
            if LLVMGetSuccessor(old, 0) != latch.block || LLVMGetNumSuccessors(old) != 1 {
                // It does for another head already.
                return true;
            }
            LLVMInstructionEraseFromParent(old);
            let clone = LLVMInstructionClone(end);
            LLVMPositionBuilderAtEnd(self.builder.0, latch.ask);
            LLVMInsertIntoBuilder(self.builder.0, clone);
            // What is said of the loop is said of the inner one.
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

    /// Makes one phi two: in `outer`, of what does not come from latches, and where it was.
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

/// Whether a terminator may be there twice.
fn is_plain(opcode: LLVMOpcode) -> bool {
    matches!(opcode, LLVMOpcode::LLVMBr | LLVMOpcode::LLVMSwitch)
}

/// Whether an instruction takes room in the frame, as much at each call.
fn is_fixed_room(instruction: InstructionRef<'_>) -> bool {
    instruction.opcode() == LLVMOpcode::LLVMAlloca && {
        // SAFETY: an `alloca` has its count as an operand.
        unsafe {
            let count = inkwell::llvm_sys::core::LLVMGetOperand(instruction.raw(), 0);
            !LLVMIsAConstant(count).is_null()
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

/// What a phi is on an edge from a block.
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

/// Whether all edges to a block can be made to lead elsewhere.
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
