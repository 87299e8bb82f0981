//! Generates blocks with arbitrary edges: variables are in the frame, and a count ends the run.

use uruk_baseline::ir::{Block, IntOp, IntPredicate, Op, Operand, Ordering, Type, Value};

use super::Maker;

fn load(ty: Type, address: Value) -> Op {
    Op::Load {
        ty,
        address: Operand::Value(address),
        align: 8,
        ordering: Ordering::Plain,
        volatile: false,
    }
}

fn store(ty: Type, address: Value, value: Operand) -> Op {
    Op::Store {
        ty,
        address: Operand::Value(address),
        value,
        align: 8,
        ordering: Ordering::Plain,
        volatile: false,
    }
}

impl Maker {
    pub(super) fn tangle(&mut self) {
        let count = 2 + self.chance.below(9);
        let mut variables = vec![(Type::Int(32), self.variable(Type::Int(32), Operand::Int(0)))];
        for _ in 0..1 + self.chance.below(7) {
            let ty = self.ty();
            let first = self.any(ty);
            variables.push((ty, self.variable(ty, first)));
        }
        let blocks: Vec<Block> = (0..count).map(|_| self.draft.block()).collect();
        let exit = self.draft.block();
        self.lead(&blocks);
        let (known, places) = (self.values.len(), self.places.len());
        let each = (self.left / count as i32).clamp(1, 12);
        for &block in &blocks {
            self.at = block;
            let fuel = self.make(load(Type::Int(32), variables[0].1))[0];
            self.some_of(&variables);
            for _ in 0..self.chance.below(each as usize + 1) {
                self.instruction();
            }
            for &(ty, address) in &variables[1..] {
                if self.chance.once_in(3) {
                    let value = self.any(ty);
                    self.put(store(ty, address, value), &[]);
                }
            }
            if self.chance.once_in(3) {
                self.sink();
            }
            let list = [Operand::Value(fuel), Operand::Int(1)];
            let more = self.put(Op::Int(IntOp::Add, Type::Int(32), list), &[Type::Int(32)])[0];
            self.put(
                store(Type::Int(32), variables[0].1, Operand::Value(more)),
                &[],
            );
            let most = Operand::Int(3 + self.chance.below(30) as u64);
            let compare = Op::Compare(
                IntPredicate::UGt,
                Type::Int(32),
                [Operand::Value(more), most],
            );
            let done = self.put(compare, &[Type::Int(1)])[0];
            let on = self.draft.block();
            self.end(Op::Branch(Operand::Value(done)), &[exit, on]);
            self.at = on;
            self.lead(&blocks);
            self.values.truncate(known);
            self.places.truncate(places);
        }
        self.at = exit;
        self.some_of(&variables);
        self.give_back();
    }

    /// A variable with its first value.
    fn variable(&mut self, ty: Type, first: Operand) -> Value {
        let size = u64::from(ty.bytes());
        let address = self.put(Op::Alloca { size, align: 8 }, &[Type::PTR])[0];
        self.put(store(ty, address, first), &[]);
        address
    }

    /// Loads some of the variables.
    fn some_of(&mut self, variables: &[(Type, Value)]) {
        for &(ty, address) in &variables[1..] {
            if self.chance.once_in(2) {
                self.make(load(ty, address));
            }
        }
    }

    /// Leads to any of the blocks.
    fn lead(&mut self, blocks: &[Block]) {
        let one = self.chance.one_of(blocks);
        let other = self.chance.one_of(blocks);
        match self.chance.below(6) {
            0 => self.end(Op::Jump, &[one]),
            2 => {
                let word = Type::Int(64);
                let list = [self.any(word), Operand::Int(7)];
                let on = self.put(Op::Int(IntOp::And, word, list), &[word])[0];
                let step = self.chance.one_of(&[1, 5, 70]);
                let list = [Operand::Value(on), Operand::Int(step)];
                let on = self.put(Op::Int(IntOp::Mul, word, list), &[word])[0];
                let to: Vec<Block> = (0..8).map(|_| self.chance.one_of(blocks)).collect();
                let numbers = (0..8).map(|nth| nth * step).collect();
                self.end(Op::Dispatch(Operand::Value(on), numbers), &to);
            }
            1 => {
                let ty = self
                    .chance
                    .one_of(&[Type::Int(8), Type::Int(32), Type::Int(64)]);
                let on = self.any(ty);
                let list = [on, Operand::Int(7)];
                let on = self.put(Op::Int(IntOp::And, ty, list), &[ty])[0];
                let mut to = vec![one];
                let count = 1 + self.chance.below(8);
                to.extend((0..count).map(|_| self.chance.one_of(blocks)));
                let numbers = (0..count as u64).collect();
                self.end(Op::Switch(ty, Operand::Value(on), numbers), &to);
            }
            _ => {
                let bit = self.condition();
                self.end(Op::Branch(bit), &[one, other]);
            }
        }
    }
}
