//! The supported features: a table, checked before compilation.
//!
//! An unsupported feature has a reason, a constant text; the first one of a function counts.

use crate::abi;
use crate::ir::{
    Block, Call, Cast, FloatOp, Function, Head, Op, Operand, Ordering, Passing, Reach, Returned,
    Tail, Type,
};
use crate::{Options, Uncovered, emit};

/// A reason, or none.
type Reason = Option<&'static str>;

/// Checks whether the compiler supports a function.
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
    let parameters = function.parameters.iter();
    parameters
        .map(|parameter| of_passing(parameter.ty, parameter.passing))
        .find(Reason::is_some)
        .flatten()
        .or_else(|| of_results(&function.returns))
        .or_else(|| {
            let mut all = function.instructions.iter();
            all.find_map(|instruction| of_op(function, &instruction.op))
        })
}

fn of_passing(ty: Type, passing: Passing) -> Reason {
    match (ty, passing) {
        (Type::V64, _) => Some("vectors of 64 bits"),
        _ => None,
    }
}

fn of_results(returns: &[Returned]) -> Reason {
    let mut places = abi::ResultPlaces::default();
    returns
        .iter()
        .find_map(|returned| match places.next(returned.ty) {
            Err(uncovered) => Some(uncovered.what),
            Ok(_) => of_passing(returned.ty, Passing::Plain),
        })
}

/// The first unsupported feature of the exit of a loop.
pub(crate) fn of_head(function: &Function, head: &Head) -> Reason {
    let mut stored = head.stored.iter();
    if let Some(what) = stored.find_map(|it| of_operand(function, it.operand)) {
        return Some(what);
    }
    let mut arguments = head.arguments.iter().enumerate();
    arguments.find_map(|(at, argument)| {
        if head.loaded.contains(&(at as u32)) && !is_plain_alloca(function, argument.operand) {
            return Some("contents of an over-aligned alloca at a loop's head");
        }
        let is_long = argument.ty == Type::F80;
        let long = is_long.then_some("x86_fp80 for a continuation");
        long.or_else(|| of_argument(argument.ty, argument.passing))
            .or_else(|| of_operand(function, argument.operand))
    })
}

/// Whether an operand is an alloca with no more than the frame's alignment.
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
        Passing::Memory { .. } => Some("a copy of memory for a continuation"),
        _ => of_passing(ty, passing),
    }
}

fn of_call(function: &Function, call: &Call) -> Reason {
    if call.tail == Tail::Must && !can_jump(function, call) {
        return Some("musttail with memory or more arguments than parameters");
    }
    let mut arguments = call.arguments.iter();
    arguments
        .find_map(|argument| match argument.passing {
            Passing::Memory { align: ..=16, .. } => None,
            Passing::Memory { .. } => Some("an over-aligned copy of memory as an argument"),
            passing => of_passing(argument.ty, passing),
        })
        .or_else(|| of_results(&call.returns))
        .or_else(|| match call.callee {
            crate::ir::Callee::Symbol(symbol) => of_operand(function, Operand::Address(symbol, 0)),
            crate::ir::Callee::Operand(_) => None,
        })
}

/// Whether the arguments of a call fit into the stack space of the function's parameters. The space
/// of a variadic function is unknown.
fn can_jump(function: &Function, call: &Call) -> bool {
    let (mut here, mut there) = (abi::Arguments::default(), abi::Arguments::default());
    for parameter in &function.parameters {
        here.next(parameter.ty, parameter.passing);
    }
    let mut is_plain = !call.is_variadic;
    for argument in &call.arguments {
        is_plain &= !matches!(argument.passing, Passing::Memory { .. });
        there.next(argument.ty, argument.passing);
    }
    is_plain && there.taken().stack <= here.taken().stack
}

fn of_operand(function: &Function, operand: Operand) -> Reason {
    match operand {
        Operand::Address(symbol, _)
            if function.symbols[symbol.index()].reach == Reach::ThreadLocal =>
        {
            Some("the address of a thread-local variable as a constant")
        }
        Operand::Label(block) if emit::has_phis(function, block) && emit::one_goto(function).1 => {
            Some("several jumps to a block with phis")
        }
        _ => None,
    }
}

fn of_type(ty: Type) -> Reason {
    of_passing(ty, Passing::Plain)
}

