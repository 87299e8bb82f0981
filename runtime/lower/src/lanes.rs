//! Vectors, split into their lanes: an operation on a vector is one on each lane, and the scalars
//! of a vector are its lanes.
//!
//! # Why
//! This works for all operations and lengths, without vector instructions of the processor; code
//! that runs long is compiled again anyway.

use smallvec::SmallVec;
use uruk_baseline::ir::{Cast, IntOp, Op, Operand, Term, Type};
use uruk_bitcode::ir::{CastOp, Constant, Definition, Instruction, TypeId, ValueId};

use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::Shape;

/// Lanes, or pieces of them.
pub(crate) type Lanes = SmallVec<[Operand; 16]>;

const CONVERSION: &str = "an unusual conversion of a vector";

/// Numbers of one type: one, or those of a vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Numbers {
    pub(crate) ty: Type,
    /// The number of lanes of a vector.
    pub(crate) lanes: Option<u32>,
}

impl Numbers {
    /// The same count of numbers of another type.
    pub(crate) fn of(self, ty: Type) -> Numbers {
        Numbers { ty, ..self }
    }

    pub(crate) fn count(self) -> usize {
        self.lanes.unwrap_or(1) as usize
    }
}

/// The bits of a scalar of at most 64.
fn bits_of(ty: Type) -> Option<u8> {
    match ty {
        Type::Int(bits) => Some(bits),
        Type::F32 => Some(32),
        Type::F64 => Some(64),
        Type::F80 | Type::V128 | Type::V64 => None,
    }
}

