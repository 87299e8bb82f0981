//! Generates nests of branches, switches and loops, with phis at joins.

use uruk_baseline::ir::{
    Argument, Block, Head, IntOp, IntPredicate, Op, Operand, Ordering, Passing, Reach, Type, Value,
};

use super::{Loop, Maker};

/// Limit of the depth of nests.
const DEEPEST: usize = 4;

impl Maker {
    pub(super) fn body(&mut self) {
        while self.left > 0 {
            self.piece(0);
        }
        self.give_back();
    }

    /// Generates some instructions, then perhaps a nest.
    fn piece(&mut self, depth: usize) {
        for _ in 0..self.chance.below(6) {
            self.instruction();
        }
        if self.chance.once_in(4) {
            self.sink();
        }
        if depth >= DEEPEST || self.left <= 0 {
            return;
        }
        match self.chance.below(8) {
            0 | 1 => self.branch(depth),
            2 => self.switch(depth),
            3 => self.repeat(depth),
            4 => self.repeat_at_end(depth),
            5 => self.leave(),
            _ => {}
        }
    }

    fn types(&mut self, most: usize) -> Vec<Type> {
        (0..self.chance.below(most + 1))
            .map(|_| self.ty())
            .collect()
    }

    fn all_of(&mut self, types: &[Type]) -> Vec<Operand> {
        types.iter().map(|&ty| self.any(ty)).collect()
    }

    /// Continues in a block whose phis take the operands of its edges.
    fn meet(&mut self, at: Block, types: &[Type], edges: &[(Block, Vec<Operand>)]) {
        self.at = at;
        for (index, &ty) in types.iter().enumerate() {
            let incoming = edges.iter().map(|(from, list)| (*from, list[index]));
            self.make(Op::Phi(ty, incoming.collect()));
        }
    }

    /// A bit to branch on: a new comparison, or any other bit.
    pub(super) fn condition(&mut self) -> Operand {
        match self.chance.once_in(4) {
            true => self.any(Type::Int(1)),
            false => {
                let compare = self.comparison();
                let bit = self.make(compare)[0];
                if self.chance.once_in(5) {
                    self.instruction();
                }
                Operand::Value(bit)
            }
        }
    }

    fn branch(&mut self, depth: usize) {
        let types = self.types(3);
        let bit = self.condition();
        let (yes, join) = (self.draft.block(), self.draft.block());
        let mut edges = Vec::new();
        let from = self.at;
        if self.chance.once_in(3) {
            // Only one side has code.
            let others = self.all_of(&types);
            edges.push((from, others));
            let both = match self.chance.once_in(2) {
                true => [yes, join],
                false => [join, yes],
            };
            self.end(Op::Branch(bit), &both);
        } else {
            let no = self.draft.block();
            self.end(Op::Branch(bit), &[yes, no]);
            self.side(no, join, depth, &types, &mut edges);
        }
        self.side(yes, join, depth, &types, &mut edges);
        self.meet(join, &types, &edges);
    }

    /// Generates one side of a branch.
    fn side(
        &mut self,
        at: Block,
        join: Block,
        depth: usize,
        types: &[Type],
        edges: &mut Vec<(Block, Vec<Operand>)>,
    ) {
        let (values, places) = (self.values.len(), self.places.len());
        self.at = at;
        for _ in 0..1 + self.chance.below(2) {
            self.piece(depth + 1);
        }
        let list = self.all_of(types);
        edges.push((self.at, list));
        self.end(Op::Jump, &[join]);
        self.values.truncate(values);
        self.places.truncate(places);
    }

