//! `float` and `double`: arithmetic and comparisons.
//!
//! Operands keep their order even where it does not matter for numbers: a NaN result comes from the
//! first one, as it does in LLVM's code.

use crate::asm::{Arith, Condition, Gpr, Sse, Width, Xmm, XmmRm};
use crate::ir::{FloatOp, FloatPredicate, FloatUnary, Operand, Type};
use crate::sequences::floats;

use super::compare::Test;
use super::{Emitter, VECTOR_SCRATCH};

/// All bits of a number but its sign, or the sign alone, in the low part of 16 bytes.
fn mask(ty: Type, is_sign: bool) -> [u8; 16] {
    let sign: u64 = match ty {
        Type::F32 => 1 << 31,
        _ => 1 << 63,
    };
    let bits = match (is_sign, ty) {
        (true, _) => sign,
        (false, Type::F32) => sign - 1,
        (false, _) => !sign,
    };
    (u128::from(bits)).to_le_bytes()
}

/// The test of `ucomis` flags for a predicate, and whether the operands are swapped: "above" and
/// "above or equal" are false for NaN, their opposites true.
pub(super) fn test_of(predicate: FloatPredicate) -> (bool, Test) {
    use Condition as C;
    use FloatPredicate as P;
    match predicate {
        P::False => (false, Test::Known(false)),
        P::True => (false, Test::Known(true)),
        P::OEq => (false, Test::Both(C::Equal, C::NoParity)),
        P::UNe => (false, Test::Either(C::NotEqual, C::Parity)),
        P::ONe => (false, Test::One(C::NotEqual)),
        P::UEq => (false, Test::One(C::Equal)),
        P::OGt => (false, Test::One(C::Above)),
        P::OGe => (false, Test::One(C::AboveEqual)),
        P::ULt => (false, Test::One(C::Below)),
        P::ULe => (false, Test::One(C::BelowEqual)),
        P::OLt => (true, Test::One(C::Above)),
        P::OLe => (true, Test::One(C::AboveEqual)),
        P::UGt => (true, Test::One(C::Below)),
        P::UGe => (true, Test::One(C::BelowEqual)),
        P::Ord => (false, Test::One(C::NoParity)),
        P::Uno => (false, Test::One(C::Parity)),
    }
}

