//! Facts about a function, found before its code is emitted: the order of blocks, loops, folded
//! values, and live ranges of the others.
//!
//! | file | finds |
//! |---|---|
//! | `order` | the order of blocks, and loops |
//! | `effects` | which instructions call, write memory, may be left out: tables |
//! | `fold` | which operands an instruction makes itself: tables |
//! | `uses` | the uses of values (first pass, backward) |
//! | `variables` | which allocas become variables, and their live ranges |
//! | `takes` | which operands an instruction folds |
//! | `lives` | how each value is computed, and its live range (second pass, forward) |
//! | `at_hand` | which values stay in `rax` |
//! | `crossing` | which values can be read at the head of a loop |
//!
//! The analysis knows no registers, except those of arguments, as hints.

mod at_hand;
mod crossing;
pub(crate) mod effects;
pub(crate) mod fold;
mod life;
mod lives;
pub(crate) mod order;
mod takes;
mod uses;
mod variables;

use crate::ir::{Function, Operand, Value};

pub(crate) use crossing::Contents;
pub(crate) use life::{Life, NO_REGISTER, State};
pub(crate) use order::{NONE, Order};
pub(crate) use uses::{Has, head_of};

/// The results of the analysis of a function. Its buffers are reused for the next function.
#[derive(Debug, Default)]
pub(crate) struct Analysis {
    /// Blocks in order.
    pub(crate) order: Order,
    /// Values, and behind them variables.
    pub(crate) lives: Vec<Life>,
    /// Numbers of instructions that call something, rising.
    pub(crate) calls: Vec<u32>,
    /// Features of the function. If a call may return twice, no value is in a register, and no
    /// place is shared by two values.
    pub(crate) has: Has,
    /// Most bytes of stack that arguments of one call take.
    pub(crate) outgoing: u32,
    variables: variables::Variables,
}

impl Analysis {
    /// Analyzes a function.
    pub(crate) fn of(&mut self, function: &Function) {
        self.order.of(function);
        self.has = uses::count(function, &self.order, &mut self.lives);
        if self.has.returns_twice {
            self.variables.none(self.lives.len());
        } else {
            self.variables
                .choose(function, &self.order, &mut self.lives);
        }
        for life in &mut self.lives {
            life.hint = NONE;
        }
        self.outgoing = lives::Lives::new(
            function,
            &self.order,
            &mut self.lives,
            &mut self.variables,
            &mut self.calls,
        )
        .find();
    }

    /// The number whose place holds a value: a value or variable with a place, or a folded value. A
    /// value that became a variable maps to that variable.
    pub(crate) fn home(&self, value: Value) -> u32 {
        let mut home = value.0;
        loop {
            match self.lives[home as usize].state {
                State::Same(of) | State::Made(of) | State::Read(of) | State::Variable(of) => {
                    home = of;
                }
                _ => return home,
            }
        }
    }

    /// The variable that an address is of.
    pub(crate) fn variable(&self, address: Operand) -> Option<u32> {
        let Operand::Value(value) = address else {
            return None;
        };
        match self.lives[value.index()].state {
            State::Variable(variable) => Some(variable),
            _ => None,
        }
    }

    /// Whether the function makes a call while a value lives.
    pub(crate) fn crosses_calls(&self, life: &Life) -> bool {
        let after = self.calls.partition_point(|&call| call <= life.from);
        self.calls.get(after).is_some_and(|&call| call < life.to)
    }
}

#[cfg(test)]
mod tests;
