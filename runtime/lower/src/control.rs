//! Ends of blocks, and landing pads.

use uruk_baseline::ir::{Clause, Op, Operand, Operands, Symbol, Type};
use uruk_bitcode::ir::{
    self as bitcode, BlockId, Constant, Definition, Instruction, Type as BitcodeType, ValueId,
};

use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::Shape;

const TYPE: &str = "an unusual type of exception";

/// Types that one filter lists.
const MOST_TYPES: u64 = 1 << 10;

impl Reading<'_> {
    pub(crate) fn branch(&mut self, it: &Instruction) -> Covered<()> {
        let [condition] = self.operands(it)?;
        let condition = self.one_as(condition, Type::Int(1))?;
        self.end(Op::Branch(condition))
    }

    pub(crate) fn switch(&mut self, it: &Instruction, successors: usize) -> Covered<()> {
        let Some((&value, cases)) = self.body.operands_of(it).split_first() else {
            return invalid("another number of operands");
        };
        let known = self.type_of(value)?;
        let Shape::Scalar(ty @ Type::Int(bits)) = self.shape_of(known) else {
            return not("a switch of more than 64 bits");
        };
        let operand = self.one(value)?;
        if cases.len() + 1 != successors {
            return invalid("a switch of other cases");
        }
        let mut values = Vec::with_capacity(cases.len());
        for &case in cases {
            match self.number(case) {
                Some(number) if self.type_of(case)? == known => {
                    values.push(number as u64 & u64::MAX >> (64 - bits));
                }
                _ => return invalid("a case that is no number"),
            }
        }
        self.end(Op::Switch(ty, operand, values))
    }

    pub(crate) fn ret(&mut self, it: &Instruction) -> Covered<()> {
        let returns = self.returns;
        match *self.body.operands_of(it) {
            [] if self.shape_of(returns) == Shape::Nothing => self.end(Op::Return(Operands::new())),
            [value] if self.type_of(value)? == returns => {
                let scalars = self.scalars(value)?;
                let operands = match self.holds_vectors(returns) {
                    true => self.packed(returns, scalars)?.into_iter().collect(),
                    false => self.values.of(scalars).into(),
                };
                self.end(Op::Return(operands))
            }
            _ => invalid("a return of another type"),
        }
    }

    pub(crate) fn resume(&mut self, it: &Instruction) -> Covered<()> {
        let [value] = self.operands(it)?;
        let leaves = self.leaves(self.type_of(value)?)?;
        let types = leaves.iter().map(|leaf| leaf.ty);
        if !types.eq([Type::PTR, Type::Int(32)]) {
            return not(TYPE);
        }
        let scalars = self.scalars(value)?;
        match *self.values.of(scalars) {
            [exception, selector] => self.end(Op::Resume([exception, selector])),
            _ => not(TYPE),
        }
    }

    /// Whether a block is a landing pad.
    pub(crate) fn is_pad(&self, block: BlockId) -> bool {
        let range = self.body.blocks[block.0 as usize].clone();
        let all = &self.body.instructions[range.start as usize..range.end as usize];
        let mut others = all
            .iter()
            .filter(|it| !matches!(it.op, bitcode::Op::Phi(_)));
        let first = others.next();
        first.is_some_and(|it| matches!(it.op, bitcode::Op::LandingPad(..)))
    }

    /// Whether only exceptions lead to the block that is being read.
    fn is_come_to_by_exceptions(&mut self) -> bool {
        let own = self.flow.order[self.block as usize];
        let body = self.body;
        let from = self.flow.predecessors(self.block).to_vec();
        from.iter().all(|&from| {
            let from = &body.blocks[self.flow.order[from as usize] as usize];
            let end = &body.instructions[from.end as usize - 1];
            let to = |[on, pad]: &[BlockId; 2]| on.0 != own && pad.0 == own;
            matches!(&end.op, bitcode::Op::Invoke(_, both) if to(both))
        })
    }

    pub(crate) fn landing_pad(
        &mut self,
        at: u32,
        it: &Instruction,
        cleanup: bool,
        filters: &[bool],
    ) -> Covered<()> {
        let known = self.result(it)?;
        let types = self.leaves(known)?.iter().map(|leaf| leaf.ty);
        if !types.eq([Type::PTR, Type::Int(32)]) {
            return not(TYPE);
        }
        let is_first = at == self.first && self.block != 0;
        if !is_first || !self.is_come_to_by_exceptions() || self.out.personality.is_none() {
            return invalid("a landing pad at an unusual place");
        }
        let operands = self.body.operands_of(it);
        let mut clauses = Vec::with_capacity(filters.len());
        for (&clause, &is_filter) in operands.iter().zip(filters) {
            clauses.push(match is_filter {
                true => Clause::Filter(self.filter(clause)?),
                false => Clause::Catch(self.caught(clause)?),
            });
        }
        self.emit_for(it, Op::LandingPad { cleanup, clauses })
    }

    /// A type that is caught; `None` for all types.
    pub(crate) fn caught(&mut self, value: ValueId) -> Covered<Option<Symbol>> {
        match self.one(value)? {
            Operand::Address(symbol, 0) => Ok(Some(symbol)),
            Operand::Int(0) => Ok(None),
            _ => not(TYPE),
        }
    }

    fn filter(&mut self, array: ValueId) -> Covered<Vec<Option<Symbol>>> {
        let (Some(Definition::Constant(constant)), BitcodeType::Array(count, _)) =
            (self.definition(array), self.module.ty(self.type_of(array)?))
        else {
            return invalid(TYPES);
        };
        match constant {
            Constant::Aggregate(parts) if parts.len() as u64 == *count => {
                parts.iter().map(|&part| self.caught(part)).collect()
            }
            Constant::Null if *count <= MOST_TYPES => Ok(vec![None; *count as usize]),
            _ if *count == 0 => Ok(Vec::new()),
            _ => not(TYPE),
        }
    }
}
