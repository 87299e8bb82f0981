//! Generates random functions. Most inputs have defined behaviour; for others the interpreter
//! stops, and the input is skipped.
//!
//! `straight` and `outside` generate instructions of one block, `flow` nests of branches, switches
//! and loops with phis, and `tangle` blocks with arbitrary edges, whose variables are in the frame
//! and which a count ends. Afterwards blocks are put in another order.

mod flow;
mod outside;
mod straight;
mod tangle;

use uruk_baseline::ir::{
    Argument, Block, Call, Callee, Cast, Counting, Extension, Function, Op, Operand, Parameter,
    Passing, Reach, Returned, Tail, Type, Value,
};

use crate::chance::Chance;
use crate::draft::Draft;
use crate::world::HOSTS;

/// A function from a seed.
pub fn function(seed: u64) -> Function {
    let mut chance = Chance::new(seed);
    let size = [6, 20, 60, 150][chance.below(4)];
    let mut maker = Maker {
        chance,
        draft: Draft::default(),
        at: Block(0),
        values: Vec::new(),
        places: Vec::new(),
        allocas: Vec::new(),
        loops: Vec::new(),
        left: size,
        floats: true,
        ints: Vec::new(),
        unused: Vec::new(),
    };
    maker.floats = !maker.chance.once_in(4);
    // Few types, so that values of equal types are common.
    for _ in 0..1 + maker.chance.below(4) {
        let bits = match maker.chance.once_in(9) {
            true => maker.chance.one_of(&ODD),
            false => maker.chance.one_of(&INTS),
        };
        maker.ints.push(Type::Int(bits));
    }
    maker.signature();
    maker.draft.block();
    maker.frame();
    match maker.chance.once_in(3) {
        true => maker.tangle(),
        false => maker.body(),
    }
    maker.shuffle();
    maker.draft.finish()
}

/// Memory that may be read and written: an address and the bytes from there on.
#[derive(Debug, Clone, Copy)]
struct Place {
    base: Operand,
    room: u32,
}

/// A loop under construction.
#[derive(Debug, Clone)]
struct Loop {
    head: Block,
    exit: Block,
    /// The head's phis, with the operands of each latch so far.
    carried: Vec<(Type, Value)>,
    latches: Vec<(Block, Vec<Operand>)>,
    /// Types of the exit's phis, and their operands.
    left: Vec<Type>,
    leaves: Vec<(Block, Vec<Operand>)>,
    /// The counter, the first of the head's phis.
    counter: Value,
}

struct Maker {
    chance: Chance,
    draft: Draft,
    at: Block,
    /// Values that may be used here, the latest last.
    values: Vec<(Value, Type)>,
    places: Vec<Place>,
    /// Allocas of the entry, with their sizes in bytes.
    allocas: Vec<(Value, u64)>,
    loops: Vec<Loop>,
    /// Number of instructions still to generate.
    left: i32,
    floats: bool,
    /// The most frequent types of this function.
    ints: Vec<Type>,
    /// Values without uses so far.
    unused: Vec<Value>,
}

const INTS: [u8; 12] = [1, 8, 8, 16, 16, 32, 32, 32, 64, 64, 64, 64];
const ODD: [u8; 9] = [2, 3, 7, 9, 17, 24, 33, 48, 63];

impl Maker {
    fn int(&mut self) -> Type {
        match self.chance.below(12) {
            0 => Type::Int(self.chance.one_of(&ODD)),
            1 | 2 => Type::Int(self.chance.one_of(&INTS)),
            _ => self.ints[self.chance.below(self.ints.len())],
        }
    }

    fn ty(&mut self) -> Type {
        match self.floats && self.chance.once_in(4) {
            true => self.float(),
            false => self.int(),
        }
    }

    fn float(&mut self) -> Type {
        self.chance.one_of(&[Type::F32, Type::F64, Type::F64])
    }

    /// A type that is common in code.
    fn plain(&mut self) -> Type {
        match self.ty() {
            Type::Int(bits) if !matches!(bits, 1 | 8 | 16 | 32 | 64) => Type::Int(32),
            ty => ty,
        }
    }

    fn passing(&mut self, ty: Type) -> Passing {
        match ty {
            Type::Int(8 | 16 | 32 | 1) if self.chance.once_in(2) => self
                .chance
                .one_of(&[Passing::SignExtended, Passing::ZeroExtended]),
            _ => Passing::Plain,
        }
    }

    /// Types of results that fit registers.
    fn returns(&mut self) -> Vec<Returned> {
        let (mut ints, mut floats) = (0, 0);
        let count = self.chance.one_of(&[0, 1, 1, 1, 1, 2, 3]);
        let mut all = Vec::new();
        for _ in 0..count {
            let ty = self.plain();
            let (used, most) = match ty.is_int() {
                true => (&mut ints, 3),
                false => (&mut floats, 2),
            };
            *used += 1;
            if *used > most {
                continue;
            }
            let extension = match ty {
                Type::Int(1 | 8 | 16) if self.chance.once_in(2) => {
                    Some(self.chance.one_of(&[Extension::Sign, Extension::Zero]))
                }
                _ => None,
            };
            all.push(Returned { ty, extension });
        }
        all
    }

