//! Integers of 128 bits, as two halves, the low one first.

use uruk_baseline::ir::{
    Argument, BitOp, Call, Callee, Cast, IntOp, IntPredicate, Op, Operand, OverflowOp, Passing,
    Returned, Tail, Type, Value, WideOp,
};
use uruk_bitcode::ir::{BinaryOp, CastOp, Instruction, ValueId};

use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::Shape;

const WORD: Type = Type::Int(64);
const ZERO: Operand = Operand::Int(0);

/// The letter for a type in names of library functions.
fn ending(ty: Type) -> Option<char> {
    match ty {
        Type::F32 => Some('s'),
        Type::F64 => Some('d'),
        Type::F80 => Some('x'),
        _ => None,
    }
}

impl Reading<'_> {
    /// The halves of a value.
    pub(crate) fn halves(&mut self, value: ValueId) -> Covered<[Operand; 2]> {
        if self.shape_of(self.type_of(value)?) != Shape::Wide {
            return invalid(TYPES);
        }
        let scalars = self.scalars(value)?;
        match self.values.of(scalars) {
            [low, high] => Ok([*low, *high]),
            _ => not("an unusual integer"),
        }
    }

    fn word(&mut self, op: IntOp, a: Operand, b: Operand) -> Operand {
        self.emit_one(Op::Int(op, WORD, [a, b]))
    }

    pub(crate) fn wide_binary(&mut self, it: &Instruction, binary: BinaryOp) -> Covered<()> {
        use BinaryOp as O;
        let [a, b] = self.operands(it)?;
        let ([a, b], [c, d]) = (self.halves(a)?, self.halves(b)?);
        let wide = match binary {
            O::And | O::Or | O::Xor => {
                let op = match binary {
                    O::And => IntOp::And,
                    O::Or => IntOp::Or,
                    _ => IntOp::Xor,
                };
                let low = self.word(op, a, c);
                let high = self.word(op, b, d);
                return self.stand(it, [low, high]);
            }
            O::Shl | O::LShr | O::AShr => {
                if let Operand::Int(distance @ 64..128) = c {
                    return self.shift_far(it, binary, [a, b], distance - 64);
                }
                let wide = match binary {
                    O::Shl => WideOp::Shl,
                    O::LShr => WideOp::LShr,
                    _ => WideOp::AShr,
                };
                return self.emit_for(it, Op::Wide(wide, [a, b, c].into_iter().collect()));
            }
            O::Add => WideOp::Add,
            O::Sub => WideOp::Sub,
            O::Mul => WideOp::Mul,
            O::SDiv => WideOp::SDiv,
            O::UDiv => WideOp::UDiv,
            O::SRem => WideOp::SRem,
            O::URem => WideOp::URem,
        };
        self.emit_for(it, Op::Wide(wide, [a, b, c, d].into_iter().collect()))
    }

    /// A shift by 64 and more.
    fn shift_far(
        &mut self,
        it: &Instruction,
        binary: BinaryOp,
        [low, high]: [Operand; 2],
        more: u64,
    ) -> Covered<()> {
        let mut by = |op, value| match more {
            0 => value,
            _ => self.word(op, value, Operand::Int(more)),
        };
        let halves = match binary {
            BinaryOp::Shl => [ZERO, by(IntOp::Shl, low)],
            BinaryOp::LShr => [by(IntOp::LShr, high), ZERO],
            _ => {
                let low = by(IntOp::AShr, high);
                [low, self.word(IntOp::AShr, high, Operand::Int(63))]
            }
        };
        self.stand(it, halves)
    }

    /// A conversion from or to 128 bits.
    pub(crate) fn wide_cast(&mut self, it: &Instruction, op: CastOp) -> Covered<()> {
        use CastOp as O;
        let [value] = self.operands(it)?;
        let (from, to) = (self.type_of(value)?, self.result(it)?);
        match (self.shape_of(from), self.shape_of(to), op) {
            (Shape::Wide, Shape::Wide, O::BitCast) => {
                let halves = self.halves(value)?;
                self.stand(it, halves)
            }
            (Shape::Wide, Shape::Scalar(to), O::Trunc | O::IntToPtr) => {
                let [low, _] = self.halves(value)?;
                if !to.is_int() {
                    return invalid(TYPES);
                }
                let low = self.resize(WORD, to, low);
                self.stand(it, [low])
            }
            (Shape::Scalar(from), Shape::Wide, O::ZExt | O::PtrToInt | O::PtrToAddr) => {
                let low = self.one(value)?;
                if !from.is_int() {
                    return invalid(TYPES);
                }
                let low = self.resize(from, WORD, low);
                self.stand(it, [low, ZERO])
            }
            (Shape::Scalar(from), Shape::Wide, O::SExt) => {
                let mut low = self.one(value)?;
                if !from.is_int() {
                    return invalid(TYPES);
                }
                if from != WORD {
                    low = self.emit_one(Op::Cast(Cast::SExt, from, WORD, low));
                }
                let high = self.word(IntOp::AShr, low, Operand::Int(63));
                self.stand(it, [low, high])
            }
            (Shape::Scalar(from), Shape::Wide, O::FpToSi | O::FpToUi) => {
                let operand = self.one(value)?;
                let sign = if op == O::FpToSi { "" } else { "uns" };
                let Some(ending) = ending(from) else {
                    return invalid(TYPES);
                };
                let arguments = [(operand, from, Passing::Plain)];
                let name = format!("__fix{sign}{ending}fti");
                self.convert_by(it, &name, &arguments, &[WORD, WORD])
            }
            (Shape::Wide, Shape::Scalar(to), O::SiToFp | O::UiToFp) => {
                let [low, high] = self.halves(value)?;
                let sign = if op == O::SiToFp { "" } else { "un" };
                let Some(ending) = ending(to) else {
                    return invalid(TYPES);
                };
                let arguments = [(low, WORD, Passing::Paired), (high, WORD, Passing::Plain)];
                let name = format!("__float{sign}ti{ending}f");
                self.convert_by(it, &name, &arguments, &[to])
            }
            _ => not("an unusual conversion"),
        }
    }

    /// A conversion by a function of the compiler's library.
    fn convert_by(
        &mut self,
        it: &Instruction,
        name: &str,
        arguments: &[(Operand, Type, Passing)],
        returns: &[Type],
    ) -> Covered<()> {
        let argument = |&(operand, ty, passing)| Argument {
            operand,
            ty,
            passing,
        };
        let returned = |&ty| Returned {
            ty,
            extension: None,
        };
        let call = Call {
            callee: Callee::Symbol(self.library(name)),
            arguments: arguments.iter().map(argument).collect(),
            returns: returns.iter().map(returned).collect(),
            is_variadic: false,
            tail: Tail::No,
            returns_twice: false,
        };
        self.emit_for(it, Op::Call(Box::new(call)))
    }

    /// A bit operation on a number of 128 bits.
    pub(crate) fn wide_bits(&mut self, it: &Instruction, op: BitOp, value: ValueId) -> Covered<()> {
        let [low, high] = self.halves(value)?;
        let mut each = |value| self.emit_one(Op::Bits(op, WORD, value));
        match op {
            BitOp::SwapBytes | BitOp::Reverse => {
                let halves = [each(high), each(low)];
                self.stand(it, halves)
            }
            BitOp::Count => {
                let (a, b) = (each(low), each(high));
                let sum = self.word(IntOp::Add, a, b);
                self.stand(it, [sum, ZERO])
            }
            BitOp::LeadingZeros | BitOp::TrailingZeros => {
                // The count of the half that comes first, or that of the other one plus 64.
                let (first, second) = match op {
                    BitOp::LeadingZeros => (high, low),
                    _ => (low, high),
                };
                let (near, far) = (each(first), each(second));
                let far = self.word(IntOp::Add, far, Operand::Int(64));
                let is_zero = Op::Compare(IntPredicate::Eq, WORD, [first, ZERO]);
                let is_zero = self.emit_one(is_zero);
                let all = self.emit_one(Op::Select(WORD, [is_zero, far, near]));
                self.stand(it, [all, ZERO])
            }
            BitOp::Abs => {
                let sign = self.word(IntOp::AShr, high, Operand::Int(63));
                let low = self.word(IntOp::Xor, low, sign);
                let high = self.word(IntOp::Xor, high, sign);
                let op = [low, high, sign, sign].into_iter().collect();
                self.emit_for(it, Op::Wide(WideOp::Sub, op))
            }
        }
    }

    /// The lesser or greater of two.
    pub(crate) fn wide_choice(
        &mut self,
        it: &Instruction,
        op: IntOp,
        [a, b]: [ValueId; 2],
    ) -> Covered<()> {
        let predicate = match op {
            IntOp::SMin => IntPredicate::SLt,
            IntOp::SMax => IntPredicate::SGt,
            IntOp::UMin => IntPredicate::ULt,
            IntOp::UMax => IntPredicate::UGt,
            _ => return not("saturated arithmetic of 128 bits"),
        };
        let ([a, b], [c, d]) = (self.halves(a)?, self.halves(b)?);
        let bit = self.emit_one(Op::WideCompare(predicate, [a, b, c, d]));
        let low = self.emit_one(Op::Select(WORD, [bit, a, c]));
        let high = self.emit_one(Op::Select(WORD, [bit, b, d]));
        self.stand(it, [low, high])
    }

    /// A sum or difference, and whether it overflowed.
    pub(crate) fn wide_overflow(
        &mut self,
        it: &Instruction,
        op: OverflowOp,
        [a, b]: [ValueId; 2],
    ) -> Covered<()> {
        let wide = match op {
            OverflowOp::UAdd | OverflowOp::SAdd => WideOp::Add,
            OverflowOp::USub | OverflowOp::SSub => WideOp::Sub,
            OverflowOp::UMul => return self.wide_product(it, [a, b]),
            OverflowOp::SMul => return not("a signed product of 128 bits that may overflow"),
        };
        let (x, y) = (self.halves(a)?, self.halves(b)?);
        let results = self.emit(Op::Wide(wide, x.into_iter().chain(y).collect()));
        let [low, high] = [results.start, results.start + 1].map(|it| Operand::Value(Value(it)));
        let bit = match op {
            // The sum is less than an operand; or the first operand was less than the second.
            OverflowOp::UAdd => {
                let list = [low, high, x[0], x[1]];
                self.emit_one(Op::WideCompare(IntPredicate::ULt, list))
            }
            OverflowOp::USub => {
                let list = [x[0], x[1], y[0], y[1]];
                self.emit_one(Op::WideCompare(IntPredicate::ULt, list))
            }
            // The sign differs from that of both; or signs differ, and the result's is not the
            // first's.
            _ => {
                let changed = self.word(IntOp::Xor, x[1], high);
                let other = match wide {
                    WideOp::Add => self.word(IntOp::Xor, y[1], high),
                    _ => self.word(IntOp::Xor, x[1], y[1]),
                };
                let both = self.word(IntOp::And, changed, other);
                self.emit_one(Op::Compare(IntPredicate::SLt, WORD, [both, ZERO]))
            }
        };
        self.stand(it, [low, high, bit])
    }

    /// An unsigned product, and whether it overflowed. It did if both high halves are nonzero, a
    /// product of one of them with a low half exceeds a half, or the sum of the high parts
    /// overflows.
    fn wide_product(&mut self, it: &Instruction, of: [ValueId; 2]) -> Covered<()> {
        let ([a, b], [c, d]) = (self.halves(of[0])?, self.halves(of[1])?);
        let two = |results: std::ops::Range<u32>| {
            [results.start, results.start + 1].map(|it| Operand::Value(Value(it)))
        };
        let mut pair = |op, list| two(self.emit(Op::Overflow(op, WORD, list)));
        let [left, over_left] = pair(OverflowOp::UMul, [b, c]);
        let [right, over_right] = pair(OverflowOp::UMul, [a, d]);
        let low = [a, ZERO, c, ZERO].into_iter().collect();
        let [low, carried] = two(self.emit(Op::Wide(WideOp::Mul, low)));
        let across = self.word(IntOp::Add, left, right);
        let high = self.emit(Op::Overflow(OverflowOp::UAdd, WORD, [carried, across]));
        let [high, over_high] = two(high);
        let has = |reading: &mut Self, half| {
            reading.emit_one(Op::Compare(IntPredicate::Ne, WORD, [half, ZERO]))
        };
        let (x, y) = (has(self, b), has(self, d));
        let bit = Type::Int(1);
        let mut over = self.emit_one(Op::Int(IntOp::And, bit, [x, y]));
        for one in [over_left, over_right, over_high] {
            over = self.emit_one(Op::Int(IntOp::Or, bit, [over, one]));
        }
        self.stand(it, [low, high, over])
    }
}
