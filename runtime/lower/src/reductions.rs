//! Intrinsics on all lanes of vectors together: reductions, and instructions of the processor that
//! the language lacks.

use smallvec::smallvec;
use uruk_baseline::ir::{Cast, IntOp, IntPredicate, Op, Operand, OverflowOp, Term, Type, Value};
use uruk_bitcode::ir::{Instruction, ValueId};

use crate::intrinsics::{LaneOp, Reduce};
use crate::lanes::{Lanes, Numbers, plain_load, plain_store};
use crate::reading::{Covered, Reading, TYPES, invalid};
use crate::types::Shape;

const WORD: Type = Type::Int(64);
const INT: Type = Type::Int(32);
const BIT: Type = Type::Int(1);

impl Reading<'_> {
    /// Sums and similar operations, with overflow bits: all lanes, then all bits.
    pub(crate) fn lanes_overflow(
        &mut self,
        it: &Instruction,
        op: OverflowOp,
        list: [ValueId; 2],
    ) -> Covered<()> {
        let numbers = self.numbers(self.type_of(list[0])?)?;
        if !numbers.ty.is_int() {
            return invalid(TYPES);
        }
        let [a, b] = list;
        let (a, b) = (self.lanes_as(a, numbers)?, self.lanes_as(b, numbers)?);
        let (mut all, mut bits) = (Lanes::new(), Lanes::new());
        for (a, b) in a.into_iter().zip(b) {
            let results = self.emit(Op::Overflow(op, numbers.ty, [a, b]));
            all.push(Operand::Value(Value(results.start)));
            bits.push(Operand::Value(Value(results.start + 1)));
        }
        all.extend(bits);
        self.stand(it, all)
    }

    /// Reduces all lanes to one number.
    pub(crate) fn reduce(&mut self, it: &Instruction, by: Reduce) -> Covered<()> {
        let body = self.body;
        let Some((&last, before)) = body.operands_of(it).split_last() else {
            return invalid("another number of arguments");
        };
        let numbers @ Numbers { ty, .. } = self.numbers(self.type_of(last)?)?;
        let mut lanes = self.lanes_as(last, numbers)?.into_iter();
        let first = match (by, before) {
            (Reduce::Ordered(_), [_, start]) => self.one_as(*start, ty)?,
            (Reduce::Ordered(_), _) => return invalid("another number of arguments"),
            _ => lanes.next().unwrap_or(Operand::Undef),
        };
        if ty.is_int() != matches!(by, Reduce::Int(_)) {
            return invalid(TYPES);
        }
        let sum = lanes.fold(first, |sum, lane| {
            let list = [sum, lane];
            self.emit_one(match by {
                Reduce::Int(op) => Op::Int(op, ty, list),
                Reduce::Ordered(op) | Reduce::Float(op) => Op::Float(op, ty, list),
            })
        });
        self.stand(it, [sum])
    }

    /// A number of sign bits: the first lane's is the lowest.
    pub(crate) fn signs(&mut self, it: &Instruction) -> Covered<()> {
        let [value] = self.arguments(it)?;
        let numbers = self.numbers(self.type_of(value)?)?;
        let lanes = self.lanes_as(value, numbers)?;
        let bits = match numbers.ty {
            Type::Int(bits) => bits,
            Type::F32 => 32,
            _ => 64,
        };
        let of_int = Type::Int(bits);
        let mut signs = Lanes::new();
        for lane in lanes {
            let lane = match numbers.ty.is_int() {
                true => lane,
                false => self.emit_one(Op::Cast(Cast::Bits, numbers.ty, of_int, lane)),
            };
            let list = [lane, Operand::Int(0)];
            signs.push(self.emit_one(Op::Compare(IntPredicate::SLt, of_int, list)));
        }
        let mut sum = Operand::Int(0);
        for (at, sign) in (0..).zip(signs) {
            let bit = self.emit_one(Op::Cast(Cast::ZExt, BIT, INT, sign));
            sum = match at {
                0 => bit,
                _ => {
                    let bit = self.int(IntOp::Shl, INT, bit, Operand::Int(at));
                    self.int(IntOp::Or, INT, sum, bit)
                }
            };
        }
        self.stand(it, [sum])
    }

    /// An operation of the processor.
    pub(crate) fn machine_lanes(&mut self, it: &Instruction, op: LaneOp) -> Covered<()> {
        let [a, b] = self.arguments(it)?;
        let numbers = self.numbers(self.type_of(a)?)?;
        let (Type::Int(bits @ 8..), Some(_)) = (numbers.ty, numbers.lanes) else {
            return invalid(TYPES);
        };
        if let LaneOp::Shift(op) = op {
            return self.shift_lanes(it, op, [a, b]);
        }
        let result = self.numbers(self.result(it)?)?;
        let Type::Int(wanted) = result.ty else {
            return invalid(TYPES);
        };
        let (a, b) = (self.lanes_as(a, numbers)?, self.lanes_as(b, numbers)?);
        let fits = match op {
            LaneOp::Pack { .. } => wanted * 2 == bits && result.count() == 2 * a.len(),
            LaneOp::MulAdd => bits == 16 && wanted == 32 && result.count() * 2 == a.len(),
            LaneOp::Differences => bits == 8 && wanted == 64 && result.count() * 8 == a.len(),
            LaneOp::Shuffle => bits == 8 && result == numbers,
            _ => bits <= 16 && result == numbers,
        };
        if !fits {
            return invalid(TYPES);
        }
        let ty = numbers.ty;
        let results: Lanes = match op {
            LaneOp::Pack { signed } => {
                // In each 16 bytes, those of the first vector come before those of the second.
                let each = 128 / usize::from(bits);
                let groups = a.chunks(each).zip(b.chunks(each));
                let all = groups.flat_map(|(a, b)| a.iter().chain(b));
                all.map(|&lane| self.nearest(lane, ty, wanted, signed))
                    .collect()
            }
            LaneOp::Shuffle => self.look_up(ty, &a, &b)?,
            LaneOp::MulHigh { signed } => {
                let pairs = a.into_iter().zip(b);
                let cast = if signed { Cast::SExt } else { Cast::ZExt };
                pairs
                    .map(|pair| self.product_shifted(cast, ty, pair))
                    .collect()
            }
            LaneOp::Average => {
                let pairs = a.into_iter().zip(b);
                pairs.map(|pair| self.average(ty, pair)).collect()
            }
            LaneOp::MulAdd => {
                let products = a.into_iter().zip(b);
                let products = products.map(|(a, b)| {
                    let [a, b] = [a, b].map(|it| self.emit_one(Op::Cast(Cast::SExt, ty, INT, it)));
                    self.int(IntOp::Mul, INT, a, b)
                });
                let products: Lanes = products.collect();
                let pairs = products.chunks_exact(2);
                pairs
                    .map(|pair| self.int(IntOp::Add, INT, pair[0], pair[1]))
                    .collect()
            }
            _ => {
                let pairs: Vec<_> = a.into_iter().zip(b).collect();
                let groups = pairs.chunks_exact(8);
                groups.map(|group| self.differences(ty, group)).collect()
            }
        };
        self.stand(it, results)
    }

    fn int(&mut self, op: IntOp, ty: Type, a: Operand, b: Operand) -> Operand {
        self.emit_one(Op::Int(op, ty, [a, b]))
    }

    /// Clamps a signed number to the range of so many bits.
    fn nearest(&mut self, lane: Operand, ty: Type, bits: u8, signed: bool) -> Operand {
        let Type::Int(has) = ty else {
            return Operand::Undef;
        };
        let (least, most) = match signed {
            true => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
            false => (0, (1i64 << bits) - 1),
        };
        let constant = |number: i64| Operand::Int(number as u64 & u64::MAX >> (64 - has));
        let lane = self.int(IntOp::SMax, ty, lane, constant(least));
        let lane = self.int(IntOp::SMin, ty, lane, constant(most));
        self.emit_one(Op::Cast(Cast::Trunc, ty, Type::Int(bits), lane))
    }

    /// The high half of a product of 16 bits.
    fn product_shifted(&mut self, cast: Cast, ty: Type, (a, b): (Operand, Operand)) -> Operand {
        let [a, b] = [a, b].map(|it| self.emit_one(Op::Cast(cast, ty, INT, it)));
        let product = self.int(IntOp::Mul, INT, a, b);
        let high = self.int(IntOp::LShr, INT, product, Operand::Int(16));
        self.emit_one(Op::Cast(Cast::Trunc, INT, ty, high))
    }

    fn average(&mut self, ty: Type, (a, b): (Operand, Operand)) -> Operand {
        let [a, b] = [a, b].map(|it| self.emit_one(Op::Cast(Cast::ZExt, ty, INT, it)));
        let sum = self.int(IntOp::Add, INT, a, b);
        let sum = self.int(IntOp::Add, INT, sum, Operand::Int(1));
        let half = self.int(IntOp::LShr, INT, sum, Operand::Int(1));
        self.emit_one(Op::Cast(Cast::Trunc, INT, ty, half))
    }

    /// Looks bytes up by their numbers, in each 16.
    fn look_up(&mut self, ty: Type, table: &[Operand], numbers: &[Operand]) -> Covered<Lanes> {
        let room = self.room()?;
        let mut found = Lanes::new();
        for (table, numbers) in table.chunks(16).zip(numbers.chunks(16)) {
            for (at, &byte) in (0..).zip(table) {
                let place = self.at(room, at);
                self.emit(plain_store(ty, place, byte));
            }
            for &number in numbers {
                let list = [number, Operand::Int(0)];
                let is_none = self.emit_one(Op::Compare(IntPredicate::SLt, ty, list));
                let low = self.int(IntOp::And, ty, number, Operand::Int(15));
                let place = self.emit_one(Op::Offset {
                    base: room,
                    terms: smallvec![Term {
                        operand: low,
                        bits: 8,
                        scale: 1,
                    }],
                    bytes: 0,
                });
                let byte = self.emit_one(plain_load(ty, place));
                let list = [is_none, Operand::Int(0), byte];
                found.push(self.emit_one(Op::Select(ty, list)));
            }
        }
        Ok(found)
    }

    fn differences(&mut self, ty: Type, group: &[(Operand, Operand)]) -> Operand {
        group.iter().fold(Operand::Int(0), |sum, &(a, b)| {
            let high = self.int(IntOp::UMax, ty, a, b);
            let low = self.int(IntOp::UMin, ty, a, b);
            let between = self.int(IntOp::Sub, ty, high, low);
            let between = self.emit_one(Op::Cast(Cast::ZExt, ty, WORD, between));
            self.int(IntOp::Add, WORD, sum, between)
        })
    }

    /// A shift of all lanes by one number, or by the low half of a vector. A shift by more than the
    /// width leaves only the sign.
    fn shift_lanes(
        &mut self,
        it: &Instruction,
        op: IntOp,
        [value, by]: [ValueId; 2],
    ) -> Covered<()> {
        let numbers @ Numbers { ty, .. } = self.numbers(self.type_of(value)?)?;
        let Type::Int(bits) = ty else {
            return invalid(TYPES);
        };
        let by_type = self.type_of(by)?;
        let by = match self.shape_of(by_type) {
            Shape::Vector { .. } => {
                let all = self.numbers(by_type)?;
                let lanes = self.lanes_as(by, all)?;
                let half = Numbers {
                    ty: WORD,
                    lanes: Some(2),
                };
                match all.ty {
                    WORD => lanes[0],
                    from => self.divide(&lanes, from, half)?[0],
                }
            }
            _ => {
                let (by, from) = self.typed(by)?;
                self.resize(from, WORD, by)
            }
        };
        let list = [by, Operand::Int(bits.into())];
        let fits = self.emit_one(Op::Compare(IntPredicate::ULt, WORD, list));
        let last = Operand::Int(u64::from(bits) - 1);
        let by = self.emit_one(Op::Select(WORD, [fits, by, last]));
        let by = self.resize(WORD, ty, by);
        self.each(it, [value], numbers, |reading, [lane]| {
            let shifted = reading.int(op, ty, lane, by);
            match op {
                IntOp::AShr => shifted,
                _ => reading.emit_one(Op::Select(ty, [fits, shifted, Operand::Int(0)])),
            }
        })
    }
}
