//! Arithmetic, comparisons, conversions and choices.

use inkwell::llvm_sys::core::{LLVMGetFCmpPredicate, LLVMGetICmpPredicate};
use inkwell::llvm_sys::{LLVMIntPredicate, LLVMOpcode, LLVMRealPredicate};
use uruk_baseline::ir::{
    Cast, FloatOp, FloatPredicate, FloatUnary, IntOp, IntPredicate, Op, Operand, Type,
};

use super::reading::{Covered, Reading, not};
use super::types::Shape;
use crate::handles::InstructionRef;

impl<'m> Reading<'_, 'm> {
    pub(super) fn binary(&mut self, it: InstructionRef<'m>, opcode: LLVMOpcode) -> Covered<()> {
        let known = self.known_type(*it);
        let ty = match self.shape_of(known) {
            Shape::Scalar(ty) => ty,
            Shape::Wide => return self.wide_binary(it, opcode),
            Shape::Vector { lane, .. } if self.known.types.by_lanes => {
                self.leaves(known)?;
                return self.vector_binary(it, lane, opcode);
            }
            _ => {
                self.leaves(known)?;
                return not("an operation on a vector");
            }
        };
        let op = if ty.is_int() {
            let op = int_op(opcode);
            op.map(|op| Ok((Some(op), None)))
        } else {
            let op = float_op(opcode);
            op.map(|op| Ok((None, Some(op))))
        };
        let (int, float) = op.unwrap_or_else(|| not("an unusual instruction"))?;
        let list = [self.one_of(it, 0)?, self.one_of(it, 1)?];
        let op = match (int, float) {
            (Some(op), _) => Op::Int(op, ty, list),
            (_, Some(op)) => Op::Float(op, ty, list),
            _ => return not("an unusual instruction"),
        };
        self.emit_for(it, op)
    }

    pub(super) fn negate(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let known = self.known_type(*it);
        if self.known.types.by_lanes
            && let Shape::Vector { lane, .. } = self.shape_of(known)
        {
            self.leaves(known)?;
            return self.vector_negate(it, lane);
        }
        let ty = self.scalar_type(*it)?;
        let one = self.one_of(it, 0)?;
        self.emit_for(it, Op::FloatUnary(FloatUnary::Neg, ty, one))
    }

    pub(super) fn compare(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let [a, b] = [0, 1].map(|index| self.operand(it, index));
        let known = self.known_type(a);
        // SAFETY: a comparison of integers.
        let predicate = int_predicate(unsafe { LLVMGetICmpPredicate(it.raw()) });
        match self.shape_of(known) {
            Shape::Scalar(ty) => {
                let list = [self.one(a)?, self.one(b)?];
                self.emit_for(it, Op::Compare(predicate, ty, list))
            }
            Shape::Wide => {
                let ([a, b], [c, d]) = (self.halves(a)?, self.halves(b)?);
                self.emit_for(it, Op::WideCompare(predicate, [a, b, c, d]))
            }
            Shape::Vector { lane, .. } if self.known.types.by_lanes => {
                self.leaves(known)?;
                self.vector_compare(it, lane, predicate)
            }
            _ => {
                self.leaves(known)?;
                not("an operation on a vector")
            }
        }
    }

    pub(super) fn float_compare(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let [a, b] = [0, 1].map(|index| self.operand(it, index));
        // SAFETY: a comparison of floating-point numbers.
        let predicate = float_predicate(unsafe { LLVMGetFCmpPredicate(it.raw()) });
        let known = self.known_type(a);
        if self.known.types.by_lanes
            && let Shape::Vector { lane, .. } = self.shape_of(known)
        {
            self.leaves(known)?;
            return self.vector_float_compare(it, lane, predicate);
        }
        let ty = self.scalar_type(a)?;
        let list = [self.one(a)?, self.one(b)?];
        self.emit_for(it, Op::FloatCompare(predicate, ty, list))
    }

    pub(super) fn select(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let [bit, a, b] = [0, 1, 2].map(|index| self.operand(it, index));
        let (known, bits) = (self.known_type(*it), self.known_type(bit));
        if self.known.types.by_lanes
            && let (Shape::Vector { lane, .. }, Shape::Vector { .. }) =
                (self.shape_of(known), self.shape_of(bits))
        {
            self.leaves(known)?;
            return self.vector_select(it, lane);
        }
        let bit = self.one(bit)?;
        let (a, b) = (self.scalars(a)?, self.scalars(b)?);
        let first = self.out.types.len() as u32;
        for at in 0..self.leaves(known)?.len() {
            let ty = self.leaves(known)?[at].ty;
            let list = [a, b].map(|from| self.known.values.of(from)[at]);
            self.emit(Op::Select(ty, [bit, list[0], list[1]]));
        }
        let last = self.out.types.len() as u32;
        self.define(it.raw() as usize, first..last);
        Ok(())
    }

    /// A value that is always the same, also where its operand is not.
    pub(super) fn freeze(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let value = self.operand(it, 0);
        let scalars = self.scalars(value)?;
        let list = self.known.values.of(scalars);
        if !list.contains(&Operand::Undef) {
            self.known.values.set(it.raw() as usize, scalars);
            return Ok(());
        }
        let mut list = list.to_vec();
        let known = self.known_type(value);
        for (at, operand) in list.iter_mut().enumerate() {
            if *operand == Operand::Undef {
                *operand = match self.leaves(known)?[at].ty {
                    Type::Int(_) => Operand::Int(0),
                    Type::F32 | Type::F64 => Operand::Float(0),
                    Type::F80 | Type::V128 | Type::V64 => {
                        self.out.wide.push([0; 16]);
                        Operand::Wide(self.out.wide.len() as u32 - 1)
                    }
                };
            }
        }
        self.stand(it, list)
    }

    pub(super) fn cast(&mut self, it: InstructionRef<'m>, opcode: LLVMOpcode) -> Covered<()> {
        let value = self.operand(it, 0);
        let (from, to) = (self.known_type(value), self.known_type(*it));
        match (self.shape_of(from), self.shape_of(to)) {
            (Shape::Scalar(from), Shape::Scalar(to)) => {
                let operand = self.one(value)?;
                let operand = self.convert(opcode, from, to, operand)?;
                self.stand(it, [operand])
            }
            (Shape::Vector { .. }, _) | (_, Shape::Vector { .. }) if self.known.types.by_lanes => {
                self.vector_cast(it, (from, to), opcode)
            }
            (Shape::Vector { .. }, Shape::Vector { .. })
                if opcode == LLVMOpcode::LLVMBitCast
                    && self.leaves(from)?.len() == self.leaves(to)?.len() =>
            {
                let scalars = self.scalars(value)?;
                self.known.values.set(it.raw() as usize, scalars);
                Ok(())
            }
            (Shape::Vector { .. }, _) | (_, Shape::Vector { .. }) => {
                self.leaves(from)?;
                self.leaves(to)?;
                not("an operation on a vector")
            }
            (Shape::Wide, _) | (_, Shape::Wide) => self.wide_cast(it, opcode),
            _ => {
                self.leaves(from)?;
                self.leaves(to)?;
                not("an unusual conversion")
            }
        }
    }

    /// A conversion between scalars; what it comes to.
    pub(super) fn convert(
        &mut self,
        opcode: LLVMOpcode,
        from: Type,
        to: Type,
        operand: Operand,
    ) -> Covered<Operand> {
        use LLVMOpcode as O;
        let cast = match opcode {
            O::LLVMTrunc => Cast::Trunc,
            O::LLVMZExt => Cast::ZExt,
            O::LLVMSExt => Cast::SExt,
            O::LLVMFPToUI => Cast::FpToUi,
            O::LLVMFPToSI => Cast::FpToSi,
            O::LLVMUIToFP => Cast::UiToFp,
            O::LLVMSIToFP => Cast::SiToFp,
            O::LLVMFPTrunc => Cast::FpTrunc,
            O::LLVMFPExt => Cast::FpExt,
            // Addresses are integers of 64 bits.
            O::LLVMPtrToInt | O::LLVMPtrToAddr | O::LLVMIntToPtr => {
                return Ok(self.resize(from, to, operand));
            }
            _ if from == to => return Ok(operand),
            _ => Cast::Bits,
        };
        Ok(self.emit_one(Op::Cast(cast, from, to, operand)))
    }

    /// An integer cut off, or with zeros above.
    pub(super) fn resize(&mut self, from: Type, to: Type, operand: Operand) -> Operand {
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

pub(super) fn int_op(opcode: LLVMOpcode) -> Option<IntOp> {
    use LLVMOpcode as O;
    Some(match opcode {
        O::LLVMAdd => IntOp::Add,
        O::LLVMSub => IntOp::Sub,
        O::LLVMMul => IntOp::Mul,
        O::LLVMSDiv => IntOp::SDiv,
        O::LLVMUDiv => IntOp::UDiv,
        O::LLVMSRem => IntOp::SRem,
        O::LLVMURem => IntOp::URem,
        O::LLVMShl => IntOp::Shl,
        O::LLVMLShr => IntOp::LShr,
        O::LLVMAShr => IntOp::AShr,
        O::LLVMAnd => IntOp::And,
        O::LLVMOr => IntOp::Or,
        O::LLVMXor => IntOp::Xor,
        _ => return None,
    })
}

pub(super) fn float_op(opcode: LLVMOpcode) -> Option<FloatOp> {
    use LLVMOpcode as O;
    Some(match opcode {
        O::LLVMFAdd => FloatOp::Add,
        O::LLVMFSub => FloatOp::Sub,
        O::LLVMFMul => FloatOp::Mul,
        O::LLVMFDiv => FloatOp::Div,
        O::LLVMFRem => FloatOp::Rem,
        _ => return None,
    })
}

fn int_predicate(predicate: LLVMIntPredicate) -> IntPredicate {
    use LLVMIntPredicate as P;
    match predicate {
        P::LLVMIntEQ => IntPredicate::Eq,
        P::LLVMIntNE => IntPredicate::Ne,
        P::LLVMIntUGT => IntPredicate::UGt,
        P::LLVMIntUGE => IntPredicate::UGe,
        P::LLVMIntULT => IntPredicate::ULt,
        P::LLVMIntULE => IntPredicate::ULe,
        P::LLVMIntSGT => IntPredicate::SGt,
        P::LLVMIntSGE => IntPredicate::SGe,
        P::LLVMIntSLT => IntPredicate::SLt,
        P::LLVMIntSLE => IntPredicate::SLe,
    }
}

fn float_predicate(predicate: LLVMRealPredicate) -> FloatPredicate {
    use LLVMRealPredicate as P;
    match predicate {
        P::LLVMRealPredicateFalse => FloatPredicate::False,
        P::LLVMRealOEQ => FloatPredicate::OEq,
        P::LLVMRealOGT => FloatPredicate::OGt,
        P::LLVMRealOGE => FloatPredicate::OGe,
        P::LLVMRealOLT => FloatPredicate::OLt,
        P::LLVMRealOLE => FloatPredicate::OLe,
        P::LLVMRealONE => FloatPredicate::ONe,
        P::LLVMRealORD => FloatPredicate::Ord,
        P::LLVMRealUNO => FloatPredicate::Uno,
        P::LLVMRealUEQ => FloatPredicate::UEq,
        P::LLVMRealUGT => FloatPredicate::UGt,
        P::LLVMRealUGE => FloatPredicate::UGe,
        P::LLVMRealULT => FloatPredicate::ULt,
        P::LLVMRealULE => FloatPredicate::ULe,
        P::LLVMRealUNE => FloatPredicate::UNe,
        P::LLVMRealPredicateTrue => FloatPredicate::True,
    }
}
