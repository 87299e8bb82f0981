//! Bit counts, scans and reversals; absolute values; funnel shifts.

use crate::asm::{Alu, Condition, Gpr, Scan, Shift, Unary, Width};
use crate::ir::{BitOp, Extension, Operand, Type};
use crate::sequences::bits;

use super::Emitter;
use super::operands::{bits_of, width_of};

impl Emitter<'_> {
    /// An operation on one integer.
    pub(super) fn bit_op(&mut self, op: BitOp, ty: Type, operand: Operand, result: u32) {
        let (size, width) = (bits_of(ty), width_of(ty));
        let features = self.options.features;
        let x = self.target(result, Gpr::RAX);
        let scratch = [Gpr::RCX, Gpr::RDX];
        match op {
            BitOp::Count => {
                self.extend_into(operand, ty, Extension::Zero, width, x);
                if features.popcnt {
                    self.asm.scan(Scan::Popcnt, width, x, x);
                } else {
                    bits::count(self.asm, width, x, scratch);
                }
            }
            BitOp::LeadingZeros => {
                self.extend_into(operand, ty, Extension::Zero, width, x);
                bits::leading_zeros(self.asm, (size, features.lzcnt), x, x, Gpr::RCX);
            }
            BitOp::TrailingZeros => {
                self.load_into(operand, ty, x);
                bits::trailing_zeros(self.asm, (size, features.bmi1), x, x, Gpr::RCX);
            }
            BitOp::SwapBytes => {
                self.load_into(operand, ty, x);
                if size == 16 {
                    self.asm.shift_imm(Shift::Ror, Width::W16, x, 8);
                } else {
                    self.asm.bswap(width, x);
                    if size != width.bits() {
                        self.asm
                            .shift_imm(Shift::Shr, width, x, width.bits() - size);
                    }
                }
            }
            BitOp::Reverse => {
                self.load_into(operand, ty, x);
                bits::reverse(self.asm, size, x, scratch);
            }
            BitOp::Abs => {
                self.extend_into(operand, ty, Extension::Sign, width, x);
                self.asm.mov(width, Gpr::RCX, x);
                self.asm.unary(Unary::Neg, width, Gpr::RCX);
                self.asm.cmov(Condition::NoSign, width, x, Gpr::RCX);
            }
        }
        self.put(result, x);
    }

    /// The upper (`left`) or lower part of two concatenated integers after a shift.
    pub(super) fn funnel(&mut self, left: bool, ty: Type, operands: [Operand; 3], result: u32) {
        let size = bits_of(ty);
        match (operands[2], size) {
            (Operand::Int(by), _) => {
                let by = (by % u64::from(size)) as u8;
                self.funnel_by(left, ty, operands, by, result);
            }
            (_, 8 | 16 | 32 | 64) if operands[0] == operands[1] => {
                self.rotate(left, ty, operands, result);
            }
            (_, 32 | 64) => {
                let [high, low, by] = operands;
                let (first, second) = if left { (high, low) } else { (low, high) };
                self.load_into(first, ty, Gpr::RAX);
                self.load_into(by, ty, Gpr::RCX);
                let second = self.gpr(second, ty, Gpr::RDX);
                self.asm
                    .double_shift_cl(left, width_of(ty), Gpr::RAX, second);
                self.put(result, Gpr::RAX);
            }
            _ => self.funnel_narrow(left, size, operands, result),
        }
    }

    /// A funnel shift by a constant under the size.
    fn funnel_by(
        &mut self,
        left: bool,
        ty: Type,
        [high, low, _]: [Operand; 3],
        by: u8,
        result: u32,
    ) {
        let (size, width) = (bits_of(ty), width_of(ty));
        if by == 0 {
            let target = self.target(result, Gpr::RAX);
            self.load_into(if left { high } else { low }, ty, target);
            self.put(result, target);
            return;
        }
        // Both directions become a left shift of the first and a right shift of the second.
        let to_left = if left { by } else { size - by };
        if size == width.bits() {
            self.load_into(high, ty, Gpr::RAX);
            if high == low {
                self.asm.shift_imm(Shift::Rol, width, Gpr::RAX, to_left);
            } else {
                let low = self.gpr(low, ty, Gpr::RDX);
                self.asm
                    .double_shift_imm(true, width, Gpr::RAX, low, to_left);
            }
        } else {
            self.extend_into(low, ty, Extension::Zero, width, Gpr::RAX);
            self.load_into(high, ty, Gpr::RCX);
            self.asm
                .shift_imm(Shift::Shr, width, Gpr::RAX, size - to_left);
            self.asm.shift_imm(Shift::Shl, width, Gpr::RCX, to_left);
            self.asm.alu(Alu::Or, width, Gpr::RAX, Gpr::RCX);
        }
        self.put(result, Gpr::RAX);
    }

    /// A rotation: a funnel shift of two equal operands, of 8, 16, 32 or 64 bits.
    fn rotate(&mut self, left: bool, ty: Type, [value, _, by]: [Operand; 3], result: u32) {
        let shift = if left { Shift::Rol } else { Shift::Ror };
        self.load_into(value, ty, Gpr::RAX);
        self.load_into(by, ty, Gpr::RCX);
        self.asm
            .shift_cl(shift, Width::of_bits(bits_of(ty)), Gpr::RAX);
        self.put(result, Gpr::RAX);
    }

    /// A funnel shift of 8 or 16 bits, in a register that holds both.
    fn funnel_narrow(&mut self, left: bool, size: u8, [high, low, by]: [Operand; 3], result: u32) {
        let ty = Type::Int(size);
        self.extend_into(low, ty, Extension::Zero, Width::W32, Gpr::RAX);
        self.load_into(by, ty, Gpr::RCX);
        self.load_into(high, ty, Gpr::RDX);
        self.asm.shift_imm(Shift::Shl, Width::W32, Gpr::RDX, size);
        self.asm.alu(Alu::Or, Width::W32, Gpr::RAX, Gpr::RDX);
        self.asm
            .alu_imm(Alu::And, Width::W32, Gpr::RCX, i32::from(size) - 1);
        let shift = if left { Shift::Shl } else { Shift::Shr };
        self.asm.shift_cl(shift, Width::W32, Gpr::RAX);
        if left {
            self.asm.shift_imm(Shift::Shr, Width::W32, Gpr::RAX, size);
        }
        self.put(result, Gpr::RAX);
    }
}
