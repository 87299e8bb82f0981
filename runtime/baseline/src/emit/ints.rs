//! Arithmetic and logic of integers up to 64 bits.
//!
//! Integers under 32 bits are computed in 32: low bits of sums, products and logic depend on low
//! bits only. Shifts to the right need defined upper bits first.

use crate::asm::{Alu, Gpr, Mem, Rm, Scale, Shift, Unary, Width};
use crate::ir::{Extension, IntOp, Operand, Type, Value};
use crate::places::Place;

use super::Emitter;
use super::operands::{IntSource, bits_of, sign_extended, width_of, zero_extended};

impl Emitter<'_> {
    /// Emits a binary operation.
    pub(super) fn int(&mut self, op: IntOp, ty: Type, operands: [Operand; 2], result: u32) {
        match op {
            IntOp::Add => self.add(ty, operands, result),
            IntOp::Sub => self.simple(Alu::Sub, ty, operands, result),
            IntOp::And => self.simple(Alu::And, ty, operands, result),
            IntOp::Or => self.simple(Alu::Or, ty, operands, result),
            IntOp::Xor => self.simple(Alu::Xor, ty, operands, result),
            IntOp::Mul => self.mul(ty, operands, result),
            IntOp::Shl => self.shift(Shift::Shl, ty, operands, result),
            IntOp::LShr => self.shift(Shift::Shr, ty, operands, result),
            IntOp::AShr => self.shift(Shift::Sar, ty, operands, result),
            IntOp::SDiv | IntOp::UDiv | IntOp::SRem | IntOp::URem => {
                self.divide(op, ty, operands, result);
            }
            // Refused by `coverage.rs`.
            _ => {}
        }
    }

    /// Operands of a commutative operation, the one that should be in a register first.
    fn in_order(&self, operands: [Operand; 2], result: u32) -> [Operand; 2] {
        let [a, b] = operands;
        let in_register = |operand| self.register_of(operand);
        let is_constant = |operand| !matches!(operand, Operand::Value(_));
        let swap = if is_constant(a) || is_constant(b) {
            is_constant(a) && !is_constant(b)
        } else {
            match (in_register(a), in_register(b)) {
                (None, Some(_)) => true,
                (Some(_), Some(b)) => self.place(Value(result)) == Place::Gpr(b),
                _ => false,
            }
        };
        if swap { [b, a] } else { [a, b] }
    }

    /// A sum: `lea` if the result has another register.
    fn add(&mut self, ty: Type, operands: [Operand; 2], result: u32) {
        let width = width_of(ty);
        let [a, b] = self.in_order(operands, result);
        let target = self.target(result, Gpr::RAX);
        if let Some(register) = self.register_of(a)
            && register != target
        {
            let mem = match b {
                Operand::Int(constant) => i32::try_from(sign_extended(constant, bits_of(ty)))
                    .ok()
                    .map(|constant| Mem::at(register, constant)),
                b => self
                    .register_of(b)
                    .map(|b| Mem::indexed(register, b, Scale::S1, 0)),
            };
            if let Some(mem) = mem {
                self.asm.lea(width, target, mem);
                self.put(result, target);
                return;
            }
        }
        self.simple(Alu::Add, ty, [a, b], result);
    }

    /// An operation that is one instruction with two operands.
    fn simple(&mut self, op: Alu, ty: Type, operands: [Operand; 2], result: u32) {
        let width = width_of(ty);
        let [a, b] = match op {
            Alu::Sub => operands,
            _ => self.in_order(operands, result),
        };
        if self.in_place(op, width, ty, [a, b], result) {
            return;
        }
        let mut target = self.target(result, Gpr::RAX);
        let b = self.source(b, ty, Gpr::RCX);
        if b.uses(target) && self.register_of(a) != Some(target) {
            target = Gpr::RAX;
        }
        self.load_into(a, ty, target);
        self.apply(op, width, target, b);
        self.put(result, target);
    }

    /// `target = target op source`.
    fn apply(&mut self, op: Alu, width: Width, target: Gpr, source: IntSource) {
        match (op, source) {
            (Alu::Xor, IntSource::Imm(-1)) => self.asm.unary(Unary::Not, width, target),
            // One byte less than with 128, and the same bits.
            (Alu::Add, IntSource::Imm(128)) => self.asm.alu_imm(Alu::Sub, width, target, -128),
            (Alu::Sub, IntSource::Imm(128)) => self.asm.alu_imm(Alu::Add, width, target, -128),
            (Alu::Add | Alu::Sub | Alu::Or | Alu::Xor, IntSource::Imm(0)) => {}
            (Alu::And, IntSource::Imm(255)) => self.asm.movzx(Width::W8, target, target),
            (Alu::And, IntSource::Imm(0xffff)) => self.asm.movzx(Width::W16, target, target),
            (_, IntSource::Imm(constant)) => self.asm.alu_imm(op, width, target, constant),
            (_, IntSource::Gpr(register)) => self.asm.alu(op, width, target, register),
            (_, IntSource::Mem(mem)) => self.asm.alu(op, width, target, mem),
        }
    }

    /// Changes a slot in memory that is both the first operand and the result, if it is one.
    fn in_place(
        &mut self,
        op: Alu,
        width: Width,
        ty: Type,
        [a, b]: [Operand; 2],
        result: u32,
    ) -> bool {
        let Operand::Value(a) = a else {
            return false;
        };
        let place = self.place(Value(result));
        let (Place::Slot(at), true) = (place, self.place(a) == place) else {
            return false;
        };
        let mem = Mem::at(Gpr::RBP, at);
        match self.source(b, ty, Gpr::RCX) {
            IntSource::Imm(constant) => self.asm.alu_imm(op, width, mem, constant),
            IntSource::Gpr(register) => self.asm.alu_store(op, width, mem, register),
            IntSource::Mem(other) => {
                self.asm.load(width, Gpr::RAX, other);
                self.asm.alu_store(op, width, mem, Gpr::RAX);
            }
        }
        true
    }

    fn mul(&mut self, ty: Type, operands: [Operand; 2], result: u32) {
        let width = width_of(ty);
        let [a, b] = self.in_order(operands, result);
        let mut target = self.target(result, Gpr::RAX);
        if let Operand::Int(constant) = b {
            self.mul_constant(ty, a, constant, result);
            return;
        }
        let b = self.rm(b, ty, Gpr::RCX);
        if IntSource::from(b).uses(target) && self.register_of(a) != Some(target) {
            target = Gpr::RAX;
        }
        self.load_into(a, ty, target);
        self.asm.imul(width, target, b);
        self.put(result, target);
    }

    fn mul_constant(&mut self, ty: Type, a: Operand, constant: u64, result: u32) {
        let width = width_of(ty);
        let target = self.target(result, Gpr::RAX);
        let constant = sign_extended(constant, bits_of(ty));
        match constant {
            0 => self.asm.zero(target),
            3 | 5 | 9 => {
                let a = self.gpr(a, ty, Gpr::RCX);
                let scale = Scale::of(constant as u64 - 1).unwrap_or(Scale::S1);
                self.asm.lea(width, target, Mem::indexed(a, a, scale, 0));
            }
            1.. if (constant as u64).is_power_of_two() => {
                self.load_into(a, ty, target);
                let by = constant.trailing_zeros() as u8;
                if by > 0 {
                    self.asm.shift_imm(Shift::Shl, width, target, by);
                }
            }
            _ => match i32::try_from(constant) {
                Ok(constant) => {
                    let a = self.rm(a, ty, Gpr::RCX);
                    self.asm.imul_imm(width, target, a, constant);
                }
                Err(_) => {
                    let a = self.rm(a, ty, Gpr::RCX);
                    self.asm.mov_imm(Gpr::RAX, constant as u64);
                    self.asm.imul(width, Gpr::RAX, a);
                    self.put(result, Gpr::RAX);
                    return;
                }
            },
        }
        self.put(result, target);
    }

    fn shift(&mut self, op: Shift, ty: Type, [a, b]: [Operand; 2], result: u32) {
        let width = width_of(ty);
        let target = self.target(result, Gpr::RAX);
        let constant = match b {
            Operand::Int(by) => Some(zero_extended(by, bits_of(ty)) as u8),
            Operand::Undef => Some(0),
            b => {
                // A narrow type has undefined bits among those that the instruction reads.
                if bits_of(ty) < 8 {
                    self.extend_into(b, ty, Extension::Zero, Width::W32, Gpr::RCX);
                } else {
                    self.load_into(b, ty, Gpr::RCX);
                }
                None
            }
        };
        let extension = match op {
            Shift::Shr => Some(Extension::Zero),
            Shift::Sar => Some(Extension::Sign),
            _ => None,
        };
        match extension {
            Some(extension) if !matches!(bits_of(ty), 32 | 64) => {
                self.extend_into(a, ty, extension, width, target);
            }
            _ => self.load_into(a, ty, target),
        }
        match constant {
            Some(0) => {}
            Some(1) if op == Shift::Shl => self.asm.alu(Alu::Add, width, target, Rm::Gpr(target)),
            Some(by) => self
                .asm
                .shift_imm(op, width, target, by & (width.bits() - 1)),
            None => self.asm.shift_cl(op, width, target),
        }
        self.put(result, target);
    }
}
