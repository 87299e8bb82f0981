//! Counts at the heads of loops, and OSR exits, in code of tier 1.
//!
//! ```text
//! before                      after
//! head:  phis                 count: phis
//!        rest                        if loops.count[k] is negative: asked
//!                             head:  rest
//!                             asked: loops.count[k] += 1
//!                                    if it is not zero: head
//!                                    f = loops.slot[k]; if it is not null: leave
//!                                    if loops.timed: loops.when[k] = the cycle counter
//!                                    head
//!                             leave: loops.count[k] = -1; loops.left[k] += 1
//!                                    return f(what lives across)
//! ```
//!
//! The head keeps its block, so no phi of others changes; the new block takes its phis and all
//! edges to it.

use inkwell::llvm_sys::core::{
    LLVMAddGlobal, LLVMAppendBasicBlockInContext, LLVMArrayType2, LLVMBuildAdd, LLVMBuildAlloca,
    LLVMBuildBr, LLVMBuildCall2, LLVMBuildCondBr, LLVMBuildICmp, LLVMBuildIsNull, LLVMBuildLoad2,
    LLVMBuildRet, LLVMBuildRetVoid, LLVMBuildStore, LLVMConstInBoundsGEP2, LLVMConstInt,
    LLVMFunctionType, LLVMGetFirstInstruction, LLVMGetInstructionOpcode,
    LLVMGetIntrinsicDeclaration, LLVMGetNumSuccessors, LLVMGetReturnType, LLVMGetSuccessor,
    LLVMGetTypeKind, LLVMGlobalGetValueType, LLVMInsertIntoBuilder,
    LLVMInstructionRemoveFromParent, LLVMInt8TypeInContext, LLVMInt32TypeInContext,
    LLVMIntrinsicGetType, LLVMLookupIntrinsicID, LLVMMoveBasicBlockBefore,
    LLVMPointerTypeInContext, LLVMPositionBuilderAtEnd, LLVMPositionBuilderBefore,
    LLVMSetAlignment, LLVMSetLinkage, LLVMSetSuccessor, LLVMSetVisibility, LLVMSetVolatile,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMModuleRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMIntPredicate, LLVMLinkage, LLVMOpcode, LLVMTypeKind, LLVMVisibility};

pub(crate) use uruk_leaving::{Heads, Places};

use super::anatomy::{DescribedBody, LlvmBody};
use super::frame::{Crossing, Frame, Kind};
use crate::attributes::AttributeKinds;
use crate::compile::LOOPS;
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::handles::{BlockRef, FunctionRef, c_name};
use crate::shape::BodyShape;

/// The loops of a body that are counted at their heads and can be left, and the values that cross
/// there.
struct Decision<'m> {
    heads: Heads,
    /// The latches of the other loops.
    latches: Vec<u32>,
    /// Those of the loops, by their places among all, in the order of their words.
    chosen: Vec<(usize, Crossing)>,
    /// Frame of the body, if a loop is counted.
    frame: Option<Frame<'m>>,
}

/// Decides for a body, which is only read.
fn decide<'m>(
    kinds: &AttributeKinds,
    body: LlvmBody<'_, 'm>,
    shape: &BodyShape<'m>,
) -> Decision<'m> {
    if shape.measure.loops == 0 {
        return Decision {
            heads: Heads::default(),
            latches: Vec::new(),
            chosen: Vec::new(),
            frame: None,
        };
    }
    let told = DescribedBody::of(body, kinds, &shape.flow);
    let decision = uruk_leaving::decide(&told.anatomy, shape.of_loops(), |_| true);
    Decision {
        heads: decision.heads,
        latches: decision.latches,
        chosen: decision.chosen,
        frame: decision.frame.map(|it| Frame::with(it, told)),
    }
}

/// Heads of loops, and the blocks that took their places.
pub(crate) type Counting<'m> = Vec<(BlockRef<'m>, BlockRef<'m>)>;

/// Result of [`insert`].
#[derive(Default)]
pub(crate) struct InsertedExits<'m> {
    /// The counted loops.
    pub(crate) heads: Heads,
    /// The latches of the other loops.
    pub(crate) latches: Vec<u32>,
    pub(crate) counting: Counting<'m>,
}

