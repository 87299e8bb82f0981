//! Interprets a function by LLVM's language reference: the reference for compiled code.

use std::rc::Rc;

use uruk_baseline::ir::{
    Argument, Block, Call, Callee, Function, Head, Instruction, Op, Operand, Passing, Returned,
    Symbol, Type, Value,
};

use crate::chance::mask;
use crate::effects;
use crate::eval::{self, Word};
use crate::memory::Memory;
use crate::world::{HostCall, Layout, PIECES, Pieces, ROOM, Seen, answer};

/// The reason why a run cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped(pub &'static str);

impl From<&'static str> for Stopped {
    fn from(what: &'static str) -> Stopped {
        Stopped(what)
    }
}

/// The results and effects of a run.
#[derive(Debug, Clone)]
pub struct Ran {
    pub results: Vec<Word>,
    pub calls: Vec<HostCall>,
    pub memory: Memory,
}

/// The input of a run: bits of scalars, bytes of memory arguments, and the contents of the pieces
/// of memory.
#[derive(Debug, Clone)]
pub struct Input {
    pub arguments: Vec<Given>,
    pub pieces: Rc<Pieces>,
}

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    Bits(u128),
    Memory(Vec<u8>),
}

/// Limit of the steps of a run.
const STEPS: usize = 20_000;

/// Runs a function to its end.
pub fn run(function: &Function, input: &Input, layout: &Layout) -> Result<Ran, Stopped> {
    let mut memory = Memory::new();
    for (index, piece) in input.pieces.defined.iter().enumerate().take(PIECES.len()) {
        memory.share(layout.pieces + (index * ROOM) as u64, piece);
    }
    let mut values = vec![None; function.types.len()];
    for (index, given) in input.arguments.iter().enumerate() {
        values[index] = Some(match given {
            Given::Bits(bits) => *bits,
            Given::Memory(bytes) => {
                let at = memory.allocate(bytes.len() as u64, 16);
                memory.add(at, bytes);
                u128::from(at)
            }
        });
    }
    let mut frame = Frame {
        function,
        layout,
        memory,
        values,
        calls: Vec::new(),
        block: Block(0),
    };
    let results = frame.run()?;
    Ok(Ran {
        results,
        calls: frame.calls,
        memory: frame.memory,
    })
}

/// The continuation of a block.
enum Next {
    Block(usize),
    Done(Vec<Word>),
}

pub(crate) struct Frame<'a> {
    function: &'a Function,
    layout: &'a Layout,
    pub(crate) memory: Memory,
    values: Vec<Word>,
    calls: Vec<HostCall>,
    block: Block,
}