    fn switch(&mut self, depth: usize) {
        let ty = self.int();
        let Type::Int(bits) = ty else {
            return;
        };
        let types = self.types(2);
        let mut on = self.any(ty);
        let near = self.chance.once_in(2) && bits > 4;
        if near {
            let list = [on, Operand::Int(self.chance.one_of(&[3, 7, 15]))];
            on = Operand::Value(self.make(Op::Int(IntOp::And, ty, list))[0]);
        }
        let count = self.chance.below(if bits > 3 { 10 } else { 3 });
        let mut numbers = Vec::new();
        for nth in 0..count as u64 {
            let number = match near {
                true => nth,
                false => self.chance.bits(ty) as u64,
            };
            if !numbers.contains(&number) && (bits == 64 || number >> bits == 0) {
                numbers.push(number);
            }
        }
        let join = self.draft.block();
        let sides: Vec<Block> = (0..1 + self.chance.below(4))
            .map(|_| self.draft.block())
            .collect();
        let others = self.all_of(&types);
        let (from, mut edges) = (self.at, Vec::new());
        let mut targets = Vec::new();
        for nth in 0..=numbers.len() {
            // Each side has an edge; some edges lead to the join.
            let to = match nth < sides.len() {
                true => sides[nth],
                false if self.chance.once_in(3) => join,
                false => self.chance.one_of(&sides),
            };
            if to == join {
                edges.push((from, others.clone()));
            }
            targets.push(to);
        }
        self.end(Op::Switch(ty, on, numbers), &targets);
        for side in sides {
            match targets.contains(&side) {
                true => self.side(side, join, depth, &types, &mut edges),
                false => {
                    // The side is unreachable, and leads to the join.
                    self.at = side;
                    let list = self.all_of(&types);
                    edges.push((side, list));
                    self.end(Op::Jump, &[join]);
                }
            }
        }
        self.meet(join, &types, &edges);
    }

    /// Enters a loop's head: its phis and its counter.
    fn head(&mut self) -> Loop {
        let (head, exit) = (self.draft.block(), self.draft.block());
        let mut types = vec![Type::Int(32)];
        types.extend(self.types(4));
        let mut initial = self.all_of(&types);
        initial[0] = Operand::Int(0);
        let from = self.at;
        self.end(Op::Jump, &[head]);
        self.at = head;
        let mut carried = Vec::new();
        for (&ty, first) in types.iter().zip(initial) {
            let value = self.make(Op::Phi(ty, vec![(from, first)]))[0];
            carried.push((ty, value));
        }
        self.count_head(head);
        Loop {
            head,
            exit,
            counter: carried[0].1,
            carried,
            latches: Vec::new(),
            left: self.types(2),
            leaves: Vec::new(),
        }
    }

    fn count_head(&mut self, block: Block) {
        let nth = self.draft.rest.counting.heads.len() as u32;
        if self.draft.rest.counting.loops.is_none() || nth >= 8 || self.chance.once_in(3) {
            return;
        }
        let mut arguments = Vec::new();
        for _ in 0..self.chance.below(9) {
            let ty = self.ty();
            if let Some(operand) = self.known(ty) {
                arguments.push(Argument {
                    operand,
                    ty,
                    passing: Passing::Plain,
                });
            }
        }
        let mut loaded = Vec::new();
        if let Some((ty, alloca)) = self.content() {
            loaded.push(arguments.len() as u32);
            arguments.push(Argument {
                operand: Operand::Value(alloca),
                ty,
                passing: Passing::Plain,
            });
        }
        self.draft.rest.counting.heads.push(Head {
            block,
            slot: 24 * nth,
            // The time is another at each run.
            time: None,
            count: 24 * nth + 8,
            left: 24 * nth + 12,
            exit: 24 * nth + 16,
            has_exit: true,
            // A run compares all values.
            assumed: (0..arguments.len() as u32).collect(),
            arguments,
            loaded,
            stored: Vec::new(),
        });
    }

    /// Chooses an alloca and a type of its contents. They are read here, so that they live.
    fn content(&mut self) -> Option<(Type, Value)> {
        if self.allocas.is_empty() || self.chance.once_in(2) {
            return None;
        }
        let (alloca, size) = self.chance.one_of(&self.allocas.clone());
        let types = [8, 16, 32, 64].map(Type::Int);
        let fitting = types.into_iter().chain([Type::F32, Type::F64]);
        let fitting: Vec<Type> = fitting.filter(|ty| u64::from(ty.bytes()) <= size).collect();
        let ty = self.chance.one_of(&fitting);
        let load = Op::Load {
            ty,
            address: Operand::Value(alloca),
            align: 1,
            ordering: Ordering::Plain,
            volatile: false,
        };
        let value = self.put(load, &[ty])[0];
        let data = self.draft.symbol("data", Reach::Near);
        let store = Op::Store {
            ty,
            address: Operand::Address(data, 300),
            value: Operand::Value(value),
            align: 1,
            ordering: Ordering::Plain,
            volatile: false,
        };
        self.put(store, &[]);
        Some((ty, alloca))
    }

