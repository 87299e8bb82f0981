//! Writes looks into one function, and the blocks that ask.

use inkwell::llvm_sys::core::{
    LLVMAppendBasicBlockInContext, LLVMBuildBr, LLVMBuildCall2, LLVMBuildCondBr, LLVMBuildGEP2,
    LLVMBuildICmp, LLVMBuildLoad2, LLVMBuildNSWSub, LLVMBuildStore, LLVMConstInt,
    LLVMConstIntToPtr, LLVMFunctionType, LLVMGetBasicBlockTerminator, LLVMGetFirstInstruction,
    LLVMGetIntrinsicDeclaration, LLVMGetNextInstruction, LLVMGetOperand,
    LLVMInsertBasicBlockInContext, LLVMInsertIntoBuilder, LLVMInstructionRemoveFromParent,
    LLVMInt8TypeInContext, LLVMInt64TypeInContext, LLVMIntrinsicGetType, LLVMIsAConstant,
    LLVMLookupIntrinsicID, LLVMPointerTypeInContext, LLVMPositionBuilderAtEnd, LLVMSetAlignment,
    LLVMSetMetadata, LLVMVoidTypeInContext,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMIntPredicate, LLVMOpcode};

use super::Look;
use super::kinds::Kinds;
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::handles::{BlockRef, FunctionRef, InstructionRef};

/// State of inserting looks into one function.
pub(super) struct CheckWriter<'a> {
    pub(super) context: &'a LlvmContext,
    pub(super) kinds: &'a Kinds,
    pub(super) function: FunctionRef<'a>,
    pub(super) builder: Builder,
    pub(super) pointer: (LLVMTypeRef, LLVMValueRef),
    pub(super) look: Look,
    /// The variable that the word is kept in; null without one.
    pub(super) kept: LLVMValueRef,
}

/// The word that a look reads.
#[derive(Clone, Copy)]
pub(super) enum Word {
    /// The thread's.
    Own,
    /// The variable of the frame.
    Kept,
}

