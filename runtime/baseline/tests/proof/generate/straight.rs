//! Generates instructions of one block.

use uruk_baseline::ir::{
    BitOp, Cast, FloatOp, FloatPredicate, FloatUnary, IntOp, IntPredicate, Op, Operand, OverflowOp,
    Type, WideOp,
};

use super::Maker;

const BIT: Type = Type::Int(1);

impl Maker {
    pub(super) fn instruction(&mut self) {
        match self.chance.below(30) {
            0..=7 => self.arithmetic(),
            8..=10 => self.convert(),
            11 | 12 => {
                let compare = self.comparison();
                self.make(compare);
            }
            13 | 14 => {
                let (bit, ty) = (self.any(BIT), self.ty());
                let (then, other) = (self.any(ty), self.any(ty));
                self.make(Op::Select(ty, [bit, then, other]));
            }
            15..=17 => self.load(),
            18 | 19 => self.store(),
            20 | 21 => self.place(),
            22 | 23 => self.call(),
            24 | 25 if self.floats => self.floating(),
            26 => self.bits(),
            27 => self.wide(),
            28 => self.memory(),
            29 => self.atomic(),
            _ => self.arithmetic(),
        }
    }

    fn arithmetic(&mut self) {
        use IntOp as I;
        let ty = self.int();
        let op = self.chance.one_of(&[
            I::Add,
            I::Add,
            I::Add,
            I::Sub,
            I::Sub,
            I::Mul,
            I::SDiv,
            I::UDiv,
            I::SRem,
            I::URem,
            I::Shl,
            I::LShr,
            I::AShr,
            I::And,
            I::And,
            I::Or,
            I::Xor,
            I::SMin,
            I::SMax,
            I::UMin,
            I::UMax,
            I::SAddSat,
            I::SSubSat,
            I::UAddSat,
            I::USubSat,
        ]);
        let (a, mut b) = (self.any(ty), self.any(ty));
        let Type::Int(bits) = ty else {
            return;
        };
        let all = u64::MAX >> (64 - bits);
        match op {
            I::Shl | I::LShr | I::AShr => b = self.distance(b, bits),
            // An odd divisor is not 0; one without its sign bit is not -1.
            I::UDiv | I::URem => {
                b = self.with(I::Or, ty, b, 1);
            }
            I::SDiv | I::SRem if bits > 2 => {
                b = self.with(I::And, ty, b, all >> 1);
                b = self.with(I::Or, ty, b, 1);
            }
            I::SDiv | I::SRem => b = Operand::Int(1),
            _ => {}
        }
        self.make(Op::Int(op, ty, [a, b]));
    }

    /// Applies an operation to a value and a constant; two constants are folded.
    pub(super) fn with(&mut self, op: IntOp, ty: Type, a: Operand, b: u64) -> Operand {
        match a {
            Operand::Int(bits) if op == IntOp::Or => Operand::Int(bits | b),
            Operand::Int(bits) if op == IntOp::And => Operand::Int(bits & b),
            _ => Operand::Value(self.put(Op::Int(op, ty, [a, Operand::Int(b)]), &[ty])[0]),
        }
    }

    /// A shift distance that is less than the bits.
    fn distance(&mut self, by: Operand, bits: u8) -> Operand {
        let ty = Type::Int(bits);
        match by {
            Operand::Int(by) => Operand::Int(by % u64::from(bits)),
            _ if bits == 1 => Operand::Int(0),
            _ if bits.is_power_of_two() => self.with(IntOp::And, ty, by, u64::from(bits) - 1),
            _ => {
                let least = u64::from(bits.next_power_of_two()) / 2 - 1;
                self.with(IntOp::And, ty, by, least)
            }
        }
    }

    pub(super) fn comparison(&mut self) -> Op {
        use FloatPredicate as F;
        use IntPredicate as I;
        if self.floats && self.chance.once_in(4) {
            let ty = self.float();
            let predicate = self.chance.one_of(&[
                F::OEq,
                F::OGt,
                F::OGe,
                F::OLt,
                F::OLe,
                F::ONe,
                F::Ord,
                F::Uno,
                F::UEq,
                F::UGt,
                F::UGe,
                F::ULt,
                F::ULe,
                F::UNe,
            ]);
            return Op::FloatCompare(predicate, ty, [self.any(ty), self.any(ty)]);
        }
        let ty = self.int();
        let predicate = self.chance.one_of(&[
            I::Eq,
            I::Ne,
            I::UGt,
            I::UGe,
            I::ULt,
            I::ULe,
            I::SGt,
            I::SGe,
            I::SLt,
            I::SLe,
        ]);
        Op::Compare(predicate, ty, [self.any(ty), self.any(ty)])
    }