impl Reading<'_> {
    /// A type of numbers.
    pub(crate) fn numbers(&self, ty: TypeId) -> Covered<Numbers> {
        match self.shape_of(ty) {
            Shape::Scalar(ty) => Ok(Numbers { ty, lanes: None }),
            Shape::Vector { lane: ty, lanes } => Ok(Numbers {
                ty,
                lanes: Some(lanes),
            }),
            _ => {
                self.leaves(ty)?;
                not("an operation on an aggregate")
            }
        }
    }

    /// The scalars of a value with these numbers.
    pub(crate) fn lanes_as(&mut self, value: ValueId, numbers: Numbers) -> Covered<Lanes> {
        if self.numbers(self.type_of(value)?)? != numbers {
            return invalid(TYPES);
        }
        let scalars = self.scalars(value)?;
        Ok(self.values.of(scalars).iter().copied().collect())
    }

    /// Calls `make` for each scalar of such numbers, together with the scalars at its place in the
    /// other values. The results become the instruction's result.
    pub(crate) fn each<const N: usize>(
        &mut self,
        it: &Instruction,
        values: [ValueId; N],
        numbers: Numbers,
        mut make: impl FnMut(&mut Self, [Operand; N]) -> Operand,
    ) -> Covered<()> {
        if numbers.lanes.is_none() {
            let list = self.all_as(values, numbers.ty)?;
            let one = make(self, list);
            return self.stand(it, [one]);
        }
        let mut all = std::array::from_fn::<Lanes, N, _>(|_| Lanes::new());
        for (lanes, value) in all.iter_mut().zip(values) {
            *lanes = self.lanes_as(value, numbers)?;
        }
        let mut results = Lanes::new();
        for at in 0..numbers.count() {
            let list = all.each_ref().map(|lanes| lanes[at]);
            results.push(make(self, list));
        }
        self.stand(it, results)
    }

    /// Like [`Reading::each`], with an operation for each scalar.
    pub(crate) fn each_op<const N: usize>(
        &mut self,
        it: &Instruction,
        values: [ValueId; N],
        numbers: Numbers,
        make: impl Fn([Operand; N]) -> Op,
    ) -> Covered<()> {
        self.each(it, values, numbers, |reading, list| {
            reading.emit_one(make(list))
        })
    }

    /// Converts each scalar, or the bits of all.
    pub(crate) fn convert_all(
        &mut self,
        it: &Instruction,
        op: CastOp,
        [from, to]: [TypeId; 2],
    ) -> Covered<()> {
        let [value] = self.operands(it)?;
        let lanes = {
            let scalars = self.scalars(value)?;
            let lanes: Lanes = self.values.of(scalars).iter().copied().collect();
            lanes
        };
        if op == CastOp::BitCast
            && [from, to]
                .iter()
                .any(|&ty| self.shape_of(ty) == Shape::Wide)
        {
            return self.wide_bits_of(it, &lanes, [from, to]);
        }
        let (from, to) = (self.numbers(from)?, self.numbers(to)?);
        if op == CastOp::BitCast && from.lanes.unwrap_or(1) != to.lanes.unwrap_or(1) {
            let results = self.divide(&lanes, from.ty, to)?;
            return self.stand(it, results);
        }
        let one_is_none = from.lanes != to.lanes && op != CastOp::BitCast;
        if one_is_none {
            return invalid(TYPES);
        }
        let mut results = Lanes::new();
        for lane in lanes {
            results.push(self.convert(op, from.ty, to.ty, lane)?);
        }
        self.stand(it, results)
    }

    /// The bits of a vector as an integer of 128 bits, or the reverse.
    fn wide_bits_of(
        &mut self,
        it: &Instruction,
        lanes: &[Operand],
        [from, to]: [TypeId; 2],
    ) -> Covered<()> {
        let word = Type::Int(64);
        let of = |reading: &Self, ty| match reading.shape_of(ty) {
            Shape::Wide => Ok(Numbers {
                ty: word,
                lanes: Some(2),
            }),
            _ => reading.numbers(ty),
        };
        let (from, to) = (of(self, from)?, of(self, to)?);
        let results = match from.lanes == to.lanes {
            false => self.divide(lanes, from.ty, to)?,
            true => {
                let mut results = Lanes::new();
                for &lane in lanes {
                    results.push(self.convert(CastOp::BitCast, from.ty, to.ty, lane)?);
                }
                results
            }
        };
        self.stand(it, results)
    }

    /// The bits of some lanes as more or fewer lanes of another type; the first lanes are the low
    /// ones.
    pub(crate) fn divide(&mut self, lanes: &[Operand], from: Type, to: Numbers) -> Covered<Lanes> {
        let (Some(has), Some(wants)) = (bits_of(from), bits_of(to.ty)) else {
            return not(CONVERSION);
        };
        if lanes.len() * usize::from(has) != to.count() * usize::from(wants) {
            return invalid(TYPES);
        }
        let (small, large) = (has.min(wants), has.max(wants));
        let results = match has > wants {
            _ if !large.is_multiple_of(small) => return not(CONVERSION),
            true => {
                let mut results = Lanes::new();
                for &lane in lanes {
                    self.take_apart(from, lane, to.ty, &mut results);
                }
                results
            }
            false => {
                let groups = lanes.chunks(usize::from(large / small));
                groups
                    .map(|group| self.put_together(from, group, to.ty))
                    .collect()
            }
        };
        Ok(results)
    }

    /// Adds the lanes into which one lane is divided.
    fn take_apart(&mut self, from: Type, lane: Operand, to: Type, into: &mut Lanes) {
        let (Some(has), Some(wants)) = (bits_of(from), bits_of(to)) else {
            return;
        };
        let (wide, narrow) = (Type::Int(has), Type::Int(wants));
        let whole = self.as_bits(from, lane);
        for piece in 0..has / wants {
            let by = u64::from(piece) * u64::from(wants);
            let low = match piece {
                0 => whole,
                _ => self.emit_one(Op::Int(IntOp::LShr, wide, [whole, Operand::Int(by)])),
            };
            let low = self.emit_one(Op::Cast(Cast::Trunc, wide, narrow, low));
            into.push(self.of_bits(to, low));
        }
    }

    /// The lane that several lanes make together.
    fn put_together(&mut self, from: Type, group: &[Operand], to: Type) -> Operand {
        let (Some(has), Some(wants)) = (bits_of(from), bits_of(to)) else {
            return Operand::Undef;
        };
        let (narrow, wide) = (Type::Int(has), Type::Int(wants));
        let mut sum = Operand::Int(0);
        for (at, &lane) in (0u64..).zip(group) {
            let bits = self.as_bits(from, lane);
            let bits = self.emit_one(Op::Cast(Cast::ZExt, narrow, wide, bits));
            sum = match at {
                0 => bits,
                _ => {
                    let by = Operand::Int(at * u64::from(has));
                    let bits = self.emit_one(Op::Int(IntOp::Shl, wide, [bits, by]));
                    self.emit_one(Op::Int(IntOp::Or, wide, [sum, bits]))
                }
            };
        }
        self.of_bits(to, sum)
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

    /// `extractelement`.
    pub(crate) fn extract_lane(&mut self, it: &Instruction) -> Covered<()> {
        let [vector, index] = self.operands(it)?;
        let numbers = self.numbers(self.type_of(vector)?)?;
        let lanes = self.lanes_as(vector, numbers)?;
        if let Some(at) = self.lane_at(index)? {
            // An index beyond the vector gives poison.
            return self.stand(it, [lanes.get(at).copied().unwrap_or(Operand::Undef)]);
        }
        let (room, ty) = self.lanes_to_room(&lanes, numbers.ty)?;
        let address = self.lane_of_room(room, index, ty, lanes.len())?;
        self.emit_for(it, plain_load(ty, address))
    }

    /// `insertelement`.
    pub(crate) fn insert_lane(&mut self, it: &Instruction) -> Covered<()> {
        let [vector, lane, index] = self.operands(it)?;
        let numbers = self.numbers(self.type_of(vector)?)?;
        let mut lanes = self.lanes_as(vector, numbers)?;
        let lane = self.one_as(lane, numbers.ty)?;
        if let Some(at) = self.lane_at(index)? {
            if let Some(old) = lanes.get_mut(at) {
                *old = lane;
            }
            return self.stand(it, lanes);
        }
        let (room, ty) = self.lanes_to_room(&lanes, numbers.ty)?;
        let address = self.lane_of_room(room, index, ty, lanes.len())?;
        self.emit(plain_store(ty, address, lane));
        for (at, lane) in (0..).zip(&mut lanes) {
            let place = self.at(room, at * i64::from(ty.bytes()));
            *lane = self.emit_one(plain_load(ty, place));
        }
        self.stand(it, lanes)
    }

    /// The index of a lane, if it is a constant.
    fn lane_at(&mut self, index: ValueId) -> Covered<Option<usize>> {
        Ok(match self.typed(index)? {
            (Operand::Int(at), Type::Int(_)) => Some(usize::try_from(at).unwrap_or(usize::MAX)),
            (Operand::Undef, Type::Int(_)) => Some(0),
            (_, Type::Int(_)) => None,
            _ => return invalid(TYPES),
        })
    }

    /// Writes lanes to the frame in order; returns their place and type.
    fn lanes_to_room(&mut self, lanes: &[Operand], ty: Type) -> Covered<(Operand, Type)> {
        if ty == Type::Int(1) {
            return not("a bit of a vector that is not known");
        }
        let room = self.room()?;
        for (at, &lane) in (0..).zip(lanes) {
            if lane != Operand::Undef {
                let place = self.at(room, at * i64::from(ty.bytes()));
                self.emit(plain_store(ty, place, lane));
            }
        }
        Ok((room, ty))
    }

    /// The address of the lane with that index; beyond the vector, of another lane.
    fn lane_of_room(
        &mut self,
        room: Operand,
        index: ValueId,
        ty: Type,
        lanes: usize,
    ) -> Covered<Operand> {
        let (index, from) = self.typed(index)?;
        let word = Type::PTR;
        let index = self.resize(from, word, index);
        let last = Operand::Int(lanes as u64 - 1);
        let op = match lanes.is_power_of_two() {
            true => IntOp::And,
            false => IntOp::UMin,
        };
        let operand = self.emit_one(Op::Int(op, word, [index, last]));
        Ok(self.emit_one(Op::Offset {
            base: room,
            terms: SmallVec::from_iter([Term {
                operand,
                bits: 64,
                scale: ty.bytes().into(),
            }]),
            bytes: 0,
        }))
    }

    /// `shufflevector`.
    pub(crate) fn shuffle(&mut self, it: &Instruction) -> Covered<()> {
        let [a, b, mask] = self.operands(it)?;
        let numbers = self.numbers(self.type_of(a)?)?;
        let mut lanes = self.lanes_as(a, numbers)?;
        lanes.extend(self.lanes_as(b, numbers)?);
        let Shape::Vector { lanes: count, .. } = self.shape_of(self.type_of(mask)?) else {
            return invalid(TYPES);
        };
        if !matches!(self.definition(mask), Some(Definition::Constant(it)) if is_list(it)) {
            return invalid("a mask that is no constant");
        }
        let mask = self.scalars(mask)?;
        let mut results = Lanes::new();
        for at in 0..count as usize {
            results.push(match self.values.of(mask)[at] {
                Operand::Int(from) => match lanes.get(from as usize) {
                    Some(&lane) => lane,
                    None => return invalid("a mask that names no lane"),
                },
                _ => Operand::Undef,
            });
        }
        self.stand(it, results)
    }
}

fn is_list(constant: &Constant) -> bool {
    matches!(
        constant,
        Constant::Null
            | Constant::Undef
            | Constant::Poison
            | Constant::Aggregate(_)
            | Constant::Data(_)
    )
}

pub(crate) fn plain_load(ty: Type, address: Operand) -> Op {
    Op::Load {
        ty,
        address,
        align: ty.bytes().min(16),
        ordering: uruk_baseline::ir::Ordering::Plain,
        volatile: false,
    }
}

pub(crate) fn plain_store(ty: Type, address: Operand, value: Operand) -> Op {
    Op::Store {
        ty,
        address,
        value,
        align: ty.bytes().min(16),
        ordering: uruk_baseline::ir::Ordering::Plain,
        volatile: false,
    }
}