/// Makes `body` count at the heads of its loops, and leave them.
pub(crate) fn insert<'m>(
    context: &LlvmContext,
    module: &OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'m>,
    shape: &BodyShape<'m>,
) -> InsertedExits<'m> {
    let decision = decide(kinds, LlvmBody::copied(module, body), shape);
    let mut inserted = InsertedExits {
        heads: decision.heads,
        latches: decision.latches,
        counting: Vec::new(),
    };
    let (Some(frame), Some(loops)) = (&decision.frame, &shape.loops) else {
        return inserted;
    };
    let flow = &shape.flow;
    // SAFETY: a live context and module.
    let writer = unsafe { ExitWriter::new(context, module, body, decision.chosen.len()) };
    let predecessors = flow.graph.predecessors();
    for (place, (index, what)) in decision.chosen.iter().enumerate() {
        let head = loops[*index].head as usize;
        let before = predecessors.of(head as u32).iter();
        let before: Vec<_> = before.map(|&it| flow.blocks[it as usize]).collect();
        let head = flow.blocks[head];
        // SAFETY: a head of the body, the values found to live across it, and its place.
        let counting = unsafe { writer.open(frame, head.raw(), &before, what, place) };
        inserted.counting.push((head, counting));
    }
    inserted
}

/// The type of a continuation of `of` for the crossing values.
///
/// # Safety
/// A function of the context, and a frame of its body.
pub(crate) unsafe fn continuation_type(
    context: &LlvmContext,
    of: FunctionRef<'_>,
    frame: &Frame<'_>,
    what: &Crossing,
) -> LLVMTypeRef {
    // SAFETY: by the caller's promise.
    unsafe {
        let pointer = LLVMPointerTypeInContext(context.raw(), 0);
        let mut types: Vec<LLVMTypeRef> = what
            .variables
            .iter()
            .map(|&it| {
                let variable = frame.variables[it as usize];
                match variable.kind {
                    Kind::Value | Kind::Scalar => variable.ty.raw(),
                    Kind::Stored | Kind::Bytes(_) | Kind::Kept { .. } => pointer,
                }
            })
            .collect();
        let returns = LLVMGetReturnType(LLVMGlobalGetValueType(of.raw()));
        LLVMFunctionType(returns, types.as_mut_ptr(), types.len() as u32, 0)
    }
}

struct ExitWriter<'a, 'm> {
    context: &'a LlvmContext,
    module: LLVMModuleRef,
    body: FunctionRef<'m>,
    builder: Builder,
    /// The words of the loops, and how many loops there are.
    words: LLVMValueRef,
    loops: usize,
}

impl<'a, 'm> ExitWriter<'a, 'm> {
    /// # Safety
    /// A body in a module of the context.
    unsafe fn new(
        context: &'a LlvmContext,
        module: &OwnedModule,
        body: FunctionRef<'m>,
        loops: usize,
    ) -> ExitWriter<'a, 'm> {
        let name = c_name(LOOPS);
        // SAFETY: by the caller's promise; the name is a C string.
        let words = unsafe {
            let byte = LLVMInt8TypeInContext(context.raw());
            let ty = LLVMArrayType2(byte, Heads::bytes(loops) as u64);
            let words = LLVMAddGlobal(module.raw(), ty, name.as_ptr());
            LLVMSetLinkage(words, LLVMLinkage::LLVMExternalLinkage);
            // Reached relative to the program counter.
            LLVMSetVisibility(words, LLVMVisibility::LLVMHiddenVisibility);
            LLVMSetAlignment(words, 8);
            words
        };
        ExitWriter {
            context,
            module: module.raw(),
            body,
            builder: Builder::new(context),
            words,
            loops,
        }
    }

    /// # Safety
    /// An offset within the words.
    unsafe fn word(&self, offset: usize) -> LLVMValueRef {
        // SAFETY: by the caller's promise.
        unsafe {
            let byte = LLVMInt8TypeInContext(self.context.raw());
            let word = LLVMInt32TypeInContext(self.context.raw());
            let mut offset = LLVMConstInt(word, offset as u64, 0);
            LLVMConstInBoundsGEP2(byte, self.words, &mut offset, 1)
        }
    }

