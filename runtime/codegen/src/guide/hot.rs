//! Marks calls that a profile shows to be hot, so that they are inlined more eagerly.
//!
//! LLVM finds hot calls by a summary of all counts of a program (`ProfileSummary`): it compares the
//! entries of a caller times a block's frequency with it. Here functions were counted one after
//! another, each for a short time, some in a loop without an entry. So the program has no summary.
//! Instead a hot call is found by its executions a second, if the time of counting is known, and
//! gets an attribute:
//!
//! ```text
//! hot(call) = executions of its block / time that was counted >= RATE
//!             SHARE * executions of its block >= those of the function's most executed block, if it
//!             is not known
//! ```
//!
//! In SQLite's main loop the calls of single opcodes are executed a hundred times a millisecond,
//! and the loop's head a hundred times as often: by share none of them was hot. An iteration of it
//! took 21.2 to 22.3 ms so, and 20.8 to 21.3 by rate.

use inkwell::llvm_sys::LLVMAttributeFunctionIndex;
use inkwell::llvm_sys::core::{LLVMAddCallSiteAttribute, LLVMCreateStringAttribute};
use inkwell::llvm_sys::prelude::LLVMContextRef;
use rustc_hash::FxHashMap;

use crate::flow::{Flow, Graph};
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::probe;
use crate::profile::{Count, Profile};

/// Executions a second of a block whose calls are hot: inlining saves some nanoseconds at each, so
/// a thousandth of the time in all. (In SQLite the 99 of 100 counts that LLVM calls hot end at
/// about this rate.)
const RATE: f64 = 150_000.0;

/// Executions of the most executed block to one of a block whose calls are hot.
const SHARE: u64 = 8;

/// The cost up to which LLVM inlines, by an attribute of a call. At its highest level that is 250,
/// and for hot calls of a program 3,000; no callee larger than 1,500 is a candidate here.
const THRESHOLD: (&str, &str) = ("function-inline-threshold", "1000");

/// Adds the attribute to the hot calls of a function.
///
/// # Safety
/// A body of the context, whose sites these are.
pub(super) unsafe fn mark(
    context: LLVMContextRef,
    function: FunctionRef<'_>,
    profile: &Profile,
    counts: &[(InstructionRef<'_>, Count<'_>)],
) {
    let flow = Flow::of(function);
    let numbers: FxHashMap<_, u32> = flow.blocks.iter().map(|it| it.raw()).zip(0..).collect();
    let counts: FxHashMap<_, _> = counts
        .iter()
        .map(|(site, count)| (site.raw(), count))
        .collect();
    let out_of = |end: InstructionRef<'_>| -> Option<Vec<(u32, u64)>> {
        let counts = match **counts.get(&end.raw())? {
            Count::Branch { executed, taken } => vec![taken, executed - taken],
            Count::Switch(ways) => ways.to_vec(),
            Count::Call(_) => return None,
        };
        // SAFETY: a live terminator.
        let ways = unsafe { probe::ways(end.raw()) }.into_iter();
        // Both ways of a branch may lead to one block.
        match ways.len() < counts.len() {
            true => Some(
                ways.map(|(to, _)| (numbers[&to], sum(counts.iter().copied())))
                    .collect(),
            ),
            false => Some(ways.map(|(to, _)| numbers[&to]).zip(counts).collect()),
        }
    };
    let ends = flow.blocks.iter().map(|block| block.terminator());
    let edges: Vec<_> = ends.map(|end| end.and_then(out_of)).collect();
    let executed = executions(&flow.graph, profile.entries(), &edges);
    let most = executed.iter().copied().flatten().max().unwrap_or(0);
    let (key, value) = THRESHOLD;
    for (block, executed) in flow.blocks.iter().zip(executed) {
        let executed = executed.unwrap_or(0);
        let hot = match profile.per_second(executed) {
            Some(rate) => rate >= RATE,
            None => executed > 0 && executed.saturating_mul(SHARE) >= most,
        };
        if !hot {
            continue;
        }
        let is_call = |it: &InstructionRef<'_>| match it.callee().map(ValueRef::as_function) {
            Some(Some(callee)) => !callee.is_intrinsic(),
            // A pointer, whose call may still become direct.
            Some(None) => true,
            None => false,
        };
        for call in block.instructions().filter(is_call) {
            // SAFETY: a live call, and its context; pointers and lengths describe the strings.
            unsafe {
                let attribute = LLVMCreateStringAttribute(
                    context,
                    key.as_ptr().cast(),
                    key.len() as u32,
                    value.as_ptr().cast(),
                    value.len() as u32,
                );
                LLVMAddCallSiteAttribute(call.raw(), LLVMAttributeFunctionIndex, attribute);
            }
        }
    }
}

/// A sum of counts, which the program wrote and may have overwritten.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// How often each block was executed, by the counts along its edges; `None` where they do not
/// determine it. `edges` are those out of blocks whose ends have counts.
fn executions(graph: &Graph, entries: u64, edges: &[Option<Vec<(u32, u64)>>]) -> Vec<Option<u64>> {
    let out_of = |edges: &Option<Vec<(u32, u64)>>| {
        let edges = edges.as_ref()?.iter();
        Some(sum(edges.map(|&(_, count)| count)))
    };
    let mut found: Vec<Option<u64>> = edges.iter().map(out_of).collect();
    found[0] = found[0].or(Some(entries));
    let into = graph.predecessors();
    let order = graph.reverse_postorder();
    loop {
        let mut changed = false;
        for &block in &order {
            if found[block as usize].is_some() {
                continue;
            }
            let along = |from: u32| match &edges[from as usize] {
                Some(out) => {
                    let here = out.iter().filter(|&&(to, _)| to == block);
                    Some(sum(here.map(|&(_, count)| count)))
                }
                // Of the successors of a call that may throw, the first is that of its return.
                None if graph.successors(from).first() == Some(&block) => found[from as usize],
                None => Some(0),
            };
            let mut from = into.of(block).to_vec();
            from.dedup();
            let counts: Option<Vec<u64>> = from.into_iter().map(along).collect();
            let all = counts.map(|counts| sum(counts.into_iter()));
            found[block as usize] = all;
            changed |= all.is_some();
        }
        if !changed {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(successors: &[&[u32]]) -> Graph {
        let mut graph = Graph::default();
        for &to in successors {
            graph.add(to.iter().copied());
        }
        graph
    }

    #[test]
    fn blocks_without_counts_are_told_by_their_edges() {
        // A loop of three blocks, in which one can be skipped, and the block behind it.
        let graph = graph(&[&[1], &[2, 5], &[3, 4], &[4], &[1], &[]]);
        let edges = [
            None,
            Some(vec![(2, 990), (5, 10)]),
            Some(vec![(3, 40), (4, 950)]),
            None,
            None,
            None,
        ];
        let all = [10, 1000, 990, 40, 990, 10].map(Some);
        assert_eq!(executions(&graph, 10, &edges), all);
    }

    #[test]
    fn nothing_is_told_of_what_no_count_leads_to() {
        // The second block loops for ever, and its loop edge is a second way in.
        let graph = graph(&[&[1], &[1]]);
        assert_eq!(executions(&graph, 7, &[None, None]), [Some(7), None]);
    }

    #[test]
    fn calls_return_the_first_way() {
        let graph = graph(&[&[1, 2], &[], &[]]);
        let all = [Some(5), Some(5), Some(0)];
        assert_eq!(executions(&graph, 5, &[None, None, None]), all);
    }
}
