//! The second pass: how each value is computed, and its live range.
//!
//! It walks forward, so decisions about a value are known at its uses. A later use may revoke a
//! decision: a load that was to be folded into its user gets a place of its own when memory was
//! written in between. That costs nothing, because no code has been emitted yet. The operands then
//! seem to live a little longer than they do, which is harmless.

use crate::abi::{self, ArgumentPlace};
use crate::ir::{Argument, Block, Callee, Cast, Function, Op, Operand, Type, Value};

use super::effects;
use super::fold;
use super::life::{Kinds, Life, NO_REGISTER, State};
use super::order::{NONE, Order};
use super::variables::Variables;

/// The pass.
pub(super) struct Lives<'a> {
    pub(super) function: &'a Function,
    pub(super) order: &'a Order,
    pub(super) lives: &'a mut Vec<Life>,
    pub(super) variables: &'a mut Variables,
    /// Numbers of instructions that call something.
    pub(super) calls: &'a mut Vec<u32>,
    /// The place of the block, the number of the instruction, and the weight of a use there.
    pub(super) block: u32,
    number: u32,
    weight: u32,
    /// Most bytes of stack that arguments of one call take.
    outgoing: u32,
    /// The hidden pointer to the result, which every return returns, if there is one.
    result: Option<Value>,
    /// Number of writes to memory up to here.
    pub(super) memory: u32,
    /// Whether all blocks were walked, and only phis remain.
    is_done: bool,
}

