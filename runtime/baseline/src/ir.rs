//! A function as plain data: what a reader gives, and what is compiled.
//!
//! It is LLVM IR with everything taken away that machine code does not care for. All values are
//! scalars that one register holds: aggregates were taken apart into their leaves, in the order
//! in which LLVM passes them; integers over 64 bits are two halves, the low one first;
//! `extractvalue`, `insertvalue`, `freeze`, casts that change nothing and instructions without an
//! effect on machine code (lifetimes, debug records, assumptions) are gone: what would be their
//! result is an [`Operand`] of whoever uses it. A phi, a select, a load or a store of several
//! scalars became several.
//!
//! # Integers
//! A value of [`Type::Int`] with fewer bits than its register has undefined bits above: whoever
//! needs more, extends. `i1` is an integer of one bit. Pointers are integers of 64 bits.
//!
//! # What a reader promises
//! - It is verified SSA: definitions dominate uses, types fit, blocks end with one terminator.
//! - [`Function::blocks`] begins with the entry, which has no predecessors. Blocks that cannot be
//!   reached may be there; they are not emitted.
//! - Phis come first in their block, with one incoming operand for each edge.
//! - Sequences of multiply and add that LLVM may fuse were split.

use std::ops::Range;

use smallvec::SmallVec;

mod check;
mod dominance;
mod dump;
mod names;
mod parse;
mod parse_op;
mod results;
mod tokens;

pub use check::{Broken, check};
pub use parse::{ParseError, parse};
pub use results::Results;

/// A scalar: the parameters' first, in order, then results of instructions in the order of
/// [`Function::instructions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A block, by its place in [`Function::blocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(pub u32);

/// A name from outside, by its place in [`Function::symbols`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// An instruction, by its place in [`Function::instructions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstructionId(pub u32);

impl Value {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Block {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Symbol {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// An integer of so many bits, 1 to 64, or an address.
    Int(u8),
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// `x86_fp80`, which is 10 bytes of 16 in memory.
    F80,
    /// A vector of 128 bits. Operations say how it is divided.
    V128,
    /// A vector of 64 bits, in the low half of a register.
    V64,
}

impl Type {
    /// An address.
    pub const PTR: Type = Type::Int(64);

    /// Bytes that a store of it writes.
    pub fn bytes(self) -> u32 {
        match self {
            Type::Int(bits) => u32::from(bits).div_ceil(8),
            Type::F32 => 4,
            Type::F64 | Type::V64 => 8,
            Type::F80 => 10,
            Type::V128 => 16,
        }
    }

    /// Whether it lives in a general register.
    pub fn is_int(self) -> bool {
        matches!(self, Type::Int(_))
    }
}

/// What an instruction takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand {
    /// What an instruction before gave, or a parameter.
    Value(Value),
    /// A constant integer or null; its bits above the type's are zero.
    Int(u64),
    /// The bits of a constant float or double, in the low bits.
    Float(u64),
    /// A constant of 16 bytes, by its place in [`Function::wide`]: of a vector or of `x86_fp80`.
    Wide(u32),
    /// The address of a symbol and so many bytes.
    Address(Symbol, i64),
    /// The address of a block of this function.
    Label(Block),
    /// Anything: undef and poison.
    Undef,
}

/// Operands of one instruction, a few as a rule.
pub type Operands = SmallVec<[Operand; 4]>;

/// A function.
#[derive(Debug, Clone, Default)]
pub struct Function {
    /// Scalars of parameters, each with how it is passed.
    pub parameters: Vec<Parameter>,
    /// Scalars that are returned, in order; none for void.
    pub returns: Vec<Returned>,
    /// Whether it takes more than its parameters.
    pub is_variadic: bool,
    /// Types of all values.
    pub types: Vec<Type>,
    /// Blocks, the entry first.
    pub blocks: Vec<BlockData>,
    /// Instructions, block by block.
    pub instructions: Vec<Instruction>,
    /// Names that it refers to.
    pub symbols: Vec<SymbolData>,
    /// Constants of 16 bytes.
    pub wide: Vec<[u8; 16]>,
    /// The function that says what happens when an exception comes by.
    pub personality: Option<Symbol>,
    /// What is counted while it runs.
    pub counting: Counting,
    /// Whether an exception may pass, or backtraces are wanted; unwind rows are written anyway.
    pub no_unwind: bool,
    /// Whether each page of a frame is touched when it is made, in its order (`probe-stack`): of
    /// frames of more than a page.
    pub probes_stack: bool,
    /// Debug locations, which instructions name by their place here: line, column, scope.
    pub lines: Vec<Line>,
}

/// A debug location: as the reader numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Line in its file, from 1; 0 for none.
    pub line: u32,
    /// Column, from 1; 0 for none.
    pub column: u32,
    /// File, as the reader numbers them.
    pub file: u32,
}

