//! Quotients and remainders.
//!
//! `div` and `idiv` take 64 or 128 bits in `rdx:rax`. Divisions by powers of two are shifts and
//! masks. A signed quotient rounds towards zero, so the divisor less one is first added to a
//! negative dividend.

use crate::asm::{Alu, Gpr, Mem, Rm, Shift, Unary, Width};
use crate::ir::{Extension, IntOp, Operand, Type};

use super::Emitter;
use super::operands::{bits_of, width_of, zero_extended};

impl Emitter<'_> {
    pub(super) fn divide(&mut self, op: IntOp, ty: Type, operands: [Operand; 2], result: u32) {
        let [a, b] = operands;
        let bits = bits_of(ty);
        if let Operand::Int(constant) = b {
            let constant = zero_extended(constant, bits);
            // The least integer is a negative power of two.
            let is_least = constant == 1 << (bits - 1);
            let is_signed = matches!(op, IntOp::SDiv | IntOp::SRem);
            if constant.is_power_of_two() && !(is_least && is_signed) {
                self.divide_by_power(op, ty, a, constant.trailing_zeros() as u8, result);
                return;
            }
        }
        let extension = match op {
            IntOp::SDiv | IntOp::SRem => Extension::Sign,
            _ => Extension::Zero,
        };
        let width = width_of(ty);
        let is_whole = matches!(bits, 32 | 64);
        let divisor = match b {
            Operand::Value(_) if is_whole => self.rm(b, ty, Gpr::RCX),
            _ => {
                self.extend_into(b, ty, extension, width, Gpr::RCX);
                Rm::Gpr(Gpr::RCX)
            }
        };
        self.extend_into(a, ty, extension, width, Gpr::RAX);
        match extension {
            Extension::Sign => {
                self.asm.sign_to_rdx(width);
                self.asm.unary(Unary::Idiv, width, divisor);
            }
            Extension::Zero => {
                self.asm.zero(Gpr::RDX);
                self.asm.unary(Unary::Div, width, divisor);
            }
        }
        match op {
            IntOp::SDiv | IntOp::UDiv => self.put(result, Gpr::RAX),
            _ => self.put(result, Gpr::RDX),
        }
    }

    /// Divides by two to the power of `by`.
    fn divide_by_power(&mut self, op: IntOp, ty: Type, a: Operand, by: u8, result: u32) {
        let width = width_of(ty);
        let target = self.target(result, Gpr::RAX);
        let mask = (1u64 << by) - 1;
        match op {
            IntOp::UDiv => {
                self.extend_into(a, ty, Extension::Zero, width, target);
                if by > 0 {
                    self.asm.shift_imm(Shift::Shr, width, target, by);
                }
                self.put(result, target);
            }
            IntOp::URem => {
                self.load_into(a, ty, target);
                self.mask(width, target, mask);
                self.put(result, target);
            }
            _ if by == 0 => {
                if op == IntOp::SDiv {
                    self.load_into(a, ty, target);
                } else {
                    self.asm.zero(target);
                }
                self.put(result, target);
            }
            _ => {
                // rax: the dividend; rcx: the dividend, and the divisor less one if negative.
                self.extend_into(a, ty, Extension::Sign, width, Gpr::RAX);
                if by == 1 {
                    self.asm.mov(width, Gpr::RCX, Gpr::RAX);
                    self.asm
                        .shift_imm(Shift::Shr, width, Gpr::RCX, width.bits() - 1);
                } else {
                    self.asm.mov(width, Gpr::RCX, Gpr::RAX);
                    self.asm
                        .shift_imm(Shift::Sar, width, Gpr::RCX, width.bits() - 1);
                    self.asm
                        .shift_imm(Shift::Shr, width, Gpr::RCX, width.bits() - by);
                }
                self.asm.lea(
                    width,
                    Gpr::RCX,
                    Mem::indexed(Gpr::RCX, Gpr::RAX, crate::asm::Scale::S1, 0),
                );
                if op == IntOp::SDiv {
                    self.asm.shift_imm(Shift::Sar, width, Gpr::RCX, by);
                    self.put(result, Gpr::RCX);
                } else {
                    // The remainder is the dividend less the rounded one.
                    self.asm.shift_imm(Shift::Shr, width, Gpr::RCX, by);
                    self.asm.shift_imm(Shift::Shl, width, Gpr::RCX, by);
                    self.asm.alu(Alu::Sub, width, Gpr::RAX, Gpr::RCX);
                    self.put(result, Gpr::RAX);
                }
            }
        }
    }

    /// Clears the bits that the mask does not contain.
    fn mask(&mut self, width: Width, register: Gpr, mask: u64) {
        match i32::try_from(mask) {
            Ok(mask) => self.asm.alu_imm(Alu::And, Width::W32, register, mask),
            Err(_) if width == Width::W32 => {
                self.asm.alu_imm(Alu::And, width, register, mask as i32);
            }
            Err(_) => {
                self.asm.mov_imm(Gpr::RCX, mask);
                self.asm.alu(Alu::And, width, register, Gpr::RCX);
            }
        }
    }
}
