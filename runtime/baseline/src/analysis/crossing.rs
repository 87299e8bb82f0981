//! Values that an OSR exit reads at the head of a loop.
//!
//! Exits are no part of the function: the analysis does not see them, so that code with and without
//! them is the same. An exit can only read what the function itself keeps there.

use crate::ir::{Block, Function, Op, Operand, Value};

use super::{Analysis, NONE, State};

/// How the contents of an alloca reach an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    /// They can be read.
    Kept,
    /// They are written before they are read again, or never read.
    Unused,
    /// They cannot be read.
    Lost,
}

impl Analysis {
    /// The number of the first instruction behind the phis of a block: an exit at its head reads
    /// values before it. `None` for a block that is not reached, and for a landing pad, whose first
    /// instruction comes before the exit.
    pub(crate) fn number_of_head(&self, function: &Function, block: Block) -> Option<u32> {
        let place = self.order.place[block.index()];
        if place == NONE {
            return None;
        }
        let mut number = self.order.start[place as usize];
        for (_, instruction) in function.of_block(block) {
            match instruction.op {
                Op::Phi(..) => number += 1,
                Op::LandingPad { .. } => return None,
                _ => return Some(number),
            }
        }
        None
    }

    /// Whether an operand can be read at the head with that number.
    pub(crate) fn reaches(&self, function: &Function, operand: Operand, number: u32) -> bool {
        let Operand::Value(Value(mut value)) = operand else {
            return true;
        };
        loop {
            let life = &self.lives[value as usize];
            match life.state {
                // Values in `rax` do not outlive a few instructions of their block.
                State::Placed => {
                    let is_before = life.from < number || life.by == NONE;
                    return is_before && number <= life.to && !self.is_at_hand(function, value);
                }
                State::Frame => return true,
                State::Same(of) => value = of,
                // Loads of variables are valid up to a store in their block.
                State::Dead | State::Variable(_) | State::Read(_) | State::Made(_) => return false,
                State::Folded => {
                    let op = &function.instructions[life.by as usize].op;
                    let mut all = matches!(op, Op::Offset { .. });
                    op.operands(|operand| all &= self.reaches(function, operand, number));
                    return all;
                }
            }
        }
    }

    /// Whether the function computes an operand for no use: there is nothing to read.
    pub(crate) fn is_unread(&self, operand: Operand) -> bool {
        let Operand::Value(Value(mut value)) = operand else {
            return false;
        };
        while let State::Same(of) = self.lives[value as usize].state {
            value = of;
        }
        self.lives[value as usize].state == State::Dead
    }

    /// How the contents of an alloca can be read at the head with that number.
    pub(crate) fn contents(&self, operand: Operand, number: u32) -> Contents {
        let Operand::Value(value) = operand else {
            return Contents::Lost;
        };
        match self.lives[value.index()].state {
            State::Frame => Contents::Kept,
            State::Dead => Contents::Unused,
            State::Variable(variable) => {
                let life = &self.lives[variable as usize];
                match life.state {
                    State::Placed if life.from <= number && number <= life.to => Contents::Kept,
                    // Where a variable is read before it is written, its live range covers the head.
                    _ => Contents::Unused,
                }
            }
            _ => Contents::Lost,
        }
    }
}
