//! Jump threading: edges to blocks that only jump lead to the targets of those.

use crate::analysis::{NONE, Order, head_of};
use crate::ir::{Block, Function, Op};

/// Fills in by place the place of the block that an edge reaches: its own, or the target of a block
/// that only jumps, to a block without phis, and has no counter.
pub(super) fn find(function: &Function, order: &Order, targets: &mut Vec<u32>) {
    targets.clear();
    targets.extend(0..order.blocks.len() as u32);
    // Most lead forward, so that their target is already final.
    for place in (1..order.blocks.len()).rev() {
        let block = order.blocks[place];
        if let Some(to) = leads_to(function, block) {
            let to = order.place[to.index()];
            if to != NONE && targets[to as usize] != place as u32 {
                targets[place] = targets[to as usize];
            }
        }
    }
}

/// The target of a block that only jumps.
fn leads_to(function: &Function, block: Block) -> Option<Block> {
    let data = &function.blocks[block.index()];
    let counting = &function.counting;
    if data.instructions.len() != 1
        || !matches!(
            function.instructions[data.instructions.start as usize].op,
            Op::Jump
        )
        || head_of(function, block).is_some()
        || counting.latches.binary_search(&block).is_ok()
    {
        return None;
    }
    let to = data.successors[0];
    let first = function.blocks[to.index()].instructions.start;
    match function.instructions[first as usize].op {
        Op::Phi(..) => None,
        _ => Some(to),
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::Order;
    use crate::text::parse;

    fn check(text: &str, expected: &[u32]) {
        let function = parse(text).expect("a function");
        let mut order = Order::default();
        order.of(&function);
        let mut targets = Vec::new();
        super::find(&function, &order, &mut targets);
        assert_eq!(targets, expected);
    }

    #[test]
    fn chains_and_circles() {
        check(
            "function(i1 %0)\nb0:\n  branch %0 b1, b3\nb1:\n  jump b2\nb2:\n  jump b3\nb3:\n  return\n",
            &[0, 3, 3, 3],
        );
        check("function()\nb0:\n  jump b1\nb1:\n  jump b1\n", &[0, 1]);
        check(
            "function()\nb0:\n  jump b1\nb1:\n  jump b2\nb2:\n  jump b1\n",
            &[0, 1, 1],
        );
        // Phis distinguish edges.
        check(
            "function(i1 %0) -> i1\nb0:\n  branch %0 b1, b2\nb1:\n  jump b2\nb2:\n  \
             %1 = phi i1 [b0 0] [b1 1]\n  return %1\n",
            &[0, 1, 2],
        );
    }
}
