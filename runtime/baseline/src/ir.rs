//! A function as plain data: the compiler's input.
//!
//! It is LLVM IR without the parts that do not affect machine code. All values are scalars that fit
//! one register. Aggregates are split into their leaves, in the order in which LLVM passes them;
//! integers over 64 bits are two halves, the low one first. `extractvalue`, `insertvalue`,
//! `freeze`, casts that change nothing and instructions without an effect on machine code
//! (lifetimes, debug records, assumptions) are removed: their users have an [`Operand`] instead. A
//! phi, a select, a load or a store of several scalars became several.
//!
//! # Integers
//! A value of [`Type::Int`] with fewer bits than its register has undefined bits above: a user that
//! needs them extends. `i1` is an integer of one bit. Pointers are integers of 64 bits.
//!
//! # Requirements on a reader
//! - The function is verified SSA: definitions dominate uses, types fit, blocks end with one
//!   terminator.
//! - [`Function::blocks`] begins with the entry, which has no predecessors. Unreachable blocks are
//!   allowed; they are not emitted.
//! - Phis come first in their block, with one incoming operand for each edge.
//! - Sequences of multiply and add that LLVM may fuse were split.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

mod ops;
mod results;

pub use ops::{
    BitOp, Cast, Clause, FloatOp, FloatPredicate, FloatUnary, IntOp, IntPredicate, MemoryOp, Op,
    Ordering, OverflowOp, RmwOp, Term, WideOp,
};
pub use results::Results;

/// A scalar: parameters first, in order, then results of instructions in the order of
/// [`Function::instructions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A block, by its index in [`Function::blocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(pub u32);

/// An external name, by its index in [`Function::symbols`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// An instruction, by its index in [`Function::instructions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstructionId(pub u32);

impl Value {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Block {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Symbol {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The type of a scalar in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// An integer of this many bits, 1 to 64, or an address.
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

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Int(bits) => write!(f, "i{bits}"),
            Type::F32 => f.write_str("f32"),
            Type::F64 => f.write_str("f64"),
            Type::F80 => f.write_str("f80"),
            Type::V128 => f.write_str("v128"),
            Type::V64 => f.write_str("v64"),
        }
    }
}

/// An operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand {
    /// The result of an earlier instruction, or a parameter.
    Value(Value),
    /// A constant integer or null; its bits above the type's are zero.
    Int(u64),
    /// The bits of a constant float or double, in the low bits.
    Float(u64),
    /// A constant of 16 bytes, by its index in [`Function::wide`]: of a vector or of `x86_fp80`.
    Wide(u32),
    /// The address of a symbol plus an offset in bytes.
    Address(Symbol, i64),
    /// The address of a block of this function.
    Label(Block),
    /// An undefined value: undef and poison.
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
    /// Whether it takes variable arguments.
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
    /// The personality function.
    pub personality: Option<Symbol>,
    /// The counters of the function.
    pub counting: Counting,
    /// Whether neither exceptions pass nor backtraces are needed; unwind rows are written in any
    /// case.
    pub no_unwind: bool,
    /// Whether each page of a frame is touched when it is made, in its order (`probe-stack`): of
    /// frames of more than a page.
    pub probes_stack: bool,
    /// Debug locations, which instructions name by their index here: line, column, scope.
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
    /// The targets of its terminator, in its order; repeated if it repeats them.
    pub successors: SmallVec<[Block; 2]>,
}

/// One scalar of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// The type.
    pub ty: Type,
    /// How it is passed.
    pub passing: Passing,
}

/// How a scalar is passed. The scalars of one parameter follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passing {
    /// In the next register of its kind, or on the stack.
    #[default]
    Plain,
    /// Like `Plain`, sign-extended.
    SignExtended,
    /// Like `Plain`, zero-extended.
    ZeroExtended,
    /// The first half of an integer of 128 bits: both halves are in registers, or both on the
    /// stack at a multiple of 16. The second half is [`Passing::Plain`].
    Paired,
    /// A copy of memory on the stack, of `size` bytes, at a multiple of `align`. The operand of a
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
    /// The type.
    pub ty: Type,
    /// The extension of the upper bits that the caller expects, if any.
    pub extension: Option<Extension>,
}

