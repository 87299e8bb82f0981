//! The control flow of one copied body: its size, its loops, and the counters that tier 1 inserts.
//!
//! `flow` defines back edges and loops.

use inkwell::llvm_sys::LLVMLinkage;
use inkwell::llvm_sys::LLVMVisibility;
use inkwell::llvm_sys::core::{
    LLVMAddGlobal, LLVMArrayType2, LLVMBuildAdd, LLVMBuildLoad2, LLVMBuildStore,
    LLVMConstInBoundsGEP2, LLVMConstInt, LLVMInt32TypeInContext, LLVMPositionBuilderBefore,
    LLVMSetAlignment, LLVMSetLinkage, LLVMSetVisibility,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;

use crate::attributes::AttributeKinds;
use crate::compile::COUNTERS;
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::flow::{Flow, Loop};
use crate::handles::{FunctionRef, InstructionRef, ValueRef, VariableRef, c_name};

/// The size of a function before optimization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// IR instructions.
    pub instructions: u32,
    /// Loops: targets of back edges.
    pub loops: u32,
    /// True if one of them lies inside another.
    pub nested: bool,
    /// Calls of named functions, intrinsics left out.
    pub calls: u32,
}

/// The measured control flow of a body.
pub(crate) struct BodyShape<'m> {
    /// Phis are instructions too.
    pub(crate) measure: Measure,
    pub(crate) flow: Flow<'m>,
    /// `None` if there are too many to distinguish them.
    pub(crate) loops: Option<Vec<Loop>>,
    /// Blocks that end with a back edge, each once.
    latches: Vec<u32>,
}

/// Measures a well-formed body.
pub(crate) fn measure(function: FunctionRef<'_>) -> BodyShape<'_> {
    let (mut instructions, mut calls) = (0u32, 0u32);
    for instruction in function.instructions() {
        instructions = instructions.saturating_add(1);
        calls += u32::from(is_named_call(instruction));
    }
    BodyShape::of(Flow::of(function), instructions, calls)
}

impl<'m> BodyShape<'m> {
    /// Derives the shape from a body's flow, and counts of its instructions and calls.
    pub(crate) fn of(flow: Flow<'m>, instructions: u32, calls: u32) -> BodyShape<'m> {
        let back = flow.graph.back_edges();
        let (mut latches, mut heads): (Vec<u32>, Vec<u32>) = back.iter().copied().unzip();
        for ends in [&mut latches, &mut heads] {
            ends.sort_unstable();
            ends.dedup();
        }
        let loops = flow.graph.loops(&back);
        let nested = match &loops {
            Some(loops) => loops.iter().any(|it| it.around.is_some()),
            None => heads.len() > 1,
        };
        BodyShape {
            measure: Measure {
                instructions,
                loops: u32::try_from(heads.len()).unwrap_or(u32::MAX),
                nested,
                calls,
            },
            flow,
            loops,
            latches,
        }
    }
}

/// True if counters may be put into `body`: not into a naked function, which is assembly only, nor
/// into a coroutine that has not been split.
pub(crate) fn is_countable(kinds: &AttributeKinds, body: FunctionRef<'_>) -> bool {
    !body.has(kinds.naked) && !body.has(kinds.presplit_coroutine)
}

impl<'m> BodyShape<'m> {
    /// The input for decisions about loops.
    pub(crate) fn of_loops(&self) -> uruk_leaving::Shape<'_> {
        uruk_leaving::Shape {
            graph: &self.flow.graph,
            loops: self.loops.as_deref(),
            count: self.measure.loops,
            latches: &self.latches,
        }
    }

    /// The latches of all loops.
    pub(crate) fn latches(&self) -> &[u32] {
        &self.latches
    }

    /// Makes `body` count its entries, and executions of these latches. A block that leaves through
    /// a back edge or elsewhere counts both. The policy needs one increment per iteration, and
    /// splitting the edge would cost a jump. Above tier 1 no latch is counted: an increment per
    /// iteration hinders passes.
    pub(crate) fn count(
        &self,
        context: &LlvmContext,
        module: &'m OwnedModule,
        body: FunctionRef<'m>,
        latches: &[u32],
    ) {
        let builder = Builder::new(context);
        // SAFETY: a live context.
        let word = unsafe { LLVMInt32TypeInContext(context.raw()) };
        // SAFETY: a type of the module's context.
        let counters = unsafe { counters(module, word) };
        let entry = body.instructions().next();
        let ends = latches.iter().filter_map(|&latch| {
            let block = self.flow.blocks[latch as usize];
            block.terminator()
        });
        let places = entry.map(|at| (0, at)).into_iter();
        for (index, before) in places.chain(ends.map(|at| (1, at))) {
            // SAFETY: all of one context, and a place in the body that is no phi: its first
            // instruction, or a terminator. Static allocas behind the increment are still in
            // the entry block, which is all that makes them static.
            unsafe { increment(&builder, word, *counters, index, before) };
        }
    }
}

/// The declaration of [`COUNTERS`]: hidden, so that it is reached relative to the
/// program counter.
///
/// # Safety
/// A type of the module's context.
unsafe fn counters(module: &OwnedModule, word: LLVMTypeRef) -> VariableRef<'_> {
    if let Some(known) = module.variable(COUNTERS) {
        return known;
    }
    let name = c_name(COUNTERS);
    // SAFETY: by the caller's promise; the name is a C string, and the new variable belongs to the
    // module.
    unsafe {
        let global = LLVMAddGlobal(module.raw(), LLVMArrayType2(word, 2), name.as_ptr());
        LLVMSetLinkage(global, LLVMLinkage::LLVMExternalLinkage);
        LLVMSetVisibility(global, LLVMVisibility::LLVMHiddenVisibility);
        LLVMSetAlignment(global, 4);
        VariableRef::of(global)
    }
}

/// # Safety
/// All of one context; `before` is no phi.
unsafe fn increment(
    builder: &Builder,
    word: LLVMTypeRef,
    counters: ValueRef<'_>,
    index: u64,
    before: InstructionRef<'_>,
) {
    // SAFETY: by the caller's promise; `index` is within the pair.
    unsafe {
        LLVMPositionBuilderBefore(builder.0, before.raw());
        let mut offset = LLVMConstInt(word, index, 0);
        let place = LLVMConstInBoundsGEP2(word, counters.raw(), &mut offset, 1);
        let old = LLVMBuildLoad2(builder.0, word, place, c"".as_ptr());
        let new = LLVMBuildAdd(builder.0, old, LLVMConstInt(word, 1, 0), c"".as_ptr());
        LLVMBuildStore(builder.0, new, place);
    }
}

/// Whether `instruction` calls a function by name, other than an intrinsic.
fn is_named_call(instruction: InstructionRef<'_>) -> bool {
    let callee = instruction.callee().and_then(ValueRef::as_function);
    callee.is_some_and(|callee| !callee.is_intrinsic())
}
