//! Comparisons of integers, and conditions folded into their users.

use crate::asm::{Alu, Condition, Gpr, Width};
use crate::ir::{Cast, Extension, IntOp, IntPredicate, Op, Operand, Type};

use super::Emitter;
use super::operands::{IntSource, bits_of, width_of, zero_extended};

/// A test of the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    /// No test: the result is known.
    Known(bool),
    /// This condition.
    One(Condition),
    /// Both of these.
    Both(Condition, Condition),
    /// At least one of these.
    Either(Condition, Condition),
}

impl Test {
    /// The opposite.
    pub(super) fn not(self) -> Test {
        match self {
            Test::Known(is) => Test::Known(!is),
            Test::One(a) => Test::One(a.not()),
            Test::Both(a, b) => Test::Either(a.not(), b.not()),
            Test::Either(a, b) => Test::Both(a.not(), b.not()),
        }
    }
}

/// The condition for a predicate.
fn condition_of(predicate: IntPredicate) -> Condition {
    match predicate {
        IntPredicate::Eq => Condition::Equal,
        IntPredicate::Ne => Condition::NotEqual,
        IntPredicate::UGt => Condition::Above,
        IntPredicate::UGe => Condition::AboveEqual,
        IntPredicate::ULt => Condition::Below,
        IntPredicate::ULe => Condition::BelowEqual,
        IntPredicate::SGt => Condition::Greater,
        IntPredicate::SGe => Condition::GreaterEqual,
        IntPredicate::SLt => Condition::Less,
        IntPredicate::SLe => Condition::LessEqual,
    }
}

/// The unsigned predicate of a signed one, for numbers that are not negative.
fn unsigned(predicate: IntPredicate) -> IntPredicate {
    match predicate {
        IntPredicate::SGt => IntPredicate::UGt,
        IntPredicate::SGe => IntPredicate::UGe,
        IntPredicate::SLt => IntPredicate::ULt,
        IntPredicate::SLe => IntPredicate::ULe,
        other => other,
    }
}

/// The extension of operands that a predicate needs.
fn extension_of(predicate: IntPredicate) -> Extension {
    match predicate {
        IntPredicate::SGt | IntPredicate::SGe | IntPredicate::SLt | IntPredicate::SLe => {
            Extension::Sign
        }
        _ => Extension::Zero,
    }
}