    /// Makes the counting block, which takes the head's place.
    ///
    /// # Safety
    /// A head of the body, the blocks that lead there, the crossing values, and its place among the
    /// loops.
    unsafe fn open(
        &self,
        frame: &Frame<'m>,
        head: LLVMBasicBlockRef,
        before: &[BlockRef<'m>],
        what: &Crossing,
        place: usize,
    ) -> BlockRef<'m> {
        let name = c"".as_ptr();
        let builder = self.builder.0;
        let places = Heads::places(place, self.loops);
        // SAFETY: all of one function. The head has one edge from the block that took its place, and
        // one from each way back from the question.
        unsafe {
            let context = self.context.raw();
            let append = || LLVMAppendBasicBlockInContext(context, self.body.raw(), name);
            let counting = self.take_place(head, before);
            let (asking, leaving) = (append(), append());
            let word = LLVMInt32TypeInContext(context);
            let number = |it: i64| LLVMConstInt(word, it as u64, 1);
            let old = LLVMBuildLoad2(builder, word, self.word(places.count), name);
            LLVMSetAlignment(old, 4);
            let less = LLVMIntPredicate::LLVMIntSLT;
            let asked = LLVMBuildICmp(builder, less, old, number(0), name);
            LLVMBuildCondBr(builder, asked, asking, head);

            LLVMPositionBuilderAtEnd(builder, asking);
            // Read anew: otherwise tier 1 code would keep the value in the frame at each pass.
            let old = LLVMBuildLoad2(builder, word, self.word(places.count), name);
            LLVMSetAlignment(old, 4);
            let new = LLVMBuildAdd(builder, old, number(1), name);
            LLVMSetAlignment(LLVMBuildStore(builder, new, self.word(places.count)), 4);
            let equal = LLVMIntPredicate::LLVMIntEQ;
            let ended = LLVMBuildICmp(builder, equal, new, number(0), name);
            let ending = append();
            LLVMBuildCondBr(builder, ended, ending, head);

            LLVMPositionBuilderAtEnd(builder, ending);
            let pointer = LLVMPointerTypeInContext(context, 0);
            let offered = LLVMBuildLoad2(builder, pointer, self.word(places.slot), name);
            LLVMSetAlignment(offered, 8);
            // Read once: another thread writes it.
            LLVMSetVolatile(offered, 1);
            let none = LLVMBuildIsNull(builder, offered, name);
            let staying = append();
            LLVMBuildCondBr(builder, none, staying, leaving);

            LLVMPositionBuilderAtEnd(builder, staying);
            self.note_time(head, places);

            LLVMPositionBuilderAtEnd(builder, leaving);
            let asks = LLVMBuildStore(builder, number(-1), self.word(places.count));
            LLVMSetAlignment(asks, 4);
            self.leave(frame, what, offered, places.left);
            BlockRef::of(counting)
        }
    }