/// The contents of the bits above a value's.
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
    /// The linker's name.
    pub name: Box<str>,
    /// How code accesses it.
    pub reach: Reach,
    /// Whether it may be missing, and is null then.
    pub is_weak: bool,
}

/// How code accesses a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Data within a signed 32-bit distance.
    Near,
    /// Calls go through a word, and addresses are loaded from one.
    Indirect,
    /// A thread-local variable.
    ThreadLocal,
}

/// The counters of a version, all in words of symbols.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counting {
    /// Two `i32`: entries, and back edges of loops without a [`Head`].
    pub counters: Option<Symbol>,
    /// The symbol of the words of loops.
    pub loops: Option<Symbol>,
    /// Loops that may be left by OSR exits, by rising block.
    pub heads: Vec<Head>,
    /// Sources of back edges that the second counter counts, by rising block: each pass through
    /// such a block adds one.
    pub latches: Vec<Block>,
}

/// A loop whose head counts passes when it is asked to, and may be left by an OSR exit to a
/// continuation.
///
/// After its phis the head reads the `i32` at `count`. If that is negative, it adds one to it. If the
/// sum is zero, it reads the word at `slot`. If that is null, it notes the time, where that is wanted, and
/// continues. Else it jumps to the exit, the address in the word at `exit`.
///
/// The exit is code of its own, compiled on request ([`crate::Compiler::compile_exits`]): most loops
/// are never left. It sets the count to -1, adds one to the `i32` at `left`, calls the address that
/// was in `slot` with `arguments`, and returns the result of that call from the function. Only exits
/// use `has_exit`, `arguments`, `assumed`, `loaded` and `stored`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The block.
    pub block: Block,
    /// Offset of the pointer from [`Counting::loops`].
    pub slot: u32,
    /// The time of the last pass that was counted, if it is noted.
    pub time: Option<Time>,
    /// Offset of the count.
    pub count: u32,
    /// Offset of the `i32` that counts OSR exits.
    pub left: u32,
    /// Offset of the address of the exit.
    pub exit: u32,
    /// Whether an exit can be compiled: the values that live across are known.
    pub has_exit: bool,
    /// The values that live across: parameters of a function with the same result. One that this
    /// function never reads is passed as anything.
    pub arguments: Vec<Argument>,
    /// Indexes of the arguments that are passed as they are though the function may not read them:
    /// the continuation relies on them in ways that are no code, such as assumptions.
    pub assumed: Vec<u32>,
    /// Indexes of the arguments whose operand is the result of an [`Op::Alloca`] and that pass its
    /// contents instead of its address: a scalar of the argument's type.
    pub loaded: Vec<u32>,
    /// Values stored to memory of the frame whose address is an argument: by rising argument, whose
    /// own operand is ignored.
    pub stored: Vec<Stored>,
}

/// The words for the time of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Offset of the `u64` to which the processor's cycle counter is written.
    pub when: u32,
    /// Offset of an `i32`: if it is zero, the cycle counter is not read.
    pub timed: u32,
}

/// A scalar of a value that crosses at a head in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stored {
    /// The index of the argument that is the address of the value.
    pub argument: u32,
    /// Offset in bytes from that address.
    pub offset: u32,
    /// The stored operand.
    pub operand: Operand,
    /// Its type.
    pub ty: Type,
}

impl Eq for Stored {}

/// An instruction.
#[derive(Debug, Clone)]
pub struct Instruction {
    /// The operation.
    pub op: Op,
    /// Its results: none, one, or several in a row.
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

/// A call, as in both `call` and `invoke`.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The callee.
    pub callee: Callee,
    /// Scalars of arguments.
    pub arguments: Vec<Argument>,
    /// Scalars of the result; the instruction's results, unless all are unused.
    pub returns: SmallVec<[Returned; 2]>,
    /// Whether the callee's type is variadic: `al` then holds the number of vector registers used.
    pub is_variadic: bool,
    /// Whether it must be a tail call.
    pub tail: Tail,
    /// Whether it may return a second time (`setjmp`).
    pub returns_twice: bool,
}

/// The callee of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Callee {
    /// A function, through its word.
    Symbol(Symbol),
    /// The function at an address.
    Operand(Operand),
}

/// Whether a call is a tail call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tail {
    /// It need not be one, and is not.
    No,
    /// It must be one: a return of its results follows it, and both functions have the same
    /// parameters and results.
    Must,
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
