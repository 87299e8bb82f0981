//! Arithmetic, comparisons, conversions and choices.

use smallvec::SmallVec;
use uruk_baseline::ir::{
    Cast, FloatOp, FloatPredicate, FloatUnary, IntOp, IntPredicate, Op, Operand, Type,
};
use uruk_bitcode::ir::{BinaryOp, CastOp, Instruction};

use crate::lanes::Numbers;
use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::Shape;

impl Reading<'_> {
    pub(crate) fn binary(&mut self, it: &Instruction, op: BinaryOp) -> Covered<()> {
        let known = self.result(it)?;
        if self.shape_of(known) == Shape::Wide {
            return self.wide_binary(it, op);
        }
        let numbers @ Numbers { ty, .. } = self.numbers(known)?;
        let list = self.operands(it)?;
        match (ty, float_op(op)) {
            (Type::Int(_), _) => {
                self.each_op(it, list, numbers, |list| Op::Int(int_op(op), ty, list))
            }
            (_, Some(op)) => self.each_op(it, list, numbers, |list| Op::Float(op, ty, list)),
            (_, None) => invalid(TYPES),
        }
    }

    pub(crate) fn negate(&mut self, it: &Instruction) -> Covered<()> {
        let numbers @ Numbers { ty, .. } = self.numbers(self.result(it)?)?;
        let list = self.operands(it)?;
        match ty.is_int() {
            true => invalid(TYPES),
            false => self.each_op(it, list, numbers, |[one]| {
                Op::FloatUnary(FloatUnary::Neg, ty, one)
            }),
        }
    }

    pub(crate) fn compare(&mut self, it: &Instruction, predicate: u32) -> Covered<()> {
        let list @ [a, b] = self.operands(it)?;
        let known = self.type_of(a)?;
        if predicate < 16 {
            let numbers @ Numbers { ty, .. } = self.numbers(known)?;
            let predicate = FLOAT_PREDICATES[predicate as usize];
            return match ty.is_int() {
                true => invalid(TYPES),
                false => self.each_op(it, list, numbers, |list| {
                    Op::FloatCompare(predicate, ty, list)
                }),
            };
        }
        let predicate = predicate.checked_sub(FIRST_OF_INTEGERS);
        let predicate = predicate.and_then(|it| INT_PREDICATES.get(it as usize));
        let Some(&predicate) = predicate else {
            return invalid("a predicate that there is not");
        };
        if self.shape_of(known) == Shape::Wide {
            let ([a, b], [c, d]) = (self.halves(a)?, self.halves(b)?);
            return self.emit_for(it, Op::WideCompare(predicate, [a, b, c, d]));
        }
        let numbers @ Numbers { ty, .. } = self.numbers(known)?;
        match ty.is_int() {
            true => self.each_op(it, list, numbers, |list| Op::Compare(predicate, ty, list)),
            false => invalid(TYPES),
        }
    }

    pub(crate) fn select(&mut self, it: &Instruction) -> Covered<()> {
        let [a, b, bit] = self.operands(it)?;
        let known = self.result(it)?;
        if self.type_of(a)? != known || self.type_of(b)? != known {
            return invalid(TYPES);
        }
        let leaves = self.leaves(known)?;
        // The condition is one bit for all, or one for each lane.
        let bits = match self.shape_of(self.type_of(bit)?) {
            Shape::Vector { .. } => {
                let bits = self.numbers(known)?.of(Type::Int(1));
                self.lanes_as(bit, bits)?
            }
            _ => {
                let bit = self.one_as(bit, Type::Int(1))?;
                std::iter::repeat_n(bit, leaves.len()).collect()
            }
        };
        let (a, b) = (self.scalars(a)?, self.scalars(b)?);
        let mut values = SmallVec::<[Operand; 4]>::new();
        for (at, (leaf, bit)) in leaves.iter().zip(bits).enumerate() {
            let [a, b] = [a, b].map(|from| self.values.of(from)[at]);
            values.push(self.emit_one(Op::Select(leaf.ty, [bit, a, b])));
        }
        self.stand(it, values)
    }

    /// A value that is the same at each use, even if its operand is not.
    pub(crate) fn freeze(&mut self, it: &Instruction) -> Covered<()> {
        let [value] = self.operands(it)?;
        let scalars = self.scalars(value)?;
        let list = self.values.of(scalars);
        if !list.contains(&Operand::Undef) {
            return self.bind(it, scalars);
        }
        let mut list: SmallVec<[Operand; 4]> = list.into();
        let known = self.type_of(value)?;
        for (leaf, operand) in self.leaves(known)?.iter().zip(&mut list) {
            if *operand == Operand::Undef {
                *operand = self.zero_of(leaf.ty);
            }
        }
        self.stand(it, list)
    }

    pub(crate) fn cast(&mut self, it: &Instruction, op: CastOp) -> Covered<()> {
        let [value] = self.operands(it)?;
        let (from, to) = (self.type_of(value)?, self.result(it)?);
        match (self.shape_of(from), self.shape_of(to)) {
            (Shape::Scalar(from), Shape::Scalar(to)) => {
                let operand = self.one(value)?;
                let operand = self.convert(op, from, to, operand)?;
                self.stand(it, [operand])
            }
            (Shape::Vector { .. }, _) | (_, Shape::Vector { .. }) => {
                self.convert_all(it, op, [from, to])
            }
            (Shape::Wide, _) | (_, Shape::Wide) => self.wide_cast(it, op),
            _ => {
                self.leaves(from)?;
                self.leaves(to)?;
                not("an unusual conversion")
            }
        }
    }

    /// A conversion between scalars; returns the result.
    pub(crate) fn convert(
        &mut self,
        op: CastOp,
        from: Type,
        to: Type,
        operand: Operand,
    ) -> Covered<Operand> {
        let bits = |ty: Type| match ty {
            Type::Int(bits) => u32::from(bits),
            other => other.bytes() * 8,
        };
        let (more, less) = (bits(from) < bits(to), bits(from) > bits(to));
        let (cast, fits) = match (op, from.is_int(), to.is_int()) {
            (CastOp::Trunc, true, true) => (Cast::Trunc, less),
            (CastOp::ZExt, true, true) => (Cast::ZExt, more),
            (CastOp::SExt, true, true) => (Cast::SExt, more),
            (CastOp::FpToUi, false, true) => (Cast::FpToUi, true),
            (CastOp::FpToSi, false, true) => (Cast::FpToSi, true),
            (CastOp::UiToFp, true, false) => (Cast::UiToFp, true),
            (CastOp::SiToFp, true, false) => (Cast::SiToFp, true),
            (CastOp::FpTrunc, false, false) => (Cast::FpTrunc, less),
            (CastOp::FpExt, false, false) => (Cast::FpExt, more),
            // Addresses are integers of 64 bits.
            (CastOp::PtrToInt | CastOp::PtrToAddr | CastOp::IntToPtr, true, true) => {
                return Ok(self.resize(from, to, operand));
            }
            (CastOp::BitCast | CastOp::AddrSpaceCast, ..) if from == to => return Ok(operand),
            (CastOp::BitCast, ..) => (Cast::Bits, !more && !less),
            _ => return invalid(TYPES),
        };
        match fits {
            true => Ok(self.emit_one(Op::Cast(cast, from, to, operand))),
            false => invalid(TYPES),
        }
    }

    /// An integer truncated, or extended with zeros.
    pub(crate) fn resize(&mut self, from: Type, to: Type, operand: Operand) -> Operand {
        let (Type::Int(has), Type::Int(wants)) = (from, to) else {
            return operand;
        };
        let cast = match has.cmp(&wants) {
            std::cmp::Ordering::Equal => return operand,
            std::cmp::Ordering::Less => Cast::ZExt,
            std::cmp::Ordering::Greater => Cast::Trunc,
        };
        match (operand, cast) {
            (Operand::Int(_), Cast::ZExt) => operand,
            (Operand::Int(bits), _) => Operand::Int(bits & ((1 << wants) - 1)),
            _ => self.emit_one(Op::Cast(cast, from, to, operand)),
        }
    }
}

