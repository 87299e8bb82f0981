//! The ends of blocks: jumps and branches with the moves that phis need, and returns.

use crate::abi::{self, ResultPlace};
use crate::asm::{Gpr, Label, Width};
use crate::ir::{Block, Extension, Op, Operand, Type};
use crate::moves::Spot;

use super::Emitter;
use super::calls::extended;
use super::compare::Test;
use super::operands::bits_of;

/// Register that phi moves may clobber: they come last in their block.
const FREE: Gpr = Gpr::RAX;

impl Emitter<'_> {
    /// The label of a block.
    pub(super) fn label(&self, block: Block) -> Label {
        self.labels[self.target_place(block) as usize]
    }

    /// Whether a block comes next in the code.
    pub(super) fn is_next(&self, block: Block) -> bool {
        let to = self.target_place(block);
        let between = self.block + 1..to;
        to > self.block
            && between
                .into_iter()
                .all(|at| self.targets[at as usize] != at)
    }

    /// The place of the block where an edge to a block ends.
    fn target_place(&self, block: Block) -> u32 {
        self.targets[self.order().place_of(block) as usize]
    }

    /// Collects the moves of an edge; returns whether there are any.
    pub(super) fn edge(&mut self, from: Block, to: Block) -> bool {
        self.moves.clear();
        let function = self.function;
        let mut at = 0;
        for (_, instruction) in function.of_block(to) {
            let Op::Phi(ty, incoming) = &instruction.op else {
                break;
            };
            let phi = instruction.results.start;
            let Some(place) = super::moves::spot_of(self.places[phi as usize]) else {
                continue;
            };
            // Phis of a block have the same edges.
            if incoming.get(at).is_none_or(|&(block, _)| block != from) {
                let Ok(found) = incoming.binary_search_by_key(&from, |it| it.0) else {
                    continue;
                };
                at = found;
            }
            self.move_operand(place, incoming[at].1, *ty);
        }
        !self.moves.is_empty()
    }

    /// Emits the moves of an edge, then the jump to its block.
    pub(super) fn go(&mut self, from: Block, to: Block) {
        if self.edge(from, to) {
            self.do_moves(FREE);
        }
        if !self.is_next(to) {
            let label = self.label(to);
            self.asm.jump(label);
        }
    }

    pub(super) fn jump(&mut self, block: Block) {
        let to = self.function.blocks[block.index()].successors[0];
        self.go(block, to);
    }

    pub(super) fn branch(&mut self, block: Block, bit: Operand) {
        let successors = &self.function.blocks[block.index()].successors;
        let (yes, no) = (successors[0], successors[1]);
        if yes == no {
            self.go(block, yes);
            return;
        }
        match self.test(bit) {
            Test::Known(true) => self.go(block, yes),
            Test::Known(false) => self.go(block, no),
            test => self.branch_on(test, block, yes, no),
        }
    }

    /// Branches to one of two blocks, by flags.
    pub(super) fn branch_on(&mut self, test: Test, block: Block, yes: Block, no: Block) {
        let yes_moves = self.edge(block, yes);
        let no_moves = self.edge(block, no);
        match (yes_moves, no_moves) {
            (false, false) if self.is_next(yes) => {
                let label = self.label(no);
                self.jump_test(test.not(), label);
            }
            (false, _) => {
                let label = self.label(yes);
                self.jump_test(test, label);
                self.go(block, no);
            }
            (true, false) => {
                let label = self.label(no);
                self.jump_test(test.not(), label);
                self.go(block, yes);
            }
            (true, true) => {
                // The block that follows in the code comes last.
                let (test, first, last) = if self.is_next(yes) {
                    (test, no, yes)
                } else {
                    (test.not(), yes, no)
                };
                let other = self.asm.new_label();
                self.jump_test(test, other);
                self.go_from(block, first);
                self.asm.bind(other);
                self.go(block, last);
            }
        }
    }

    /// Like [`Emitter::go`], where other code comes next.
    pub(super) fn go_from(&mut self, from: Block, to: Block) {
        if self.edge(from, to) {
            self.do_moves(FREE);
        }
        let label = self.label(to);
        self.asm.jump(label);
    }

    /// Jumps if a test holds.
    pub(super) fn jump_test(&mut self, test: Test, to: Label) {
        match test {
            Test::Known(false) => {}
            Test::Known(true) => self.asm.jump(to),
            Test::One(condition) => self.asm.jump_if(condition, to),
            Test::Either(a, b) => {
                self.asm.jump_if(a, to);
                self.asm.jump_if(b, to);
            }
            Test::Both(a, b) => {
                let no = self.asm.new_label();
                self.asm.jump_if(a.not(), no);
                self.asm.jump_if(b, to);
                self.asm.bind(no);
            }
        }
    }

    /// Moves results to their ABI places and returns.
    pub(super) fn returns(&mut self, operands: &[Operand]) {
        self.results(operands);
        self.epilogue();
    }

    fn results(&mut self, operands: &[Operand]) {
        let function = self.function;
        self.moves.clear();
        let mut places = abi::ResultPlaces::default();
        for (returned, &operand) in function.returns.iter().zip(operands) {
            let to = match places.next(returned.ty) {
                Ok(ResultPlace::Gpr(register)) => Spot::Gpr(register),
                Ok(ResultPlace::Xmm(register)) => Spot::Xmm(register),
                _ => continue,
            };
            let (operand, ty) = extended(operand, returned.ty, returned.extension);
            self.move_operand(to, operand, ty);
        }
        if let Some(result) = function.result_parameter() {
            self.move_operand(Spot::Gpr(Gpr::RAX), Operand::Value(result), Type::PTR);
        }
        self.x87_returns(operands);
        // No value is in the registers of integer results, so they are free. The first is the
        // scratch register of constants that go to memory.
        self.do_moves(Gpr::RAX);
        let mut places = abi::ResultPlaces::default();
        for (returned, operand) in function.returns.iter().zip(operands) {
            if let (Ok(ResultPlace::Gpr(register)), Some(extension), Operand::Value(_)) =
                (places.next(returned.ty), returned.extension, operand)
            {
                self.extend_argument(register, returned.ty, extension);
            }
        }
    }

    /// Extends a value in a register to 32 bits, or a wider one to 64, as the ABI requires of the
    /// side that passes it.
    pub(super) fn extend_argument(&mut self, register: Gpr, ty: Type, extension: Extension) {
        let bits = bits_of(ty);
        if bits < 32 {
            self.extend(register, bits, extension, Width::W32);
        } else if bits > 32 && bits < 64 {
            self.extend(register, bits, extension, Width::W64);
        }
    }
}