/// A block.
#[derive(Debug, Clone, Default)]
pub struct BlockData {
    /// Its instructions, the last of which is its terminator.
    pub instructions: Range<u32>,
    /// Where its terminator leads, in its order, each as often as it says so.
    pub successors: SmallVec<[Block; 2]>,
}

/// One scalar of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// What it is.
    pub ty: Type,
    /// How it comes.
    pub passing: Passing,
}

/// How a scalar is passed. The scalars of one parameter follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passing {
    /// In the next register of its kind, or on the stack.
    #[default]
    Plain,
    /// Likewise, with the bits above the type's made of its sign.
    SignExtended,
    /// Likewise, with zeros above.
    ZeroExtended,
    /// The first half of an integer of 128 bits: both halves are in registers, or both on the
    /// stack at a multiple of 16. The second half is [`Passing::Plain`].
    Paired,
    /// A copy of memory on the stack, of so many bytes, at a multiple of so many: the operand of a
    /// call is the address of the original, the parameter the address of the copy.
    Memory {
        /// Bytes.
        size: u32,
        /// A power of two.
        align: u32,
    },
    /// The hidden pointer to the result; `rax` has it on return.
    Result,
    /// In `r10` (`nest`).
    Nest,
}

/// One scalar of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// What it is.
    pub ty: Type,
    /// Whether the caller expects the bits above to be made of the sign, of zeros, or nothing.
    pub extension: Option<Extension>,
}

/// What bits above a value's are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extension {
    /// Copies of the sign bit.
    Sign,
    /// Zeros.
    Zero,
}

/// A name that code refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolData {
    /// As the linker knows it.
    pub name: Box<str>,
    /// How it is reached.
    pub reach: Reach,
    /// Whether it may be missing, and is null then.
    pub is_weak: bool,
}

/// How a symbol is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Data in reach of a signed distance of 32 bits.
    Near,
    /// Calls go through a word, and addresses are read from one.
    Indirect,
    /// A thread-local variable.
    ThreadLocal,
}

/// What a version counts, all in words of symbols.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counting {
    /// Two `i32`: entries, and back edges of loops without a [`Head`].
    pub counters: Option<Symbol>,
    /// Where words of loops are.
    pub loops: Option<Symbol>,
    /// Loops that can be left, by rising block.
    pub heads: Vec<Head>,
    /// Sources of back edges that are counted in the second counter: each pass through this block
    /// counts one.
    pub latches: Vec<Block>,
}

/// A loop whose head counts its passes, and that is left when a continuation is offered.
///
/// After its phis the head adds one to the `i32` at `count`. If the sum is negative, it reads the
/// word at `slot`: where that is null, it makes the count positive again by clearing its sign bit,
/// and goes on; else it adds one to the `i32` at `left`, calls what the word holds with
/// `arguments`, and returns what that returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The block.
    pub block: Block,
    /// Offset of the pointer from [`Counting::loops`].
    pub slot: u32,
    /// Offset of the count.
    pub count: u32,
    /// Offset of the `i32` that counts how often the loop was left.
    pub left: u32,
    /// What lives across: passed as parameters of a function with the same result.
    pub arguments: Vec<Argument>,
    /// Places of those of the arguments whose operand is what an [`Op::Alloca`] gave, and of which
    /// not the address is passed, but what is there: a scalar of the argument's type.
    pub loaded: Vec<u32>,
}

/// An instruction.
#[derive(Debug, Clone)]
pub struct Instruction {
    /// What it does.
    pub op: Op,
    /// Its results: none, one, or several that follow each other.
    pub results: Range<u32>,
    /// Its debug location in [`Function::lines`]; [`NO_LINE`] without.
    pub line: u32,
}

/// No debug location.
pub const NO_LINE: u32 = u32::MAX;

/// An argument of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Argument {
    /// The value.
    pub operand: Operand,
    /// Its type.
    pub ty: Type,
    /// How it is passed.
    pub passing: Passing,
}

impl Eq for Argument {}