fn int_op(op: BinaryOp) -> IntOp {
    match op {
        BinaryOp::Add => IntOp::Add,
        BinaryOp::Sub => IntOp::Sub,
        BinaryOp::Mul => IntOp::Mul,
        BinaryOp::SDiv => IntOp::SDiv,
        BinaryOp::UDiv => IntOp::UDiv,
        BinaryOp::SRem => IntOp::SRem,
        BinaryOp::URem => IntOp::URem,
        BinaryOp::Shl => IntOp::Shl,
        BinaryOp::LShr => IntOp::LShr,
        BinaryOp::AShr => IntOp::AShr,
        BinaryOp::And => IntOp::And,
        BinaryOp::Or => IntOp::Or,
        BinaryOp::Xor => IntOp::Xor,
    }
}

fn float_op(op: BinaryOp) -> Option<FloatOp> {
    Some(match op {
        BinaryOp::Add => FloatOp::Add,
        BinaryOp::Sub => FloatOp::Sub,
        BinaryOp::Mul => FloatOp::Mul,
        BinaryOp::SDiv => FloatOp::Div,
        BinaryOp::SRem => FloatOp::Rem,
        _ => return None,
    })
}

/// LLVM's number of the first predicate of integers.
const FIRST_OF_INTEGERS: u32 = 32;

/// Predicates of integers, in the order of LLVM's numbers.
const INT_PREDICATES: [IntPredicate; 10] = [
    IntPredicate::Eq,
    IntPredicate::Ne,
    IntPredicate::UGt,
    IntPredicate::UGe,
    IntPredicate::ULt,
    IntPredicate::ULe,
    IntPredicate::SGt,
    IntPredicate::SGe,
    IntPredicate::SLt,
    IntPredicate::SLe,
];

/// Predicates of floating-point numbers, in the order of LLVM's numbers, from 0.
const FLOAT_PREDICATES: [FloatPredicate; 16] = [
    FloatPredicate::False,
    FloatPredicate::OEq,
    FloatPredicate::OGt,
    FloatPredicate::OGe,
    FloatPredicate::OLt,
    FloatPredicate::OLe,
    FloatPredicate::ONe,
    FloatPredicate::Ord,
    FloatPredicate::Uno,
    FloatPredicate::UEq,
    FloatPredicate::UGt,
    FloatPredicate::UGe,
    FloatPredicate::ULt,
    FloatPredicate::ULe,
    FloatPredicate::UNe,
    FloatPredicate::True,
];
