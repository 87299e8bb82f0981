//! The control flow of one body in LLVM's memory: its blocks by number.

use inkwell::llvm_sys::core::{LLVMGetNumSuccessors, LLVMGetSuccessor};
use rustc_hash::FxHashMap;

pub(crate) use uruk_leaving::{Graph, Loop, around};

use crate::handles::{BlockRef, FunctionRef};

/// Blocks and edges of a body.
pub(crate) struct Flow<'m> {
    pub(crate) blocks: Vec<BlockRef<'m>>,
    pub(crate) graph: Graph,
}

impl<'m> Flow<'m> {
    /// The flow of a well-formed body.
    pub(crate) fn of(function: FunctionRef<'m>) -> Flow<'m> {
        let blocks: Vec<BlockRef<'_>> = function.blocks().collect();
        let graph = graph_of(&blocks);
        Flow { blocks, graph }
    }
}

fn graph_of(blocks: &[BlockRef<'_>]) -> Graph {
    let mut graph = Graph::default();
    if let [_] = blocks {
        // A single block may lead to itself only if it is no entry: it is one.
        graph.add([]);
        return graph;
    }
    let numbers = blocks.iter().map(|block| block.raw()).zip(0..);
    let index: FxHashMap<_, u32> = numbers.collect();
    for block in blocks {
        let Some(end) = block.terminator() else {
            graph.add([]);
            continue;
        };
        // SAFETY: a live terminator.
        let successors = 0..unsafe { LLVMGetNumSuccessors(end.raw()) };
        graph.add(successors.map(|at| {
            // SAFETY: a live terminator, and a successor below their count.
            index[&unsafe { LLVMGetSuccessor(end.raw(), at) }]
        }));
    }
    graph
}