/// A call, as both `call` and `invoke` have it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Whom.
    pub callee: Callee,
    /// Scalars of arguments.
    pub arguments: Vec<Argument>,
    /// Scalars of the result; the instruction's results, unless nobody uses any.
    pub returns: SmallVec<[Returned; 2]>,
    /// Whether the callee's type is variadic: `al` then says how many vector registers are used.
    pub is_variadic: bool,
    /// Whether it must be, may be, or must not be a jump.
    pub tail: Tail,
    /// Whether it may return a second time (`setjmp`).
    pub returns_twice: bool,
}

/// Whom a call reaches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Callee {
    /// A function, through its word.
    Symbol(Symbol),
    /// What is at an address.
    Operand(Operand),
}

/// Whether a call is a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tail {
    /// It may not matter: it is none here.
    No,
    /// It must be: it is followed by a return of what it gives, and callers and callees agree
    /// in what they pass.
    Must,
}

/// Operations on two integers of one type, with a result of that type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IntOp {
    Add,
    Sub,
    Mul,
    SDiv,
    UDiv,
    SRem,
    URem,
    Shl,
    LShr,
    AShr,
    And,
    Or,
    Xor,
    SMin,
    SMax,
    UMin,
    UMax,
    /// Saturating.
    SAddSat,
    SSubSat,
    UAddSat,
    USubSat,
}

/// Operations that give a result and whether it overflowed, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum OverflowOp {
    SAdd,
    UAdd,
    SSub,
    USub,
    SMul,
    UMul,
}

/// Operations on one integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BitOp {
    /// Bits set (`ctpop`).
    Count,
    /// Leading zeros; the type's bits for zero.
    LeadingZeros,
    /// Trailing zeros; the type's bits for zero.
    TrailingZeros,
    /// Bytes reversed (`bswap`): 16, 32 or 64 bits.
    SwapBytes,
    /// Bits reversed.
    Reverse,
    /// The absolute value; the least integer's is itself.
    Abs,
}

/// Operations on integers of 128 bits: operands are halves, low before high, and so are results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum WideOp {
    /// Four operands.
    Add,
    Sub,
    Mul,
    /// Four operands: calls of `__divti3` and its like.
    SDiv,
    UDiv,
    SRem,
    URem,
    /// Three operands: two halves and the low half of the distance.
    Shl,
    LShr,
    AShr,
}

/// Operations on two floating-point numbers of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    /// A call of `fmod` or `fmodf` (`fmodl` for `x86_fp80`).
    Rem,
    /// `llvm.minnum`: the number where one is not.
    MinNum,
    MaxNum,
    CopySign,
}

/// Operations on one floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FloatUnary {
    Neg,
    Abs,
    Sqrt,
}

/// How integers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IntPredicate {
    Eq,
    Ne,
    UGt,
    UGe,
    ULt,
    ULe,
    SGt,
    SGe,
    SLt,
    SLe,
}

/// How floating-point numbers are compared: `O` is false, `U` true where one is not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FloatPredicate {
    False,
    OEq,
    OGt,
    OGe,
    OLt,
    OLe,
    ONe,
    Ord,
    Uno,
    UEq,
    UGt,
    UGe,
    ULt,
    ULe,
    UNe,
    True,
}

/// Conversions that do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Cast {
    Trunc,
    ZExt,
    SExt,
    FpTrunc,
    FpExt,
    FpToUi,
    FpToSi,
    UiToFp,
    SiToFp,
    /// Between a general and a vector register, of the same width.
    Bits,
    /// `llvm.fptosi.sat` and `llvm.fptoui.sat`.
    FpToSiSat,
    FpToUiSat,
}

/// Atomic changes of memory; all give the old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum RmwOp {
    Exchange,
    Add,
    Sub,
    And,
    Nand,
    Or,
    Xor,
    Max,
    Min,
    UMax,
    UMin,
    FAdd,
    FSub,
}

/// How strongly memory accesses are ordered: what x86-64 tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ordering {
    /// Not atomic.
    Plain,
    /// Atomic, up to acquire and release.
    Weak,
    /// Sequentially consistent.
    Strong,
}

/// A part of an address: `operand * scale`, of `bits` that are sign-extended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// The index.
    pub operand: Operand,
    /// Its bits, at most 64.
    pub bits: u8,
    /// Bytes.
    pub scale: u64,
}

/// A choice of a landing pad, in the order of the source.
#[derive(Debug, Clone, PartialEq)]
pub enum Clause {
    /// What matches this type, null for all.
    Catch(Option<Symbol>),
    /// What matches none of these.
    Filter(Vec<Option<Symbol>>),
}

/// Where a memory intrinsic has its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryOp {
    /// `memcpy`.
    Copy,
    /// `memmove`.
    Move,
    /// `memset`, whose second operand is a byte.
    Set,
}

