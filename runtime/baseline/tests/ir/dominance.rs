//! Dominators, for [`super::check`].
//!
//! Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001): immediate dominators
//! by rounds over the blocks in reverse postorder.

use super::{Block, Function};

/// Immediate dominators.
#[derive(Debug)]
pub(super) struct Dominance {
    /// Of each reachable block; the entry's is itself.
    above: Vec<Option<Block>>,
    /// Numbers in reverse postorder.
    order: Vec<u32>,
}

impl Dominance {
    pub(super) fn of(function: &Function) -> Dominance {
        let postorder = postorder(function);
        let mut order = vec![u32::MAX; function.blocks.len()];
        for (number, block) in postorder.iter().rev().enumerate() {
            order[block.index()] = number as u32;
        }
        let mut before = vec![Vec::new(); function.blocks.len()];
        for &block in &postorder {
            for to in &function.blocks[block.index()].successors {
                before[to.index()].push(block);
            }
        }
        let mut all = Dominance {
            above: vec![None; function.blocks.len()],
            order,
        };
        all.above[0] = Some(Block(0));
        let mut changed = true;
        while changed {
            changed = false;
            for &block in postorder.iter().rev().skip(1) {
                let known = before[block.index()].iter().copied();
                let known = known.filter(|one| all.above[one.index()].is_some());
                let new = known.reduce(|a, b| all.meet(a, b));
                changed |= new != all.above[block.index()];
                all.above[block.index()] = new;
            }
        }
        all
    }

    /// The nearest block that dominates both.
    fn meet(&self, mut a: Block, mut b: Block) -> Block {
        while a != b {
            let (later, other) = match self.order[a.index()] > self.order[b.index()] {
                true => (a, b),
                false => (b, a),
            };
            a = self.above[later.index()].unwrap_or(other);
            b = other;
        }
        a
    }

    /// Whether a block is reachable.
    pub(super) fn is_reached(&self, block: Block) -> bool {
        self.above[block.index()].is_some()
    }

    /// Whether every path to `below` passes `above`.
    pub(super) fn dominates(&self, above: Block, mut below: Block) -> bool {
        if !self.is_reached(above) {
            return false;
        }
        loop {
            match self.above[below.index()] {
                _ if below == above => return true,
                Some(next) if next != below => below = next,
                _ => return false,
            }
        }
    }
}

/// Reachable blocks in postorder.
fn postorder(function: &Function) -> Vec<Block> {
    let mut seen = vec![false; function.blocks.len()];
    let mut done = Vec::new();
    let mut open = vec![(Block(0), 0)];
    seen[0] = true;
    while let Some((block, next)) = open.last_mut() {
        let block = *block;
        let Some(&to) = function.blocks[block.index()].successors.get(*next) else {
            done.push(block);
            open.pop();
            continue;
        };
        *next += 1;
        if !seen[to.index()] {
            seen[to.index()] = true;
            open.push((to, 0));
        }
    }
    done
}
