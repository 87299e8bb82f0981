//! Generates instructions on memory, and calls.

use smallvec::smallvec;
use uruk_baseline::ir::{
    Argument, Call, Callee, Clause, IntOp, IntPredicate, MemoryOp, Op, Operand, Ordering, Passing,
    Reach, RmwOp, Tail, Term, Type, Value,
};

use super::{Maker, Place};
use crate::world::HOSTS;

const BIT: Type = Type::Int(1);

impl Maker {
    /// An address in a place with room for `bytes` bytes, and its known alignment.
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

    /// Adds a place: within another one, at a small enough index; sometimes memory of a size that
    /// is known only at run time.
    pub(super) fn place(&mut self) {
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
            // Stored like a variable.
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

    pub(super) fn load(&mut self) {
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

    pub(super) fn store(&mut self) {
        let ty = self.ty();
        let value = self.any(ty);
        if let Some((address, _)) = self.address(ty.bytes()) {
            self.put(stored(ty, address, value), &[]);
        }
    }

    pub(super) fn memory(&mut self) {
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

    pub(super) fn atomic(&mut self) {
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

    pub(super) fn call(&mut self) {
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

    /// Generates a call whose exception is caught, inspected and rethrown.
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
