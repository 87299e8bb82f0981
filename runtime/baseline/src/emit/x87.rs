//! `x86_fp80`: values live in the frame, and pass through the x87 stack in each instruction.
//!
//! The control word is the ABI's, with all 64 bits of precision, so results equal LLVM's bit by
//! bit. The stack is empty between instructions.

use std::ops::Range;

use crate::asm::{Alu, Gpr, Mem, Width, X87};
use crate::ir::{
    Cast, Extension, FloatOp, FloatPredicate, FloatUnary, Operand, Returned, Type, Value,
};
use crate::places::Place;

use super::Emitter;
use super::compare::Test;
use super::operands::bits_of;

/// 2^64 and 2^63 as `float`.
const TWO_64: u32 = 0x5f80_0000;
const TWO_63: u32 = 0x5f00_0000;

impl Emitter<'_> {
    /// Memory of a number that has no general register: its slot, or a constant.
    fn x87_memory(&mut self, operand: Operand, ty: Type) -> Mem {
        match operand {
            Operand::Value(value) => match self.place(value) {
                Place::Slot(at) => return Mem::at(Gpr::RBP, at),
                Place::Xmm(register) => {
                    let mem = self.x87_room();
                    self.write_vector(ty, mem, register, false);
                    return mem;
                }
                _ => {}
            },
            Operand::Wide(at) => {
                let bytes = self.function.wide[at as usize];
                return self.asm.constant16(bytes);
            }
            Operand::Float(bits) if ty == Type::F32 => return self.asm.constant4(bits as u32),
            Operand::Float(bits) => return self.asm.constant8(bits),
            _ => {}
        }
        self.asm.constant16([0; 16])
    }

    /// 16 bytes of the frame that hold no value between instructions.
    fn x87_room(&self) -> Mem {
        Mem::at(Gpr::RBP, self.frame.room.unwrap_or(0))
    }

    /// Pushes a number.
    pub(super) fn x87_push(&mut self, operand: Operand, ty: Type) {
        let mem = self.x87_memory(operand, ty);
        self.asm.x87_load(ty.bytes(), mem);
    }

    /// Pops a result to its place.
    pub(super) fn x87_pop(&mut self, result: u32) {
        let ty = self.function.types[result as usize];
        match self.place(Value(result)) {
            Place::Slot(at) => self.asm.x87_store(ty.bytes(), Mem::at(Gpr::RBP, at)),
            Place::Xmm(register) => {
                let mem = self.x87_room();
                self.asm.x87_store(ty.bytes(), mem);
                self.read_vector(ty, register, mem, false);
            }
            _ => self.asm.x87(X87::StorePop, 0),
        }
    }

    /// An operation on two numbers.
    pub(super) fn x87_float(&mut self, op: FloatOp, [a, b]: [Operand; 2], result: u32) {
        self.x87_push(a, Type::F80);
        self.x87_push(b, Type::F80);
        let op = match op {
            FloatOp::Add => X87::AddPop,
            FloatOp::Sub => X87::SubPop,
            FloatOp::Mul => X87::MulPop,
            _ => X87::DivPop,
        };
        self.asm.x87(op, 1);
        self.x87_pop(result);
    }

    /// An operation on one number.
    pub(super) fn x87_unary(&mut self, op: FloatUnary, operand: Operand, result: u32) {
        self.x87_push(operand, Type::F80);
        match op {
            FloatUnary::Neg => self.asm.x87_negate(),
            FloatUnary::Abs => self.asm.x87_abs(),
            FloatUnary::Sqrt => self.asm.x87_sqrt(),
        }
        self.x87_pop(result);
    }

    /// Compares; returns the test of the flags, which are those of `ucomis`.
    pub(super) fn x87_flags(&mut self, predicate: FloatPredicate, [a, b]: [Operand; 2]) -> Test {
        let (swaps, test) = super::floats::test_of(predicate);
        if let Test::Known(_) = test {
            return test;
        }
        let [a, b] = if swaps { [b, a] } else { [a, b] };
        self.x87_push(b, Type::F80);
        self.x87_push(a, Type::F80);
        self.asm.x87(X87::ComparePop, 1);
        self.asm.x87(X87::StorePop, 0);
        test
    }

    /// Pops the results of a call from the x87 stack, unused ones too.
    pub(super) fn x87_results(&mut self, returns: &[Returned], results: &Range<u32>) {
        for (at, returned) in returns.iter().enumerate() {
            if returned.ty != Type::F80 {
                continue;
            }
            if results.is_empty() {
                self.asm.x87(X87::StorePop, 0);
            } else {
                self.x87_pop(results.start + at as u32);
            }
        }
    }

    /// Pushes results on the x87 stack, the first one last, which must be on top.
    pub(super) fn x87_returns(&mut self, operands: &[Operand]) {
        let returns = self.function.returns.iter().zip(operands);
        for (returned, &operand) in returns.rev() {
            if returned.ty == Type::F80 {
                self.x87_push(operand, Type::F80);
            }
        }
    }

    /// Copies from memory to a result's place.
    pub(super) fn x87_load(&mut self, address: Operand, result: u32) {
        let mem = self.address(address, Gpr::RCX);
        self.asm.x87_load(10, mem);
        self.x87_pop(result);
    }

    /// Stores 10 bytes.
    pub(super) fn x87_store(&mut self, address: Operand, value: Operand) {
        self.x87_push(value, Type::F80);
        let mem = self.address(address, Gpr::RCX);
        self.asm.x87_store(10, mem);
    }

    /// A conversion from or to `x86_fp80`.
    pub(super) fn x87_cast(
        &mut self,
        cast: Cast,
        from: Type,
        to: Type,
        operand: Operand,
        result: u32,
    ) {
        match cast {
            Cast::SiToFp | Cast::UiToFp => {
                self.x87_from_int(cast == Cast::SiToFp, from, operand);
                self.x87_pop(result);
            }
            Cast::FpToSi | Cast::FpToUi => {
                self.x87_push(operand, from);
                self.x87_to_int(cast == Cast::FpToUi && bits_of(to) == 64, result);
            }
            _ => {
                self.x87_push(operand, from);
                self.x87_pop(result);
            }
        }
    }

    /// Pushes an integer. An unsigned one of 64 bits with its top bit set is pushed as a negative
    /// one, and 2^64 is added, which is exact.
    fn x87_from_int(&mut self, is_signed: bool, from: Type, operand: Operand) {
        let room = self.x87_room();
        let extension = match is_signed {
            true => Extension::Sign,
            false => Extension::Zero,
        };
        self.extend_into(operand, from, extension, Width::W64, Gpr::RAX);
        self.asm.store(Width::W64, room, Gpr::RAX);
        self.asm.x87_load_int(8, room);
        if !is_signed && bits_of(from) == 64 {
            let end = self.asm.new_label();
            let more = self.asm.constant4(TWO_64);
            self.asm.test(Width::W64, Gpr::RAX, Gpr::RAX);
            self.asm.jump_if(crate::asm::Condition::NoSign, end);
            self.asm.x87_add_float(more);
            self.asm.bind(end);
        }
    }

    /// Pops an integer, rounded towards zero. For an unsigned one of 64 bits, 2^63 is subtracted
    /// before and added again after.
    fn x87_to_int(&mut self, is_unsigned: bool, result: u32) {
        use crate::asm::Condition;
        let room = self.x87_room();
        let at = |offset| room.plus(offset).unwrap_or(room);
        if is_unsigned {
            let small = self.asm.new_label();
            let half = self.asm.constant4(TWO_63);
            self.asm.x87_load(4, half);
            self.asm.x87(X87::Compare, 1);
            // The number to add again.
            self.asm.mov_imm(Gpr::RCX, 0);
            let subtract = self.asm.new_label();
            self.asm.jump_if(Condition::BelowEqual, subtract);
            self.asm.x87(X87::StorePop, 0);
            self.asm.jump(small);
            self.asm.bind(subtract);
            self.asm.x87(X87::SubPop, 1);
            self.asm.mov_imm(Gpr::RCX, 1 << 63);
            self.asm.bind(small);
        }
        // Rounding towards zero, for this one instruction.
        self.asm.x87_store_control(at(8));
        self.asm.load(Width::W16, Gpr::RAX, at(8));
        self.asm.alu_imm(Alu::Or, Width::W32, Gpr::RAX, 0xc00);
        self.asm.store(Width::W16, at(10), Gpr::RAX);
        self.asm.x87_load_control(at(10));
        self.asm.x87_store_int(8, room);
        self.asm.x87_load_control(at(8));
        let target = self.target(result, Gpr::RAX);
        self.asm.load(Width::W64, target, room);
        if is_unsigned {
            self.asm.alu(Alu::Xor, Width::W64, target, Gpr::RCX);
        }
        self.put(result, target);
    }
}
