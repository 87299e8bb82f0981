//! What is known of a function before its code is made: the order of blocks, loops, which values
//! are made by those who use them, where the others live.
//!
//! | file | finds |
//! |---|---|
//! | `order` | the order of blocks, and loops |
//! | `effects` | which instructions call, write memory, may be left out: tables |
//! | `fold` | which operands an instruction makes itself: tables |
//! | `uses` | who uses what (first pass, backward) |
//! | `variables` | which allocas become variables, and where those live |
//! | `takes` | what an instruction makes itself |
//! | `lives` | how each value is made, and where it lives (second pass, forward) |
//! | `at_hand` | which values never leave `rax` |
//!
//! Nothing here knows registers, but for those that arguments are passed in, as hints.

mod at_hand;
pub(crate) mod effects;
pub(crate) mod fold;
mod life;
mod lives;
pub(crate) mod order;
mod takes;
mod uses;
mod variables;

use crate::ir::{Function, Operand, Value};

pub(crate) use life::{Life, NO_REGISTER, State};
pub(crate) use order::{NONE, Order};
pub(crate) use uses::{Has, head_of};

/// What is known of a function. Its buffers are kept from one function to the next.
#[derive(Debug, Default)]
pub(crate) struct Analysis {
    /// Blocks in order.
    pub(crate) order: Order,
    /// Values, and behind them variables.
    pub(crate) lives: Vec<Life>,
    /// Numbers of instructions that call something, rising.
    pub(crate) calls: Vec<u32>,
    /// What the function has. If a call may return twice, nothing is in registers, and no place
    /// is given to two values.
    pub(crate) has: Has,
    /// Bytes of stack that arguments of calls take, at most.
    pub(crate) outgoing: u32,
    variables: variables::Variables,
}

impl Analysis {
    /// Finds out what there is to know of a function.
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

    /// Whose place a value is in, by its number: it is a value or variable that has one, or a
    /// value that is made by those who use it. What became a variable is that.
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

    /// Whether something is called while a value lives.
    pub(crate) fn crosses_calls(&self, life: &Life) -> bool {
        let after = self.calls.partition_point(|&call| call <= life.from);
        self.calls.get(after).is_some_and(|&call| call < life.to)
    }
}

#[cfg(test)]
mod tests;
