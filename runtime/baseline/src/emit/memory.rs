//! Loads and stores that are not atomic, or no stronger than acquire and release, which plain
//! x86-64 accesses are.
//!
//! Integers of 3, 5, 6 or 7 bytes are read and written in pieces. A stored integer has zeros above
//! the type's bits, as in LLVM.

use crate::analysis::fold;
use crate::asm::{Alu, Gpr, Mem, Shift, Width};
use crate::ir::{Extension, IntOp, Op, Operand, Type};
use crate::places::Place;

use super::operands::{IntSource, bits_of, width_of};
use super::{Emitter, VECTOR_SCRATCH};

impl Emitter<'_> {
    pub(super) fn load(&mut self, ty: Type, address: Operand, result: u32) {
        if let Some(variable) = self.analysis.variable(address) {
            self.load_variable(ty, variable, result);
        } else if let Type::Int(bits) = ty {
            let target = self.target(result, Gpr::RAX);
            let mem = self.address(address, Gpr::RCX);
            self.load_int(bits, target, mem);
            self.put(result, target);
        } else if ty == Type::F80 {
            self.x87_load(address, result);
        } else {
            let target = self.vector_target(result);
            let mem = self.address(address, Gpr::RCX);
            self.read_vector(ty, target, mem, false);
            self.put_vector(result, target);
        }
    }

    /// Loads an integer. The register is not part of the address, unless the size is 1, 2, 4 or 8
    /// bytes.
    fn load_int(&mut self, bits: u8, target: Gpr, mem: Mem) {
        let bytes = bits.div_ceil(8);
        if bytes.is_power_of_two() {
            self.asm.load(Width::of_bits(8 * bytes), target, mem);
            return;
        }
        // The last piece first: earlier ones are shifted in.
        let sum = Gpr::RAX;
        let mut at = bytes;
        let mut is_first = true;
        for piece in [4, 2, 1].into_iter().rev() {
            if bytes & piece == 0 {
                continue;
            }
            at -= piece;
            let from = mem.plus(i32::from(at)).unwrap_or(mem);
            if is_first {
                self.asm.load(Width::of_bits(8 * piece), sum, from);
            } else {
                self.asm.shift_imm(Shift::Shl, Width::W64, sum, 8 * piece);
                self.asm.load(Width::of_bits(8 * piece), Gpr::RDX, from);
                self.asm.alu(Alu::Or, Width::W64, sum, Gpr::RDX);
            }
            is_first = false;
        }
        if target != sum {
            self.asm.mov(Width::W64, target, sum);
        }
    }

    /// Loads the present value of a variable.
    fn load_variable(&mut self, ty: Type, variable: u32, result: u32) {
        match self.places[variable as usize] {
            Place::Gpr(register) => self.put(result, register),
            Place::Xmm(register) => self.put_vector(result, register),
            Place::Slot(at) if ty.is_int() => {
                let target = self.target(result, Gpr::RAX);
                self.asm.load(width_of(ty), target, Mem::at(Gpr::RBP, at));
                self.put(result, target);
            }
            Place::Slot(at) => {
                let target = self.vector_target(result);
                self.read_vector(ty, target, Mem::at(Gpr::RBP, at), true);
                self.put_vector(result, target);
            }
            Place::None => {}
        }
    }

    pub(super) fn store(&mut self, ty: Type, address: Operand, value: Operand) {
        if let Some(variable) = self.analysis.variable(address) {
            self.store_variable(ty, variable, value);
        } else if let Type::Int(bits) = ty {
            let mem = self.address(address, Gpr::RCX);
            if !self.change(ty, address, mem, value) {
                self.store_int(ty, bits, mem, value);
            }
        } else if ty == Type::F80 {
            self.x87_store(address, value);
        } else {
            self.store_vector(ty, address, value);
        }
    }

    /// Emits the folded operation of a store with a memory destination, if there is one.
    fn change(&mut self, ty: Type, address: Operand, mem: Mem, value: Operand) -> bool {
        let Operand::Value(value) = value else {
            return false;
        };
        let Some(&Op::Int(op, _, [a, b])) = self.folded(value) else {
            return false;
        };
        let is_there = |operand: Operand| match operand {
            Operand::Value(value) => self
                .folded(value)
                .is_some_and(|op| fold::reads(op, address, ty)),
            _ => false,
        };
        let other = if is_there(a) { b } else { a };
        let op = match op {
            IntOp::Add => Alu::Add,
            IntOp::Sub => Alu::Sub,
            IntOp::And => Alu::And,
            IntOp::Or => Alu::Or,
            _ => Alu::Xor,
        };
        let width = Width::of_bits(bits_of(ty));
        match self.source(other, ty, Gpr::RAX) {
            IntSource::Imm(constant) => self.asm.alu_imm(op, width, mem, constant),
            IntSource::Gpr(register) => self.asm.alu_store(op, width, mem, register),
            IntSource::Mem(from) => {
                self.asm.load(width, Gpr::RAX, from);
                self.asm.alu_store(op, width, mem, Gpr::RAX);
            }
        }
        true
    }

    pub(super) fn store_int(&mut self, ty: Type, bits: u8, mem: Mem, value: Operand) {
        if let (8 | 16 | 32 | 64, Operand::Int(_)) = (bits, value)
            && let IntSource::Imm(constant) = self.source(value, ty, Gpr::RAX)
        {
            self.asm.store_imm(Width::of_bits(bits), mem, constant);
            return;
        }
        if matches!(bits, 8 | 16 | 32 | 64) {
            let value = self.gpr(value, ty, Gpr::RAX);
            self.asm.store(Width::of_bits(bits), mem, value);
            return;
        }
        self.extend_into(value, ty, Extension::Zero, width_of(ty), Gpr::RAX);
        let bytes = bits.div_ceil(8);
        if bytes.is_power_of_two() {
            self.asm.store(Width::of_bits(8 * bytes), mem, Gpr::RAX);
            return;
        }
        let mut at = 0;
        for piece in [4, 2, 1] {
            if bytes & piece != 0 {
                let to = mem.plus(i32::from(at)).unwrap_or(mem);
                self.asm.store(Width::of_bits(8 * piece), to, Gpr::RAX);
                at += piece;
                if at != bytes {
                    self.asm
                        .shift_imm(Shift::Shr, Width::W64, Gpr::RAX, 8 * piece);
                }
            }
        }
    }

    fn store_vector(&mut self, ty: Type, address: Operand, value: Operand) {
        // The bits of a constant are stored as an integer.
        if let (Operand::Float(bits), Type::F32 | Type::F64) = (value, ty) {
            let ty = match ty {
                Type::F32 => Type::Int(32),
                _ => Type::Int(64),
            };
            let mem = self.address(address, Gpr::RCX);
            self.store_int(ty, bits_of(ty), mem, Operand::Int(bits));
            return;
        }
        let value = self.xmm(value, ty, VECTOR_SCRATCH[0]);
        let mem = self.address(address, Gpr::RCX);
        self.write_vector(ty, mem, value, false);
    }

    /// Stores a value to a variable, unless it was computed there.
    fn store_variable(&mut self, ty: Type, variable: u32, value: Operand) {
        let place = self.places[variable as usize];
        if let Operand::Value(value) = value
            && self.analysis.home(value) == variable
        {
            return;
        }
        match place {
            Place::Gpr(register) if value == Operand::Int(0) => self.asm.zero(register),
            Place::Gpr(register) => self.load_into(value, ty, register),
            Place::Xmm(register) => self.load_vector_into(value, ty, register),
            Place::Slot(at) if ty.is_int() => {
                let mem = Mem::at(Gpr::RBP, at);
                match self.source(value, ty, Gpr::RAX) {
                    IntSource::Imm(constant) => self.asm.store_imm(width_of(ty), mem, constant),
                    IntSource::Gpr(register) => self.asm.store(width_of(ty), mem, register),
                    IntSource::Mem(from) => {
                        self.asm.load(width_of(ty), Gpr::RAX, from);
                        self.asm.store(width_of(ty), mem, Gpr::RAX);
                    }
                }
            }
            Place::Slot(at) => {
                let register = self.xmm(value, ty, VECTOR_SCRATCH[0]);
                self.write_vector(ty, Mem::at(Gpr::RBP, at), register, true);
            }
            Place::None => {}
        }
    }
}
