//! Checks the requirements on a function (see [`uruk_baseline::ir`]).
//!
//! It checks the ranges of blocks and values, terminators and their successors, phis against edges,
//! the types of operands, and that definitions dominate uses. The last holds trivially in
//! unreachable blocks, which everything dominates.

use super::dominance::Dominance;
use super::{
    Block, Call, Callee, Cast, Function, Instruction, InstructionId, Op, Operand, Tail, Type, Value,
};

/// A requirement that a function violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("instruction {at} of block {block}: {what}")]
pub struct Broken {
    /// The block's number.
    pub block: u32,
    /// The instruction's number in the function.
    pub at: u32,
    /// The violated requirement.
    pub what: &'static str,
}

type Checked = Result<(), &'static str>;

const BIT: Type = Type::Int(1);
const WORD: Type = Type::PTR;

/// Checks a function.
///
/// # Errors
/// The first violated requirement.
pub fn check(function: &Function) -> Result<(), Broken> {
    let whole = |what| Broken {
        block: 0,
        at: 0,
        what,
    };
    shape(function).map_err(whole)?;
    let dominance = Dominance::of(function);
    let defined = definitions(function);
    for index in 0..function.blocks.len() as u32 {
        let block = Block(index);
        for (id, instruction) in function.of_block(block) {
            let one = One {
                function,
                dominance: &dominance,
                defined: &defined,
                block,
                id,
            };
            one.check(instruction).map_err(|what| Broken {
                block: index,
                at: id.0,
                what,
            })?;
        }
    }
    Ok(())
}

/// Checks ranges: blocks are contiguous, and so are values.
fn shape(function: &Function) -> Checked {
    let entry = function.blocks.first().ok_or("no blocks")?;
    let mut next = 0;
    for block in &function.blocks {
        need(block.instructions.start == next, "a gap between blocks")?;
        need(block.instructions.end > next, "an empty block")?;
        next = block.instructions.end;
        for &to in &block.successors {
            need(to.index() < function.blocks.len(), "no such successor")?;
            need(to.0 != 0, "the entry has a predecessor")?;
        }
    }
    need(entry.instructions.start == 0, "no entry")?;
    need(
        next as usize == function.instructions.len(),
        "instructions without a block",
    )?;
    let mut next = function.parameters.len();
    need(function.types.len() >= next, "parameters without types")?;
    for (parameter, &ty) in function.parameters.iter().zip(&function.types) {
        need(parameter.ty == ty, "a parameter of another type")?;
    }
    for instruction in &function.instructions {
        let results = instruction.results.clone();
        need(
            results.is_empty() || results.start as usize == next,
            "a gap between results",
        )?;
        need(
            results.end as usize <= function.types.len(),
            "results without types",
        )?;
        let types = instruction.op.results();
        let may_lack = matches!(instruction.op, Op::Call(_) | Op::Invoke(_));
        need(
            types.len() == results.len() || may_lack && results.is_empty(),
            "another number of results",
        )?;
        for (value, ty) in results.clone().zip(types) {
            need(
                function.types[value as usize] == ty,
                "a result of another type",
            )?;
        }
        next += results.len();
    }
    need(next == function.types.len(), "types without values")?;
    let symbols = function.symbols.len();
    let counting = &function.counting;
    let named = [function.personality, counting.counters, counting.loops];
    for symbol in named.into_iter().flatten() {
        need(symbol.index() < symbols, "no such symbol")?;
    }
    Ok(())
}

/// The definition of each value: `None` for parameters.
fn definitions(function: &Function) -> Vec<Option<(Block, InstructionId)>> {
    let mut all = vec![None; function.types.len()];
    for index in 0..function.blocks.len() as u32 {
        for (id, instruction) in function.of_block(Block(index)) {
            for result in instruction.results.clone() {
                all[result as usize] = Some((Block(index), id));
            }
        }
    }
    all
}

/// Checks that a type is an integer of up to 64 bits.
fn int(ty: Type) -> Checked {
    match ty {
        Type::Int(1..=64) => Ok(()),
        _ => Err("no integer"),
    }
}

fn alignment(align: u32) -> Checked {
    need(
        align.is_power_of_two(),
        "an alignment that is no power of 2",
    )
}

fn need(is: bool, what: &'static str) -> Checked {
    is.then_some(()).ok_or(what)
}