impl Emitter<'_> {
    /// A comparison whose result is a value.
    pub(super) fn compare(
        &mut self,
        predicate: IntPredicate,
        ty: Type,
        operands: [Operand; 2],
        result: u32,
    ) {
        let condition = self.flags(predicate, ty, operands);
        self.put_test(Test::One(condition), result);
    }

    /// Writes the result of a test to its place.
    pub(super) fn put_test(&mut self, test: Test, result: u32) {
        let target = self.target(result, Gpr::RAX);
        self.set(test, target);
        self.put(result, target);
    }

    /// Writes the result of a test to a register, of which only the low byte is defined then. May
    /// change `rdx`.
    pub(super) fn set(&mut self, test: Test, register: Gpr) {
        match test {
            Test::Known(is) => self.asm.mov_imm(register, u64::from(is)),
            Test::One(condition) => self.asm.setcc(condition, register),
            Test::Both(a, b) | Test::Either(a, b) => {
                let op = match test {
                    Test::Both(..) => Alu::And,
                    _ => Alu::Or,
                };
                self.asm.setcc(a, Gpr::RDX);
                self.asm.setcc(b, register);
                self.asm.alu(op, Width::W8, register, Gpr::RDX);
            }
        }
    }

    /// Sets flags from a bit, a value or folded.
    pub(super) fn test(&mut self, bit: Operand) -> Test {
        match bit {
            Operand::Int(constant) => Test::Known(constant & 1 != 0),
            Operand::Value(value) => {
                let function = self.function;
                let home = self.analysis.home(value) as usize;
                let life = &self.analysis.lives[home];
                if self.folded(value).is_some() {
                    let op = &function.instructions[life.by as usize].op;
                    return self.test_of(op);
                }
                let rm = self.rm(bit, Type::Int(1), Gpr::RCX);
                self.asm.test_imm(Width::W8, rm, 1);
                Test::One(Condition::NotEqual)
            }
            Operand::Undef => Test::Known(false),
            _ => {
                self.load_into(bit, Type::Int(1), Gpr::RCX);
                self.asm.test_imm(Width::W8, Gpr::RCX, 1);
                Test::One(Condition::NotEqual)
            }
        }
    }

    /// Sets flags from an instruction that gives a condition.
    fn test_of(&mut self, op: &Op) -> Test {
        match op {
            Op::Compare(predicate, ty, operands) => {
                Test::One(self.flags(*predicate, *ty, *operands))
            }
            Op::FloatCompare(predicate, ty, operands) => {
                self.float_flags(*predicate, *ty, *operands)
            }
            _ => Test::Known(false),
        }
    }

    /// Compares; returns the condition to test.
    fn flags(&mut self, predicate: IntPredicate, ty: Type, operands: [Operand; 2]) -> Condition {
        let [mut a, mut b] = operands;
        let mut condition = condition_of(predicate);
        if !matches!(a, Operand::Value(_)) && matches!(b, Operand::Value(_)) {
            (a, b) = (b, a);
            condition = condition.swapped();
        }
        if let Some((narrow, operands)) = self.narrow(predicate, [a, b]) {
            let (predicate, ty) = narrow;
            return self.flags(predicate, ty, operands);
        }
        let bits = bits_of(ty);
        let width = Width::of_bits(bits);
        if width.bits() != bits {
            let extension = extension_of(predicate);
            self.extend_into(a, ty, extension, width_of(ty), Gpr::RAX);
            let b = self.extended(b, ty, extension, Gpr::RCX);
            self.asm.alu(Alu::Cmp, width_of(ty), Gpr::RAX, b);
            return condition;
        }
        if b == Operand::Int(0) && self.test_bits(a, width) {
            return condition;
        }
        let source = self.source(b, ty, Gpr::RCX);
        // An immediate of two bytes stalls the decoder.
        if let (IntSource::Imm(constant), Width::W16) = (source, width)
            && i8::try_from(constant).is_err()
        {
            let extension = extension_of(predicate);
            self.extend_into(a, ty, extension, Width::W32, Gpr::RAX);
            let constant = match extension {
                Extension::Sign => constant,
                Extension::Zero => i32::from(constant as u16),
            };
            self.asm.alu_imm(Alu::Cmp, Width::W32, Gpr::RAX, constant);
            return condition;
        }
        match source {
            IntSource::Imm(constant) => match self.source(a, ty, Gpr::RAX) {
                IntSource::Gpr(a) if constant == 0 => self.asm.test(width, a, a),
                IntSource::Gpr(a) => self.asm.alu_imm(Alu::Cmp, width, a, constant),
                IntSource::Mem(a) => self.asm.alu_imm(Alu::Cmp, width, a, constant),
                IntSource::Imm(a) => {
                    self.asm.mov_imm(Gpr::RAX, i64::from(a) as u64);
                    self.asm.alu_imm(Alu::Cmp, width, Gpr::RAX, constant);
                }
            },
            IntSource::Gpr(b) => match self.source(a, ty, Gpr::RAX) {
                IntSource::Mem(a) => self.asm.alu_store(Alu::Cmp, width, a, b),
                IntSource::Gpr(a) => self.asm.alu(Alu::Cmp, width, a, b),
                IntSource::Imm(_) => {
                    self.load_into(a, ty, Gpr::RAX);
                    self.asm.alu(Alu::Cmp, width, Gpr::RAX, b);
                }
            },
            IntSource::Mem(b) => {
                let a = self.gpr(a, ty, Gpr::RAX);
                self.asm.alu(Alu::Cmp, width, a, b);
            }
        }
        condition
    }

    /// The comparison before extension, if the first operand is a folded cast. Two numbers that are
    /// not negative compare the same with and without signs.
    fn narrow(
        &self,
        predicate: IntPredicate,
        [a, b]: [Operand; 2],
    ) -> Option<((IntPredicate, Type), [Operand; 2])> {
        let (Operand::Value(value), Operand::Int(constant)) = (a, b) else {
            return None;
        };
        let Some(&Op::Cast(cast, from, _, operand)) = self.folded(value) else {
            return None;
        };
        let predicate = match cast {
            Cast::ZExt => unsigned(predicate),
            _ => predicate,
        };
        let constant = zero_extended(constant, bits_of(from));
        Some(((predicate, from), [operand, Operand::Int(constant)]))
    }

    /// Emits `test` of two operands, if the operand is their folded `and`.
    fn test_bits(&mut self, operand: Operand, width: Width) -> bool {
        let Operand::Value(value) = operand else {
            return false;
        };
        let Some(&Op::Int(IntOp::And, ty, [a, b])) = self.folded(value) else {
            return false;
        };
        let [a, b] = match a {
            Operand::Value(_) => [a, b],
            _ => [b, a],
        };
        match self.source(b, ty, Gpr::RCX) {
            IntSource::Imm(constant) => {
                let rm = self.rm(a, ty, Gpr::RAX);
                self.asm.test_imm(width, rm, constant);
            }
            IntSource::Gpr(b) => {
                let rm = self.rm(a, ty, Gpr::RAX);
                self.asm.test(width, rm, b);
            }
            IntSource::Mem(b) => {
                let a = self.gpr(a, ty, Gpr::RAX);
                self.asm.test(width, b, a);
            }
        }
        true
    }
}
