//! Values that stay in `rax` between the instruction that defines them and the next one, which uses
//! them. Calls and divisions leave their results in `rax`, and returned values are needed there.
//!
//! The pass checks that no instruction between the two emits code. The user takes the value as its
//! first operand, which it reads before it writes `rax` (`emit/operands.rs`).

use crate::ir::{Function, IntOp, Op, Operand, Ordering, Type, Value};

use super::{Analysis, Life, NONE, State};

/// The most instructions in between, all of which emit no code.
const NEAR: u32 = 3;

impl Analysis {
    /// Whether a value with a place is to be in `rax`.
    pub(crate) fn is_at_hand(&self, function: &Function, value: u32) -> bool {
        let life = &self.lives[value as usize];
        let far = life.to - life.from;
        if life.uses != 1 || life.by == NONE || far > NEAR || self.has.returns_twice {
            return false;
        }
        let Type::Int(_) = life.ty else {
            return false;
        };
        let block = self.order.blocks[life.block as usize];
        let last = life.by + far;
        if last >= function.blocks[block.index()].instructions.end
            || !(life.by + 1..last).all(|at| self.is_nowhere(function, at))
        {
            return false;
        }
        let made = &function.instructions[life.by as usize];
        let used = &function.instructions[last as usize].op;
        if matches!(made.op, Op::Phi(..)) || made.results.len() != 1 {
            return false;
        }
        match used {
            Op::Return(list) => list.len() == 1 && function.result_parameter().is_none(),
            _ => is_made_there(&made.op) && self.takes(function, used, value),
        }
    }

    /// Whether an instruction emits nothing.
    fn is_nowhere(&self, function: &Function, at: u32) -> bool {
        let results = function.instructions[at as usize].results.clone();
        let mut lives = results.clone().map(|result| &self.lives[result as usize]);
        !results.is_empty()
            && lives.all(|life: &Life| matches!(life.state, State::Folded | State::Read(_)))
    }

    /// Whether an instruction has a value as its first operand, or as the first operand of a
    /// comparison folded into it.
    fn takes(&self, function: &Function, op: &Op, value: u32) -> bool {
        let is = |operand: Operand| matches!(operand, Operand::Value(v) if self.home(v) == value);
        match op {
            Op::Int(
                IntOp::Add
                | IntOp::Sub
                | IntOp::And
                | IntOp::Or
                | IntOp::Xor
                | IntOp::SDiv
                | IntOp::UDiv
                | IntOp::SRem
                | IntOp::URem,
                _,
                [a, _],
            )
            | Op::Compare(_, _, [a, _]) => is(*a),
            Op::Store {
                value,
                address,
                ordering: Ordering::Plain,
                ..
            } => is(*value) && !is(*address),
            Op::Branch(Operand::Value(bit)) => self.takes_folded(function, *bit, value),
            _ => false,
        }
    }

    fn takes_folded(&self, function: &Function, bit: Value, value: u32) -> bool {
        let life = &self.lives[self.home(bit) as usize];
        life.state == State::Folded
            && matches!(
                function.instructions[life.by as usize].op,
                Op::Compare(_, _, [Operand::Value(a), _]) if self.home(a) == value
            )
    }
}

/// Whether the result of an instruction is in `rax` in any case.
fn is_made_there(op: &Op) -> bool {
    match op {
        Op::Call(call) => matches!(call.returns.first(), Some(first) if first.ty.is_int()),
        Op::Int(IntOp::SDiv | IntOp::UDiv, ..) => true,
        _ => false,
    }
}
