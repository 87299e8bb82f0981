//! Decides which operands an instruction folds, that is, computes at their use (`fold.rs` has the
//! tables).

use crate::ir::{Op, Operand, Ordering, Value};

use super::fold::{self, Shape};
use super::life::{Kinds, State};
use super::lives::Lives;
use super::order::NONE;

impl<'a> Lives<'a> {
    /// Folds operands that the instruction can compute itself.
    pub(super) fn fold(&mut self, op: &Op) {
        if let Some(bit) = fold::condition(op)
            && self.is_only_here(bit)
            && fold::gives_condition(self.made_by(bit))
        {
            self.lives[bit.index()].state = State::Folded;
        }
        if let Some(value) = fold::tested(op)
            && self.is_only_here(value)
            && fold::gives_test(self.made_by(value))
        {
            self.lives[value.index()].state = State::Folded;
        }
        if let Some(value) = fold::narrowed(op)
            && self.is_only_here(value)
            && fold::is_narrow(op, self.made_by(value))
        {
            self.lives[value.index()].state = State::Folded;
        }
        for value in fold::loads(op).into_iter().flatten() {
            if self.is_only_here(value)
                && self.lives[value.index()].epoch == self.memory
                && let Op::Load {
                    ordering: Ordering::Plain,
                    volatile: false,
                    ..
                } = self.made_by(value)
            {
                self.lives[value.index()].state = State::Folded;
                break;
            }
        }
    }

    /// Whether a value has a place, and its only use is the current instruction, in the block of
    /// its definition.
    fn is_only_here(&self, value: Value) -> bool {
        let life = &self.lives[value.index()];
        life.state == State::Placed
            && life.uses == 1
            && life.block == self.block
            && life.by != NONE
            && !life.kinds.has(Kinds::SPREAD)
    }

    pub(super) fn made_by(&self, value: Value) -> &'a Op {
        let by = self.lives[value.index()].by;
        &self.function.instructions[by as usize].op
    }

    /// Folds into a store the operation whose result it writes, and the load of the old value: an
    /// instruction with a memory destination.
    pub(super) fn change(&mut self, op: &Op) {
        let Op::Store {
            address,
            value: Operand::Value(value),
            ty,
            ordering: Ordering::Plain,
            volatile: false,
            ..
        } = op
        else {
            return;
        };
        if !self.is_only_here(*value) || self.variable(*address).is_some() {
            return;
        }
        let made = self.made_by(*value);
        for load in fold::changed(made).into_iter().flatten() {
            let life = &self.lives[load.index()];
            if matches!(life.state, State::Placed | State::Folded)
                && life.uses == 1
                && life.by != NONE
                && life.block == self.block
                && life.epoch == self.memory
                && fold::reads(self.made_by(load), *address, *ty)
            {
                self.lives[load.index()].state = State::Folded;
                self.lives[value.index()].state = State::Folded;
                return;
            }
        }
    }

    /// Decides how the users of an offset compute it.
    pub(super) fn offset(&mut self, base: Operand, shape: Option<Shape>, result: u32) {
        let life = &mut self.lives[result as usize];
        life.hint = NONE;
        let kinds = life.kinds;
        let (is_frame, depth) = match base {
            Operand::Value(base) => {
                let life = &self.lives[base.index()];
                (life.state == State::Frame, life.depth + 1)
            }
            Operand::Address(..) => (false, 0),
            _ => return,
        };
        if depth > fold::DEEP {
            return;
        }
        let state = match shape {
            Some(Shape::Constant) if is_frame => State::Frame,
            Some(Shape::Constant) if !kinds.has(Kinds::OTHER) => State::Folded,
            Some(Shape::Indexed)
                if !kinds.has(Kinds::OTHER | Kinds::INDEXED | Kinds::SPREAD)
                    && !self.is_indexed(base) =>
            {
                State::Folded
            }
            _ => return,
        };
        let life = &mut self.lives[result as usize];
        life.state = state;
        life.depth = depth;
    }

    /// Whether an address contains an index.
    fn is_indexed(&self, base: Operand) -> bool {
        let mut base = base;
        while let Operand::Value(value) = base {
            if self.lives[value.index()].state != State::Folded {
                return false;
            }
            match self.made_by(value) {
                Op::Offset {
                    base: under, terms, ..
                } => {
                    if !terms.is_empty() {
                        return true;
                    }
                    base = *under;
                }
                _ => return false,
            }
        }
        false
    }
}