impl<'a> Lives<'a> {
    pub(super) fn new(
        function: &'a Function,
        order: &'a Order,
        lives: &'a mut Vec<Life>,
        variables: &'a mut Variables,
        calls: &'a mut Vec<u32>,
    ) -> Lives<'a> {
        calls.clear();
        Lives {
            function,
            order,
            lives,
            variables,
            calls,
            block: 0,
            number: 0,
            weight: 1,
            outgoing: 0,
            result: function.result_parameter(),
            memory: 0,
            is_done: false,
        }
    }

    /// Walks the function; returns the most bytes of stack that arguments of one call take.
    pub(super) fn find(mut self) -> u32 {
        let (function, order) = (self.function, self.order);
        self.parameters();
        for (place, block) in order.blocks.iter().enumerate() {
            self.at_block(place as u32);
            self.number = order.start[place];
            for (_, instruction) in function.of_block(*block) {
                let results = instruction.results.clone();
                if let Op::Phi(..) = instruction.op {
                    self.start_of_phi(results.start, order.start[place]);
                } else if results.is_empty()
                    || self.lives[results.start as usize].state != State::Dead
                {
                    self.instruction(&instruction.op, results.start);
                }
                self.number += 1;
            }
        }
        self.is_done = true;
        for (place, block) in order.blocks.iter().enumerate() {
            for (_, instruction) in function.of_block(*block) {
                let Op::Phi(_, incoming) = &instruction.op else {
                    break;
                };
                let phi = instruction.results.start;
                if self.lives[phi as usize].state != State::Dead {
                    self.phi(place as u32, phi, incoming);
                }
            }
        }
        self.variables.finish(function, order, self.lives);
        self.outgoing
    }

    /// Parameters prefer the registers in which they arrive.
    fn parameters(&mut self) {
        let mut places = abi::Arguments::default();
        for (life, parameter) in self.lives.iter_mut().zip(&self.function.parameters) {
            life.register = match places.next(parameter.ty, parameter.passing) {
                ArgumentPlace::Gpr(register) => register.number(),
                ArgumentPlace::Xmm(register) => register.number(),
                _ => NO_REGISTER,
            };
        }
    }

    fn at_block(&mut self, place: u32) {
        self.block = place;
        self.weight = weight_of(self.order.depth[place as usize]);
    }

    /// All phis of a block are written before its first instruction.
    fn start_of_phi(&mut self, phi: u32, number: u32) {
        let life = &mut self.lives[phi as usize];
        life.from = number;
        life.to = number + 1;
        life.hint = NONE;
    }

    fn instruction(&mut self, op: &Op, result: u32) {
        match op {
            Op::Alloca { align, .. } => {
                let life = &mut self.lives[result as usize];
                if life.state == State::Placed && *align <= 16 {
                    life.state = State::Frame;
                }
                return;
            }
            Op::Load { address, .. } => self.load(*address, result),
            Op::Store { address, value, .. } => {
                self.change(op);
                self.store(*address, *value);
            }
            Op::Memory(_, operands, _) => {
                operands.iter().for_each(|&operand| self.operand(operand));
                self.welcome(operands[0], 7);
                self.welcome(operands[1], 6);
            }
            Op::Offset { base, terms, bytes } => {
                self.offset(*base, fold::shape(terms, *bytes), result);
                if self.lives[result as usize].state != State::Placed {
                    return;
                }
                self.operands(op, result);
            }
            Op::Cast(Cast::Trunc, Type::Int(_), Type::Int(_), Operand::Value(from))
                if self.lives[from.index()].state != State::Frame =>
            {
                self.lives[result as usize].state = State::Same(from.0);
                return;
            }
            Op::Call(call) | Op::Invoke(call) => {
                if let Callee::Operand(operand) = call.callee {
                    self.operand(operand);
                }
                self.arguments(&call.arguments);
            }
            Op::Return(list) => {
                list.iter().for_each(|&operand| self.operand(operand));
                if let Some(result) = self.result {
                    self.operand(Operand::Value(result));
                }
            }
            op => {
                self.fold(op);
                self.operands(op, result);
            }
        }
        if effects::writes(op)
            && !matches!(op, Op::Store { address, .. } if self.variable(*address).is_some())
        {
            self.memory += 1;
        }
        if effects::calls(op) {
            self.calls.push(self.number);
        }
    }

    /// Uses all operands; the place of the first is preferred for the result.
    fn operands(&mut self, op: &Op, result: u32) {
        let mut skip = u32::from(matches!(op, Op::Select(..)));
        op.operands(|operand| {
            self.operand(operand);
            if skip > 0 {
                skip -= 1;
            } else if let Operand::Value(Value(value)) = operand
                && let Some(life) = self.lives.get(result as usize)
                && life.hint == NONE
            {
                let home = self.home(value);
                self.lives[result as usize].hint = home;
            }
        });
    }

    fn load(&mut self, address: Operand, result: u32) {
        let Some(variable) = self.variable(address) else {
            self.operand(address);
            let life = &mut self.lives[result as usize];
            life.epoch = self.memory;
            life.hint = NONE;
            return;
        };
        let number = self.number;
        let life = &mut self.lives[variable as usize];
        let epoch = life.epoch;
        // The load may be emitted here after all: until then no other value is made in the variable's
        // place.
        life.touched = life.touched.max(number);
        self.variables.read(variable, self.block);
        let life = &mut self.lives[result as usize];
        life.epoch = epoch;
        life.hint = NONE;
        if life.kinds.has(Kinds::SPREAD) {
            life.hint = variable;
            self.read(variable);
        } else {
            life.state = State::Read(variable);
        }
    }

    /// A store into memory or into a variable. If the variable is not accessed between the
    /// definition of the value and the store, the value is computed in the variable's place.
    fn store(&mut self, address: Operand, value: Operand) {
        let Some(variable) = self.variable(address) else {
            self.operand(address);
            self.operand(value);
            return;
        };
        let mut from = self.number;
        if let Operand::Value(value) = value
            && self.is_made_for(value, variable)
        {
            let epoch = self.lives[variable as usize].epoch + 1;
            let life = &mut self.lives[value.index()];
            life.state = State::Made(variable);
            life.epoch = epoch;
            from = life.from;
            let register = life.register;
            let hint = life.hint;
            let life = &mut self.lives[variable as usize];
            if life.register == NO_REGISTER {
                life.register = register;
            }
            if life.hint == NONE && hint != variable {
                life.hint = hint;
            }
        } else {
            self.operand(value);
        }
        self.variables.write(variable, self.block);
        let weight = self.weight;
        let number = self.number;
        let life = &mut self.lives[variable as usize];
        life.epoch += 1;
        life.touched = number;
        life.weight = life.weight.saturating_add(weight);
        life.from = life.from.min(from);
        life.to = life.to.max(number + 1);
    }

    fn is_made_for(&self, value: Value, variable: u32) -> bool {
        let life = &self.lives[value.index()];
        life.state == State::Placed
            && !life.kinds.has(Kinds::SPREAD)
            && life.block == self.block
            && self.lives[variable as usize].touched <= life.from
            && !(life.by == NONE && self.block != 0)
            && (life.by == NONE || !matches!(self.made_by(value), Op::Phi(..)))
    }

    /// Uses arguments; they prefer the registers in which they are passed.
    fn arguments(&mut self, arguments: &[Argument]) {
        let mut places = abi::Arguments::default();
        for argument in arguments {
            let place = places.next(argument.ty, argument.passing);
            self.operand(argument.operand);
            let register = match place {
                ArgumentPlace::Gpr(register) => register.number(),
                ArgumentPlace::Xmm(register) => register.number(),
                _ => continue,
            };
            self.welcome(argument.operand, register);
        }
        self.outgoing = self.outgoing.max(places.taken().stack);
    }

    /// Sets the preferred register of an operand, unless it has one.
    fn welcome(&mut self, operand: Operand, register: u8) {
        if let Operand::Value(Value(value)) = operand {
            let home = self.home(value);
            let life = &mut self.lives[home as usize];
            if life.register == NO_REGISTER {
                life.register = register;
            }
        }
    }

    /// Phis are read at the end of the edge's source: behind a call that ends the block, if there
    /// is one.
    fn phi(&mut self, place: u32, phi: u32, incoming: &[(Block, Operand)]) {
        for &(from, operand) in incoming {
            let before = self.order.place[from.index()];
            if before == NONE {
                continue;
            }
            self.at_block(before);
            self.number = self.order.start[before as usize + 1] - 1;
            let last = &self.function.blocks[from.index()].instructions;
            match self.function.instructions[last.end as usize - 1].op {
                Op::Invoke(_) => self.number += 1,
                // All phis of its targets are written before the jump, whichever target it takes.
                Op::IndirectJump(_) => {
                    let life = &mut self.lives[phi as usize];
                    life.from = life.from.min(self.number);
                    life.to = life
                        .to
                        .max(self.order.start[place as usize])
                        .max(self.number + 1);
                }
                _ => {}
            }
            let weight = self.weight;
            let life = &mut self.lives[phi as usize];
            life.weight = life.weight.saturating_add(weight);
            let Operand::Value(Value(value)) = operand else {
                continue;
            };
            self.operand(operand);
            let home = self.home(value);
            if home == phi {
                continue;
            }
            if self.lives[home as usize].hint == NONE {
                self.lives[home as usize].hint = phi;
            }
            if self.lives[phi as usize].hint == NONE {
                self.lives[phi as usize].hint = home;
            }
        }
    }

    /// The number of the variable that an address is of.
    pub(super) fn variable(&self, address: Operand) -> Option<u32> {
        match address {
            Operand::Value(value) => match self.lives[value.index()].state {
                State::Variable(variable) => Some(variable),
                _ => None,
            },
            _ => None,
        }
    }

    /// Records that a variable is read here.
    fn read(&mut self, variable: u32) {
        self.variables.read(variable, self.block);
        let life = &mut self.lives[variable as usize];
        life.weight = life.weight.saturating_add(self.weight);
        life.touched = life.touched.max(self.number);
        life.from = life.from.min(self.number);
        life.to = life.to.max(self.number);
    }

    fn operand(&mut self, operand: Operand) {
        if let Operand::Value(Value(value)) = operand {
            self.value(value);
        }
    }

    /// Records that a value is used here, in any state.
    fn value(&mut self, mut value: u32) {
        loop {
            let life = &self.lives[value as usize];
            match life.state {
                State::Placed => return self.extend(value),
                State::Same(of) => value = of,
                State::Frame | State::Dead | State::Variable(_) => return,
                State::Read(variable) | State::Made(variable) => {
                    if !self.is_done
                        && life.block == self.block
                        && life.epoch == self.lives[variable as usize].epoch
                    {
                        return self.read(variable);
                    }
                    if let State::Made(_) = life.state {
                        self.lives[value as usize].state = State::Placed;
                        continue;
                    }
                    // The load is emitted at its own position.
                    let number = life.from;
                    let block = life.block;
                    let weight = weight_of(self.order.depth[block as usize]);
                    self.lives[value as usize].state = State::Placed;
                    self.lives[value as usize].hint = variable;
                    let life = &mut self.lives[variable as usize];
                    life.weight = life.weight.saturating_add(weight);
                    life.to = life.to.max(number);
                    life.from = life.from.min(number);
                }
                State::Folded => {
                    let function = self.function;
                    let op = &function.instructions[life.by as usize].op;
                    if matches!(op, Op::Load { .. }) && life.epoch != self.memory {
                        self.lives[value as usize].state = State::Placed;
                        continue;
                    }
                    op.operands(|operand| self.operand(operand));
                    return;
                }
            }
        }
    }

    /// Extends the live range of a value or variable with a place to this use.
    fn extend(&mut self, value: u32) {
        let life = &mut self.lives[value as usize];
        life.weight = life.weight.saturating_add(self.weight);
        let mut to = self.number;
        if life.block != self.block
            && let Some(last) = self.order.lives_until(life.block, self.block)
        {
            to = to.max(self.order.start[last as usize + 1]);
        }
        life.to = life.to.max(to);
    }

    /// The number whose place holds a value: its own if it has a place, or is folded.
    fn home(&self, mut value: u32) -> u32 {
        loop {
            match self.lives[value as usize].state {
                State::Same(of) | State::Made(of) | State::Read(of) => value = of,
                _ => return value,
            }
        }
    }
}

/// The weight of a use at this loop depth.
fn weight_of(depth: u8) -> u32 {
    1 << (3 * depth.min(8))
}
