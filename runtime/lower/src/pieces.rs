//! Passing of values with vectors: a vector of at most 16 bytes is in one vector register, its
//! lanes from the low end on, or its lanes are passed one by one.
//!
//! | lanes | bytes with lanes rounded up to a power of two | passed |
//! |---|---|---|
//! | 1 | | as the lane |
//! | 2, 4, 8, 16 | at most 16 | in one register |
//! | 3, 5 to 7, 9 to 15 | 16 | in one register |
//! | 3, 5 to 7 | less than 16 | lane by lane |
//!
//! LLVM widens a vector to one that the processor has (`getVectorTypeBreakdown`). If the number of
//! lanes is no power of two it takes only one step, to the next power of two. It passes lanes one
//! by one if that is no vector of the processor.
//!
//! Lanes are moved in and out through a few bytes of the frame. They are written one by one and
//! read as a whole, or the other way round, and nothing else uses those bytes in between.
//!
//! # Why
//! LLVM has a rule for every length. Vectors larger than a register, and vectors of bits, are
//! passed in ways that depend on the processor's features: they are not covered.

use smallvec::SmallVec;
use uruk_baseline::ir::{Op, Operand, Type, Value};
use uruk_bitcode::ir::{self as bitcode, TypeId};

use crate::Named;
use crate::intrinsics::Becomes;
use crate::lanes::{Lanes, plain_load, plain_store};
use crate::reading::{Covered, Reading, not};
use crate::types::{Shape, Vectors};
use crate::values::{EVERYWHERE, Scalars};

const PASSED: &str = "a vector that is passed in parts";

/// A scalar as it is passed, and its leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) ty: Type,
    first: u32,
    count: u32,
}

/// The pieces of a value.
pub(crate) type Pieces = SmallVec<[Piece; 4]>;