impl Emitter<'_> {
    /// An operation on two numbers.
    pub(super) fn float(&mut self, op: FloatOp, ty: Type, operands: [Operand; 2], result: u32) {
        if ty == Type::F80 {
            return self.x87_float(op, operands, result);
        }
        let is_double = ty == Type::F64;
        let arith = match op {
            FloatOp::Add => Arith::Add,
            FloatOp::Sub => Arith::Sub,
            FloatOp::Mul => Arith::Mul,
            FloatOp::Div => Arith::Div,
            FloatOp::Rem => {
                let name = if is_double { "fmod" } else { "fmodf" };
                let arguments = operands.map(|operand| (operand, ty));
                self.call_library(name, &arguments);
                self.put_vector(result, Xmm::new(0));
                return;
            }
            FloatOp::MinNum => return self.pick_number(Arith::Min, ty, operands, result),
            FloatOp::MaxNum => return self.pick_number(Arith::Max, ty, operands, result),
            FloatOp::CopySign => return self.copy_sign(ty, operands, result),
        };
        let [a, b] = operands;
        let b = self.vector_rm(b, ty, VECTOR_SCRATCH[1]);
        let mut target = self.vector_target(result);
        if b == XmmRm::Xmm(target) && self.vector_register_of(a) != Some(target) {
            target = VECTOR_SCRATCH[0];
        }
        // Only the second operand may be a folded load, so this keeps the registers of its address.
        self.load_vector_into(a, ty, target);
        self.asm.sse(Sse::scalar(arith, is_double), target, b);
        self.put_vector(result, target);
    }

    fn pick_number(&mut self, op: Arith, ty: Type, [a, b]: [Operand; 2], result: u32) {
        let is_double = ty == Type::F64;
        self.load_vector_into(b, ty, VECTOR_SCRATCH[1]);
        let a = self.xmm(a, ty, VECTOR_SCRATCH[0]);
        let target = self.vector_target(result);
        let b = VECTOR_SCRATCH[1];
        floats::pick_number(self.asm, (op, is_double), target, [a, b], b);
        self.put_vector(result, target);
    }

    fn copy_sign(&mut self, ty: Type, [a, b]: [Operand; 2], result: u32) {
        let sign = self.asm.constant16(mask(ty, true));
        let rest = self.asm.constant16(mask(ty, false));
        self.load_vector_into(b, ty, VECTOR_SCRATCH[1]);
        self.asm.sse(Sse::ANDPS, VECTOR_SCRATCH[1], sign);
        let target = self.vector_target(result);
        self.load_vector_into(a, ty, target);
        self.asm.sse(Sse::ANDPS, target, rest);
        self.asm.sse(Sse::ORPS, target, VECTOR_SCRATCH[1]);
        self.put_vector(result, target);
    }

    /// An operation on one number.
    pub(super) fn float_unary(&mut self, op: FloatUnary, ty: Type, operand: Operand, result: u32) {
        if ty == Type::F80 {
            return self.x87_unary(op, operand, result);
        }
        let target = self.vector_target(result);
        self.load_vector_into(operand, ty, target);
        match op {
            FloatUnary::Neg => {
                let sign = self.asm.constant16(mask(ty, true));
                self.asm.sse(Sse::XORPS, target, sign);
            }
            FloatUnary::Abs => {
                let rest = self.asm.constant16(mask(ty, false));
                self.asm.sse(Sse::ANDPS, target, rest);
            }
            FloatUnary::Sqrt => {
                let sqrt = Sse::scalar(Arith::Sqrt, ty == Type::F64);
                self.asm.sse(sqrt, target, target);
            }
        }
        self.put_vector(result, target);
    }

    /// `a * b + c`, rounded once.
    pub(super) fn fma(&mut self, ty: Type, operands: [Operand; 3], result: u32) {
        let name = if ty == Type::F64 { "fma" } else { "fmaf" };
        let arguments = operands.map(|operand| (operand, ty));
        self.call_library(name, &arguments);
        self.put_vector(result, Xmm::new(0));
    }

    /// A comparison whose result is a value.
    pub(super) fn float_compare(
        &mut self,
        predicate: FloatPredicate,
        ty: Type,
        operands: [Operand; 2],
        result: u32,
    ) {
        let test = self.float_flags(predicate, ty, operands);
        self.put_test(test, result);
    }

    /// Compares; returns the test of the flags.
    pub(super) fn float_flags(
        &mut self,
        predicate: FloatPredicate,
        ty: Type,
        [a, b]: [Operand; 2],
    ) -> Test {
        if ty == Type::F80 {
            return self.x87_flags(predicate, [a, b]);
        }
        let (swaps, test) = test_of(predicate);
        if let Test::Known(_) = test {
            return test;
        }
        let [a, b] = if swaps { [b, a] } else { [a, b] };
        let a = self.xmm(a, ty, VECTOR_SCRATCH[0]);
        let b = self.vector_rm(b, ty, VECTOR_SCRATCH[1]);
        self.asm.sse(floats::ucomis(ty == Type::F64), a, b);
        test
    }

    /// Moves the bits of a value to a type of another register class or the same.
    pub(super) fn cast_bits(&mut self, from: Type, to: Type, operand: Operand, result: u32) {
        match (from.is_int(), to.is_int()) {
            (true, false) => {
                let width = match to {
                    Type::F32 => Width::W32,
                    _ => Width::W64,
                };
                let source = self.rm(operand, from, Gpr::RAX);
                let target = self.vector_target(result);
                self.asm.mov_from_gpr(width, target, source);
                self.put_vector(result, target);
            }
            (false, true) => {
                let target = self.target(result, Gpr::RAX);
                // From any place; constants too.
                self.load_into(operand, to, target);
                self.put(result, target);
            }
            (true, true) => {
                let target = self.target(result, Gpr::RAX);
                self.load_into(operand, from, target);
                self.put(result, target);
            }
            (false, false) => {
                let target = self.vector_target(result);
                self.load_vector_into(operand, from, target);
                self.put_vector(result, target);
            }
        }
    }
}
