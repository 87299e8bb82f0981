//! Side effects of instructions: tables that analysis and emission share.

use crate::ir::{FloatOp, MemoryOp, Op, Operand, Ordering, WideOp};

/// The longest `memcpy` or `memset` that is emitted as moves.
pub(crate) const INLINE_COPY: u64 = 128;

/// The longest `memmove` that is emitted as moves: all loads precede the first store.
pub(crate) const INLINE_MOVE: u64 = 16;

/// Whether an instruction makes a call, which clobbers the caller-saved registers. Values that live
/// across it are in other registers or in the frame.
pub(crate) fn calls(op: &Op) -> bool {
    match op {
        Op::Call(_) | Op::Invoke(_) | Op::Resume(_) | Op::ThreadLocal(_) | Op::Fma(..) => true,
        Op::Float(FloatOp::Rem, ..) => true,
        Op::Wide(op, _) => matches!(
            op,
            WideOp::SDiv | WideOp::UDiv | WideOp::SRem | WideOp::URem
        ),
        Op::Memory(op, [_, value, length], _) => !is_inline(*op, *value, *length),
        _ => false,
    }
}

/// Whether a memory intrinsic is emitted as moves: it is short, and so is its code.
pub(crate) fn is_inline(op: MemoryOp, value: Operand, length: Operand) -> bool {
    let Operand::Int(length) = length else {
        return false;
    };
    match op {
        MemoryOp::Copy => length <= INLINE_COPY,
        MemoryOp::Move => length <= INLINE_MOVE,
        MemoryOp::Set => length <= INLINE_COPY && matches!(value, Operand::Int(_) | Operand::Undef),
    }
}

/// Whether an instruction may change memory, or must keep its order among accesses to memory.
pub(crate) fn writes(op: &Op) -> bool {
    match op {
        Op::Load {
            ordering, volatile, ..
        } => *volatile || *ordering != Ordering::Plain,
        Op::Store { .. }
        | Op::Memory(..)
        | Op::Rmw { .. }
        | Op::CompareExchange { .. }
        | Op::Fence(_)
        | Op::ControlWord
        | Op::StoreControl(_)
        | Op::LoadControl(_)
        | Op::DynamicAlloca { .. }
        | Op::StackRestore(_)
        | Op::VaStart(_)
        | Op::VaCopy(_)
        | Op::VaArg(..) => true,
        op => calls(op),
    }
}

/// Whether an instruction may be removed when its results have no uses.
pub(crate) fn is_removable(op: &Op) -> bool {
    match op {
        Op::Int(..)
        | Op::Overflow(..)
        | Op::Bits(..)
        | Op::Funnel(..)
        | Op::Wide(..)
        | Op::WideCompare(..)
        | Op::Float(..)
        | Op::FloatUnary(..)
        | Op::Fma(..)
        | Op::Cast(..)
        | Op::Compare(..)
        | Op::FloatCompare(..)
        | Op::Select(..)
        | Op::Phi(..)
        | Op::Offset { .. }
        | Op::Alloca { .. }
        | Op::ThreadLocal(_)
        | Op::FrameAddress(_)
        | Op::ReturnAddress(_)
        | Op::StackSave
        | Op::TypeId(_) => true,
        Op::Load { .. } => !writes(op),
        _ => false,
    }
}