impl<'a> CheckWriter<'a> {
    pub(super) fn new(
        context: &'a LlvmContext,
        module: &OwnedModule,
        kinds: &'a Kinds,
        function: FunctionRef<'a>,
        look: Look,
    ) -> CheckWriter<'a> {
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
        CheckWriter {
            context,
            kinds,
            function,
            builder: Builder::new(context),
            pointer,
            look,
            kept: std::ptr::null_mut(),
        }
    }

    /// Inserts a look at the function's entry.
    pub(super) fn entry(&self) {
        let Some(entry) = self.function.blocks().next().map(BlockRef::raw) else {
            return;
        };
        // SAFETY: the first block of a function of ours; nothing leads there. Fixed `alloca`s stay
        // in the first block, as they are allocated once.
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
            self.look(first, entry, Word::Own);
        }
    }

    /// Reads the thread's word into the variable, where the builder is.
    ///
    /// # Safety
    /// The builder is in the function, and the variable exists.
    pub(super) unsafe fn fetch(&self) {
        // SAFETY: by the caller's promise.
        unsafe {
            let word = LLVMInt64TypeInContext(self.context.raw());
            let left = LLVMBuildLoad2(self.builder.0, word, self.place(Word::Own), c"".as_ptr());
            self.marked(left);
            LLVMBuildStore(self.builder.0, left, self.kept);
        }
    }

    /// Writes the variable back to the thread's word.
    ///
    /// # Safety
    /// As of [`CheckWriter::fetch`].
    pub(super) unsafe fn give_back(&self) {
        // SAFETY: by the caller's promise.
        unsafe {
            let word = LLVMInt64TypeInContext(self.context.raw());
            let left = LLVMBuildLoad2(self.builder.0, word, self.kept, c"".as_ptr());
            self.marked(LLVMBuildStore(self.builder.0, left, self.place(Word::Own)));
        }
    }

    /// Marks an access of the word itself.
    ///
    /// # Safety
    /// A load or store of it.
    pub(super) unsafe fn marked(&self, access: LLVMValueRef) {
        // SAFETY: by the caller's promise.
        unsafe {
            LLVMSetAlignment(access, 8);
            LLVMSetMetadata(access, self.kinds.memory, self.kinds.word);
        }
    }

    /// The address of the word, or of the variable that keeps it.
    ///
    /// # Safety
    /// The builder is in the function.
    pub(super) unsafe fn place(&self, word: Word) -> LLVMValueRef {
        if let Word::Kept = word {
            return self.kept;
        }
        let (builder, name) = (self.builder.0, c"".as_ptr());
        // SAFETY: by the caller's promise.
        unsafe {
            let (kind, function) = self.pointer;
            let start = LLVMBuildCall2(builder, kind, function, std::ptr::null_mut(), 0, name);
            let number = LLVMInt64TypeInContext(self.context.raw());
            let mut distance = LLVMConstInt(number, self.look.distance as u64, 1);
            let byte = LLVMInt8TypeInContext(self.context.raw());
            LLVMBuildGEP2(builder, byte, start, &mut distance, 1, name)
        }
    }

    /// Inserts a look before a block's terminator, which the block keeps: the rest moves to a block
    /// before it, which is returned with the one that asks.
    ///
    /// # Safety
    /// A block of the function that is not its entry.
    pub(super) unsafe fn split(
        &self,
        block: LLVMBasicBlockRef,
        word: Word,
    ) -> (LLVMBasicBlockRef, LLVMBasicBlockRef) {
        // SAFETY: by the caller's promise. Edges to the block lead to the new one, which takes its
        // phis; the remaining block has one edge from there and one from the asking block.
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
            (begin, self.look(begin, block, word))
        }
    }

    /// Looks at the end of `from`, and goes on to `to`; returns the block that asks.
    ///
    /// # Safety
    /// Blocks of the function, the first without a terminator, the second without phis.
    pub(super) unsafe fn look(
        &self,
        from: LLVMBasicBlockRef,
        to: LLVMBasicBlockRef,
        word: Word,
    ) -> LLVMBasicBlockRef {
        let (builder, name) = (self.builder.0, c"".as_ptr());
        // SAFETY: by the caller's promise.
        unsafe {
            let context = self.context.raw();
            let ask = LLVMAppendBasicBlockInContext(context, self.function.raw(), name);
            LLVMPositionBuilderAtEnd(builder, from);
            let none_left = self.count(word);
            let branch = LLVMBuildCondBr(builder, none_left, ask, to);
            LLVMSetMetadata(branch, self.kinds.weights, self.kinds.seldom);
            LLVMPositionBuilderAtEnd(builder, ask);
            self.ask(word);
            LLVMBuildBr(builder, to);
            ask
        }
    }

    /// Takes a pass, where the builder is; returns whether none is left.
    ///
    /// # Safety
    /// The builder is in the function.
    pub(super) unsafe fn count(&self, word: Word) -> LLVMValueRef {
        let (builder, name) = (self.builder.0, c"".as_ptr());
        // SAFETY: by the caller's promise.
        unsafe {
            let number = LLVMInt64TypeInContext(self.context.raw());
            let place = self.place(word);
            let before = LLVMBuildLoad2(builder, number, place, name);
            let left = LLVMBuildNSWSub(builder, before, LLVMConstInt(number, 1, 0), name);
            let store = LLVMBuildStore(builder, left, place);
            if let Word::Own = word {
                self.marked(before);
                self.marked(store);
            }
            let less = LLVMIntPredicate::LLVMIntSLT;
            LLVMBuildICmp(builder, less, left, LLVMConstInt(number, 0, 0), name)
        }
    }

    /// Calls `ask`, where the builder is.
    ///
    /// # Safety
    /// The builder is in the function.
    pub(super) unsafe fn ask(&self, word: Word) {
        let name = c"".as_ptr();
        // SAFETY: by the caller's promise; the function takes and returns nothing.
        unsafe {
            if let Word::Kept = word {
                self.give_back();
            }
            let context = self.context.raw();
            let address = LLVMConstInt(LLVMInt64TypeInContext(context), self.look.ask, 0);
            let address = LLVMConstIntToPtr(address, LLVMPointerTypeInContext(context, 0));
            let void = LLVMVoidTypeInContext(context);
            let ty = LLVMFunctionType(void, std::ptr::null_mut(), 0, 0);
            LLVMBuildCall2(self.builder.0, ty, address, std::ptr::null_mut(), 0, name);
            if let Word::Kept = word {
                self.fetch();
            }
        }
    }
}

/// Whether an instruction allocates a fixed size in the frame.
fn is_fixed_room(instruction: InstructionRef<'_>) -> bool {
    instruction.opcode() == LLVMOpcode::LLVMAlloca && {
        // SAFETY: an `alloca` has its count as an operand.
        unsafe {
            let count = LLVMGetOperand(instruction.raw(), 0);
            !LLVMIsAConstant(count).is_null()
        }
    }
}