/// The reason against an operation on integers of a register.
fn of_int(ty: Type) -> Reason {
    match ty {
        Type::Int(_) => None,
        Type::F32 | Type::F64 => Some("an operation on integers of another type"),
        Type::V128 | Type::V64 => Some("operations on vectors"),
        Type::F80 => Some("x86_fp80"),
    }
}

/// The reason against an operation on floating-point numbers, or a conversion.
fn of_number(function: &Function, ty: Type) -> Reason {
    match ty {
        Type::Int(_) | Type::F32 | Type::F64 => None,
        Type::V128 | Type::V64 => Some("operations on vectors"),
        // The frame has room for values, not for constants.
        Type::F80 if function.types.contains(&Type::F80) => None,
        Type::F80 => Some("x86_fp80 of constants only"),
    }
}

fn of_cast(function: &Function, cast: Cast, from: Type, to: Type) -> Reason {
    let is_long = from == Type::F80 || to == Type::F80;
    match cast {
        Cast::Bits | Cast::FpToSiSat | Cast::FpToUiSat if is_long => {
            Some("an unusual conversion of x86_fp80")
        }
        _ => of_number(function, from).or_else(|| of_number(function, to)),
    }
}

/// The reason against a plain access to memory.
fn of_access(ty: Type, ordering: Ordering) -> Reason {
    match (ty, ordering) {
        (Type::V128, Ordering::Weak | Ordering::Strong) => Some("atomics"),
        _ => of_type(ty),
    }
}

/// The table.
fn of_op(function: &Function, op: &Op) -> Reason {
    let own = match op {
        Op::Int(_, ty, _) | Op::Compare(_, ty, _) | Op::Overflow(_, ty, _) | Op::Bits(_, ty, _) => {
            of_int(*ty)
        }
        Op::Funnel(_, ty, [_, _, by]) => of_int(*ty).or(match (ty, by) {
            (Type::Int(8 | 16 | 32 | 64), _) | (_, Operand::Int(_)) => None,
            _ => Some("funnel shifts of odd sizes"),
        }),
        Op::Wide(..) | Op::WideCompare(..) => None,
        Op::Fence(_) | Op::ThreadLocal(_) => None,
        Op::FrameAddress(_) | Op::ReturnAddress(_) => None,
        Op::ControlWord | Op::StoreControl(_) | Op::LoadControl(_) => None,
        Op::Prefetch(_) | Op::CycleCounter | Op::ThreadPointer | Op::Pause => None,
        Op::Offset { .. }
        | Op::Alloca { .. }
        | Op::Memory(..)
        | Op::Return(_)
        | Op::Jump
        | Op::Branch(_)
        | Op::Switch(..)
        | Op::Dispatch(..)
        | Op::Trap
        | Op::Unreachable => None,
        Op::Select(ty, _) | Op::Phi(ty, _) => of_type(*ty),
        Op::Load { ty, ordering, .. } => of_access(*ty, *ordering),
        Op::Store { ty, ordering, .. } => of_access(*ty, *ordering),
        Op::Cast(cast, from, to, _) => of_cast(function, *cast, *from, *to),
        Op::Call(call) => of_call(function, call),
        Op::Float(
            FloatOp::Rem | FloatOp::MinNum | FloatOp::MaxNum | FloatOp::CopySign,
            Type::F80,
            _,
        )
        | Op::Fma(Type::F80, _) => Some("an operation on x86_fp80 that is none of the processor's"),
        Op::Float(_, ty, _) | Op::FloatUnary(_, ty, _) | Op::FloatCompare(_, ty, _) => {
            of_number(function, *ty)
        }
        Op::Fma(ty, _) => of_number(function, *ty),
        Op::DynamicAlloca { .. } | Op::StackSave | Op::StackRestore(_) => None,
        Op::Rmw { ty, .. } | Op::CompareExchange { ty, .. } => match ty {
            Type::Int(8 | 16 | 32 | 64) | Type::F32 | Type::F64 => None,
            _ => Some("atomics of other sizes"),
        },
        Op::Invoke(call) => of_call(function, call),
        Op::LandingPad { .. } | Op::TypeId(_) | Op::Resume(_) => None,
        Op::VaStart(_) | Op::VaCopy(_) => None,
        Op::VaArg(ty, _) => match ty {
            Type::Int(32 | 64) | Type::F64 => None,
            _ => Some("variable arguments of other types"),
        },
        Op::IndirectJump(_) => None,
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
