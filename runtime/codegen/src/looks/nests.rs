//! Finds loops through which the word can be kept in the frame: nothing in them could change it.
//!
//! A nest is a loop, with all its inner loops, that makes no calls and is in no other such loop. It
//! is entered from one block, which leads nowhere else, and left to blocks that only it leads to.
//! Passes that simplify loops leave loops in this form.

use inkwell::llvm_sys::core::LLVMIsAInlineAsm;

use super::is_plain;
use crate::flow::{Flow, Loop};
use crate::handles::{BlockRef, FunctionRef, InstructionRef};

/// Functions of the C library that call nothing, as compilers know them.
const QUIET: [&str; 24] = [
    "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "exp", "exp2", "fabs", "floor", "fmod",
    "hypot", "log", "log10", "log2", "pow", "round", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
];

/// The nests of a body.
#[derive(Default)]
pub(super) struct Nests {
    /// For each block, whether it is in a nest.
    pub(super) inside: Vec<bool>,
    /// Blocks that lead into a nest, at their ends.
    pub(super) before: Vec<u32>,
    /// Blocks that a nest leads to.
    pub(super) behind: Vec<u32>,
}

impl Nests {
    pub(super) fn of(flow: &Flow<'_>, back: &[(u32, u32)]) -> Nests {
        let mut nests = Nests {
            inside: vec![false; flow.blocks.len()],
            ..Nests::default()
        };
        let Some(loops) = flow.graph.loops(back) else {
            return nests;
        };
        let quiet: Vec<bool> = flow
            .blocks
            .iter()
            .map(|block| calls_nothing(*block))
            .collect();
        let may_be = |it: &Loop| {
            let inside = it.inside.iter().zip(&quiet);
            !it.irreducible && inside.into_iter().all(|(inside, quiet)| !inside || *quiet)
        };
        for it in &loops {
            let inner = it.around.is_some_and(|around| may_be(&loops[around]));
            if !inner && may_be(it) {
                nests.add(flow, it);
            }
        }
        nests
    }

    /// Adds a loop, if it is entered and left in the form above.
    fn add(&mut self, flow: &Flow<'_>, it: &Loop) {
        let predecessors = flow.graph.predecessors();
        let is_inside = |block: &u32| it.inside[*block as usize];
        let mut before = predecessors.of(it.head).iter().filter(|at| !is_inside(at));
        let (Some(&before), None) = (before.next(), before.next()) else {
            return;
        };
        let blocks = 0..flow.blocks.len() as u32;
        let leads = blocks.filter(is_inside);
        let mut behind: Vec<u32> = leads
            .flat_map(|block| flow.graph.successors(block))
            .copied()
            .filter(|to| !is_inside(to))
            .collect();
        behind.sort_unstable();
        behind.dedup();
        let only = |to: &u32| predecessors.of(*to).iter().all(is_inside);
        if flow.graph.successors(before).len() == 1 && behind.iter().all(only) {
            let all = self.inside.iter_mut().zip(&it.inside);
            all.for_each(|(inside, &more)| *inside |= more);
            self.before.push(before);
            self.behind.extend(behind);
        }
    }
}

/// Whether the callee of a call may look.
pub(super) fn may_look(call: InstructionRef<'_>) -> bool {
    call.callee().is_some_and(|callee| {
        // SAFETY: a live value.
        let is_assembly = !unsafe { LLVMIsAInlineAsm(callee.raw()) }.is_null();
        !is_assembly && !callee.as_function().is_some_and(is_quiet)
    })
}

/// Whether a function never looks, judged by its name.
pub(super) fn is_quiet(function: FunctionRef<'_>) -> bool {
    let name = function.name();
    let own = name.strip_suffix('f').unwrap_or(&name);
    let known = QUIET.contains(&&*name) || QUIET.contains(&own);
    function.is_intrinsic() || function.is_declaration() && known
}

/// Whether a block makes no calls, and ends with a terminator that can be duplicated.
fn calls_nothing(block: BlockRef<'_>) -> bool {
    let end = block.terminator();
    end.is_some_and(|end| is_plain(end.opcode())) && !block.instructions().any(may_look)
}