/// What an instruction does. Types say what operands are.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Two integers to one.
    Int(IntOp, Type, [Operand; 2]),
    /// Two integers to one and a bit.
    Overflow(OverflowOp, Type, [Operand; 2]),
    /// One integer to one.
    Bits(BitOp, Type, Operand),
    /// Left (`true`) or right shift of two integers in a row (`fshl`, `fshr`).
    Funnel(bool, Type, [Operand; 3]),
    /// Halves of integers of 128 bits: two results.
    Wide(WideOp, Operands),
    /// A comparison of integers of 128 bits: halves of both.
    WideCompare(IntPredicate, [Operand; 4]),
    /// Two floating-point numbers to one.
    Float(FloatOp, Type, [Operand; 2]),
    /// One to one.
    FloatUnary(FloatUnary, Type, Operand),
    /// `a * b + c`, rounded once: a call of `fma` or `fmaf`.
    Fma(Type, [Operand; 3]),
    /// From a type to another.
    Cast(Cast, Type, Type, Operand),
    /// To a bit.
    Compare(IntPredicate, Type, [Operand; 2]),
    /// To a bit.
    FloatCompare(FloatPredicate, Type, [Operand; 2]),
    /// The first operand is a bit, the others are of the type.
    Select(Type, [Operand; 3]),
    /// An operand for each predecessor.
    Phi(Type, Vec<(Block, Operand)>),
    /// Read from an address.
    Load {
        /// What is read.
        ty: Type,
        /// From where.
        address: Operand,
        /// Alignment in bytes, a power of two.
        align: u32,
        /// Ordering.
        ordering: Ordering,
        /// Whether it must happen as often as it is there.
        volatile: bool,
    },
    /// Written to an address.
    Store {
        /// What is written.
        ty: Type,
        /// Where.
        address: Operand,
        /// The value.
        value: Operand,
        /// Alignment in bytes, a power of two.
        align: u32,
        /// Ordering.
        ordering: Ordering,
        /// Whether it must happen as often as it is there.
        volatile: bool,
    },
    /// Base, terms, and so many bytes: `getelementptr`.
    Offset {
        /// An address.
        base: Operand,
        /// What is added.
        terms: SmallVec<[Term; 1]>,
        /// Bytes that are added.
        bytes: i64,
    },
    /// Memory of the frame, of a size known here, that is there as long as the frame: `alloca` in
    /// the entry.
    Alloca {
        /// Bytes.
        size: u64,
        /// A power of two.
        align: u32,
    },
    /// Memory below the frame: so many (64 bits) times so many bytes.
    DynamicAlloca {
        /// How many.
        count: Operand,
        /// Bytes of one.
        size: u64,
        /// A power of two.
        align: u32,
    },
    /// `llvm.stacksave`.
    StackSave,
    /// `llvm.stackrestore`.
    StackRestore(Operand),
    /// The address of a thread-local variable.
    ThreadLocal(Symbol),
    /// Destination, source or byte, length (64 bits).
    Memory(MemoryOp, [Operand; 3], bool),
    /// Swaps memory with the result of an operation.
    Rmw {
        /// What is done.
        op: RmwOp,
        /// With what.
        ty: Type,
        /// Where.
        address: Operand,
        /// The second operand.
        value: Operand,
    },
    /// Results: what was there, and whether it was what was expected.
    CompareExchange {
        /// Of what.
        ty: Type,
        /// Where.
        address: Operand,
        /// What is expected.
        expected: Operand,
        /// What is stored then.
        value: Operand,
    },
    /// A fence.
    Fence(Ordering),
    /// A call.
    Call(Box<Call>),
    /// The exception that a landing pad got: two results, the exception and the selector.
    LandingPad {
        /// Whether it is entered for all exceptions.
        cleanup: bool,
        /// What it is entered for.
        clauses: Vec<Clause>,
    },
    /// The number by which a selector names a type.
    TypeId(Symbol),
    /// `llvm.va_start`, with the address of the list.
    VaStart(Operand),
    /// `llvm.va_copy`: to, from.
    VaCopy([Operand; 2]),
    /// `va_arg` of a scalar: the address of the list.
    VaArg(Type, Operand),
    /// The address of this frame (0) or of a caller's (`llvm.frameaddress`).
    FrameAddress(u32),
    /// The return address of this frame (0) or of a caller's.
    ReturnAddress(u32),
    /// `llvm.prefetch`.
    Prefetch(Operand),
    /// `llvm.readcyclecounter`.
    CycleCounter,
    /// The instruction `pause`.
    Pause,

    // Terminators.
    /// A return of scalars.
    Return(Operands),
    /// To the only successor.
    Jump,
    /// To the first successor if the bit is set, else to the second.
    Branch(Operand),
    /// To the successor after the first whose number it is, or to the first: values in the order
    /// of the successors from the second.
    Switch(Type, Operand, Vec<u64>),
    /// To an address of one of the successors.
    IndirectJump(Operand),
    /// A call that goes on at the first successor, and with an exception at the second.
    Invoke(Box<Call>),
    /// On with the exception: its two words.
    Resume([Operand; 2]),
    /// `llvm.trap`: `ud2`, after which nothing comes. Not a terminator in LLVM; what follows is
    /// not emitted.
    Trap,
    /// Nothing comes here.
    Unreachable,
}

