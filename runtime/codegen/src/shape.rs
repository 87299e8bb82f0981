//! The control flow of one copied body: its size, its loops, and the counters that
//! tier 1 puts into it.
//!
//! A back edge is an edge to a block that is still on the stack of a depth-first walk
//! from the entry; its target heads a loop. The loop's blocks are those from which the
//! edge is reached without passing the head. Both are the textbook's definitions for
//! reducible flow; for irreducible flow they still find one edge per cycle, which is
//! all that counters need.

use inkwell::llvm_sys::LLVMLinkage;
use inkwell::llvm_sys::LLVMVisibility;
use inkwell::llvm_sys::core::{
    LLVMAddGlobal, LLVMArrayType2, LLVMBuildAdd, LLVMBuildLoad2, LLVMBuildStore,
    LLVMConstInBoundsGEP2, LLVMConstInt, LLVMCreateBuilderInContext, LLVMGetBasicBlockTerminator,
    LLVMGetCalledValue, LLVMGetFirstBasicBlock, LLVMGetFirstInstruction, LLVMGetInstructionOpcode,
    LLVMGetIntrinsicID, LLVMGetNamedGlobal, LLVMGetNextBasicBlock, LLVMGetNextInstruction,
    LLVMGetNumSuccessors, LLVMGetSuccessor, LLVMInt32TypeInContext, LLVMIsAFunction,
    LLVMPositionBuilderBefore, LLVMSetAlignment, LLVMSetLinkage, LLVMSetVisibility,
};
use inkwell::llvm_sys::prelude::{
    LLVMBasicBlockRef, LLVMContextRef, LLVMModuleRef, LLVMTypeRef, LLVMValueRef,
};
use rustc_hash::FxHashMap;

use crate::body::is_call;
use crate::compile::COUNTERS;
use crate::extract::{Builder, has_function_attribute};
use crate::reader::{Reader, c_name};

/// Blocks looked at, times loops, to find out whether loops nest. Beyond that, two
/// loops count as nested.
const NESTING_WORK: usize = 50_000;

/// What the walk found.
pub(crate) struct Shape {
    /// Instructions, phis included.
    pub(crate) instructions: u32,
    /// True if a loop lies inside another.
    pub(crate) nested: bool,
    /// Calls of named functions, intrinsics left out.
    pub(crate) calls: u32,
    /// Blocks that a back edge leaves from, each once.
    latches: Vec<LLVMBasicBlockRef>,
    heads: usize,
}

/// Successors by block index, and the blocks.
struct Graph {
    blocks: Vec<LLVMBasicBlockRef>,
    /// Successors of block `i` are `edges[starts[i]..starts[i + 1]]`.
    starts: Vec<usize>,
    edges: Vec<u32>,
}

/// Measures a body.
///
/// # Safety
/// `function` is a live function with a well-formed body.
pub(crate) unsafe fn measure(function: LLVMValueRef) -> Shape {
    // SAFETY: by the caller's promise.
    let (graph, instructions, calls) = unsafe { read_graph(function) };
    let back = back_edges(&graph);
    let mut latches: Vec<u32> = back.iter().map(|&(latch, _)| latch).collect();
    latches.sort_unstable();
    latches.dedup();
    let mut heads: Vec<u32> = back.iter().map(|&(_, head)| head).collect();
    heads.sort_unstable();
    heads.dedup();
    Shape {
        instructions,
        nested: heads.len() > 1 && has_nested_loop(&graph, &back, &heads),
        calls,
        latches: latches
            .iter()
            .map(|&latch| graph.blocks[latch as usize])
            .collect(),
        heads: heads.len(),
    }
}

impl Shape {
    /// Number of loops.
    pub(crate) fn loops(&self) -> u32 {
        u32::try_from(self.heads).unwrap_or(u32::MAX)
    }

    /// True if counters may be put into `body`: not into a naked function, which is
    /// assembly only, nor into a coroutine that is still to be split.
    pub(crate) fn countable(&self, reader: &Reader, body: LLVMValueRef) -> bool {
        let kinds = reader.kinds();
        !has_function_attribute(body, kinds.naked)
            && !has_function_attribute(body, kinds.presplit_coroutine)
    }