/// The instruction being checked.
struct One<'a> {
    function: &'a Function,
    dominance: &'a Dominance,
    defined: &'a [Option<(Block, InstructionId)>],
    block: Block,
    id: InstructionId,
}

impl One<'_> {
    fn check(&self, instruction: &Instruction) -> Checked {
        let range = &self.function.blocks[self.block.index()].instructions;
        let is_last = self.id.0 + 1 == range.end;
        let op = &instruction.op;
        // Code after a trap is not emitted, so the block needs no other end.
        let may_end = op.is_terminator() || *op == Op::Trap;
        need(!is_last || may_end, "a block without a terminator")?;
        need(
            is_last || !op.is_terminator(),
            "a terminator within a block",
        )?;
        if let Op::Phi(ty, incoming) = op {
            return self.phi(*ty, incoming);
        }
        if matches!(op, Op::LandingPad { .. }) {
            self.lands()?;
        }
        self.uses(op)?;
        self.types(op)?;
        self.successors(op)
    }

    /// Whether a value is defined when this instruction runs.
    fn is_there(&self, value: Value) -> Checked {
        let defined = self.defined.get(value.index()).ok_or("no such value")?;
        let Some((block, id)) = *defined else {
            return Ok(());
        };
        if !self.dominance.is_reached(self.block) {
            return Ok(());
        }
        let before = match block == self.block {
            true => id < self.id,
            false => self.dominance.dominates(block, self.block),
        };
        need(before, "a use that its definition does not dominate")?;
        self.not_of_invoke(block, id, self.block)
    }

    /// The result of an invoke is defined only on its normal edge.
    fn not_of_invoke(&self, block: Block, id: InstructionId, used: Block) -> Checked {
        let instruction = &self.function.instructions[id.0 as usize];
        if !matches!(instruction.op, Op::Invoke(_)) {
            return Ok(());
        }
        let normal = self.function.blocks[block.index()].successors.first();
        let is = normal.is_some_and(|&normal| self.dominance.dominates(normal, used));
        need(is, "a result of an invoke where it threw")
    }

    /// Only exception edges lead to a landing pad.
    fn lands(&self) -> Checked {
        need(self.block.0 != 0, "a landing pad at the entry")?;
        let function = self.function;
        let mut edges = function.blocks.iter().flat_map(|block| {
            let last = function
                .instructions
                .get(block.instructions.end as usize - 1);
            let throws = last.is_some_and(|last| matches!(last.op, Op::Invoke(_)));
            let ways = block.successors.iter().enumerate();
            ways.map(move |(nth, &to)| (to, throws && nth == 1))
        });
        let is = edges.all(|(to, throws)| to != self.block || throws);
        need(is, "a landing pad that something else leads to")
    }

    fn uses(&self, op: &Op) -> Checked {
        let mut first = Ok(());
        op.operands(|operand| {
            let one = match operand {
                Operand::Value(value) => self.is_there(value),
                other => self.constant(other),
            };
            first = first.and(one);
        });
        first
    }

    fn constant(&self, operand: Operand) -> Checked {
        match operand {
            Operand::Address(symbol, _) => need(
                symbol.index() < self.function.symbols.len(),
                "no such symbol",
            ),
            Operand::Wide(index) => need(
                (index as usize) < self.function.wide.len(),
                "no such wide constant",
            ),
            Operand::Label(block) => {
                need(block.index() < self.function.blocks.len(), "no such block")
            }
            _ => Ok(()),
        }
    }

    fn phi(&self, ty: Type, incoming: &[(Block, Operand)]) -> Checked {
        let range = &self.function.blocks[self.block.index()].instructions;
        let before = range.start as usize..self.id.0 as usize;
        let first = self.function.instructions[before]
            .iter()
            .all(|one| matches!(one.op, Op::Phi(..)));
        need(first, "a phi behind something else")?;
        let mut edges = Vec::new();
        for (index, block) in self.function.blocks.iter().enumerate() {
            let times = block.successors.iter().filter(|&&to| to == self.block);
            edges.extend(times.map(|_| Block(index as u32)));
        }
        let named = incoming.iter().map(|&(block, _)| block);
        need(
            edges.iter().copied().eq(named),
            "a phi that has another number of edges",
        )?;
        for &(from, operand) in incoming {
            self.of_type(operand, ty)?;
            self.constant(operand)?;
            let Operand::Value(value) = operand else {
                continue;
            };
            let Some((block, id)) = self.defined[value.index()] else {
                continue;
            };
            let reached = self.dominance.is_reached(from);
            let there = !reached || self.dominance.dominates(block, from);
            need(
                there,
                "a phi's operand that is not there at the end of its edge",
            )?;
            if matches!(self.function.instructions[id.0 as usize].op, Op::Invoke(_))
                && block == from
                && reached
            {
                let normal = self.function.blocks[from.index()].successors.first();
                need(
                    normal == Some(&self.block),
                    "a result of an invoke where it threw",
                )?;
            }
        }
        Ok(())
    }

    fn of_type(&self, operand: Operand, ty: Type) -> Checked {
        match operand {
            Operand::Value(value) => {
                let its = self.function.types.get(value.index());
                need(its == Some(&ty), "an operand of another type")
            }
            Operand::Int(bits) => match ty {
                Type::Int(64) => Ok(()),
                Type::Int(width) => need(bits >> width == 0, "a constant with bits above"),
                _ => Err("an integer for something else"),
            },
            Operand::Float(bits) => match ty {
                Type::F32 => need(bits >> 32 == 0, "a constant with bits above"),
                Type::F64 => Ok(()),
                _ => Err("a floating-point number for something else"),
            },
            Operand::Wide(_) => need(
                matches!(ty, Type::F80 | Type::V128 | Type::V64),
                "16 bytes for something else",
            ),
            Operand::Address(..) | Operand::Label(_) => {
                need(ty == Type::PTR, "an address for something else")
            }
            Operand::Undef => Ok(()),
        }
    }

    fn all(&self, list: &[Operand], ty: Type) -> Checked {
        list.iter().try_for_each(|&one| self.of_type(one, ty))
    }

    /// Checks the types of operands.
    fn types(&self, op: &Op) -> Checked {
        match op {
            Op::Int(_, ty, list) | Op::Overflow(_, ty, list) | Op::Compare(_, ty, list) => {
                int(*ty).and(self.all(list, *ty))
            }
            Op::Bits(_, ty, one) => int(*ty).and(self.of_type(*one, *ty)),
            Op::Funnel(_, ty, list) => int(*ty).and(self.all(list, *ty)),
            Op::Wide(_, list) => {
                need(matches!(list.len(), 3 | 4), "another number of halves")?;
                self.all(list, WORD)
            }
            Op::WideCompare(_, list) => self.all(list, WORD),
            Op::Float(_, ty, list) | Op::FloatCompare(_, ty, list) => self.all(list, *ty),
            Op::FloatUnary(_, ty, one) => self.of_type(*one, *ty),
            Op::Fma(ty, list) => self.all(list, *ty),
            Op::Cast(cast, from, to, one) => {
                cast_types(*cast, *from, *to).and(self.of_type(*one, *from))
            }
            Op::Select(ty, [bit, list @ ..]) => self.of_type(*bit, BIT).and(self.all(list, *ty)),
            op => self.memory_types(op),
        }
    }

    /// Checks the operands of operations on memory and the frame, and those that other operations
    /// have.
    fn memory_types(&self, op: &Op) -> Checked {
        match op {
            Op::Load {
                address,
                align: its,
                ..
            } => alignment(*its).and(self.of_type(*address, WORD)),
            Op::Store {
                ty,
                address,
                value,
                align: its,
                ..
            } => {
                alignment(*its)?;
                self.of_type(*address, WORD).and(self.of_type(*value, *ty))
            }
            Op::Offset { base, terms, .. } => {
                self.of_type(*base, WORD)?;
                terms.iter().try_for_each(|term| {
                    int(Type::Int(term.bits)).and(self.of_type(term.operand, Type::Int(term.bits)))
                })
            }
            Op::Alloca { align: its, .. } => {
                need(self.block.0 == 0, "an alloca outside of the entry")?;
                alignment(*its)
            }
            Op::DynamicAlloca {
                count, align: its, ..
            } => alignment(*its).and(self.of_type(*count, WORD)),
            Op::Memory(op, [to, from, length], _) => {
                let byte = *op == super::MemoryOp::Set;
                self.of_type(*from, if byte { Type::Int(8) } else { WORD })?;
                self.all(&[*to, *length], WORD)
            }
            Op::Rmw {
                ty, address, value, ..
            } => self.of_type(*address, WORD).and(self.of_type(*value, *ty)),
            Op::CompareExchange {
                ty,
                address,
                expected,
                value,
            } => {
                self.of_type(*address, WORD)?;
                self.all(&[*expected, *value], *ty)
            }
            Op::StackRestore(one) | Op::VaStart(one) | Op::VaArg(_, one) | Op::Prefetch(one) => {
                self.of_type(*one, WORD)
            }
            Op::StoreControl(one) | Op::LoadControl(one) => self.of_type(*one, WORD),
            Op::VaCopy(list) => self.all(list, WORD),
            op => self.control_types(op),
        }
    }

    /// Checks the operands of calls and of operations that end blocks.
    fn control_types(&self, op: &Op) -> Checked {
        match op {
            Op::Call(call) | Op::Invoke(call) => self.call(call),
            Op::Return(list) => {
                let returns = &self.function.returns;
                need(
                    list.len() == returns.len(),
                    "another number of returned scalars",
                )?;
                let mut pairs = list.iter().zip(returns);
                pairs.try_for_each(|(&one, its)| self.of_type(one, its.ty))
            }
            Op::Branch(one) => self.of_type(*one, BIT),
            Op::Switch(ty, one, values) => {
                int(*ty).and(self.of_type(*one, *ty))?;
                values
                    .iter()
                    .try_for_each(|&value| self.of_type(Operand::Int(value), *ty))
            }
            Op::IndirectJump(one) | Op::Dispatch(one, _) => self.of_type(*one, WORD),
            Op::Resume([object, selector]) => {
                self.of_type(*object, WORD)?;
                self.of_type(*selector, Type::Int(32))
            }
            _ => Ok(()),
        }
    }

    fn call(&self, call: &Call) -> Checked {
        match call.callee {
            Callee::Symbol(symbol) => {
                need(
                    symbol.index() < self.function.symbols.len(),
                    "no such symbol",
                )?;
            }
            Callee::Operand(operand) => self.of_type(operand, WORD)?,
        }
        if call.tail == Tail::Must {
            let next = self.function.instructions.get(self.id.0 as usize + 1);
            let is = next.is_some_and(|next| matches!(next.op, Op::Return(_)));
            need(is, "a tail call without a return behind it")?;
        }
        let mut all = call.arguments.iter();
        all.try_for_each(|argument| self.of_type(argument.operand, argument.ty))
    }

    /// Checks the number of a terminator's successors.
    fn successors(&self, op: &Op) -> Checked {
        let count = self.function.blocks[self.block.index()].successors.len();
        let is = match op {
            Op::Jump => count == 1,
            Op::Branch(_) | Op::Invoke(_) => count == 2,
            Op::Switch(_, _, values) => count == values.len() + 1,
            Op::Dispatch(_, values) => count == values.len() && count > 0,
            Op::IndirectJump(_) => true,
            op if op.is_terminator() || *op == Op::Trap => count == 0,
            _ => true,
        };
        need(is || *op == Op::Trap, "another number of successors")
    }
}

/// Checks the types of a conversion.
fn cast_types(cast: Cast, from: Type, to: Type) -> Checked {
    let bits = |ty: Type| match ty {
        Type::Int(bits) => u32::from(bits),
        other => other.bytes() * 8,
    };
    let is_float = |ty: Type| matches!(ty, Type::F32 | Type::F64 | Type::F80);
    let is = match cast {
        Cast::Trunc => from.is_int() && to.is_int() && bits(from) > bits(to),
        Cast::ZExt | Cast::SExt => from.is_int() && to.is_int() && bits(from) < bits(to),
        Cast::FpTrunc => is_float(from) && is_float(to) && bits(from) > bits(to),
        Cast::FpExt => is_float(from) && is_float(to) && bits(from) < bits(to),
        Cast::FpToUi | Cast::FpToSi | Cast::FpToSiSat | Cast::FpToUiSat => {
            is_float(from) && to.is_int()
        }
        Cast::UiToFp | Cast::SiToFp => from.is_int() && is_float(to),
        Cast::Bits => bits(from) == bits(to),
    };
    need(is, "a conversion between other types")
}