impl Reading<'_> {
    /// Whether a type holds vectors.
    pub(crate) fn holds_vectors(&self, ty: TypeId) -> bool {
        self.lowering.types.info(ty).vectors != Vectors::None
    }

    /// The pieces of a type that holds vectors.
    pub(crate) fn pieces(&self, ty: TypeId) -> Covered<Pieces> {
        let mut pieces = Pieces::new();
        // It has few leaves, or none.
        self.leaves(ty)?;
        self.add_pieces(ty, &mut 0, &mut pieces)?;
        Ok(pieces)
    }

    fn add_pieces(&self, ty: TypeId, leaf: &mut u32, into: &mut Pieces) -> Covered<()> {
        let types = &self.lowering.types;
        match self.shape_of(ty) {
            Shape::Struct { fields, count } => {
                for index in 0..count {
                    if let Some(field) = types.field(fields, count, index.into()) {
                        self.add_pieces(field.ty, leaf, into)?;
                    }
                }
            }
            Shape::Array { element, .. } => {
                let each = self.leaves(element)?.len();
                let bitcode::Type::Array(count, _) = *self.module.ty(ty) else {
                    return not(PASSED);
                };
                // A type without leaves may occur any number of times.
                for _ in 0..if each == 0 { 0 } else { count } {
                    self.add_pieces(element, leaf, into)?;
                }
            }
            Shape::Vector { lane, lanes } if is_lane_by_lane(lane, lanes) => {
                self.add_leaves(ty, leaf, into)?;
            }
            Shape::Vector { lane, lanes } => {
                if lane == Type::Int(1) || lane.bytes() * lanes > 16 {
                    return not(PASSED);
                }
                into.push(Piece {
                    ty: Type::V128,
                    first: *leaf,
                    count: lanes,
                });
                *leaf += lanes;
            }
            _ => self.add_leaves(ty, leaf, into)?,
        }
        Ok(())
    }

    fn add_leaves(&self, ty: TypeId, leaf: &mut u32, into: &mut Pieces) -> Covered<()> {
        for it in self.leaves(ty)? {
            into.push(Piece {
                ty: it.ty,
                first: *leaf,
                count: 1,
            });
            *leaf += 1;
        }
        Ok(())
    }

    /// The passed scalars of a value of a type that contains vectors.
    pub(crate) fn packed(&mut self, ty: TypeId, scalars: Scalars) -> Covered<Lanes> {
        let leaves = self.leaves(ty)?;
        let mut packed = Lanes::new();
        for piece in self.pieces(ty)? {
            let first = piece.first as usize;
            let range = first..first + piece.count as usize;
            let lanes: Lanes = self.values.of(scalars)[range].iter().copied().collect();
            packed.push(match piece.ty {
                Type::V128 => self.pack(&lanes, leaves[first].ty)?,
                _ => lanes[0],
            });
        }
        Ok(packed)
    }

    /// Packs lanes into a vector.
    fn pack(&mut self, lanes: &[Operand], lane: Type) -> Covered<Operand> {
        if let Some(bytes) = constant(lanes, lane) {
            return Ok(self.wide_constant(u128::from_le_bytes(bytes)));
        }
        let room = self.room()?;
        for (at, &operand) in (0..).zip(lanes) {
            if operand != Operand::Undef {
                let place = self.at(room, at * i64::from(lane.bytes()));
                self.emit(plain_store(lane, place, operand));
            }
        }
        Ok(self.emit_one(plain_load(Type::V128, room)))
    }

    /// The leaves of a value of a type that contains vectors, from its passed pieces.
    pub(crate) fn unpacked(&mut self, ty: TypeId, first: u32) -> Covered<Lanes> {
        let leaves = self.leaves(ty)?;
        let mut all = Lanes::new();
        for (at, piece) in (first..).zip(self.pieces(ty)?) {
            let value = Operand::Value(Value(at));
            if piece.ty != Type::V128 {
                all.push(value);
                continue;
            }
            let lane = leaves[piece.first as usize].ty;
            let room = self.room()?;
            self.emit(plain_store(Type::V128, room, value));
            for at in 0..i64::from(piece.count) {
                let place = self.at(room, at * i64::from(lane.bytes()));
                all.push(self.emit_one(plain_load(lane, place)));
            }
        }
        Ok(all)
    }

    /// Bytes of the frame, enough for any vector.
    pub(crate) fn room(&mut self) -> Covered<Operand> {
        match self.room {
            Some(room) => Ok(room),
            None => not("a vector at an unusual place"),
        }
    }

    /// Unpacks the lanes of vectors that are parameters.
    pub(crate) fn take_vectors(&mut self) -> Covered<()> {
        self.make_room();
        if self.room.is_none() {
            return Ok(());
        }
        for index in 0..self.body.parameters {
            let ty = self.body.types[index as usize];
            let value = self.body.first + index;
            let (true, Some((passed, _))) = (self.holds_vectors(ty), self.values.get(value)) else {
                continue;
            };
            let first = match self.values.of(passed) {
                [Operand::Value(first), ..] => first.0,
                _ => continue,
            };
            let lanes = self.unpacked(ty, first)?;
            let scalars = self.values.add(lanes);
            self.values.set(value, EVERYWHERE, scalars);
        }
        Ok(())
    }

    /// Makes room, at the beginning of the entry, if vectors are passed, or lane indices are
    /// computed.
    fn make_room(&mut self) {
        /// For the largest number of lanes.
        const MOST: u64 = 512;
        if !self.lowering.may_need_room {
            return;
        }
        let mut all = self.body.instructions.iter();
        let large = |it: &bitcode::Instruction| match it.op {
            bitcode::Op::ExtractElement | bitcode::Op::InsertElement => {
                let index = self.body.operands_of(it).last();
                index.is_none_or(|&index| self.number(index).is_none())
            }
            _ => false,
        };
        let types = self.body.types.iter();
        let vectors =
            self.holds_vectors(self.returns) || types.clone().any(|&ty| self.holds_vectors(ty));
        let own = self.body.parameters as usize;
        let size = if vectors && all.clone().any(large) {
            MOST
        } else if vectors && types.clone().take(own).any(|&ty| self.holds_vectors(ty))
            || all.any(|it| self.is_passing(it, vectors))
        {
            16
        } else {
            return;
        };
        self.room = Some(self.emit_one(Op::Alloca { size, align: 16 }));
    }

    /// Whether an instruction passes vectors, if there are any, or needs room by itself.
    fn is_passing(&self, it: &bitcode::Instruction, vectors: bool) -> bool {
        let operands = self.body.operands_of(it);
        let is_call = matches!(it.op, bitcode::Op::Call(_) | bitcode::Op::Invoke(..));
        if is_call && let Some(becomes) = self.intrinsic_of(operands) {
            return becomes.needs_room();
        }
        let mut all = operands.iter().copied().chain(it.result);
        vectors
            && (is_call || matches!(it.op, bitcode::Op::Return))
            && all.any(|value| {
                let ty = self.body.type_of(self.module, value);
                ty.is_some_and(|ty| self.holds_vectors(ty))
            })
    }

    /// The replacement of the called intrinsic.
    fn intrinsic_of(&self, operands: &[bitcode::ValueId]) -> Option<Becomes> {
        match self.definition(*operands.first()?)? {
            bitcode::Definition::Global(global) => match self.lowering.named[global as usize] {
                Named::Intrinsic(becomes) => Some(becomes),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Whether a vector is passed as so many scalars.
fn is_lane_by_lane(lane: Type, lanes: u32) -> bool {
    let widened = lane.bytes() * lanes.next_power_of_two();
    lane != Type::Int(1) && (lanes == 1 || !lanes.is_power_of_two() && widened < 16)
}

/// The bytes of a vector whose lanes are constants.
fn constant(lanes: &[Operand], lane: Type) -> Option<[u8; 16]> {
    let size = lane.bytes() as usize;
    let mut bytes = [0; 16];
    for (operand, into) in lanes.iter().zip(bytes.chunks_exact_mut(size)) {
        let bits = match *operand {
            Operand::Int(bits) | Operand::Float(bits) => bits,
            Operand::Undef => 0,
            _ => return None,
        };
        into.copy_from_slice(&bits.to_le_bytes()[..size]);
    }
    Some(bytes)
}