    /// Makes `body` count its entries and its back edges. A block that leaves through
    /// a back edge or elsewhere counts both: one increment per iteration is what the
    /// policy needs, and splitting the edge would cost a jump.
    /// Without `loops` entries only: an increment per iteration is in the way of passes.
    pub(crate) fn count(
        &self,
        context: LLVMContextRef,
        module: LLVMModuleRef,
        body: LLVMValueRef,
        loops: bool,
    ) {
        // SAFETY: live context and module; the builder is ours, and is positioned at
        // instructions of `body`. Static allocas behind the increment are still in
        // the entry block, which is all that makes them static.
        unsafe {
            let builder = Builder(LLVMCreateBuilderInContext(context));
            let word = LLVMInt32TypeInContext(context);
            let counters = counters(module, word);
            let entry = LLVMGetFirstInstruction(LLVMGetFirstBasicBlock(body));
            increment(&builder, word, counters, 0, entry);
            let latches: &[_] = if loops { &self.latches } else { &[] };
            for &latch in latches {
                let end = LLVMGetBasicBlockTerminator(latch);
                increment(&builder, word, counters, 1, end);
            }
        }
    }
}

/// The declaration of [`COUNTERS`]: hidden, so that it is reached relative to the
/// program counter.
///
/// # Safety
/// A live module, and a type of its context.
unsafe fn counters(module: LLVMModuleRef, word: LLVMTypeRef) -> LLVMValueRef {
    let name = c_name(COUNTERS);
    // SAFETY: by the caller's promise; the name is a C string.
    unsafe {
        let known = LLVMGetNamedGlobal(module, name.as_ptr());
        if !known.is_null() {
            return known;
        }
        let global = LLVMAddGlobal(module, LLVMArrayType2(word, 2), name.as_ptr());
        LLVMSetLinkage(global, LLVMLinkage::LLVMExternalLinkage);
        LLVMSetVisibility(global, LLVMVisibility::LLVMHiddenVisibility);
        LLVMSetAlignment(global, 4);
        global
    }
}

/// # Safety
/// All of one context; `before` is a live instruction that is no phi.
unsafe fn increment(
    builder: &Builder,
    word: LLVMTypeRef,
    counters: LLVMValueRef,
    index: u64,
    before: LLVMValueRef,
) {
    // SAFETY: by the caller's promise; `index` is within the pair.
    unsafe {
        LLVMPositionBuilderBefore(builder.0, before);
        let mut offset = LLVMConstInt(word, index, 0);
        let place = LLVMConstInBoundsGEP2(word, counters, &mut offset, 1);
        let old = LLVMBuildLoad2(builder.0, word, place, c"".as_ptr());
        let new = LLVMBuildAdd(builder.0, old, LLVMConstInt(word, 1, 0), c"".as_ptr());
        LLVMBuildStore(builder.0, new, place);
    }
}

