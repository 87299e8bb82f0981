//! Overflowing and saturating integer arithmetic, minimum and maximum.
//!
//! Integers narrower than 32 or 64 bits are first shifted to the top of a register: there the flags
//! are those of the type, and its limits are the register's.

use crate::asm::{Alu, Condition, Gpr, Shift, Unary};
use crate::ir::{Extension, IntOp, Operand, OverflowOp, Type};

use super::Emitter;
use super::operands::{bits_of, width_of};

impl Emitter<'_> {
    /// Loads both operands at the top of `rax` and `rcx`; the second one of a product is extended
    /// instead. Returns the shift in bits.
    fn at_top(&mut self, ty: Type, [a, b]: [Operand; 2], extension: Option<Extension>) -> u8 {
        let width = width_of(ty);
        let by = width.bits() - bits_of(ty);
        self.load_into(a, ty, Gpr::RAX);
        match extension {
            Some(extension) => self.extend_into(b, ty, extension, width, Gpr::RCX),
            None => self.load_into(b, ty, Gpr::RCX),
        }
        if by != 0 {
            self.asm.shift_imm(Shift::Shl, width, Gpr::RAX, by);
            if extension.is_none() {
                self.asm.shift_imm(Shift::Shl, width, Gpr::RCX, by);
            }
        }
        by
    }

    /// An operation with two results: the number, and whether it overflowed.
    pub(super) fn overflow(
        &mut self,
        op: OverflowOp,
        ty: Type,
        operands: [Operand; 2],
        result: u32,
    ) {
        let width = width_of(ty);
        let extension = match op {
            OverflowOp::SMul => Some(Extension::Sign),
            OverflowOp::UMul => Some(Extension::Zero),
            _ => None,
        };
        let by = self.at_top(ty, operands, extension);
        let condition = match op {
            OverflowOp::SAdd => {
                self.asm.alu(Alu::Add, width, Gpr::RAX, Gpr::RCX);
                Condition::Overflow
            }
            OverflowOp::UAdd => {
                self.asm.alu(Alu::Add, width, Gpr::RAX, Gpr::RCX);
                Condition::Below
            }
            OverflowOp::SSub => {
                self.asm.alu(Alu::Sub, width, Gpr::RAX, Gpr::RCX);
                Condition::Overflow
            }
            OverflowOp::USub => {
                self.asm.alu(Alu::Sub, width, Gpr::RAX, Gpr::RCX);
                Condition::Below
            }
            OverflowOp::SMul => {
                self.asm.imul(width, Gpr::RAX, Gpr::RCX);
                Condition::Overflow
            }
            OverflowOp::UMul => {
                self.asm.unary(Unary::Mul, width, Gpr::RCX);
                Condition::Overflow
            }
        };
        self.asm.setcc(condition, Gpr::RDX);
        if by != 0 {
            self.asm.shift_imm(Shift::Shr, width, Gpr::RAX, by);
        }
        self.put(result, Gpr::RAX);
        self.put(result + 1, Gpr::RDX);
    }

    /// A saturating sum or difference.
    pub(super) fn saturate(&mut self, op: IntOp, ty: Type, operands: [Operand; 2], result: u32) {
        let width = width_of(ty);
        let by = self.at_top(ty, operands, None);
        let (alu, is_signed) = match op {
            IntOp::SAddSat => (Alu::Add, true),
            IntOp::SSubSat => (Alu::Sub, true),
            IntOp::UAddSat => (Alu::Add, false),
            _ => (Alu::Sub, false),
        };
        self.asm.alu(alu, width, Gpr::RAX, Gpr::RCX);
        if is_signed {
            // The sign of an overflowed result is wrong. All other bits of the limit are that sign,
            // and its own sign is the opposite.
            let end = self.asm.new_label();
            self.asm.jump_if(Condition::NoOverflow, end);
            self.asm
                .shift_imm(Shift::Sar, width, Gpr::RAX, width.bits() - 1);
            let sign = 1 << (width.bits() - 1);
            self.asm.mov_imm(Gpr::RCX, sign);
            self.asm.alu(Alu::Xor, width, Gpr::RAX, Gpr::RCX);
            self.asm.bind(end);
        } else {
            let limit = if alu == Alu::Add { u64::MAX } else { 0 };
            self.asm.mov_imm(Gpr::RCX, limit);
            self.asm.cmov(Condition::Below, width, Gpr::RAX, Gpr::RCX);
        }
        if by != 0 {
            self.asm.shift_imm(Shift::Shr, width, Gpr::RAX, by);
        }
        self.put(result, Gpr::RAX);
    }

    /// The lesser or the greater of two.
    pub(super) fn min_max(&mut self, op: IntOp, ty: Type, [a, b]: [Operand; 2], result: u32) {
        let (condition, extension) = match op {
            IntOp::SMin => (Condition::Greater, Extension::Sign),
            IntOp::SMax => (Condition::Less, Extension::Sign),
            IntOp::UMin => (Condition::Above, Extension::Zero),
            _ => (Condition::Below, Extension::Zero),
        };
        let width = width_of(ty);
        let b = self.extended(b, ty, extension, Gpr::RCX);
        let mut x = self.target(result, Gpr::RAX);
        if x == b {
            x = Gpr::RAX;
        }
        self.extend_into(a, ty, extension, width, x);
        self.asm.alu(Alu::Cmp, width, x, b);
        self.asm.cmov(condition, width, x, b);
        self.put(result, x);
    }
}
