//! Vectors, taken apart into their lanes: an operation on a vector is one on each lane.
//!
//! That is slower than the processor's own vectors, and right without any of them; what runs long
//! is compiled again anyway. Vectors that are passed or returned are not covered, because they
//! would have to be whole.

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{LLVMGetMaskValue, LLVMGetNumMaskElements};
use smallvec::SmallVec;
use uruk_baseline::ir::{Cast, FloatPredicate, FloatUnary, IntOp, IntPredicate, Op, Operand, Type};

use super::reading::{Covered, Reading, not};
use super::types::{Known, Shape};
use crate::handles::{InstructionRef, ValueRef};

/// Lanes, or pieces of them.
type Lanes = SmallVec<[Operand; 16]>;

/// The bits of a scalar of at most 64.
fn bits_of(ty: Type) -> Option<u8> {
    match ty {
        Type::Int(bits) => Some(bits),
        Type::F32 => Some(32),
        Type::F64 => Some(64),
        Type::F80 | Type::V128 | Type::V64 => None,
    }
}

impl<'m> Reading<'_, 'm> {
    fn lanes_of(&mut self, value: ValueRef<'m>) -> Covered<Lanes> {
        let scalars = self.scalars(value)?;
        Ok(self.known.values.of(scalars).iter().copied().collect())
    }

    /// What an operation gives for each lane of two vectors.
    pub(super) fn lane_by_lane(
        &mut self,
        it: InstructionRef<'m>,
        make: impl Fn([Operand; 2]) -> Op,
    ) -> Covered<()> {
        let [a, b] = [0, 1].map(|index| self.operand(it, index));
        let (a, b) = (self.lanes_of(a)?, self.lanes_of(b)?);
        let results: Lanes = a
            .into_iter()
            .zip(b)
            .map(|(a, b)| self.emit_one(make([a, b])))
            .collect();
        self.stand(it, results)
    }

    pub(super) fn vector_binary(
        &mut self,
        it: InstructionRef<'m>,
        lane: Type,
        opcode: LLVMOpcode,
    ) -> Covered<()> {
        if lane.is_int() {
            let Some(op) = super::arithmetic::int_op(opcode) else {
                return not("an unusual instruction");
            };
            self.lane_by_lane(it, |list| Op::Int(op, lane, list))
        } else {
            let Some(op) = super::arithmetic::float_op(opcode) else {
                return not("an unusual instruction");
            };
            self.lane_by_lane(it, |list| Op::Float(op, lane, list))
        }
    }

    pub(super) fn vector_negate(&mut self, it: InstructionRef<'m>, lane: Type) -> Covered<()> {
        let value = self.operand(it, 0);
        let lanes = self.lanes_of(value)?;
        let results: Lanes = lanes
            .into_iter()
            .map(|one| self.emit_one(Op::FloatUnary(FloatUnary::Neg, lane, one)))
            .collect();
        self.stand(it, results)
    }

    pub(super) fn vector_compare(
        &mut self,
        it: InstructionRef<'m>,
        lane: Type,
        predicate: IntPredicate,
    ) -> Covered<()> {
        self.lane_by_lane(it, |list| Op::Compare(predicate, lane, list))
    }

    pub(super) fn vector_float_compare(
        &mut self,
        it: InstructionRef<'m>,
        lane: Type,
        predicate: FloatPredicate,
    ) -> Covered<()> {
        self.lane_by_lane(it, |list| Op::FloatCompare(predicate, lane, list))
    }

    /// By a bit of each lane.
    pub(super) fn vector_select(&mut self, it: InstructionRef<'m>, lane: Type) -> Covered<()> {
        let [bits, a, b] = [0, 1, 2].map(|index| self.operand(it, index));
        let bits = self.lanes_of(bits)?;
        let (a, b) = (self.lanes_of(a)?, self.lanes_of(b)?);
        let mut results = Lanes::new();
        for (at, bit) in bits.into_iter().enumerate() {
            results.push(self.emit_one(Op::Select(lane, [bit, a[at], b[at]])));
        }
        self.stand(it, results)
    }

    /// A conversion of each lane, or of the bits of all.
    pub(super) fn vector_cast(
        &mut self,
        it: InstructionRef<'m>,
        (from, to): (Known, Known),
        opcode: LLVMOpcode,
    ) -> Covered<()> {
        let value = self.operand(it, 0);
        let lanes = self.lanes_of(value)?;
        let (from, to) = (self.lane_type(from)?, self.lane_type(to)?);
        if opcode == LLVMOpcode::LLVMBitCast && from.1 != to.1 {
            let results = self.divide(&lanes, from.0, to)?;
            return self.stand(it, results);
        }
        let mut results = Lanes::new();
        for lane in lanes {
            results.push(self.convert(opcode, from.0, to.0, lane)?);
        }
        self.stand(it, results)
    }

    /// The type of lanes and how many there are; a scalar is one.
    fn lane_type(&self, known: Known) -> Covered<(Type, u32)> {
        self.leaves(known)?;
        match self.shape_of(known) {
            Shape::Vector { lane, lanes } => Ok((lane, lanes)),
            Shape::Scalar(ty) => Ok((ty, 1)),
            _ => not("an unusual conversion of a vector"),
        }
    }

    /// The bits of some lanes as more or fewer lanes of another type; the first ones are the low
    /// ones.
    fn divide(&mut self, lanes: &[Operand], from: Type, to: (Type, u32)) -> Covered<Lanes> {
        let (Some(has), Some(wants)) = (bits_of(from), bits_of(to.0)) else {
            return not("an unusual conversion of a vector");
        };
        let (narrow, wide) = (Type::Int(has.min(wants)), Type::Int(has.max(wants)));
        let (small, large) = (has.min(wants), has.max(wants));
        if large % small != 0 || large > 64 {
            return not("an unusual conversion of a vector");
        }
        let each = usize::from(large / small);
        let mut results = Lanes::new();
        if has > wants {
            for &lane in lanes {
                let whole = self.as_bits(from, lane);
                for piece in 0..each {
                    let by = Operand::Int(piece as u64 * u64::from(small));
                    let piece = match piece {
                        0 => whole,
                        _ => self.emit_one(Op::Int(IntOp::LShr, wide, [whole, by])),
                    };
                    let piece = self.emit_one(Op::Cast(Cast::Trunc, wide, narrow, piece));
                    results.push(self.of_bits(to.0, piece));
                }
            }
        } else {
            for group in lanes.chunks(each) {
                let mut sum = Operand::Int(0);
                for (at, &lane) in group.iter().enumerate() {
                    let bits = self.as_bits(from, lane);
                    let bits = self.emit_one(Op::Cast(Cast::ZExt, narrow, wide, bits));
                    let by = Operand::Int(at as u64 * u64::from(small));
                    sum = match at {
                        0 => bits,
                        _ => {
                            let bits = self.emit_one(Op::Int(IntOp::Shl, wide, [bits, by]));
                            self.emit_one(Op::Int(IntOp::Or, wide, [sum, bits]))
                        }
                    };
                }
                results.push(self.of_bits(to.0, sum));
            }
        }
        match results.len() == to.1 as usize {
            true => Ok(results),
            false => not("an unusual conversion of a vector"),
        }
    }

    /// A scalar as an integer of its bits.
    fn as_bits(&mut self, ty: Type, operand: Operand) -> Operand {
        match bits_of(ty) {
            Some(bits) if !ty.is_int() => {
                self.emit_one(Op::Cast(Cast::Bits, ty, Type::Int(bits), operand))
            }
            _ => operand,
        }
    }

    /// An integer as a scalar of its bits.
    fn of_bits(&mut self, ty: Type, operand: Operand) -> Operand {
        match bits_of(ty) {
            Some(bits) if !ty.is_int() => {
                self.emit_one(Op::Cast(Cast::Bits, Type::Int(bits), ty, operand))
            }
            _ => operand,
        }
    }

    /// The lane that an operand names, if that is known; beyond the vector is poison.
    fn lane_at(&mut self, it: InstructionRef<'m>, index: u32) -> Covered<usize> {
        match self.one_of(it, index)? {
            Operand::Int(at) => Ok(at as usize),
            _ => not("a lane that is not known"),
        }
    }

    pub(super) fn extract_lane(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let vector = self.operand(it, 0);
        let lanes = self.lanes_of(vector)?;
        let at = self.lane_at(it, 1)?;
        self.stand(it, [lanes.get(at).copied().unwrap_or(Operand::Undef)])
    }

    pub(super) fn insert_lane(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let vector = self.operand(it, 0);
        let mut lanes = self.lanes_of(vector)?;
        let lane = self.one_of(it, 1)?;
        let at = self.lane_at(it, 2)?;
        if let Some(old) = lanes.get_mut(at) {
            *old = lane;
        }
        self.stand(it, lanes)
    }

    pub(super) fn shuffle(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let [a, b] = [0, 1].map(|index| self.operand(it, index));
        let mut lanes = self.lanes_of(a)?;
        lanes.extend(self.lanes_of(b)?);
        // SAFETY: a `shufflevector`, and indices below the length of its mask.
        let mask = unsafe {
            let count = LLVMGetNumMaskElements(it.raw());
            (0..count).map(|at| LLVMGetMaskValue(it.raw(), at))
        };
        let results: Lanes = mask
            .map(|at| {
                let lane = usize::try_from(at).ok().and_then(|at| lanes.get(at));
                lane.copied().unwrap_or(Operand::Undef)
            })
            .collect();
        self.stand(it, results)
    }
}