impl Op {
    /// Whether a block ends with it.
    pub fn is_terminator(&self) -> bool {
        matches!(
            self,
            Op::Return(_)
                | Op::Jump
                | Op::Branch(_)
                | Op::Switch(..)
                | Op::IndirectJump(_)
                | Op::Invoke(_)
                | Op::Resume(_)
                | Op::Unreachable
        )
    }

    /// Calls `visit` with each operand.
    pub fn operands(&self, mut visit: impl FnMut(Operand)) {
        let all = |list: &[Operand], visit: &mut dyn FnMut(Operand)| {
            list.iter().for_each(|&operand| visit(operand));
        };
        let visit = &mut visit;
        match self {
            Op::Int(_, _, list) | Op::Overflow(_, _, list) | Op::Float(_, _, list) => {
                all(list, visit);
            }
            Op::Compare(_, _, list) | Op::FloatCompare(_, _, list) => all(list, visit),
            Op::Funnel(_, _, list) | Op::Fma(_, list) | Op::Select(_, list) => all(list, visit),
            Op::Memory(_, list, _) => all(list, visit),
            Op::WideCompare(_, list) => all(list, visit),
            Op::Wide(_, list) | Op::Return(list) => all(list, visit),
            Op::Resume(list) | Op::VaCopy(list) => all(list, visit),
            Op::Bits(_, _, one) | Op::FloatUnary(_, _, one) | Op::Cast(_, _, _, one) => visit(*one),
            Op::StackRestore(one) | Op::VaStart(one) | Op::VaArg(_, one) => visit(*one),
            Op::Prefetch(one) | Op::Branch(one) | Op::IndirectJump(one) => visit(*one),
            Op::Switch(_, one, _) => visit(*one),
            Op::DynamicAlloca { count, .. } => visit(*count),
            Op::Phi(_, incoming) => incoming.iter().for_each(|&(_, operand)| visit(operand)),
            Op::Load { address, .. } => visit(*address),
            Op::Store { address, value, .. } | Op::Rmw { address, value, .. } => {
                all(&[*address, *value], visit);
            }
            Op::CompareExchange {
                address,
                expected,
                value,
                ..
            } => all(&[*address, *expected, *value], visit),
            Op::Offset { base, terms, .. } => {
                visit(*base);
                terms.iter().for_each(|term| visit(term.operand));
            }
            Op::Call(call) | Op::Invoke(call) => {
                if let Callee::Operand(operand) = call.callee {
                    visit(operand);
                }
                call.arguments
                    .iter()
                    .for_each(|argument| visit(argument.operand));
            }
            Op::Alloca { .. } | Op::StackSave | Op::ThreadLocal(_) | Op::Fence(_) => {}
            Op::LandingPad { .. } | Op::TypeId(_) | Op::FrameAddress(_) => {}
            Op::ReturnAddress(_) | Op::CycleCounter | Op::Pause | Op::Jump => {}
            Op::Trap | Op::Unreachable => {}
        }
    }
}

impl Function {
    /// The instructions of a block, with their numbers.
    pub fn of_block(
        &self,
        block: Block,
    ) -> impl DoubleEndedIterator<Item = (InstructionId, &Instruction)> {
        let range = self.blocks[block.index()].instructions.clone();
        let instructions = &self.instructions[range.start as usize..range.end as usize];
        range.map(InstructionId).zip(instructions)
    }

    /// The parameter that is the hidden pointer to the result.
    pub fn result_parameter(&self) -> Option<Value> {
        let mut all = self.parameters.iter();
        let at = all.position(|parameter| parameter.passing == Passing::Result)?;
        Some(Value(at as u32))
    }

    /// The type of a value.
    pub fn type_of(&self, value: Value) -> Type {
        self.types[value.index()]
    }
}
