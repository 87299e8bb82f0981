//! Jumps to addresses of blocks (computed goto).
//!
//! An indirect jump does not know its target, so the phi moves of a block are made at its entry:
//! the address of a block is that of a stub behind the function that makes them. So only one jump
//! may lead to such blocks ([`one_goto`]).

use crate::asm::{Gpr, Label};
use crate::ir::{Block, Function, Op, Operand, Type};

use super::Emitter;

/// The block that ends with an indirect jump, if there is one; whether there are more.
pub(crate) fn one_goto(function: &Function) -> (Option<Block>, bool) {
    let mut gotos = (0..function.blocks.len() as u32)
        .map(Block)
        .filter(|&block| {
            let last = function.of_block(block).next_back();
            last.is_some_and(|(_, instruction)| matches!(instruction.op, Op::IndirectJump(_)))
        });
    let first = gotos.next();
    (first, gotos.next().is_some())
}

/// Whether a block begins with phis.
pub(crate) fn has_phis(function: &Function, block: Block) -> bool {
    let mut instructions = function.of_block(block);
    matches!(
        instructions.next(),
        Some((_, instruction)) if matches!(instruction.op, Op::Phi(..))
    )
}

impl Emitter<'_> {
    /// Jumps to an address of a block.
    pub(super) fn goto(&mut self, address: Operand) {
        let register = self.gpr(address, Type::PTR, Gpr::RAX);
        self.asm.jump_to(register);
    }

    /// The label of a block's address: [`None`] if the block is not emitted.
    pub(super) fn address_of_block(&mut self, block: Block) -> Option<Label> {
        let place = self.order().place_of(block);
        let own = *self.labels.get(place as usize)?;
        if !has_phis(self.function, block) {
            return Some(own);
        }
        if let Some(&(_, label)) = self.entries.iter().find(|(other, _)| *other == block) {
            return Some(label);
        }
        let label = self.asm.new_label();
        self.entries.push((block, label));
        Some(label)
    }

    /// Writes the entry stubs of blocks that are jumped to by address, behind the function.
    pub(super) fn enter_blocks(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let (from, _) = one_goto(self.function);
        let mut next = 0;
        // Phis may use addresses of blocks too, so each step may add entries.
        while let Some(&(block, label)) = self.entries.get(next) {
            next += 1;
            self.asm.bind(label);
            if let Some(from) = from
                && self.edge(from, block)
            {
                self.do_moves(Gpr::RAX);
            }
            let own = self.label(block);
            self.asm.jump(own);
        }
    }
}