    fn signature(&mut self) {
        let count = self.chance.one_of(&[0, 1, 2, 2, 3, 4, 6, 9, 14]);
        for index in 0..count {
            let mut ty = self.plain();
            let mut passing = self.passing(ty);
            let pick = self.chance.below(40);
            if pick == 0 && index == 0 {
                (ty, passing) = (Type::PTR, Passing::Result);
            } else if pick == 1 {
                let size = self.chance.one_of(&[1, 4, 8, 12, 16, 24, 40]);
                let align = self.chance.one_of(&[8, 8, 16]);
                (ty, passing) = (Type::PTR, Passing::Memory { size, align });
            }
            self.draft.rest.parameters.push(Parameter { ty, passing });
            let value = self.draft.value(ty);
            match passing {
                Passing::Memory { size, .. } => self.places.push(Place {
                    base: Operand::Value(value),
                    room: size,
                }),
                // Its address is the same in every run, but a copy's is not.
                _ => self.values.push((value, ty)),
            }
        }
        // A function with a hidden pointer returns no other result.
        let hidden = self.draft.rest.parameters.first();
        if hidden.is_none_or(|first| first.passing != Passing::Result) {
            self.draft.rest.returns = self.returns();
        }
        for (name, reach) in [("data", Reach::Near), ("far", Reach::Indirect)] {
            let symbol = self.draft.symbol(name, reach);
            for offset in [0, 64, 200] {
                self.places.push(Place {
                    base: Operand::Address(symbol, offset),
                    room: 64,
                });
            }
        }
        if self.chance.once_in(5) {
            // It is never called, as no exception is thrown.
            self.draft.rest.personality = Some(self.draft.symbol("host15", Reach::Indirect));
        }
        if self.chance.once_in(6) {
            let counters = self.draft.symbol("counters", Reach::Near);
            let loops = self.draft.symbol("loops", Reach::Near);
            self.draft.rest.counting = Counting {
                counters: Some(counters),
                loops: Some(loops),
                ..Counting::default()
            };
        }
    }

    /// Allocates memory of the frame, and fills most of it.
    fn frame(&mut self) {
        for _ in 0..self.chance.below(5) {
            let size = self.chance.one_of(&[1, 2, 4, 8, 8, 16, 24, 40, 64]);
            let align = self.chance.one_of(&[1, 4, 8, 8, 16, 16, 32]);
            let value = self.put(Op::Alloca { size, align }, &[Type::PTR])[0];
            self.allocas.push((value, size));
            let place = Place {
                base: Operand::Value(value),
                room: size as u32,
            };
            if !self.chance.once_in(8) {
                self.fill(place);
            }
            self.places.push(place);
        }
    }

    /// Adds an instruction; the caller decides whether its results may be used from here on.
    fn put(&mut self, op: Op, types: &[Type]) -> Vec<Value> {
        let results: Vec<Value> = types.iter().map(|&ty| self.draft.value(ty)).collect();
        self.draft.blocks[self.at.index()]
            .code
            .push((op, results.clone()));
        self.left -= 1;
        results
    }

    /// Adds an instruction whose results may be used.
    fn make(&mut self, op: Op) -> Vec<Value> {
        let types = op.results();
        let results = self.put(op, &types);
        self.values.extend(results.iter().copied().zip(types));
        self.unused.extend(&results);
        results
    }

    fn end(&mut self, op: Op, successors: &[Block]) {
        self.put(op, &[]);
        self.draft.blocks[self.at.index()].successors = successors.to_vec();
    }

    fn give_back(&mut self) {
        if !self.chance.once_in(4) {
            self.sink();
        }
        let types: Vec<Type> = self.draft.rest.returns.iter().map(|one| one.ty).collect();
        let list = types.into_iter().map(|ty| self.any(ty)).collect();
        self.end(Op::Return(list), &[]);
    }

    /// A constant of a type.
    fn constant(&mut self, ty: Type) -> Operand {
        let bits = self.chance.bits(ty) as u64;
        match ty {
            Type::Int(width) if self.chance.once_in(2) => {
                let small = self.chance.below(20) as u64;
                Operand::Int(small & (u64::MAX >> (64 - width)))
            }
            Type::Int(_) => Operand::Int(bits),
            _ => Operand::Float(bits),
        }
    }

