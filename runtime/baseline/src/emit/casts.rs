//! Casts between integers.

use crate::asm::{Alu, Gpr, Unary, Width};
use crate::ir::{Cast, Extension, Operand, Type};

use super::Emitter;
use super::operands::width_of;

impl Emitter<'_> {
    pub(super) fn cast_int(
        &mut self,
        cast: Cast,
        from: Type,
        to: Type,
        operand: Operand,
        result: u32,
    ) {
        let target = self.target(result, Gpr::RAX);
        match cast {
            Cast::Trunc => self.load_into(operand, to, target),
            Cast::ZExt if from == Type::Int(1) => self.bit_into(operand, target),
            Cast::SExt if from == Type::Int(1) => {
                self.bit_into(operand, target);
                self.asm.unary(Unary::Neg, width_of(to), target);
            }
            cast => {
                let extension = match cast {
                    Cast::SExt => Extension::Sign,
                    _ => Extension::Zero,
                };
                self.extend_into(operand, from, extension, width_of(to), target);
            }
        }
        self.put(result, target);
    }

    /// Loads a bit, a value or folded, into a register as 0 or 1.
    fn bit_into(&mut self, bit: Operand, register: Gpr) {
        match bit {
            Operand::Value(value) if self.folded(value).is_some() => {
                let test = self.test(bit);
                self.set(test, register);
                self.asm.movzx(Width::W8, register, register);
            }
            _ => {
                self.load_into(bit, Type::Int(1), register);
                self.asm.alu_imm(Alu::And, Width::W32, register, 1);
            }
        }
    }
}
