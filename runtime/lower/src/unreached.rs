//! Checks unreachable blocks, which are not lowered. LLVM checks types in them all the same, and
//! that phis and landing pads elsewhere have the edges from these blocks.

use uruk_bitcode::ir::{BlockId, Instruction, Op, ValueId};

use crate::flow::{UNREACHED, successors};
use crate::reading::{Covered, Reading, invalid};

const EDGES: &str = "an edge from where nothing comes";

impl<'a> Reading<'a> {
    /// Checks the blocks that are not lowered, if there are any.
    pub(crate) fn check_unreached(&self) -> Covered<()> {
        let blocks = &self.body.blocks;
        if self.flow.order.len() == blocks.len() {
            return Ok(());
        }
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); blocks.len()];
        for block in 0..blocks.len() as u32 {
            let Some(end) = self.instructions_of(block).last() else {
                return invalid("an empty block");
            };
            for to in successors(&end.op) {
                before[to.0 as usize].push(block);
            }
            if self.flow.places[block as usize] == UNREACHED {
                self.check_unreached_block(block, end)?;
            }
        }
        match before[0].is_empty() {
            true => {}
            false => return invalid("an edge to the entry"),
        }
        for (block, before) in (0..).zip(&before) {
            self.check_edges(block, before)?;
        }
        Ok(())
    }

    fn instructions_of(&self, block: u32) -> &'a [Instruction] {
        let range = self.body.blocks[block as usize].clone();
        &self.body.instructions[range.start as usize..range.end as usize]
    }

    fn check_unreached_block(&self, block: u32, end: &Instruction) -> Covered<()> {
        let all = self.instructions_of(block);
        let is_phi = |it: &&Instruction| matches!(it.op, Op::Phi(_));
        let first = all.iter().take_while(is_phi).count();
        for (at, it) in all.iter().enumerate() {
            self.check(it)?;
            let placed = match it.op {
                Op::Phi(_) => at < first,
                Op::LandingPad(..) => at == first && block != 0,
                _ => true,
            };
            if !placed {
                return invalid("a phi or landing pad at an unusual place");
            }
        }
        match (&end.op, self.body.operands_of(end)) {
            (Op::Return, &[value]) if self.type_of(value)? != self.returns => {
                invalid("a return of another type")
            }
            (Op::Return, []) if !self.returns_nothing() => invalid("a return of another type"),
            (Op::Invoke(_, [_, pad]), _) if !self.is_pad(*pad) => invalid(EDGES),
            _ => Ok(()),
        }
    }

    /// Checks that phis and landing pads of a block match the edges to it.
    fn check_edges(&self, block: u32, before: &[u32]) -> Covered<()> {
        let all = self.instructions_of(block);
        for it in all {
            match &it.op {
                Op::Phi(from) => {
                    let values = self.body.operands_of(it);
                    if !self.has_edges(it, from, values, before)? {
                        return invalid(EDGES);
                    }
                }
                Op::LandingPad(..) => {
                    let comes = |&from: &u32| {
                        let end = self.instructions_of(from).last();
                        end.is_some_and(|end| match &end.op {
                            Op::Invoke(_, [on, pad]) => on.0 != block && pad.0 == block,
                            _ => false,
                        })
                    };
                    if !before.iter().all(comes) {
                        return invalid(EDGES);
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Whether a phi has one value of its type for each edge, the same for edges of one block.
    fn has_edges(
        &self,
        it: &Instruction,
        from: &[BlockId],
        values: &[ValueId],
        before: &[u32],
    ) -> Covered<bool> {
        let ty = self.result(it)?;
        for &value in values {
            if self.type_of(value)? != ty {
                return Ok(false);
            }
        }
        let mut edges: Vec<(u32, u32)> = from
            .iter()
            .map(|it| it.0)
            .zip(values.iter().map(|it| it.0))
            .collect();
        edges.sort_unstable();
        let mut before = before.to_vec();
        before.sort_unstable();
        let differ = |pair: &[(u32, u32)]| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1;
        Ok(!edges.is_empty()
            && edges.iter().map(|edge| edge.0).eq(before)
            && !edges.windows(2).any(differ))
    }
}
