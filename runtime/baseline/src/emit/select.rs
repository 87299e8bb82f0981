//! Selects: one of two values, by a bit.

use crate::asm::{Gpr, Rm};
use crate::ir::{Operand, Type};

use super::compare::Test;
use super::operands::width_of;
use super::{Emitter, VECTOR_SCRATCH};

impl Emitter<'_> {
    pub(super) fn select(&mut self, ty: Type, operands: [Operand; 3], result: u32) {
        let [bit, yes, no] = operands;
        let test = self.test(bit);
        match (test, ty.is_int()) {
            (Test::Known(is), true) => {
                let target = self.target(result, Gpr::RAX);
                self.load_into(if is { yes } else { no }, ty, target);
                self.put(result, target);
            }
            (Test::Known(is), false) => {
                let target = self.vector_target(result);
                self.load_vector_into(if is { yes } else { no }, ty, target);
                self.put_vector(result, target);
            }
            (test, true) => self.select_int(test, ty, [yes, no], result),
            (test, false) => self.select_vector(test, ty, [yes, no], result),
        }
    }

    /// No instruction here changes flags: constants are moved, addresses are `lea`.
    fn select_int(&mut self, test: Test, ty: Type, [yes, no]: [Operand; 2], result: u32) {
        let mut target = self.target(result, Gpr::RAX);
        let (mut test, mut yes, mut no) = (test, yes, no);
        if self.register_of(yes) == Some(target) {
            (test, yes, no) = (test.not(), no, yes);
        }
        // If both are in the target, they are one value.
        if self.register_of(yes) == Some(target) && self.register_of(no) != Some(target) {
            target = Gpr::RAX;
        }
        let width = width_of(ty);
        match test {
            Test::Both(a, b) => {
                // If either condition fails, the result is `no`: it comes last.
                let other = self.rm(no, ty, Gpr::RCX);
                self.load_into(yes, ty, Gpr::RAX);
                self.asm.cmov(a.not(), width, Gpr::RAX, other);
                self.asm.cmov(b.not(), width, Gpr::RAX, other);
                self.put(result, Gpr::RAX);
            }
            Test::One(condition) => {
                let other: Rm = self.rm(yes, ty, Gpr::RCX);
                self.load_into(no, ty, target);
                self.asm.cmov(condition, width, target, other);
                self.put(result, target);
            }
            Test::Either(a, b) => {
                let other: Rm = self.rm(yes, ty, Gpr::RCX);
                self.load_into(no, ty, Gpr::RAX);
                self.asm.cmov(a, width, Gpr::RAX, other);
                self.asm.cmov(b, width, Gpr::RAX, other);
                self.put(result, Gpr::RAX);
            }
            Test::Known(_) => {}
        }
    }

    /// Vector registers have no conditional moves: one value is moved, and a jump skips the other
    /// move.
    fn select_vector(&mut self, test: Test, ty: Type, [yes, no]: [Operand; 2], result: u32) {
        let own = self.vector_target(result);
        let reads = |this: &Self, operand| this.vector_register_of(operand) == Some(own);
        let target = if reads(self, yes) && !reads(self, no) || self.is_in_memory(result) {
            VECTOR_SCRATCH[0]
        } else {
            own
        };
        self.load_vector_into(no, ty, target);
        let done = self.asm.new_label();
        self.jump_test(test.not(), done);
        self.load_vector_into(yes, ty, target);
        self.asm.bind(done);
        self.put_vector(result, target);
    }

    fn is_in_memory(&self, result: u32) -> bool {
        matches!(
            self.place(crate::ir::Value(result)),
            crate::places::Place::Slot(_)
        )
    }
}