    /// Makes a block that takes the place of a head, and leaves the builder at its end.
    ///
    /// # Safety
    /// As for [`ExitWriter::open`].
    unsafe fn take_place(
        &self,
        head: LLVMBasicBlockRef,
        before: &[BlockRef<'m>],
    ) -> LLVMBasicBlockRef {
        let builder = self.builder.0;
        // SAFETY: by the caller's promise. The new block takes the head's phis and the edges to it, so
        // that each phi has the edges it had.
        unsafe {
            let context = self.context.raw();
            let counting = LLVMAppendBasicBlockInContext(context, self.body.raw(), c"".as_ptr());
            LLVMMoveBasicBlockBefore(counting, head);
            for end in before.iter().filter_map(|it| it.terminator()) {
                for index in 0..LLVMGetNumSuccessors(end.raw()) {
                    if LLVMGetSuccessor(end.raw(), index) == head {
                        LLVMSetSuccessor(end.raw(), index, counting);
                    }
                }
            }
            LLVMPositionBuilderAtEnd(builder, counting);
            loop {
                let first = LLVMGetFirstInstruction(head);
                if LLVMGetInstructionOpcode(first) != LLVMOpcode::LLVMPHI {
                    break;
                }
                LLVMInstructionRemoveFromParent(first);
                LLVMInsertIntoBuilder(builder, first);
            }
            counting
        }
    }

    /// Notes the time if that is wanted, where the builder is, and goes on at the head.
    ///
    /// # Safety
    /// The builder is at the end of a block of the body of this head.
    unsafe fn note_time(&self, head: LLVMBasicBlockRef, places: Places) {
        let (name, builder) = (c"".as_ptr(), self.builder.0);
        // SAFETY: by the caller's promise.
        unsafe {
            let context = self.context.raw();
            let word = LLVMInt32TypeInContext(context);
            let timed = LLVMBuildLoad2(builder, word, self.word(places.timed), name);
            LLVMSetAlignment(timed, 4);
            let unequal = LLVMIntPredicate::LLVMIntNE;
            let timed = LLVMBuildICmp(builder, unequal, timed, LLVMConstInt(word, 0, 0), name);
            let timing = LLVMAppendBasicBlockInContext(context, self.body.raw(), name);
            LLVMBuildCondBr(builder, timed, timing, head);
            LLVMPositionBuilderAtEnd(builder, timing);
            let cycles = self.cycles();
            LLVMSetAlignment(LLVMBuildStore(builder, cycles, self.word(places.when)), 8);
            LLVMBuildBr(builder, head);
        }
    }

    /// The processor's cycle counter, where the builder is.
    ///
    /// # Safety
    /// The builder is at the end of a block of the module.
    unsafe fn cycles(&self) -> LLVMValueRef {
        let name = c"llvm.readcyclecounter";
        // SAFETY: by the caller's promise; the intrinsic has no type parameters.
        unsafe {
            let id = LLVMLookupIntrinsicID(name.as_ptr(), name.count_bytes());
            let types = std::ptr::null_mut();
            let function = LLVMGetIntrinsicDeclaration(self.module, id, types, 0);
            let ty = LLVMIntrinsicGetType(self.context.raw(), id, types, 0);
            let none = std::ptr::null_mut();
            LLVMBuildCall2(self.builder.0, ty, function, none, 0, c"".as_ptr())
        }
    }

    /// Ends the block that leaves a loop for the continuation `offered`, where the builder is.
    ///
    /// # Safety
    /// As for [`ExitWriter::open`], an address that is not null, and the offset of the word that counts
    /// it.
    unsafe fn leave(&self, frame: &Frame<'m>, what: &Crossing, offered: LLVMValueRef, left: usize) {
        let (name, builder) = (c"".as_ptr(), self.builder.0);
        // SAFETY: by the caller's promise.
        unsafe {
            let word = LLVMInt32TypeInContext(self.context.raw());
            let before = LLVMBuildLoad2(builder, word, self.word(left), name);
            LLVMSetAlignment(before, 4);
            let after = LLVMBuildAdd(builder, before, LLVMConstInt(word, 1, 0), name);
            LLVMSetAlignment(LLVMBuildStore(builder, after, self.word(left)), 4);
            let mut arguments: Vec<LLVMValueRef> = what
                .variables
                .iter()
                .map(|&it| self.pass(frame, it))
                .collect();
            let ty = continuation_type(self.context, self.body, frame, what);
            let amount = arguments.len() as u32;
            let result = LLVMBuildCall2(builder, ty, offered, arguments.as_mut_ptr(), amount, name);
            match LLVMGetTypeKind(LLVMGetReturnType(ty)) {
                LLVMTypeKind::LLVMVoidTypeKind => LLVMBuildRetVoid(builder),
                _ => LLVMBuildRet(builder, result),
            };
        }
    }

    /// The value to pass for a variable, where the builder is.
    ///
    /// # Safety
    /// The builder is at the end of a block where the variable lives.
    unsafe fn pass(&self, frame: &Frame<'m>, variable: u32) -> LLVMValueRef {
        let variable = frame.variables[variable as usize];
        let name = c"".as_ptr();
        // SAFETY: by the caller's promise; a value passed through memory gets room of its own in
        // the entry block.
        unsafe {
            match variable.kind {
                Kind::Value | Kind::Bytes(_) | Kind::Kept { .. } => variable.value.raw(),
                Kind::Scalar => {
                    let ty = variable.ty.raw();
                    LLVMBuildLoad2(self.builder.0, ty, variable.value.raw(), name)
                }
                Kind::Stored => {
                    let apart = Builder::new(self.context);
                    let first = self.body.instructions().next();
                    if let Some(first) = first {
                        LLVMPositionBuilderBefore(apart.0, first.raw());
                    }
                    let room = LLVMBuildAlloca(apart.0, variable.ty.raw(), name);
                    LLVMBuildStore(self.builder.0, variable.value.raw(), room);
                    room
                }
            }
        }
    }
}
