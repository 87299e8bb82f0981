//! Operands that can be folded into their user: tables, without state.

use crate::ir::{Cast, FloatOp, IntOp, IntPredicate, Op, Operand, Ordering, Term, Type, Value};

/// The most bytes that a folded offset adds, so that sums of a few fit in 32 bits.
const FAR: i64 = 1 << 24;

/// The most levels of folded values.
pub(super) const DEEP: u8 = 6;

/// The offset that an address adds to its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A constant number of bytes.
    Constant,
    /// A register too, scaled as x86 addresses can.
    Indexed,
}

/// The shape of an offset, if an address can hold it.
pub(super) fn shape(terms: &[Term], bytes: i64) -> Option<Shape> {
    if bytes.abs() >= FAR {
        return None;
    }
    match terms {
        [] => Some(Shape::Constant),
        [
            Term {
                operand: Operand::Value(_),
                bits: 64,
                scale: 1 | 2 | 4 | 8,
            },
        ] => Some(Shape::Indexed),
        _ => None,
    }
}

/// Operands that the instruction itself may read from memory, the better one first. At most one of
/// them is read so.
pub(super) fn loads(op: &Op) -> [Option<Value>; 2] {
    let value = |operand: Operand| match operand {
        Operand::Value(value) => Some(value),
        _ => None,
    };
    match op {
        Op::Int(op, Type::Int(32 | 64), [a, b]) => match op {
            IntOp::Add | IntOp::And | IntOp::Or | IntOp::Xor | IntOp::Mul => [value(*b), value(*a)],
            IntOp::Sub => [value(*b), None],
            _ => [None; 2],
        },
        Op::Compare(_, Type::Int(8 | 16 | 32 | 64), [a, b]) => [value(*a), value(*b)],
        Op::Cast(Cast::ZExt | Cast::SExt, Type::Int(8 | 16 | 32), _, from) => [value(*from), None],
        Op::Float(
            FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Div,
            Type::F32 | Type::F64,
            [_, b],
        ) => [value(*b), None],
        Op::FloatCompare(_, Type::F32 | Type::F64, [a, b]) => [value(*b), value(*a)],
        _ => [None; 2],
    }
}

/// The operand that the instruction needs as a condition rather than as a bit.
pub(super) fn condition(op: &Op) -> Option<Value> {
    match op {
        Op::Branch(Operand::Value(bit))
        | Op::Select(_, [Operand::Value(bit), ..])
        | Op::Cast(Cast::ZExt, Type::Int(1), _, Operand::Value(bit)) => Some(*bit),
        _ => None,
    }
}

/// Whether the instruction can give its result as a condition.
pub(super) fn gives_condition(op: &Op) -> bool {
    matches!(
        op,
        Op::Compare(..) | Op::FloatCompare(_, Type::F32 | Type::F64, _)
    )
}

/// The operand of a comparison with zero that may be tested for bits instead.
pub(super) fn tested(op: &Op) -> Option<Value> {
    match op {
        Op::Compare(_, Type::Int(8 | 16 | 32 | 64), [Operand::Value(value), Operand::Int(0)]) => {
            Some(*value)
        }
        _ => None,
    }
}

/// Whether a comparison of the result with zero is one `test` instruction.
pub(super) fn gives_test(op: &Op) -> bool {
    matches!(op, Op::Int(IntOp::And, Type::Int(8 | 16 | 32 | 64), _))
}

/// The operand of a comparison with a constant that may be compared before it is extended.
pub(super) fn narrowed(op: &Op) -> Option<Value> {
    match op {
        Op::Compare(_, Type::Int(16 | 32 | 64), [Operand::Value(value), Operand::Int(_)]) => {
            Some(*value)
        }
        _ => None,
    }
}

/// Whether a comparison can be done on the value before its extension: the constant is such an
/// extension too, and a signed predicate has a sign extension.
pub(super) fn is_narrow(compare: &Op, cast: &Op) -> bool {
    let (
        Op::Compare(predicate, Type::Int(bits), [_, Operand::Int(constant)]),
        Op::Cast(cast, Type::Int(from @ (8 | 16 | 32)), _, Operand::Value(_)),
    ) = (compare, cast)
    else {
        return false;
    };
    let above = 64 - u32::from(*bits);
    let constant = (constant << above) as i64 >> above;
    let is_unsigned = matches!(
        predicate,
        IntPredicate::UGt | IntPredicate::UGe | IntPredicate::ULt | IntPredicate::ULe
    );
    match cast {
        Cast::ZExt => constant >= 0 && constant < 1 << from,
        Cast::SExt => !is_unsigned && constant >= -(1 << (from - 1)) && constant < 1 << (from - 1),
        _ => false,
    }
}

/// Operands of an operation that may be its memory destination.
pub(crate) fn changed(op: &Op) -> [Option<Value>; 2] {
    let Op::Int(op, Type::Int(8 | 16 | 32 | 64), [a, b]) = op else {
        return [None; 2];
    };
    let value = |operand: &Operand| match operand {
        Operand::Value(value) => Some(*value),
        _ => None,
    };
    match op {
        IntOp::Add | IntOp::And | IntOp::Or | IntOp::Xor => [value(a), value(b)],
        IntOp::Sub => [value(a), None],
        _ => [None; 2],
    }
}

/// Whether an instruction is a plain load of a type from an address.
pub(crate) fn reads(op: &Op, from: Operand, what: Type) -> bool {
    matches!(
        op,
        Op::Load { address, ty, ordering: Ordering::Plain, volatile: false, .. }
            if *address == from && *ty == what
    )
}
