//! The types of an operation's results.

use smallvec::{SmallVec, smallvec};

use super::{Op, Type};

/// Types of results, as many as an instruction may have at most.
pub type Results = SmallVec<[Type; 2]>;

const BIT: Type = Type::Int(1);
const WORD: Type = Type::Int(64);

impl Op {
    /// The types of its results, in order. A call without used results may omit them.
    pub fn results(&self) -> Results {
        match self {
            Op::Int(_, ty, _) | Op::Bits(_, ty, _) | Op::Funnel(_, ty, _) => smallvec![*ty],
            Op::Float(_, ty, _) | Op::FloatUnary(_, ty, _) | Op::Fma(ty, _) => smallvec![*ty],
            Op::Select(ty, _) | Op::Phi(ty, _) | Op::VaArg(ty, _) => smallvec![*ty],
            Op::Load { ty, .. } | Op::Rmw { ty, .. } => smallvec![*ty],
            Op::Cast(_, _, to, _) => smallvec![*to],
            Op::Overflow(_, ty, _) => smallvec![*ty, BIT],
            Op::CompareExchange { ty, .. } => smallvec![*ty, BIT],
            Op::Wide(..) => smallvec![WORD, WORD],
            Op::WideCompare(..) | Op::Compare(..) | Op::FloatCompare(..) => smallvec![BIT],
            Op::Offset { .. } | Op::Alloca { .. } | Op::DynamicAlloca { .. } => {
                smallvec![Type::PTR]
            }
            Op::StackSave | Op::ThreadLocal(_) | Op::ThreadPointer => smallvec![Type::PTR],
            Op::FrameAddress(_) | Op::ReturnAddress(_) => smallvec![Type::PTR],
            Op::LandingPad { .. } => smallvec![Type::PTR, Type::Int(32)],
            Op::TypeId(_) => smallvec![Type::Int(32)],
            Op::CycleCounter => smallvec![WORD],
            Op::ControlWord => smallvec![Type::Int(16)],
            Op::Call(call) | Op::Invoke(call) => {
                call.returns.iter().map(|returned| returned.ty).collect()
            }
            Op::Store { .. } | Op::StackRestore(_) | Op::Memory(..) | Op::Fence(_) => smallvec![],
            Op::VaStart(_) | Op::VaCopy(_) | Op::Prefetch(_) | Op::Pause => smallvec![],
            Op::StoreControl(_) | Op::LoadControl(_) => smallvec![],
            Op::Return(_) | Op::Jump | Op::Branch(_) | Op::Switch(..) => smallvec![],
            Op::Dispatch(..) | Op::IndirectJump(_) | Op::Resume(_) | Op::Trap | Op::Unreachable => {
                smallvec![]
            }
        }
    }
}