    fn convert(&mut self) {
        let (a, b) = (self.int(), self.int());
        let (Type::Int(from), Type::Int(to)) = (a, b) else {
            return;
        };
        if self.floats && self.chance.once_in(3) {
            return self.convert_float(a);
        }
        let cast = match from.cmp(&to) {
            std::cmp::Ordering::Less => self.chance.one_of(&[Cast::ZExt, Cast::SExt]),
            std::cmp::Ordering::Greater => Cast::Trunc,
            std::cmp::Ordering::Equal => return,
        };
        let one = self.any(a);
        self.make(Op::Cast(cast, a, b, one));
    }

    fn convert_float(&mut self, int: Type) {
        let float = self.float();
        let whole = match float {
            Type::F32 => Type::Int(32),
            _ => Type::Int(64),
        };
        let (cast, from, to) = match self.chance.below(8) {
            0 | 1 => (Cast::SiToFp, int, float),
            2 => (Cast::UiToFp, int, float),
            3 => (
                self.chance.one_of(&[Cast::FpToSiSat, Cast::FpToUiSat]),
                float,
                int,
            ),
            4 => (
                self.chance.one_of(&[Cast::FpToSi, Cast::FpToUi]),
                float,
                int,
            ),
            5 => (Cast::FpExt, Type::F32, Type::F64),
            6 => (Cast::FpTrunc, Type::F64, Type::F32),
            _ if self.chance.once_in(2) => (Cast::Bits, whole, float),
            _ => (Cast::Bits, float, whole),
        };
        let one = self.any(from);
        self.make(Op::Cast(cast, from, to, one));
    }

    fn floating(&mut self) {
        use FloatOp as F;
        let ty = self.float();
        let op = self.chance.one_of(&[
            F::Add,
            F::Add,
            F::Sub,
            F::Sub,
            F::Mul,
            F::Mul,
            F::Div,
            F::Div,
            F::Rem,
            F::MinNum,
            F::MaxNum,
            F::CopySign,
        ]);
        let unary = self
            .chance
            .one_of(&[FloatUnary::Neg, FloatUnary::Abs, FloatUnary::Sqrt]);
        let list = [self.any(ty), self.any(ty)];
        match self.chance.below(20) {
            0 => {
                let third = self.any(ty);
                self.make(Op::Fma(ty, [list[0], list[1], third]));
            }
            1..=4 => {
                self.make(Op::FloatUnary(unary, ty, list[0]));
            }
            _ => {
                self.make(Op::Float(op, ty, list));
            }
        }
    }

    fn bits(&mut self) {
        let ty = self.int();
        let a = self.any(ty);
        let bit = self.chance.one_of(&[
            BitOp::Count,
            BitOp::LeadingZeros,
            BitOp::TrailingZeros,
            BitOp::Reverse,
            BitOp::Abs,
        ]);
        match self.chance.below(4) {
            0 => {
                let (b, by) = (self.any(ty), self.any(ty));
                let left = self.chance.once_in(2);
                let b = if self.chance.once_in(3) { a } else { b };
                self.make(Op::Funnel(left, ty, [a, b, by]));
            }
            1 => {
                use OverflowOp as O;
                let op =
                    self.chance
                        .one_of(&[O::SAdd, O::UAdd, O::SSub, O::USub, O::SMul, O::UMul]);
                let b = self.any(ty);
                self.make(Op::Overflow(op, ty, [a, b]));
            }
            2 => {
                let ty = self
                    .chance
                    .one_of(&[Type::Int(16), Type::Int(32), Type::Int(64)]);
                let a = self.any(ty);
                self.make(Op::Bits(BitOp::SwapBytes, ty, a));
            }
            _ => {
                self.make(Op::Bits(bit, ty, a));
            }
        }
    }

    fn wide(&mut self) {
        use WideOp as W;
        let word = Type::Int(64);
        let mut list: Vec<Operand> = (0..4).map(|_| self.any(word)).collect();
        let op = self.chance.one_of(&[
            W::Add,
            W::Add,
            W::Sub,
            W::Mul,
            W::SDiv,
            W::UDiv,
            W::SRem,
            W::URem,
            W::Shl,
            W::LShr,
            W::AShr,
        ]);
        match op {
            W::Shl | W::LShr | W::AShr => {
                list.truncate(3);
                list[2] = self.with(IntOp::And, word, list[2], 127);
            }
            W::SDiv | W::UDiv | W::SRem | W::URem => {
                list[2] = self.with(IntOp::Or, word, list[2], 1);
                list[3] = self.with(IntOp::And, word, list[3], u64::MAX >> 1);
            }
            _ => {}
        }
        self.make(Op::Wide(op, list.into_iter().collect()));
    }
}