impl Frame<'_> {
    fn run(&mut self) -> Result<Vec<Word>, Stopped> {
        let counting = self.function.counting.clone();
        if let Some(counters) = counting.counters {
            self.count(self.symbol(counters)?)?;
        }
        let mut steps = 0;
        loop {
            let range = self.function.blocks[self.block.index()]
                .instructions
                .clone();
            let mut next = None;
            let mut after_phis = counting.heads.iter().find(|head| head.block == self.block);
            for id in range {
                let instruction = &self.function.instructions[id as usize];
                let is_phi = matches!(instruction.op, Op::Phi(..));
                if let Some(head) = after_phis.take_if(|_| !is_phi)
                    && let Some(results) = self.head(head)?
                {
                    return Ok(results);
                }
                steps += 1;
                if steps > STEPS {
                    return Err(Stopped("too many steps"));
                }
                next = self.step(instruction)?;
                if next.is_some() {
                    break;
                }
            }
            if counting.latches.contains(&self.block)
                && let Some(counters) = counting.counters
            {
                self.count(self.symbol(counters)? + 4)?;
            }
            match next.ok_or(Stopped("a block without an end"))? {
                Next::Done(results) => return Ok(results),
                Next::Block(nth) => self.go(nth)?,
            }
        }
    }

    fn count(&mut self, at: u64) -> Result<u32, Stopped> {
        let old = self
            .memory
            .load(at, Type::Int(32))?
            .ok_or("an undefined count")?;
        let new = (old as u32).wrapping_add(1);
        self.memory
            .store(at, Type::Int(32), Some(u128::from(new)))?;
        Ok(new)
    }

    /// Checks whether the loop is left by OSR; if so, returns the function's results.
    fn head(&mut self, head: &Head) -> Result<Option<Vec<Word>>, Stopped> {
        let loops = self.function.counting.loops.ok_or("no words of loops")?;
        let loops = self.symbol(loops)?;
        let at = loops + u64::from(head.count);
        let count = self.memory.load(at, Type::Int(32))?;
        let count = count.ok_or("an undefined count")? as i32;
        if count >= 0 || self.count(at)? != 0 {
            return Ok(None);
        }
        let slot = loops + u64::from(head.slot);
        let to = self
            .memory
            .load(slot, Type::PTR)?
            .ok_or("an undefined slot")?;
        if to == 0 {
            return Ok(None);
        }
        let asks = u128::from(u32::MAX);
        self.memory.store(at, Type::Int(32), Some(asks))?;
        self.count(loops + u64::from(head.left))?;
        let mut words = Vec::new();
        for (index, argument) in head.arguments.iter().enumerate() {
            let word = self.operand(argument.operand)?;
            let is_loaded = head.loaded.contains(&(index as u32));
            words.push(match is_loaded {
                true => self
                    .memory
                    .load(self.address(argument.operand)?, argument.ty)?,
                false => word,
            });
        }
        let returns = &self.function.returns;
        self.call_host(to as u64, &head.arguments, &words, returns, false)
            .map(Some)
    }

    /// Goes to the `nth` successor of the block, whose phis get their operands at once.
    fn go(&mut self, nth: usize) -> Result<(), Stopped> {
        let from = self.block;
        let to = self.function.blocks[from.index()].successors[nth];
        let mut new = Vec::new();
        for (_, instruction) in self.function.of_block(to) {
            let Op::Phi(_, incoming) = &instruction.op else {
                break;
            };
            let found = incoming.iter().find(|(block, _)| *block == from);
            let (_, operand) = found.ok_or("a phi without this edge")?;
            new.push((instruction.results.start, self.operand(*operand)?));
        }
        for (value, word) in new {
            self.values[value as usize] = word;
        }
        self.block = to;
        Ok(())
    }

    pub(crate) fn symbol(&self, symbol: Symbol) -> Result<u64, Stopped> {
        let name = &self.function.symbols[symbol.index()].name;
        Ok(self.layout.address_of(name).ok_or("an unknown name")?)
    }

    pub(crate) fn operand(&self, operand: Operand) -> Result<Word, Stopped> {
        Ok(match operand {
            Operand::Value(Value(value)) => self.values[value as usize],
            Operand::Int(bits) | Operand::Float(bits) => Some(u128::from(bits)),
            Operand::Wide(index) => {
                let bytes = self.function.wide[index as usize];
                Some(u128::from_le_bytes(bytes))
            }
            Operand::Address(symbol, offset) => {
                Some(u128::from(self.symbol(symbol)?.wrapping_add_signed(offset)))
            }
            // An address that only indirect jumps of this function accept.
            Operand::Label(block) => Some(LABELS | u128::from(block.0)),
            Operand::Undef => None,
        })
    }

    /// An operand that must be defined.
    pub(crate) fn sure(&self, operand: Operand) -> Result<u128, Stopped> {
        Ok(self
            .operand(operand)?
            .ok_or("something undefined matters")?)
    }

    pub(crate) fn address(&self, operand: Operand) -> Result<u64, Stopped> {
        Ok(self.sure(operand)? as u64)
    }

    /// The operands if all are defined, else `None`.
    fn both<const N: usize>(&self, list: &[Operand; N]) -> Result<Option<[u128; N]>, Stopped> {
        let mut all = [0; N];
        for (one, &operand) in all.iter_mut().zip(list) {
            match self.operand(operand)? {
                Some(bits) => *one = bits,
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    fn step(&mut self, instruction: &Instruction) -> Result<Option<Next>, Stopped> {
        let words: Vec<Word> = match &instruction.op {
            // Evaluated at the entry of the block.
            Op::Phi(..) => return Ok(None),
            Op::Return(list) => {
                let results: Result<_, _> = list.iter().map(|&one| self.operand(one)).collect();
                return Ok(Some(Next::Done(results?)));
            }
            Op::Jump => return Ok(Some(Next::Block(0))),
            Op::Branch(bit) => {
                let is = self.sure(*bit)? == 1;
                return Ok(Some(Next::Block(usize::from(!is))));
            }
            Op::Switch(_, on, values) => {
                let on = self.sure(*on)? as u64;
                let found = values.iter().position(|&value| value == on);
                return Ok(Some(Next::Block(found.map_or(0, |index| index + 1))));
            }
            Op::Dispatch(on, values) => {
                let on = self.sure(*on)? as u64;
                let found = values.iter().position(|&value| value == on);
                return Ok(Some(Next::Block(found.ok_or("an unknown number")?)));
            }
            Op::IndirectJump(to) => {
                let block = Block((self.sure(*to)? & !LABELS) as u32);
                let successors = &self.function.blocks[self.block.index()].successors;
                let nth = successors.iter().position(|&one| one == block);
                return Ok(Some(Next::Block(nth.ok_or("an unknown label")?)));
            }
            Op::Unreachable | Op::Trap => return Err(Stopped("an end that is none")),
            Op::Call(call) | Op::Invoke(call) => {
                let mut results = self.call(call)?;
                results.truncate(instruction.results.len());
                results
            }
            op if effects::is_of_memory(op) => self.memory_op(op)?,
            op => self.pure(op)?,
        };
        if words.len() != instruction.results.len() {
            return Err(Stopped("another number of results"));
        }
        for (value, word) in instruction.results.clone().zip(words) {
            self.values[value as usize] = word;
        }
        // Hosts throw no exceptions.
        let is_invoke = matches!(instruction.op, Op::Invoke(_));
        Ok(is_invoke.then_some(Next::Block(0)))
    }

    fn pure(&self, op: &Op) -> Result<Vec<Word>, Stopped> {
        let one = match op {
            Op::Int(op, ty, list) => {
                let divides = matches!(
                    op,
                    uruk_baseline::ir::IntOp::SDiv
                        | uruk_baseline::ir::IntOp::UDiv
                        | uruk_baseline::ir::IntOp::SRem
                        | uruk_baseline::ir::IntOp::URem
                );
                let word = self
                    .both(list)?
                    .and_then(|[a, b]| eval::int(*op, *ty, a, b));
                match divides && word.is_none() {
                    true => return Err(Stopped("a division that traps")),
                    false => word,
                }
            }
            Op::Overflow(op, ty, list) => {
                return Ok(match self.both(list)? {
                    Some([a, b]) => {
                        let (result, over) = eval::overflow(*op, *ty, a, b);
                        vec![Some(result), Some(u128::from(over))]
                    }
                    None => vec![None, None],
                });
            }
            Op::Bits(op, ty, one) => self.operand(*one)?.and_then(|a| eval::bit(*op, *ty, a)),
            Op::Funnel(left, ty, list) => self
                .both(list)?
                .map(|[a, b, by]| eval::funnel(*left, *ty, a, b, by)),
            Op::Wide(op, list) => {
                let mut halves = [Operand::Int(0); 4];
                halves[..list.len()].copy_from_slice(list);
                let both = self.both(&halves)?;
                let word = both.and_then(|[a, b, c, d]| eval::wide(*op, a | b << 64, c | d << 64));
                use uruk_baseline::ir::WideOp as W;
                if word.is_none() && matches!(op, W::SDiv | W::UDiv | W::SRem | W::URem) {
                    return Err(Stopped("a division that traps"));
                }
                let low = word.map(|word| word & u128::from(u64::MAX));
                return Ok(vec![low, word.map(|word| word >> 64)]);
            }
            Op::WideCompare(predicate, list) => self.both(list)?.map(|[a, b, c, d]| {
                let is = eval::compare(*predicate, 128, a | b << 64, c | d << 64);
                u128::from(is)
            }),
            Op::Float(op, ty, list) => self
                .both(list)?
                .and_then(|[a, b]| eval::float(*op, *ty, a, b)),
            Op::FloatUnary(op, ty, one) => self
                .operand(*one)?
                .and_then(|a| eval::float_unary(*op, *ty, a)),
            Op::Fma(ty, list) => self
                .both(list)?
                .and_then(|[a, b, c]| eval::fma(*ty, a, b, c)),
            Op::Cast(cast, from, to, one) => self
                .operand(*one)?
                .and_then(|a| eval::cast(*cast, *from, *to, a)),
            Op::Compare(predicate, ty, list) => {
                let Type::Int(bits) = *ty else {
                    return Err(Stopped("a comparison of no integers"));
                };
                let both = self.both(list)?;
                both.map(|[a, b]| u128::from(eval::compare(*predicate, bits.into(), a, b)))
            }
            Op::FloatCompare(predicate, ty, list) => self
                .both(list)?
                .and_then(|[a, b]| eval::float_compare(*predicate, *ty, a, b)),
            Op::Select(_, [bit, then, other]) => match self.operand(*bit)? {
                Some(1) => self.operand(*then)?,
                Some(_) => self.operand(*other)?,
                None => None,
            },
            Op::Offset { base, terms, bytes } => {
                let mut sum = self.operand(*base)?.map(|base| base as u64);
                for term in terms {
                    let index = self.operand(term.operand)?;
                    sum = sum.zip(index).map(|(sum, index)| {
                        let index = eval::signed(index, term.bits.into()) as u64;
                        sum.wrapping_add(index.wrapping_mul(term.scale))
                    });
                }
                sum.map(|sum| u128::from(sum.wrapping_add_signed(*bytes)))
            }
            _ => return Err(Stopped("an operation that is not interpreted")),
        };
        Ok(vec![one])
    }

    fn call(&mut self, call: &Call) -> Result<Vec<Word>, Stopped> {
        let to = match call.callee {
            Callee::Symbol(symbol) => self.symbol(symbol)?,
            Callee::Operand(operand) => self.address(operand)?,
        };
        let mut words = Vec::new();
        for argument in &call.arguments {
            words.push(self.operand(argument.operand)?);
        }
        self.call_host(to, &call.arguments, &words, &call.returns, call.is_variadic)
    }

    fn call_host(
        &mut self,
        to: u64,
        arguments: &[Argument],
        words: &[Word],
        returns: &[Returned],
        is_variadic: bool,
    ) -> Result<Vec<Word>, Stopped> {
        let (host, writes) = self.layout.host_at(to).ok_or("a call of nobody")?;
        let (results, mut written) = (answer(self.calls.len(), returns), None);
        let mut seen = Vec::new();
        for (index, (argument, word)) in arguments.iter().zip(words).enumerate() {
            let size = match argument.passing {
                Passing::Memory { size, .. } => Some(size),
                Passing::Result => Some(8),
                _ => (index == 0 && writes).then_some(8),
            };
            seen.push(match size {
                Some(size) => {
                    let at = word.ok_or("something undefined matters")? as u64;
                    Seen::Memory(self.memory.read(at, size as usize)?.to_vec())
                }
                None => Seen::Bits(word.map(|bits| bits & mask(argument.ty))),
            });
        }
        if writes {
            let at = words
                .first()
                .copied()
                .flatten()
                .ok_or("something undefined matters")?;
            self.memory
                .store(at as u64, Type::PTR, Some(u128::from(results.1)))?;
            written = Some(results.1);
        }
        self.calls.push(HostCall {
            host,
            arguments: arguments.to_vec(),
            returns: returns.to_vec(),
            is_variadic,
            seen,
            results: results.0.clone(),
            written,
        });
        Ok(results.0.into_iter().map(Some).collect())
    }
}

/// Marks addresses of blocks, which are no addresses of memory.
pub(crate) const LABELS: u128 = 0x6a_be15 << 32;
