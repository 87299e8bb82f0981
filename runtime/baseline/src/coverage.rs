//! What is compiled here: a table, asked before anything is done.
//!
//! What is not covered has a reason, a constant text; the first one of a function counts.

use crate::abi;
use crate::ir::{
    Block, Call, Cast, Function, IntOp, Op, Operand, Ordering, Passing, Reach, Returned, Tail, Type,
};
use crate::{Options, Uncovered};

/// A reason, or none.
type Reason = Option<&'static str>;

/// Whether a function is compiled here.
pub(crate) fn covers(function: &Function, _options: &Options) -> Result<(), Uncovered> {
    match of_function(function) {
        Some(what) => Err(Uncovered { what }),
        None => Ok(()),
    }
}

fn of_function(function: &Function) -> Reason {
    if function.blocks.is_empty() {
        return Some("a function without blocks");
    }
    if function.is_variadic {
        return Some("variable arguments");
    }
    if function.personality.is_some() {
        return Some("exceptions");
    }
    let parameters = function.parameters.iter();
    parameters
        .map(|parameter| of_passing(parameter.ty, parameter.passing))
        .find(Reason::is_some)
        .flatten()
        .or_else(|| of_results(&function.returns))
        .or_else(|| of_heads(function))
        .or_else(|| {
            let mut all = function.instructions.iter();
            all.find_map(|instruction| of_op(function, &instruction.op))
        })
}

fn of_passing(ty: Type, passing: Passing) -> Reason {
    match (ty, passing) {
        (Type::F80, _) => Some("x86_fp80"),
        (Type::V64, _) => Some("vectors of 64 bits"),
        _ => None,
    }
}

fn of_results(returns: &[Returned]) -> Reason {
    let mut places = abi::Results::default();
    returns
        .iter()
        .find_map(|returned| match places.next(returned.ty) {
            Err(uncovered) => Some(uncovered.what),
            Ok(_) => of_passing(returned.ty, Passing::Plain),
        })
}

fn of_heads(function: &Function) -> Reason {
    function.counting.heads.iter().find_map(|head| {
        let mut arguments = head.arguments.iter().enumerate();
        arguments.find_map(|(at, argument)| {
            if head.loaded.contains(&(at as u32)) && !is_plain_alloca(function, argument.operand) {
                return Some("contents of an over-aligned alloca at a loop's head");
            }
            of_argument(argument.ty, argument.passing)
                .or_else(|| of_operand(function, argument.operand))
        })
    })
}

/// Whether an operand is an alloca that is aligned to no more than frames are.
fn is_plain_alloca(function: &Function, operand: Operand) -> bool {
    let Operand::Value(value) = operand else {
        return false;
    };
    function.of_block(Block(0)).any(|(_, instruction)| {
        instruction.results.contains(&value.0)
            && matches!(instruction.op, Op::Alloca { align: ..=16, .. })
    })
}

fn of_argument(ty: Type, passing: Passing) -> Reason {
    match passing {
        Passing::Memory { .. } => Some("a copy of memory as an argument"),
        _ => of_passing(ty, passing),
    }
}

fn of_call(function: &Function, call: &Call) -> Reason {
    if call.tail == Tail::Must {
        return Some("musttail");
    }
    let mut arguments = call.arguments.iter();
    arguments
        .find_map(|argument| of_argument(argument.ty, argument.passing))
        .or_else(|| of_results(&call.returns))
        .or_else(|| match call.callee {
            crate::ir::Callee::Symbol(symbol) => of_operand(function, Operand::Address(symbol, 0)),
            crate::ir::Callee::Operand(_) => None,
        })
}

fn of_operand(function: &Function, operand: Operand) -> Reason {
    match operand {
        Operand::Address(symbol, _)
            if function.symbols[symbol.index()].reach == Reach::ThreadLocal =>
        {
            Some("the address of a thread-local variable as a constant")
        }
        Operand::Label(_) => Some("addresses of blocks"),
        _ => None,
    }
}

fn of_type(ty: Type) -> Reason {
    of_passing(ty, Passing::Plain)
}

/// Of a plain access to memory.
fn of_access(ty: Type, ordering: Ordering, is_store: bool) -> Reason {
    match (ty, ordering) {
        (_, Ordering::Strong) if is_store => Some("atomics"),
        (Type::V128, Ordering::Weak | Ordering::Strong) => Some("atomics"),
        _ => of_type(ty),
    }
}

/// The table.
fn of_op(function: &Function, op: &Op) -> Reason {
    let own = match op {
        Op::Int(op, ..) => match op {
            IntOp::SMin | IntOp::SMax | IntOp::UMin | IntOp::UMax => Some("minimum and maximum"),
            IntOp::SAddSat | IntOp::SSubSat | IntOp::UAddSat | IntOp::USubSat => {
                Some("saturating arithmetic")
            }
            _ => None,
        },
        Op::Compare(..)
        | Op::Offset { .. }
        | Op::Alloca { .. }
        | Op::Memory(..)
        | Op::Return(_)
        | Op::Jump
        | Op::Branch(_)
        | Op::Switch(..)
        | Op::Trap
        | Op::Unreachable => None,
        Op::Select(ty, _) | Op::Phi(ty, _) => of_type(*ty),
        Op::Load { ty, ordering, .. } => of_access(*ty, *ordering, false),
        Op::Store { ty, ordering, .. } => of_access(*ty, *ordering, true),
        Op::Cast(Cast::Trunc | Cast::ZExt | Cast::SExt, ..) => None,
        Op::Call(call) => of_call(function, call),
        Op::Cast(..) => Some("conversions of floating point"),
        Op::Float(..) | Op::FloatUnary(..) | Op::FloatCompare(..) | Op::Fma(..) => {
            Some("floating point")
        }
        Op::Bits(..) | Op::Funnel(..) => Some("bit operations"),
        Op::Overflow(..) => Some("arithmetic with overflow"),
        Op::Wide(..) | Op::WideCompare(..) => Some("integers of 128 bits"),
        Op::DynamicAlloca { .. } | Op::StackSave | Op::StackRestore(_) => Some("dynamic alloca"),
        Op::ThreadLocal(_) => Some("thread-local variables"),
        Op::Rmw { .. } | Op::CompareExchange { .. } | Op::Fence(_) => Some("atomics"),
        Op::LandingPad { .. } | Op::TypeId(_) | Op::Invoke(_) | Op::Resume(_) => Some("exceptions"),
        Op::VaStart(_) | Op::VaCopy(_) | Op::VaArg(..) => Some("variable arguments"),
        Op::FrameAddress(_) | Op::ReturnAddress(_) => Some("addresses of frames"),
        Op::Prefetch(_) | Op::CycleCounter | Op::Pause => Some("prefetch, rdtsc, pause"),
        Op::IndirectJump(_) => Some("computed goto"),
    };
    own.or_else(|| {
        let mut reason = None;
        op.operands(|operand| {
            if reason.is_none() {
                reason = of_operand(function, operand);
            }
        });
        reason
    })
}
