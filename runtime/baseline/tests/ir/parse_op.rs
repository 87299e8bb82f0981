//! Parses the text of an operation, and of an OSR head.

use smallvec::SmallVec;

use super::names::Named;
use super::parse::{LineReader, Parsed};
use super::tokens::Token;
use super::{
    BitOp, Block, Call, Callee, Cast, Clause, FloatOp, FloatUnary, Head, IntOp, MemoryOp, Op,
    Operand, Ordering, OverflowOp, Stored, Symbol, Tail, Term, Type, WideOp,
};

type Successors = SmallVec<[Block; 2]>;

const BIT: Type = Type::Int(1);
const WORD: Type = Type::PTR;

impl LineReader<'_> {
    pub(super) fn op(&mut self, successors: &mut Successors) -> Parsed<Op> {
        let word = self.word()?;
        let word = word.as_str();
        if let Some(op) = IntOp::of_word(word) {
            let ty = self.ty()?;
            return Ok(Op::Int(op, ty, self.exactly(ty)?));
        }
        if let Some(op) = OverflowOp::of_word(word) {
            let ty = self.ty()?;
            return Ok(Op::Overflow(op, ty, self.exactly(ty)?));
        }
        if let Some(op) = BitOp::of_word(word) {
            let ty = self.ty()?;
            return Ok(Op::Bits(op, ty, self.operand(ty)?));
        }
        if let Some(op) = WideOp::of_word(word) {
            return Ok(Op::Wide(op, self.operands(WORD)?));
        }
        if let Some(op) = FloatOp::of_word(word) {
            let ty = self.ty()?;
            return Ok(Op::Float(op, ty, self.exactly(ty)?));
        }
        if let Some(op) = FloatUnary::of_word(word) {
            let ty = self.ty()?;
            return Ok(Op::FloatUnary(op, ty, self.operand(ty)?));
        }
        if let Some(cast) = Cast::of_word(word) {
            let from = self.ty()?;
            let one = self.operand(from)?;
            self.is("to").then_some(()).ok_or("no `to`")?;
            return Ok(Op::Cast(cast, from, self.ty()?, one));
        }
        if let Some(op) = MemoryOp::of_word(word) {
            let to = self.operand(WORD)?;
            self.comma()?;
            let is_byte = op == MemoryOp::Set;
            let from = self.operand(if is_byte { Type::Int(8) } else { WORD })?;
            self.comma()?;
            let length = self.operand(WORD)?;
            return Ok(Op::Memory(op, [to, from, length], self.is("volatile")));
        }
        match self.computation(word)? {
            Some(op) => Ok(op),
            None => match self.frame(word)? {
                Some(op) => Ok(op),
                None => self.flow(word, successors),
            },
        }
    }

    fn comma(&mut self) -> Parsed<()> {
        self.need(',', "a comma is missing")
    }

    fn computation(&mut self, word: &str) -> Parsed<Option<Op>> {
        Ok(Some(match word {
            "fshl" | "fshr" => {
                let ty = self.ty()?;
                Op::Funnel(word == "fshl", ty, self.exactly(ty)?)
            }
            "fma" => {
                let ty = self.ty()?;
                Op::Fma(ty, self.exactly(ty)?)
            }
            "wide.icmp" => {
                let predicate = self.named().ok_or("no predicate")?;
                Op::WideCompare(predicate, self.exactly(WORD)?)
            }
            "icmp" => {
                let predicate = self.named().ok_or("no predicate")?;
                let ty = self.ty()?;
                Op::Compare(predicate, ty, self.exactly(ty)?)
            }
            "fcmp" => {
                let predicate = self.named().ok_or("no predicate")?;
                let ty = self.ty()?;
                Op::FloatCompare(predicate, ty, self.exactly(ty)?)
            }
            "select" => {
                let ty = self.ty()?;
                let bit = self.operand(BIT)?;
                self.comma()?;
                let [then, other] = self.exactly(ty)?;
                Op::Select(ty, [bit, then, other])
            }
            "phi" => {
                let ty = self.ty()?;
                let mut incoming = Vec::new();
                while self.mark('[') {
                    let block = self.block()?;
                    incoming.push((block, self.operand(ty)?));
                    self.need(']', "no `]`")?;
                }
                incoming.sort_by_key(|&(block, _)| block);
                Op::Phi(ty, incoming)
            }
            "offset" => self.offset()?,
            _ => return Ok(None),
        }))
    }

    fn offset(&mut self) -> Parsed<Op> {
        let base = self.operand(WORD)?;
        let mut terms = SmallVec::new();
        while self.mark('[') {
            // The type follows its operand, and constants need it, so the operand is read twice.
            let at = self.at;
            self.operand(WORD)?;
            let Type::Int(bits) = self.ty()? else {
                return Err("an index that is no integer");
            };
            let behind = self.at;
            self.at = at;
            let operand = self.operand(Type::Int(bits))?;
            self.at = behind;
            let scale = self.number()?;
            self.need(']', "no `]`")?;
            terms.push(Term {
                operand,
                bits,
                scale,
            });
        }
        let bytes = self.number()?;
        Ok(Op::Offset { base, terms, bytes })
    }

    /// ` align 4 weak volatile`.
    fn access(&mut self) -> Parsed<(u32, Ordering, bool)> {
        let align = self.align()?;
        let ordering = self.named().unwrap_or(Ordering::Plain);
        Ok((align, ordering, self.is("volatile")))
    }

    fn frame(&mut self, word: &str) -> Parsed<Option<Op>> {
        Ok(Some(match word {
            "load" => {
                let ty = self.ty()?;
                let address = self.operand(WORD)?;
                let (align, ordering, volatile) = self.access()?;
                Op::Load {
                    ty,
                    address,
                    align,
                    ordering,
                    volatile,
                }
            }
            "store" => {
                let ty = self.ty()?;
                let value = self.operand(ty)?;
                self.is("to").then_some(()).ok_or("no `to`")?;
                let address = self.operand(WORD)?;
                let (align, ordering, volatile) = self.access()?;
                Op::Store {
                    ty,
                    address,
                    value,
                    align,
                    ordering,
                    volatile,
                }
            }
            "alloca" => {
                let size = self.number()?;
                Op::Alloca {
                    size,
                    align: self.align()?,
                }
            }
            "alloca.dynamic" => {
                let count = self.operand(WORD)?;
                let size = self.number()?;
                Op::DynamicAlloca {
                    count,
                    size,
                    align: self.align()?,
                }
            }
            "stacksave" => Op::StackSave,
            "stackrestore" => Op::StackRestore(self.operand(WORD)?),
            "threadlocal" => Op::ThreadLocal(self.symbol()?),
            word => return self.atomic(word),
        }))
    }

    fn atomic(&mut self, word: &str) -> Parsed<Option<Op>> {
        Ok(Some(match word {
            "rmw" => {
                let op = self.named().ok_or("no operation")?;
                let ty = self.ty()?;
                let address = self.operand(WORD)?;
                self.comma()?;
                Op::Rmw {
                    op,
                    ty,
                    address,
                    value: self.operand(ty)?,
                }
            }
            "cmpxchg" => {
                let ty = self.ty()?;
                let address = self.operand(WORD)?;
                self.comma()?;
                let [expected, value] = self.exactly(ty)?;
                Op::CompareExchange {
                    ty,
                    address,
                    expected,
                    value,
                }
            }
            "fence" => Op::Fence(self.named().ok_or("no ordering")?),
            word => return self.machine(word),
        }))
    }

    fn machine(&mut self, word: &str) -> Parsed<Option<Op>> {
        Ok(Some(match word {
            "landingpad" => self.landing_pad()?,
            "typeid" => Op::TypeId(self.symbol()?),
            "va_start" => Op::VaStart(self.operand(WORD)?),
            "va_copy" => Op::VaCopy(self.exactly(WORD)?),
            "va_arg" => {
                let ty = self.ty()?;
                Op::VaArg(ty, self.operand(WORD)?)
            }
            "frameaddress" => Op::FrameAddress(self.number()?),
            "returnaddress" => Op::ReturnAddress(self.number()?),
            "prefetch" => Op::Prefetch(self.operand(WORD)?),
            "readcyclecounter" => Op::CycleCounter,
            "threadpointer" => Op::ThreadPointer,
            "pause" => Op::Pause,
            "controlword" => Op::ControlWord,
            "fnstcw" => Op::StoreControl(self.operand(WORD)?),
            "fldcw" => Op::LoadControl(self.operand(WORD)?),
            "trap" => Op::Trap,
            "call" => Op::Call(Box::new(self.call()?)),
            _ => return Ok(None),
        }))
    }

    fn landing_pad(&mut self) -> Parsed<Op> {
        let cleanup = self.is("cleanup");
        let mut clauses = Vec::new();
        loop {
            if self.is("catch") {
                clauses.push(Clause::Catch(self.type_or_null()?));
            } else if self.is("filter") {
                self.need('[', "no `[`")?;
                let mut list = Vec::new();
                while !self.mark(']') {
                    list.push(self.type_or_null()?);
                    let more = self.mark(',') || self.peek() == Some(&Token::Mark(']'));
                    more.then_some(()).ok_or("no `]`")?;
                }
                clauses.push(Clause::Filter(list));
            } else {
                return Ok(Op::LandingPad { cleanup, clauses });
            }
        }
    }

    fn type_or_null(&mut self) -> Parsed<Option<Symbol>> {
        match self.is("null") {
            true => Ok(None),
            false => self.symbol().map(Some),
        }
    }

    fn call(&mut self) -> Parsed<Call> {
        let is_variadic = self.is("variadic");
        let tail = if self.is("musttail") {
            Tail::Must
        } else {
            Tail::No
        };
        let returns_twice = self.is("twice");
        let callee = match self.is("at") {
            true => Callee::Operand(self.operand(WORD)?),
            false => Callee::Symbol(self.symbol()?),
        };
        let arguments = self.arguments()?;
        let returns = self.returns()?;
        Ok(Call {
            callee,
            arguments,
            returns,
            is_variadic,
            tail,
            returns_twice,
        })
    }

    fn targets(&mut self, successors: &mut Successors) -> Parsed<()> {
        loop {
            successors.push(self.block()?);
            if !self.mark(',') {
                return Ok(());
            }
        }
    }

    fn flow(&mut self, word: &str, successors: &mut Successors) -> Parsed<Op> {
        Ok(match word {
            "return" => {
                let mut all = SmallVec::new();
                let types: Vec<Type> = self.function.returns.iter().map(|one| one.ty).collect();
                for (index, ty) in types.into_iter().enumerate() {
                    if index > 0 {
                        self.comma()?;
                    }
                    all.push(self.operand(ty)?);
                }
                Op::Return(all)
            }
            "jump" => {
                self.targets(successors)?;
                Op::Jump
            }
            "branch" => {
                let bit = self.operand(BIT)?;
                self.targets(successors)?;
                Op::Branch(bit)
            }
            "indirectjump" => {
                let to = self.operand(WORD)?;
                self.targets(successors)?;
                Op::IndirectJump(to)
            }
            "switch" => {
                let ty = self.ty()?;
                let on = self.operand(ty)?;
                self.targets(successors)?;
                Op::Switch(ty, on, self.numbers(ty)?)
            }
            "dispatch" => {
                let on = self.operand(WORD)?;
                self.targets(successors)?;
                Op::Dispatch(on, self.numbers(WORD)?)
            }
            "invoke" => {
                let call = self.call()?;
                self.is("to").then_some(()).ok_or("no `to`")?;
                self.targets(successors)?;
                Op::Invoke(Box::new(call))
            }
            "resume" => {
                let first = self.operand(WORD)?;
                self.comma()?;
                Op::Resume([first, self.operand(Type::Int(32))?])
            }
            "unreachable" => Op::Unreachable,
            _ => return Err("no such operation"),
        })
    }

    /// `[1, 2]`.
    fn numbers(&mut self, ty: Type) -> Parsed<Vec<u64>> {
        self.need('[', "no values")?;
        let mut values = Vec::new();
        while !self.mark(']') {
            let Operand::Int(value) = self.operand(ty)? else {
                return Err("a value that is no number");
            };
            values.push(value);
            let more = self.mark(',') || self.peek() == Some(&Token::Mark(']'));
            more.then_some(()).ok_or("no `]`")?;
        }
        Ok(values)
    }

    /// Parses an OSR head.
    pub(super) fn head(&mut self) -> Parsed<()> {
        let block = self.block()?;
        let mut offsets = [0; 3];
        for (word, offset) in ["slot", "count", "left"].into_iter().zip(&mut offsets) {
            self.is(word).then_some(()).ok_or("an offset is missing")?;
            *offset = self.number()?;
        }
        let arguments = self.arguments()?;
        let mut loaded = Vec::new();
        if self.is("loaded") {
            loaded.push(self.number()?);
            while self.mark(',') {
                loaded.push(self.number()?);
            }
        }
        let mut stored = Vec::new();
        if self.is("stored") {
            stored.push(self.stored()?);
            while self.mark(',') {
                stored.push(self.stored()?);
            }
        }
        let has_exit = !self.is("stays");
        let [slot, count, left] = offsets;
        self.function.counting.heads.push(Head {
            block,
            slot,
            // The text has no place for it: it is another at each run.
            time: None,
            count,
            left,
            // Behind it, as the generator of tests has it.
            exit: left.wrapping_add(4),
            has_exit,
            // A run compares all values.
            assumed: (0..arguments.len() as u32).collect(),
            arguments,
            loaded,
            stored,
        });
        Ok(())
    }

    fn stored(&mut self) -> Parsed<Stored> {
        let argument = self.number()?;
        self.is("at").then_some(()).ok_or("an offset is missing")?;
        let (offset, ty) = (self.number()?, self.ty()?);
        let operand = self.operand(ty)?;
        Ok(Stored {
            argument,
            offset,
            operand,
            ty,
        })
    }
}