    /// The incremented counter, and the bit that continues the loop.
    fn next(&mut self, this: &Loop) -> (Operand, Operand) {
        let list = [Operand::Value(this.counter), Operand::Int(1)];
        let next = Operand::Value(self.make(Op::Int(IntOp::Add, Type::Int(32), list))[0]);
        let most = Operand::Int(1 + self.chance.below(6) as u64);
        let compare = Op::Compare(IntPredicate::ULt, Type::Int(32), [next, most]);
        let bit = self.make(compare)[0];
        (next, Operand::Value(bit))
    }

    /// The operands of a back edge, after the counter; often permuted among the phis.
    fn back(&mut self, this: &Loop, next: Operand) -> Vec<Operand> {
        let mut list = vec![next];
        for &(ty, _) in &this.carried[1..] {
            let same: Vec<_> = this.carried[1..].iter().filter(|one| one.0 == ty).collect();
            let other = same[self.chance.below(same.len())].1;
            list.push(match self.chance.once_in(4) {
                true => Operand::Value(other),
                false => self.any(ty),
            });
        }
        list
    }

    /// Generates a loop with its test at the head.
    fn repeat(&mut self, depth: usize) {
        let mut this = self.head();
        let (next, bit) = self.next(&this);
        let leaves = self.all_of(&this.left.clone());
        this.leaves.push((self.at, leaves));
        let body = self.draft.block();
        self.end(Op::Branch(bit), &[body, this.exit]);
        let (values, places) = (self.values.len(), self.places.len());
        self.loops.push(this);
        self.at = body;
        self.piece(depth + 1);
        self.piece(depth + 1);
        let Some(mut this) = self.loops.pop() else {
            return;
        };
        let list = self.back(&this, next);
        this.latches.push((self.at, list));
        self.draft.rest.counting.latches.push(self.at);
        self.end(Op::Jump, &[this.head]);
        self.values.truncate(values);
        self.places.truncate(places);
        self.close(this);
    }

    /// Generates a loop with its test at the end.
    fn repeat_at_end(&mut self, depth: usize) {
        let this = self.head();
        self.loops.push(this);
        let (values, places) = (self.values.len(), self.places.len());
        self.piece(depth + 1);
        let Some(mut this) = self.loops.pop() else {
            return;
        };
        let (next, bit) = self.next(&this);
        let list = self.back(&this, next);
        this.latches.push((self.at, list));
        let leaves = self.all_of(&this.left.clone());
        this.leaves.push((self.at, leaves));
        let to = [this.head, this.exit];
        self.end(Op::Branch(bit), &to);
        if this.leaves.len() > 1 {
            self.values.truncate(values);
            self.places.truncate(places);
        }
        self.close(this);
    }

    /// Completes the head's phis, and continues behind the loop.
    fn close(&mut self, this: Loop) {
        let code = &mut self.draft.blocks[this.head.index()].code;
        for (index, (op, _)) in code.iter_mut().take(this.carried.len()).enumerate() {
            if let Op::Phi(_, incoming) = op {
                incoming.extend(this.latches.iter().map(|(from, list)| (*from, list[index])));
            }
        }
        self.meet(this.exit, &this.left, &this.leaves);
    }

    /// Leaves a loop, continues it, or returns, on a condition.
    fn leave(&mut self) {
        let bit = self.condition();
        let (side, on) = (self.draft.block(), self.draft.block());
        self.end(Op::Branch(bit), &[side, on]);
        self.at = side;
        match self.loops.pop() {
            Some(mut this) if self.chance.once_in(2) => {
                let leaves = self.all_of(&this.left.clone());
                this.leaves.push((self.at, leaves));
                self.end(Op::Jump, &[this.exit]);
                self.loops.push(this);
            }
            Some(mut this) => {
                let (next, _) = self.next(&this);
                self.values.truncate(self.values.len() - 2);
                let list = self.back(&this, next);
                // Only with a limit of the counter: else the loop could run for ever.
                let most = Op::Compare(IntPredicate::ULt, Type::Int(32), [next, Operand::Int(9)]);
                let goes = self.put(most, &[Type::Int(1)])[0];
                let leaves = self.all_of(&this.left.clone());
                this.latches.push((self.at, list));
                this.leaves.push((self.at, leaves));
                let to = [this.head, this.exit];
                self.end(Op::Branch(Operand::Value(goes)), &to);
                self.loops.push(this);
            }
            None => self.give_back(),
        }
        self.at = on;
    }
}