    /// A value of the type, if there is one; prefers unused and later ones.
    fn known(&mut self, ty: Type) -> Option<Operand> {
        let of_type = self.values.iter().filter(|(_, its)| *its == ty);
        let count = of_type.clone().count();
        if count == 0 {
            return None;
        }
        let fresh = of_type
            .clone()
            .rev()
            .find(|(value, _)| self.unused.contains(value))
            .copied();
        let back = match self.chance.once_in(2) {
            true => self.chance.below(count.min(4)),
            false => self.chance.below(count),
        };
        let of_type = self.values.iter().filter(|(_, its)| *its == ty);
        let found = match fresh {
            Some(fresh) if self.chance.once_in(2) => Some(fresh),
            _ => of_type.rev().nth(back).copied(),
        };
        let (value, _) = found?;
        self.unused.retain(|one| *one != value);
        Some(Operand::Value(value))
    }

    /// An operand of a type.
    fn any(&mut self, ty: Type) -> Operand {
        if self.chance.once_in(150) {
            return Operand::Undef;
        }
        if self.chance.once_in(7) {
            return self.constant(ty);
        }
        if let Some(operand) = self.known(ty) {
            return operand;
        }
        match self.chance.once_in(3) || self.values.is_empty() {
            true => self.constant(ty),
            false => self.converted(ty),
        }
    }

    /// A value of another type, converted to this one.
    fn converted(&mut self, ty: Type) -> Operand {
        let (_, from) = self.values[self.chance.below(self.values.len())];
        let Some(one) = self.known(from) else {
            return self.constant(ty);
        };
        let cast = match (from, ty) {
            (Type::Int(a), Type::Int(b)) if a > b => Cast::Trunc,
            (Type::Int(_), Type::Int(_)) => self.chance.one_of(&[Cast::ZExt, Cast::SExt]),
            (Type::Int(_), _) => self.chance.one_of(&[Cast::SiToFp, Cast::UiToFp]),
            (_, Type::Int(_)) => self.chance.one_of(&[Cast::FpToSiSat, Cast::FpToUiSat]),
            (Type::F32, _) => Cast::FpExt,
            _ => Cast::FpTrunc,
        };
        Operand::Value(self.put(Op::Cast(cast, from, ty, one), &[ty])[0])
    }

    /// Makes unused values visible outside: stores them, or passes them to a host.
    fn sink(&mut self) {
        let known = &self.values;
        let list: Vec<_> = known
            .iter()
            .filter(|one| self.unused.contains(&one.0))
            .copied()
            .collect();
        if self.chance.once_in(2) && list.len() > 1 {
            let number = self.chance.below(HOSTS);
            let symbol = self.draft.symbol(&format!("host{number}"), Reach::Indirect);
            let call = Call {
                callee: Callee::Symbol(symbol),
                arguments: list
                    .iter()
                    .map(|&(value, ty)| self.argument(value, ty))
                    .collect(),
                returns: Default::default(),
                is_variadic: false,
                tail: Tail::No,
                returns_twice: false,
            };
            self.put(Op::Call(Box::new(call)), &[]);
        } else {
            let symbol = self.draft.symbol("far", Reach::Indirect);
            for (nth, (value, ty)) in list.into_iter().enumerate().take(12) {
                self.unused.retain(|one| *one != value);
                let at = Operand::Address(symbol, 300 + 8 * nth as i64);
                self.put(outside::stored(ty, at, Operand::Value(value)), &[]);
            }
        }
    }

    fn argument(&mut self, value: Value, ty: Type) -> Argument {
        self.unused.retain(|one| *one != value);
        Argument {
            operand: Operand::Value(value),
            ty,
            passing: self.passing(ty),
        }
    }

    /// Reorders blocks; the first stays.
    fn shuffle(&mut self) {
        let count = self.draft.blocks.len();
        let mut order: Vec<usize> = (0..count).collect();
        for _ in 0..self.chance.below(2 * count) {
            let (a, b) = (self.chance.below(count), self.chance.below(count));
            if a > 0 && b > 0 {
                order.swap(a, b);
            }
        }
        let mut new = vec![Block(0); count];
        for (place, &old) in order.iter().enumerate() {
            new[old] = Block(place as u32);
        }
        let old = std::mem::take(&mut self.draft.blocks);
        self.draft.blocks = order.iter().map(|&index| old[index].clone()).collect();
        for block in &mut self.draft.blocks {
            block
                .successors
                .iter_mut()
                .for_each(|to| *to = new[to.index()]);
            for (op, _) in &mut block.code {
                if let Op::Phi(_, incoming) = op {
                    incoming
                        .iter_mut()
                        .for_each(|(from, _)| *from = new[from.index()]);
                }
            }
        }
        let counting = &mut self.draft.rest.counting;
        counting
            .heads
            .iter_mut()
            .for_each(|head| head.block = new[head.block.index()]);
        counting.heads.sort_by_key(|head| head.block);
        counting
            .latches
            .iter_mut()
            .for_each(|block| *block = new[block.index()]);
        counting.latches.sort();
        counting.latches.dedup();
    }
}
