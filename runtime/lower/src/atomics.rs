//! Atomic memory accesses: the table of covered ones, read-modify-write operations,
//! compare-and-exchange, fences.
//!
//! # Why
//! Functions of both compilers update the same variable, so both must use the same mechanism.
//! LLVM emits an instruction for an atomic access of 1, 2, 4 or 8 bytes whose alignment is at least
//! its size (`AtomicExpandPass`, `atomicSizeSupported`). Each other one is a call of libatomic:
//! `__atomic_load`, `__atomic_store`, `__atomic_exchange`, `__atomic_compare_exchange`, or a
//! function for 16 bytes. libatomic takes a lock if the bytes cross two words of 16, and an
//! instruction of ours would not see that lock. The access's own alignment decides, not the address
//! at run time, as in LLVM.
//!
//! A 16-byte access with its full alignment is `cmpxchg16b` where the function has the feature
//! `cx16`, as tier 3 does on most processors, and a call of libatomic's `__atomic_*_16` elsewhere,
//! as at tiers 1 and 2 by default. The two agree: these functions of libatomic are indirect
//! (`STT_GNU_IFUNC`), and are `cmpxchg16b` without a lock on processors with that feature.

use uruk_baseline::ir::{Op, Ordering, RmwOp, Type};
use uruk_bitcode::ir::{self as bitcode, Instruction, TypeId};

use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::Shape;

impl Reading<'_> {
    /// The scalar type of an atomic access with an alignment in bytes, if LLVM emits an instruction
    /// for it: the table above. An alignment of 0 is the type's size.
    pub(crate) fn atomic(&self, known: TypeId, align: u32) -> Covered<Type> {
        let ty = match self.shape_of(known) {
            Shape::Scalar(ty @ (Type::Int(8 | 16 | 32 | 64) | Type::F32 | Type::F64)) => ty,
            Shape::Scalar(_) => return not("an atomic access of an odd size"),
            _ => return not("an atomic access of more than a word"),
        };
        match align == 0 || align >= ty.bytes() {
            true => Ok(ty),
            false => not("an atomic access with an alignment below its size"),
        }
    }

    pub(crate) fn rmw(&mut self, it: &Instruction, op: u32, align: u32) -> Covered<()> {
        let Some(&op) = RMW_OPS.get(op as usize) else {
            return not("an unusual atomic operation");
        };
        let [address, value] = self.operands(it)?;
        let ty = self.atomic(self.type_of(value)?, align)?;
        let of_floats = matches!(op, RmwOp::FAdd | RmwOp::FSub);
        if op != RmwOp::Exchange && of_floats == ty.is_int() {
            return invalid(TYPES);
        }
        let (address, value) = (self.address(address)?, self.one(value)?);
        self.emit_for(
            it,
            Op::Rmw {
                op,
                ty,
                address,
                value,
            },
        )
    }

    pub(crate) fn compare_exchange(&mut self, it: &Instruction, align: u32) -> Covered<()> {
        let [address, expected, value] = self.operands(it)?;
        let ty = self.atomic(self.type_of(value)?, align)?;
        if !ty.is_int() {
            return invalid(TYPES);
        }
        let op = Op::CompareExchange {
            ty,
            address: self.address(address)?,
            expected: self.one_as(expected, ty)?,
            value: self.one(value)?,
        };
        self.emit_for(it, op)
    }

    pub(crate) fn fence(&mut self, ordering: bitcode::Ordering) -> Covered<()> {
        // For signal handlers the order of the code is enough.
        let ordering = match ordering_of(ordering) {
            Ordering::Plain => Ordering::Weak,
            ordering => ordering,
        };
        self.end(Op::Fence(ordering))
    }
}

/// Operations in the order of LLVM's numbers in bitcode.
const RMW_OPS: [RmwOp; 13] = [
    RmwOp::Exchange,
    RmwOp::Add,
    RmwOp::Sub,
    RmwOp::And,
    RmwOp::Nand,
    RmwOp::Or,
    RmwOp::Xor,
    RmwOp::Max,
    RmwOp::Min,
    RmwOp::UMax,
    RmwOp::UMin,
    RmwOp::FAdd,
    RmwOp::FSub,
];

pub(crate) fn ordering_of(ordering: bitcode::Ordering) -> Ordering {
    match ordering {
        bitcode::Ordering::NotAtomic => Ordering::Plain,
        bitcode::Ordering::SeqCst => Ordering::Strong,
        _ => Ordering::Weak,
    }
}
