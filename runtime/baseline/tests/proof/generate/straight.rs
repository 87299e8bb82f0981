//! Instructions of one block.

use smallvec::smallvec;
use uruk_baseline::ir::{
    Argument, BitOp, Call, Callee, Cast, Clause, FloatOp, FloatPredicate, FloatUnary, IntOp,
    IntPredicate, MemoryOp, Op, Operand, Ordering, OverflowOp, Passing, Reach, RmwOp, Tail, Term,
    Type, Value, WideOp,
};

use super::{Maker, Place};
use crate::world::HOSTS;

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

    /// A value and a constant; constants are computed here.
    fn with(&mut self, op: IntOp, ty: Type, a: Operand, b: u64) -> Operand {
        match a {
            Operand::Int(bits) if op == IntOp::Or => Operand::Int(bits | b),
            Operand::Int(bits) if op == IntOp::And => Operand::Int(bits & b),
            _ => Operand::Value(self.put(Op::Int(op, ty, [a, Operand::Int(b)]), &[ty])[0]),
        }
    }

    /// A distance of a shift that is less than the bits.
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

    /// A place with room for so many bytes, and how far into it: an address, and what is known of
    /// its alignment.
    fn address(&mut self, bytes: u32) -> Option<(Operand, u32)> {
        let places: Vec<Place> = self
            .places
            .iter()
            .filter(|place| place.room >= bytes)
            .copied()
            .collect();
        if places.is_empty() {
            return None;
        }
        let place = self.chance.one_of(&places);
        let most = place.room - bytes;
        let offset = match self.chance.once_in(2) {
            true => 0,
            false => self.chance.below(most as usize + 1) as i64,
        };
        Some((self.beyond(place.base, offset), 1))
    }

    fn beyond(&mut self, base: Operand, bytes: i64) -> Operand {
        match base {
            _ if bytes == 0 => base,
            Operand::Address(symbol, offset) => Operand::Address(symbol, offset + bytes),
            _ => {
                let terms = smallvec![];
                Operand::Value(self.put(Op::Offset { base, terms, bytes }, &[Type::PTR])[0])
            }
        }
    }

    /// A new place: within another one, at an index that is small enough; now and then memory
    /// of a size that only the run knows.
    fn place(&mut self) {
        let places: Vec<Place> = self
            .places
            .iter()
            .filter(|place| place.room >= 8)
            .copied()
            .collect();
        if self.chance.once_in(12) {
            let count = self.any(Type::Int(64));
            let count = self.with(IntOp::And, Type::Int(64), count, 7);
            let list = [count, Operand::Int(1)];
            let count = self.put(Op::Int(IntOp::Add, Type::Int(64), list), &[Type::PTR])[0];
            let (size, align) = (8, self.chance.one_of(&[1, 8, 16, 32]));
            let op = Op::DynamicAlloca {
                count: Operand::Value(count),
                size,
                align,
            };
            let base = Operand::Value(self.put(op, &[Type::PTR])[0]);
            let place = Place { base, room: 8 };
            self.fill(place);
            self.places.push(place);
            return;
        }
        if places.is_empty() {
            return;
        }
        let place = self.chance.one_of(&places);
        let bits = self.chance.one_of(&[8u8, 16, 32, 32, 64, 64]);
        let ty = Type::Int(bits);
        let scale = self.chance.one_of(&[1u32, 1, 2, 3, 4, 4, 5, 8, 8, 12, 16]);
        let most = [7, 3, 1]
            .into_iter()
            .find(|most| most * scale + 4 <= place.room);
        let Some(most) = most else {
            return;
        };
        let index = self.any(ty);
        let index = self.with(IntOp::And, ty, index, u64::from(most));
        let bytes = self
            .chance
            .below((place.room - most * scale - 4) as usize + 1);
        let op = Op::Offset {
            base: place.base,
            terms: smallvec![Term {
                operand: index,
                bits,
                scale: u64::from(scale)
            }],
            bytes: bytes as i64,
        };
        let base = Operand::Value(self.put(op, &[Type::PTR])[0]);
        let room = place.room - most * scale - bytes as u32;
        self.places.push(Place { base, room });
    }

    /// Gives all bytes of a place a value.
    pub(super) fn fill(&mut self, place: Place) {
        let byte = self.any(Type::Int(8));
        let length = Operand::Int(u64::from(place.room));
        match place.room {
            // A variable, as it were.
            1 | 2 | 4 | 8 => {
                let ty = match (place.room, self.floats && self.chance.once_in(3)) {
                    (4, true) => Type::F32,
                    (8, true) => Type::F64,
                    (room, _) => Type::Int(8 * room as u8),
                };
                let value = self.any(ty);
                self.put(stored(ty, place.base, value), &[]);
            }
            _ => {
                self.put(
                    Op::Memory(MemoryOp::Set, [place.base, byte, length], false),
                    &[],
                );
            }
        }
    }

    fn load(&mut self) {
        let ty = self.ty();
        if let Some((address, align)) = self.address(ty.bytes()) {
            let volatile = self.chance.once_in(10);
            let ordering = Ordering::Plain;
            self.make(Op::Load {
                ty,
                address,
                align,
                ordering,
                volatile,
            });
        }
    }

    fn store(&mut self) {
        let ty = self.ty();
        let value = self.any(ty);
        if let Some((address, _)) = self.address(ty.bytes()) {
            self.put(stored(ty, address, value), &[]);
        }
    }

    fn memory(&mut self) {
        let length = self
            .chance
            .one_of(&[0, 1, 3, 4, 8, 8, 13, 16, 24, 32, 40, 64]);
        let Some((to, _)) = self.address(length) else {
            return;
        };
        let op = self
            .chance
            .one_of(&[MemoryOp::Copy, MemoryOp::Move, MemoryOp::Set]);
        let from = match op {
            MemoryOp::Set => self.any(Type::Int(8)),
            _ => match self.address(length) {
                Some((from, _)) => from,
                None => return,
            },
        };
        let mut count = Operand::Int(u64::from(length));
        if self.chance.once_in(2) && (length + 1).is_power_of_two() {
            let any = self.any(Type::Int(64));
            count = self.with(IntOp::And, Type::Int(64), any, u64::from(length));
        }
        self.put(Op::Memory(op, [to, from, count], false), &[]);
    }

    fn atomic(&mut self) {
        use RmwOp as R;
        let ty = self
            .chance
            .one_of(&[Type::Int(8), Type::Int(16), Type::Int(32), Type::Int(64)]);
        let Some(place) = self
            .places
            .iter()
            .rev()
            .find(|place| place.room >= 8)
            .copied()
        else {
            return;
        };
        let (address, value) = (place.base, self.any(ty));
        match self.chance.below(4) {
            0 => {
                let expected = self.any(ty);
                self.make(Op::CompareExchange {
                    ty,
                    address,
                    expected,
                    value,
                });
            }
            1 => {
                let ordering = self.chance.one_of(&[Ordering::Weak, Ordering::Strong]);
                self.put(Op::Fence(ordering), &[]);
            }
            _ => {
                let op = self.chance.one_of(&[
                    R::Exchange,
                    R::Add,
                    R::Sub,
                    R::And,
                    R::Nand,
                    R::Or,
                    R::Xor,
                    R::Max,
                    R::Min,
                    R::UMax,
                    R::UMin,
                ]);
                let results = self.put(
                    Op::Rmw {
                        op,
                        ty,
                        address,
                        value,
                    },
                    &[ty],
                );
                if !self.chance.once_in(3) {
                    self.unused.push(results[0]);
                    self.values.push((results[0], ty));
                }
            }
        }
    }

    fn call(&mut self) {
        let writes = self.chance.once_in(3);
        let number = self.chance.below(HOSTS);
        let name = format!("{}{number}", if writes { "poke" } else { "host" });
        let symbol = self.draft.symbol(&name, Reach::Indirect);
        let mut arguments = Vec::new();
        let place = |passing, base| Argument {
            operand: base,
            ty: Type::PTR,
            passing,
        };
        if writes {
            let Some((base, _)) = self.address(8) else {
                return;
            };
            arguments.push(place(Passing::Plain, base));
        }
        for _ in 0..self.chance.one_of(&[0, 0, 1, 1, 2, 2, 3, 5, 8, 13, 20]) {
            let ty = self.plain();
            let (operand, passing) = (self.any(ty), self.passing(ty));
            arguments.push(Argument {
                operand,
                ty,
                passing,
            });
            if self.chance.once_in(25) {
                let size = self.chance.one_of(&[1, 4, 8, 16, 24, 40, 64]);
                let align = self.chance.one_of(&[8, 8, 16]);
                if let Some((base, _)) = self.address(size) {
                    arguments.push(place(Passing::Memory { size, align }, base));
                }
            }
        }
        let callee = match self.chance.once_in(5) {
            true => Callee::Operand(self.target(symbol)),
            false => Callee::Symbol(symbol),
        };
        let returns = self.returns();
        let types: Vec<Type> = returns.iter().map(|one| one.ty).collect();
        let call = Call {
            callee,
            arguments,
            returns: returns.into_iter().collect(),
            is_variadic: self.chance.once_in(6),
            tail: Tail::No,
            returns_twice: false,
        };
        let types = if self.chance.once_in(8) {
            Vec::new()
        } else {
            types
        };
        let results = match self.draft.rest.personality.is_some() && self.chance.once_in(2) {
            true => self.invoke(call, &types),
            false => self.put(Op::Call(Box::new(call)), &types),
        };
        self.unused.extend(&results);
        self.values.extend(results.iter().copied().zip(types));
    }

    /// A call whose exception is caught, looked at and thrown on.
    fn invoke(&mut self, call: Call, types: &[Type]) -> Vec<Value> {
        let (on, pad) = (self.draft.block(), self.draft.block());
        let results = self.put(Op::Invoke(Box::new(call)), types);
        self.draft.blocks[self.at.index()].successors = vec![on, pad];
        self.at = pad;
        let caught = self.draft.symbol("data", Reach::Near);
        let clauses = match self.chance.below(4) {
            0 => vec![],
            1 => vec![Clause::Catch(None)],
            2 => vec![
                Clause::Catch(Some(caught)),
                Clause::Filter(vec![None, Some(caught)]),
            ],
            _ => vec![Clause::Filter(vec![])],
        };
        let cleanup = clauses.is_empty() || self.chance.once_in(2);
        let (word, number) = (Type::PTR, Type::Int(32));
        let pair = self.put(Op::LandingPad { cleanup, clauses }, &[word, number]);
        if self.chance.once_in(2) {
            self.sink();
        }
        let id = self.put(Op::TypeId(caught), &[number])[0];
        let list = [Operand::Value(pair[1]), Operand::Value(id)];
        self.put(Op::Compare(IntPredicate::Eq, number, list), &[BIT]);
        match self.chance.once_in(2) {
            true => {
                let thrown = [Operand::Value(pair[0]), Operand::Value(pair[1])];
                self.end(Op::Resume(thrown), &[]);
            }
            false => self.give_back(),
        }
        self.at = on;
        results
    }

    /// The address of a function, as a constant or a value.
    fn target(&mut self, symbol: uruk_baseline::ir::Symbol) -> Operand {
        let address = Operand::Address(symbol, 0);
        match self.chance.once_in(2) {
            true => address,
            false => {
                let op = Op::Select(Type::PTR, [self.any(BIT), address, address]);
                Operand::Value(self.put(op, &[Type::PTR])[0])
            }
        }
    }
}

pub(super) fn stored(ty: Type, address: Operand, value: Operand) -> Op {
    Op::Store {
        ty,
        address,
        value,
        align: 1,
        ordering: Ordering::Plain,
        volatile: false,
    }
}
