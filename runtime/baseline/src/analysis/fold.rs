//! Which operands an instruction makes itself: tables, without state.

use crate::ir::{Cast, FloatOp, IntOp, Op, Operand, Term, Type, Value};

/// The most bytes that a folded offset adds, so that sums of a few fit in 32 bits.
const FAR: i64 = 1 << 24;

/// The most folded values under each other.
pub(super) const DEEP: u8 = 6;

/// What an address adds to its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Only so many bytes.
    Constant,
    /// A register too, multiplied as addresses can.
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

/// Operands that may be read from memory by the instruction itself, the better one first. At most
/// one of them is.
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
        _ => [None; 2],
    }
}

/// The operand of which the instruction wants a condition rather than a bit.
pub(super) fn condition(op: &Op) -> Option<Value> {
    match op {
        Op::Branch(Operand::Value(bit))
        | Op::Select(_, [Operand::Value(bit), ..])
        | Op::Cast(Cast::ZExt, Type::Int(1), _, Operand::Value(bit)) => Some(*bit),
        _ => None,
    }
}

/// Whether what it gives can be had as a condition.
pub(super) fn gives_condition(op: &Op) -> bool {
    matches!(op, Op::Compare(..))
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

/// Whether a comparison of it with zero is an instruction of its own.
pub(super) fn gives_test(op: &Op) -> bool {
    matches!(op, Op::Int(IntOp::And, Type::Int(8 | 16 | 32 | 64), _))
}
