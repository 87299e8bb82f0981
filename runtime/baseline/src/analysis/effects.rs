//! What instructions do besides giving results: tables that analysis and emission agree upon.

use crate::ir::{FloatOp, MemoryOp, Op, Operand, Ordering, WideOp};

/// The longest `memcpy` or `memset` that is made of moves.
pub(crate) const INLINE_COPY: u64 = 128;

/// The longest `memmove` that is made of moves: all is read before anything is written.
pub(crate) const INLINE_MOVE: u64 = 16;

/// Whether it calls something, so that all registers that calls change are changed. What lives
/// across it lies in other registers or in the frame.
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

/// Whether a memory intrinsic is made of moves: it is short, and so is its code.
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

/// Whether memory may be different after it, or it must stay where it is among accesses to memory.
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

/// Whether it may be left out when nobody uses its results.
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
