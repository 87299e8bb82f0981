//! The first pass: the uses of values, from the last instruction to the first, so that operands of
//! unused values are unused too.

use crate::ir::{
    Block, Callee, Function, Head, Instruction, Op, Operand, Ordering, Passing, Type, Value,
};

use super::effects;
use super::life::{Kinds, Life, State};
use super::order::{NONE, Order};

/// Kinds of instructions that a function has and uses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Has {
    /// Calls that may return twice.
    pub(crate) returns_twice: bool,
    /// An instruction that moves the stack pointer.
    pub(crate) moves_stack: bool,
    /// A list of variable arguments.
    pub(crate) starts_list: bool,
}

/// Fills in the uses of each value before the second pass, and returns the features of the
/// function.
pub(super) fn count(function: &Function, order: &Order, lives: &mut Vec<Life>) -> Has {
    lives.clear();
    lives.extend(function.types.iter().map(|&ty| Life::new(ty)));
    let mut uses = Uses {
        lives,
        block: NONE,
        has: Has::default(),
    };
    for block in &order.blocks {
        for (_, instruction) in function.of_block(*block) {
            let Op::Phi(_, incoming) = &instruction.op else {
                break;
            };
            for &(from, operand) in incoming {
                if order.place[from.index()] != NONE {
                    uses.add(operand, Kinds::OTHER | Kinds::SPREAD | Kinds::ESCAPES);
                }
            }
        }
    }
    for (place, block) in order.blocks.iter().enumerate().rev() {
        uses.block = place as u32;
        let mut number = order.start[place + 1];
        for (id, instruction) in function.of_block(*block).rev() {
            number -= 1;
            uses.define(id.0, number, instruction);
        }
    }
    let has = uses.has;
    if let Some(result) = function.result_parameter() {
        // Every return returns the parameter.
        let life = &mut lives[result.index()];
        life.uses = life.uses.saturating_add(2);
        life.kinds.add(Kinds::OTHER | Kinds::SPREAD);
    }
    for (life, parameter) in lives.iter_mut().zip(&function.parameters) {
        life.to = 1;
        if life.uses == 0 {
            life.state = State::Dead;
        } else if life.used_in != 0 {
            life.kinds.add(Kinds::SPREAD);
        }
        if let Passing::Memory { .. } = parameter.passing {
            life.state = State::Frame;
        }
    }
    has
}

/// The loop that may be left at this block, if there is one.
pub(crate) fn head_of(function: &Function, block: Block) -> Option<&Head> {
    let heads = &function.counting.heads;
    if heads.is_empty() {
        return None;
    }
    let at = heads.binary_search_by_key(&block, |head| head.block);
    at.ok().map(|at| &heads[at])
}

struct Uses<'a> {
    lives: &'a mut [Life],
    block: u32,
    has: Has,
}

impl Uses<'_> {
    /// Records an instruction and its results, after all their uses.
    fn define(&mut self, id: u32, number: u32, instruction: &Instruction) {
        let mut used = !effects::is_removable(&instruction.op);
        for result in instruction.results.clone() {
            let life = &mut self.lives[result as usize];
            life.by = id;
            life.block = self.block;
            life.from = number;
            life.to = number + 1;
            used |= life.uses != 0;
            if life.used_in != self.block && life.used_in != NONE {
                life.kinds.add(Kinds::SPREAD);
            }
        }
        if !used {
            for result in instruction.results.clone() {
                self.lives[result as usize].state = State::Dead;
            }
            return;
        }
        self.operands(&instruction.op);
    }

    fn operands(&mut self, op: &Op) {
        match op {
            Op::Phi(..) => {}
            Op::Load {
                address,
                ty,
                ordering,
                volatile,
                ..
            } => self.address(*address, *ty, *volatile || *ordering != Ordering::Plain),
            Op::Store {
                address,
                value,
                ty,
                ordering,
                volatile,
                ..
            } => {
                self.address(*address, *ty, *volatile || *ordering != Ordering::Plain);
                self.other(*value);
            }
            Op::Offset { base, terms, .. } => {
                let kind = if terms.is_empty() {
                    Kinds::BASE
                } else {
                    Kinds::INDEXED
                };
                self.add(*base, kind | Kinds::ESCAPES);
                for term in terms {
                    self.other(term.operand);
                }
            }
            Op::Call(call) | Op::Invoke(call) => {
                self.has.returns_twice |= call.returns_twice;
                if let Callee::Operand(operand) = call.callee {
                    self.other(operand);
                }
                for argument in &call.arguments {
                    self.other(argument.operand);
                }
            }
            Op::DynamicAlloca { count: one, .. } | Op::StackRestore(one) => {
                self.has.moves_stack = true;
                self.other(*one);
            }
            Op::VaStart(list) => {
                self.has.starts_list = true;
                self.other(*list);
            }
            op => op.operands(|operand| self.other(operand)),
        }
    }

    fn other(&mut self, operand: Operand) {
        self.add(operand, Kinds::OTHER | Kinds::ESCAPES);
    }

    /// Records an access to memory. The hint of an alloca holds the code of the first access's
    /// type; the field is unused until the second pass.
    fn address(&mut self, operand: Operand, ty: Type, is_strict: bool) {
        let Operand::Value(Value(value)) = operand else {
            return;
        };
        let life = &mut self.lives[value as usize];
        let code = code_of(ty);
        let kinds = if is_strict {
            Kinds::OTHER | Kinds::ESCAPES
        } else if life.hint != NONE && life.hint != code {
            Kinds::ADDRESS | Kinds::ESCAPES
        } else {
            Kinds::ADDRESS
        };
        life.hint = code;
        self.add(operand, kinds);
    }

    fn add(&mut self, operand: Operand, kinds: Kinds) {
        let Operand::Value(Value(value)) = operand else {
            return;
        };
        let life = &mut self.lives[value as usize];
        life.uses = life.uses.saturating_add(1);
        life.kinds.add(kinds);
        if life.used_in != self.block {
            if life.used_in != NONE {
                life.kinds.add(Kinds::SPREAD);
            }
            life.used_in = self.block;
        }
    }
}

/// A number for each type, not [`NONE`].
fn code_of(ty: Type) -> u32 {
    match ty {
        Type::Int(bits) => u32::from(bits),
        Type::F32 => 256,
        Type::F64 => 257,
        Type::F80 => 258,
        Type::V128 => 259,
        Type::V64 => 260,
    }
}

/// The type of a number that [`code_of`] gave.
pub(super) fn type_of(code: u32) -> Option<Type> {
    match code {
        256 => Some(Type::F32),
        257 => Some(Type::F64),
        258 => Some(Type::F80),
        259 => Some(Type::V128),
        260 => Some(Type::V64),
        NONE => None,
        bits => Some(Type::Int(bits as u8)),
    }
}
