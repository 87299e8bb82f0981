//! The operations of instructions.

use smallvec::SmallVec;

use super::{Block, Call, Callee, Operand, Operands, Symbol, Type};

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
    /// `llvm.minnum`: if one operand is NaN, the other one.
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

/// Floating-point predicates: `O` is false, `U` true if an operand is NaN.
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

/// Conversions that change bits or the register class.
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

/// The memory orderings that x86-64 distinguishes.
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

/// A clause of a landing pad, in the order of the source.
#[derive(Debug, Clone, PartialEq)]
pub enum Clause {
    /// Catches exceptions of this type, null for all.
    Catch(Option<Symbol>),
    /// Catches exceptions of no type in this list.
    Filter(Vec<Option<Symbol>>),
}

/// A memory intrinsic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryOp {
    /// `memcpy`.
    Copy,
    /// `memmove`.
    Move,
    /// `memset`, whose second operand is a byte.
    Set,
}

/// The operation of an instruction. Types are those of the operands.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A binary operation on integers.
    Int(IntOp, Type, [Operand; 2]),
    /// A binary operation on integers with an overflow bit.
    Overflow(OverflowOp, Type, [Operand; 2]),
    /// A unary operation on an integer.
    Bits(BitOp, Type, Operand),
    /// Left (`true`) or right shift of two concatenated integers (`fshl`, `fshr`).
    Funnel(bool, Type, [Operand; 3]),
    /// Halves of integers of 128 bits: two results.
    Wide(WideOp, Operands),
    /// A comparison of integers of 128 bits: halves of both.
    WideCompare(IntPredicate, [Operand; 4]),
    /// A binary operation on floating-point numbers.
    Float(FloatOp, Type, [Operand; 2]),
    /// A unary operation on a floating-point number.
    FloatUnary(FloatUnary, Type, Operand),
    /// `a * b + c`, rounded once: a call of `fma` or `fmaf`.
    Fma(Type, [Operand; 3]),
    /// A conversion from the first type to the second.
    Cast(Cast, Type, Type, Operand),
    /// A comparison of integers; the result is a bit.
    Compare(IntPredicate, Type, [Operand; 2]),
    /// A comparison of floating-point numbers; the result is a bit.
    FloatCompare(FloatPredicate, Type, [Operand; 2]),
    /// The first operand is a bit, the others are of the type.
    Select(Type, [Operand; 3]),
    /// An operand for each predecessor.
    Phi(Type, Vec<(Block, Operand)>),
    /// A read from memory.
    Load {
        /// The type that is read.
        ty: Type,
        /// The address.
        address: Operand,
        /// Alignment in bytes, a power of two.
        align: u32,
        /// Ordering.
        ordering: Ordering,
        /// Whether it must not be removed or repeated.
        volatile: bool,
    },
    /// A write to memory.
    Store {
        /// The type that is written.
        ty: Type,
        /// The address.
        address: Operand,
        /// The value.
        value: Operand,
        /// Alignment in bytes, a power of two.
        align: u32,
        /// Ordering.
        ordering: Ordering,
        /// Whether it must not be removed or repeated.
        volatile: bool,
    },
    /// Base, terms, and an offset in bytes: `getelementptr`.
    Offset {
        /// An address.
        base: Operand,
        /// The scaled indexes that are added.
        terms: SmallVec<[Term; 1]>,
        /// Bytes that are added.
        bytes: i64,
    },
    /// Memory of the frame, of a constant size, that lives as long as the frame: `alloca` in the
    /// entry.
    Alloca {
        /// Bytes.
        size: u64,
        /// A power of two.
        align: u32,
    },
    /// Memory allocated on the stack at run time: `count` (64 bits) elements of `size` bytes.
    DynamicAlloca {
        /// The number of elements.
        count: Operand,
        /// Bytes of an element.
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
    /// Swaps memory with the result of an operation. The address is aligned to the type's size.
    Rmw {
        /// The operation.
        op: RmwOp,
        /// The type of the memory.
        ty: Type,
        /// The address.
        address: Operand,
        /// The second operand.
        value: Operand,
    },
    /// Results: the old value, and whether it was the expected one. The address is aligned to the
    /// type's size.
    CompareExchange {
        /// The type of the memory.
        ty: Type,
        /// The address.
        address: Operand,
        /// The expected value.
        expected: Operand,
        /// The value that is stored on success.
        value: Operand,
    },
    /// A fence.
    Fence(Ordering),
    /// A call.
    Call(Box<Call>),
    /// The exception at a landing pad: two results, the exception and the selector.
    LandingPad {
        /// Whether it is entered for all exceptions.
        cleanup: bool,
        /// The types that it catches or filters.
        clauses: Vec<Clause>,
    },
    /// The number of a type in selectors.
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
    /// `llvm.thread.pointer`.
    ThreadPointer,
    /// The instruction `pause`.
    Pause,
    /// The x87's control word, 16 bits.
    ControlWord,
    /// Stores it at an address.
    StoreControl(Operand),
    /// Loads it from an address.
    LoadControl(Operand),

    // Terminators.
    /// A return of scalars.
    Return(Operands),
    /// A jump to the only successor.
    Jump,
    /// A branch to the first successor if the bit is set, else to the second.
    Branch(Operand),
    /// A jump to the successor whose value equals the operand, else to the first: values belong to
    /// the successors from the second on, in order.
    Switch(Type, Operand, Vec<u64>),
    /// A jump to the successor whose value equals the word, which one of them does: values in the
    /// order of the successors.
    Dispatch(Operand, Vec<u64>),
    /// A jump to the address of one of the successors.
    IndirectJump(Operand),
    /// A call that continues at the first successor, and with an exception at the second.
    Invoke(Box<Call>),
    /// Continues unwinding: the two words of the exception.
    Resume([Operand; 2]),
    /// `llvm.trap`: `ud2`. Not a terminator in LLVM, but the instructions after it are not emitted.
    Trap,
    /// Control never gets here.
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
                | Op::Dispatch(..)
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
            Op::StoreControl(one) | Op::LoadControl(one) => visit(*one),
            Op::Prefetch(one) | Op::Branch(one) | Op::IndirectJump(one) => visit(*one),
            Op::Switch(_, one, _) | Op::Dispatch(one, _) => visit(*one),
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
            Op::ControlWord | Op::ThreadPointer | Op::Trap | Op::Unreachable => {}
        }
    }
}
