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
    LLVMConstInBoundsGEP2, LLVMConstInt, LLVMGetNumSuccessors, LLVMGetSuccessor,
    LLVMInt32TypeInContext, LLVMPositionBuilderBefore, LLVMSetAlignment, LLVMSetLinkage,
    LLVMSetVisibility,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;
use rustc_hash::FxHashMap;

use crate::compile::COUNTERS;
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::handles::{BlockRef, FunctionRef, InstructionRef, ValueRef, VariableRef, c_name};
use crate::query::Measure;
use crate::reader::Reader;

/// Blocks looked at, times loops, to find out whether loops nest. Beyond that, two
/// loops count as nested.
const NESTING_WORK: usize = 50_000;

/// What the walk found.
pub(crate) struct Shape<'m> {
    /// Phis are instructions too.
    pub(crate) measure: Measure,
    /// Blocks that a back edge leaves from, each once.
    latches: Vec<BlockRef<'m>>,
}

/// Successors by block index.
struct Graph {
    /// Successors of block `i` are `edges[starts[i]..starts[i + 1]]`.
    starts: Vec<usize>,
    edges: Vec<u32>,
}

/// Measures a well-formed body.
pub(crate) fn measure(function: FunctionRef<'_>) -> Shape<'_> {
    let (mut instructions, mut calls) = (0u32, 0u32);
    for instruction in function.instructions() {
        instructions = instructions.saturating_add(1);
        calls += u32::from(is_named_call(instruction));
    }
    let blocks: Vec<BlockRef<'_>> = function.blocks().collect();
    let graph = read_graph(&blocks);
    let back = back_edges(&graph);
    let mut latches: Vec<u32> = back.iter().map(|&(latch, _)| latch).collect();
    latches.sort_unstable();
    latches.dedup();
    let mut heads: Vec<u32> = back.iter().map(|&(_, head)| head).collect();
    heads.sort_unstable();
    heads.dedup();
    Shape {
        measure: Measure {
            instructions,
            loops: u32::try_from(heads.len()).unwrap_or(u32::MAX),
            nested: heads.len() > 1 && has_nested_loop(&graph, &back, &heads),
            calls,
        },
        latches: latches
            .iter()
            .map(|&latch| blocks[latch as usize])
            .collect(),
    }
}

/// True if counters may be put into `body`: not into a naked function, which is assembly
/// only, nor into a coroutine that is still to be split.
pub(crate) fn is_countable(reader: &Reader, body: FunctionRef<'_>) -> bool {
    let kinds = reader.kinds();
    !body.has(kinds.naked) && !body.has(kinds.presplit_coroutine)
}

impl<'m> Shape<'m> {
    /// Makes `body` count its entries and its back edges. A block that leaves through
    /// a back edge or elsewhere counts both: one increment per iteration is what the
    /// policy needs, and splitting the edge would cost a jump.
    /// Without `loops` entries only: an increment per iteration is in the way of passes.
    pub(crate) fn count(
        &self,
        context: &LlvmContext,
        module: &'m OwnedModule,
        body: FunctionRef<'m>,
        loops: bool,
    ) {
        let builder = Builder::new(context);
        // SAFETY: a live context.
        let word = unsafe { LLVMInt32TypeInContext(context.raw()) };
        // SAFETY: a type of the module's context.
        let counters = unsafe { counters(module, word) };
        let entry = body.instructions().next();
        let latches: &[_] = if loops { &self.latches } else { &[] };
        let ends = latches.iter().filter_map(|latch| latch.terminator());
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
    // SAFETY: by the caller's promise; the name is a C string, and what is made the module's.
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

fn read_graph(blocks: &[BlockRef<'_>]) -> Graph {
    let (mut starts, mut edges) = (vec![0], Vec::new());
    if blocks.len() <= 1 {
        starts.push(0);
        return Graph { starts, edges };
    }
    let numbers = blocks.iter().map(|block| block.raw()).zip(0..);
    let index: FxHashMap<_, u32> = numbers.collect();
    for block in blocks {
        if let Some(end) = block.terminator() {
            // SAFETY: a live terminator, and successors below their count.
            edges.extend(unsafe {
                let successors = 0..LLVMGetNumSuccessors(end.raw());
                successors.map(|i| index[&LLVMGetSuccessor(end.raw(), i)])
            });
        }
        starts.push(edges.len());
    }
    Graph { starts, edges }
}

/// Whether `instruction` calls a function by its name that is no intrinsic.
fn is_named_call(instruction: InstructionRef<'_>) -> bool {
    let callee = instruction.callee().and_then(ValueRef::as_function);
    callee.is_some_and(|callee| !callee.is_intrinsic())
}

impl Graph {
    /// Number of blocks.
    fn len(&self) -> usize {
        self.starts.len() - 1
    }

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
    let mut state = vec![State::New; graph.len()];
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
    if heads.len() * graph.len() > NESTING_WORK {
        return true;
    }
    let mut predecessors = vec![Vec::new(); graph.len()];
    for block in 0..graph.len() as u32 {
        for &to in graph.successors(block) {
            predecessors[to as usize].push(block);
        }
    }
    heads.iter().any(|&head| {
        let mut inside = vec![false; graph.len()];
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
        Graph { starts, edges }
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