/// # Safety
/// As [`measure`].
unsafe fn read_graph(function: LLVMValueRef) -> (Graph, u32, u32) {
    let mut blocks = Vec::new();
    let (mut instructions, mut calls) = (0u32, 0u32);
    // SAFETY: walks the blocks and instructions of a live function.
    unsafe {
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            blocks.push(block);
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                instructions = instructions.saturating_add(1);
                calls += u32::from(is_named_call(instruction));
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    let (mut starts, mut edges) = (vec![0], Vec::new());
    if blocks.len() > 1 {
        let index: FxHashMap<_, u32> = blocks.iter().copied().zip(0..).collect();
        for &block in &blocks {
            // SAFETY: every block of a well-formed body has a terminator.
            unsafe {
                let end = LLVMGetBasicBlockTerminator(block);
                edges.extend(
                    (0..LLVMGetNumSuccessors(end)).map(|i| index[&LLVMGetSuccessor(end, i)]),
                );
            }
            starts.push(edges.len());
        }
    } else {
        starts.push(0);
    }
    let graph = Graph {
        blocks,
        starts,
        edges,
    };
    (graph, instructions, calls)
}

/// Whether `instruction` calls a function by its name that is no intrinsic.
///
/// # Safety
/// A live instruction.
unsafe fn is_named_call(instruction: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise; a call has a called value, and only a function
    // is asked for its number among the intrinsics.
    unsafe {
        if !is_call(LLVMGetInstructionOpcode(instruction)) {
            return false;
        }
        let called = LLVMGetCalledValue(instruction);
        !LLVMIsAFunction(called).is_null() && LLVMGetIntrinsicID(called) == 0
    }
}

impl Graph {
    fn successors(&self, block: u32) -> &[u32] {
        let block = block as usize;
        &self.edges[self.starts[block]..self.starts[block + 1]]
    }
}

/// Edges to a block on the stack of a depth-first walk, as (from, to).
fn back_edges(graph: &Graph) -> Vec<(u32, u32)> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut found = Vec::new();
    if graph.edges.is_empty() {
        return found;
    }
    let mut state = vec![State::New; graph.blocks.len()];
    let mut stack = vec![(0u32, 0usize)];
    state[0] = State::Open;
    while let Some((block, next)) = stack.last_mut() {
        let block = *block;
        let Some(&to) = graph.successors(block).get(*next) else {
            state[block as usize] = State::Done;
            stack.pop();
            continue;
        };
        *next += 1;
        match state[to as usize] {
            State::New => {
                state[to as usize] = State::Open;
                stack.push((to, 0));
            }
            State::Open => found.push((block, to)),
            State::Done => {}
        }
    }
    found
}

/// True if the blocks of some loop hold the head of another.
fn has_nested_loop(graph: &Graph, back: &[(u32, u32)], heads: &[u32]) -> bool {
    if heads.len() * graph.blocks.len() > NESTING_WORK {
        return true;
    }
    let mut predecessors = vec![Vec::new(); graph.blocks.len()];
    for block in 0..graph.blocks.len() as u32 {
        for &to in graph.successors(block) {
            predecessors[to as usize].push(block);
        }
    }
    heads.iter().any(|&head| {
        let mut inside = vec![false; graph.blocks.len()];
        inside[head as usize] = true;
        let latches = back.iter().filter(|&&(_, to)| to == head);
        let mut work: Vec<u32> = latches.map(|&(latch, _)| latch).collect();
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut inside[block as usize], true) {
                work.extend(&predecessors[block as usize]);
            }
        }
        heads
            .iter()
            .any(|&other| other != head && inside[other as usize])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(successors: &[&[u32]]) -> Graph {
        let mut starts = vec![0];
        let mut edges = Vec::new();
        for list in successors {
            edges.extend_from_slice(list);
            starts.push(edges.len());
        }
        Graph {
            blocks: vec![std::ptr::null_mut(); successors.len()],
            starts,
            edges,
        }
    }

    /// Back edges, and whether loops nest.
    fn check(successors: &[&[u32]]) -> (Vec<(u32, u32)>, bool) {
        let graph = graph(successors);
        let mut back = back_edges(&graph);
        back.sort_unstable();
        let mut heads: Vec<u32> = back.iter().map(|e| e.1).collect();
        heads.sort_unstable();
        heads.dedup();
        let nested = has_nested_loop(&graph, &back, &heads);
        (back, nested)
    }

    #[test]
    fn straight_code_has_no_loop() {
        assert_eq!(check(&[&[1, 2], &[2], &[]]), (vec![], false));
    }

    #[test]
    fn loops_one_after_the_other_do_not_nest() {
        let flow: [&[u32]; 4] = [&[1], &[1, 2], &[2, 3], &[]];
        assert_eq!(check(&flow), (vec![(1, 1), (2, 2)], false));
    }

    #[test]
    fn a_loop_in_a_loop_nests() {
        let flow: [&[u32]; 5] = [&[1], &[2, 4], &[2, 3], &[1], &[]];
        assert_eq!(check(&flow), (vec![(2, 2), (3, 1)], true));
    }

    #[test]
    fn every_cycle_is_cut_in_irreducible_flow() {
        let flow: [&[u32]; 4] = [&[1, 2], &[2], &[1, 3], &[]];
        assert_eq!(check(&flow).0.len(), 1);
    }
}
