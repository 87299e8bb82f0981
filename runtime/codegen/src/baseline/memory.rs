//! Memory: what is in the frame, loads and stores, addresses, atomics; and aggregates, which are
//! their scalars.

use inkwell::llvm_sys::core::{
    LLVMGetAlignment, LLVMGetAllocatedType, LLVMGetAtomicRMWBinOp, LLVMGetGEPSourceElementType,
    LLVMGetIndices, LLVMGetNumIndices, LLVMGetNumOperands, LLVMGetOrdering, LLVMGetVolatile,
    LLVMIsAtomicSingleThread,
};
use inkwell::llvm_sys::{LLVMAtomicOrdering, LLVMAtomicRMWBinOp};
use smallvec::SmallVec;
use uruk_baseline::ir::{Op, Operand, Ordering, RmwOp, Term, Type};

use super::operands::{Step, number_of};
use super::reading::{Covered, Reading, not};
use super::types::{Known, Shape};
use crate::handles::{InstructionRef, TypeRef, ValueRef};

impl<'m> Reading<'_, 'm> {
    pub(super) fn alloca(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        // SAFETY: an alloca and its type.
        let (ty, align) = unsafe {
            let ty = TypeRef::of(LLVMGetAllocatedType(it.raw()));
            (ty, LLVMGetAlignment(it.raw()))
        };
        let known = self.known.types.know(ty);
        let info = *self.known.types.info(known);
        if info.shape == Shape::Other && info.size == 0 {
            self.leaves(known)?;
        }
        let align = align.max(1);
        let count = self.operand(it, 0);
        if self.block.0 == 0
            && let Some(count) = number_of(count)
        {
            let size = info.size.saturating_mul(count.max(0) as u64).max(1);
            if size > MOST_BYTES {
                return not("a very large frame");
            }
            self.notes.frame = self.notes.frame.saturating_add(size);
            return self.emit_for(it, Op::Alloca { size, align });
        }
        self.notes.frame = u64::MAX;
        let from = self.scalar_type(count)?;
        let count = self.one(count)?;
        let count = self.resize(from, Type::PTR, count);
        let size = info.size;
        self.emit_for(it, Op::DynamicAlloca { count, size, align })
    }

    pub(super) fn load(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        if self.jumps.numbered
            && let Some(number) = self.loaded_label(it)
        {
            return self.stand(it, [number]);
        }
        let address = self.one_of(it, 0)?;
        let known = self.known_type(*it);
        let access = self.access(it, known)?;
        if let Shape::Scalar(ty) = self.shape_of(known) {
            let op = access.load(ty, address, 0);
            return self.emit_for(it, op);
        }
        let mut values = SmallVec::<[Operand; 4]>::new();
        for at in 0..self.leaves(known)?.len() {
            let leaf = self.leaves(known)?[at];
            let place = self.at(address, i64::from(leaf.offset));
            values.push(self.emit_one(access.load(leaf.ty, place, leaf.offset)));
        }
        self.stand(it, values)
    }

    pub(super) fn store(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let [value, address] = [0, 1].map(|index| self.operand(it, index));
        let address = self.one(address)?;
        let known = self.known_type(value);
        let access = self.access(it, known)?;
        let scalars = self.scalars(value)?;
        for at in 0..self.leaves(known)?.len() {
            let leaf = self.leaves(known)?[at];
            let value = self.known.values.of(scalars)[at];
            if value == Operand::Undef && !access.volatile {
                // Whatever is there is as good.
                continue;
            }
            let place = self.at(address, i64::from(leaf.offset));
            self.emit(access.store(leaf.ty, place, value, leaf.offset));
        }
        Ok(())
    }

    /// How memory is accessed by a load or store of a type.
    fn access(&self, it: InstructionRef<'m>, known: Known) -> Covered<Access> {
        // SAFETY: a load or store.
        let (align, ordering, volatile) = unsafe {
            (
                LLVMGetAlignment(it.raw()),
                LLVMGetOrdering(it.raw()),
                LLVMGetVolatile(it.raw()) != 0,
            )
        };
        if let Shape::Vector {
            lane: Type::Int(1), ..
        } = self.shape_of(known)
        {
            return not("a vector of bits in memory");
        }
        let ordering = ordering_of(ordering);
        if ordering != Ordering::Plain && !matches!(self.shape_of(known), Shape::Scalar(_)) {
            return not("an atomic access of more than a word");
        }
        Ok(Access {
            align: align.max(1),
            ordering,
            volatile,
        })
    }

    /// An address so many bytes on.
    pub(super) fn at(&mut self, address: Operand, bytes: i64) -> Operand {
        match address {
            _ if bytes == 0 => address,
            Operand::Address(symbol, so_far) => {
                Operand::Address(symbol, so_far.wrapping_add(bytes))
            }
            Operand::Int(so_far) => Operand::Int(so_far.wrapping_add(bytes as u64)),
            base => self.emit_one(Op::Offset {
                base,
                terms: SmallVec::new(),
                bytes,
            }),
        }
    }

    /// `getelementptr`.
    pub(super) fn element(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        // SAFETY: an instruction with such a type.
        let (source, count) = unsafe {
            let source = TypeRef::of(LLVMGetGEPSourceElementType(it.raw()));
            (source, LLVMGetNumOperands(it.raw()) as u32)
        };
        let base = self.operand(it, 0);
        let table = self.table(base)?;
        let mut within = self.known.types.know(source);
        let (mut bytes, mut terms) = (0i64, SmallVec::<[Term; 1]>::new());
        for at in 1..count {
            let index = self.operand(it, at);
            let step = match at {
                1 => Step::Each(self.known.types.info(within).size),
                _ => self.step(within)?,
            };
            let number = match step {
                Step::Field(_) => Some(number_of(index).unwrap_or(0)),
                _ => self.constant_index(index)?,
            };
            let (moved, next) = self.take(step, within, number.unwrap_or(1));
            within = next;
            match number {
                Some(_) => bytes = bytes.wrapping_add(moved),
                None if moved != 0 => {
                    let term = self.term(index, moved as u64)?;
                    terms.push(term);
                }
                None => {}
            }
        }
        if let Some(first) = table {
            return self.entry(it, first, bytes, &terms);
        }
        let base = self.one(base)?;
        let address = match terms.is_empty() {
            true => self.at(base, bytes),
            false => self.emit_one(Op::Offset { base, terms, bytes }),
        };
        self.stand(it, [address])
    }

    /// The number that an index is, if it is one.
    fn constant_index(&mut self, index: ValueRef<'m>) -> Covered<Option<i64>> {
        let scalars = self.scalars(index)?;
        Ok(match self.known.values.of(scalars) {
            [Operand::Int(_), ..] => number_of(index),
            [Operand::Undef, ..] => Some(0),
            _ => None,
        })
    }

    fn term(&mut self, index: ValueRef<'m>, scale: u64) -> Covered<Term> {
        let known = self.known_type(index);
        let (operand, bits) = match self.shape_of(known) {
            Shape::Scalar(Type::Int(bits)) => (self.one(index)?, bits),
            Shape::Wide => (self.halves(index)?[0], 64),
            _ => return not("an address of several"),
        };
        Ok(Term {
            operand,
            bits,
            scale,
        })
    }

    pub(super) fn extract(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let aggregate = self.operand(it, 0);
        let (first, count) = self.part(it, aggregate)?;
        let part = self.scalars(aggregate)?.part(first, count);
        self.known.values.set(it.raw() as usize, part);
        Ok(())
    }

    pub(super) fn insert(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let [aggregate, value] = [0, 1].map(|index| self.operand(it, index));
        let (first, count) = self.part(it, aggregate)?;
        let (whole, part) = (self.scalars(aggregate)?, self.scalars(value)?);
        let mut list: SmallVec<[Operand; 4]> = self.known.values.of(whole).into();
        let range = first as usize..(first + count) as usize;
        let part = self.known.values.of(part);
        if part.len() != range.len() {
            return not("an unusual aggregate");
        }
        list[range].copy_from_slice(part);
        self.stand(it, list)
    }

    /// Which scalars of an aggregate the indices of an instruction name: the first and how many.
    fn part(&mut self, it: InstructionRef<'m>, of: ValueRef<'m>) -> Covered<(u32, u32)> {
        // SAFETY: an instruction with indices, which lie in a row.
        let indices = unsafe {
            let count = LLVMGetNumIndices(it.raw()) as usize;
            std::slice::from_raw_parts(LLVMGetIndices(it.raw()), count)
        };
        let mut within = self.known_type(of);
        self.leaves(within)?;
        let mut first = 0;
        for &index in indices {
            let part = self.known.types.part(within, index);
            let (next, before) = part.map_err(|what| uruk_baseline::Uncovered { what })?;
            first += before;
            within = next;
        }
        Ok((first, self.leaves(within)?.len() as u32))
    }

    pub(super) fn rmw(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        use LLVMAtomicRMWBinOp as B;
        // SAFETY: such an instruction.
        let op = match unsafe { LLVMGetAtomicRMWBinOp(it.raw()) } {
            B::LLVMAtomicRMWBinOpXchg => RmwOp::Exchange,
            B::LLVMAtomicRMWBinOpAdd => RmwOp::Add,
            B::LLVMAtomicRMWBinOpSub => RmwOp::Sub,
            B::LLVMAtomicRMWBinOpAnd => RmwOp::And,
            B::LLVMAtomicRMWBinOpNand => RmwOp::Nand,
            B::LLVMAtomicRMWBinOpOr => RmwOp::Or,
            B::LLVMAtomicRMWBinOpXor => RmwOp::Xor,
            B::LLVMAtomicRMWBinOpMax => RmwOp::Max,
            B::LLVMAtomicRMWBinOpMin => RmwOp::Min,
            B::LLVMAtomicRMWBinOpUMax => RmwOp::UMax,
            B::LLVMAtomicRMWBinOpUMin => RmwOp::UMin,
            B::LLVMAtomicRMWBinOpFAdd => RmwOp::FAdd,
            B::LLVMAtomicRMWBinOpFSub => RmwOp::FSub,
            _ => return not("an unusual atomic operation"),
        };
        let [address, value] = [0, 1].map(|index| self.operand(it, index));
        let known = self.known_type(value);
        let Shape::Scalar(ty) = self.shape_of(known) else {
            return not("an atomic access of more than a word");
        };
        let (address, value) = (self.one(address)?, self.one(value)?);
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

    pub(super) fn compare_exchange(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        let [address, expected, value] = [0, 1, 2].map(|index| self.operand(it, index));
        let known = self.known_type(value);
        let Shape::Scalar(ty) = self.shape_of(known) else {
            return not("an atomic access of more than a word");
        };
        let op = Op::CompareExchange {
            ty,
            address: self.one(address)?,
            expected: self.one(expected)?,
            value: self.one(value)?,
        };
        self.emit_for(it, op)
    }

    pub(super) fn fence(&mut self, it: InstructionRef<'m>) -> Covered<()> {
        // SAFETY: a fence.
        let (ordering, alone) = unsafe {
            let alone = LLVMIsAtomicSingleThread(it.raw()) != 0;
            (LLVMGetOrdering(it.raw()), alone)
        };
        // Towards handlers of signals the order of the code is enough.
        let ordering = match alone {
            true => Ordering::Weak,
            false => ordering_of(ordering),
        };
        self.emit(Op::Fence(ordering));
        Ok(())
    }
}

/// Bytes that are accessed.
#[derive(Clone, Copy)]
struct Access {
    align: u32,
    ordering: Ordering,
    volatile: bool,
}

impl Access {
    /// The alignment so many bytes on.
    fn align(self, offset: u32) -> u32 {
        match offset {
            0 => self.align,
            _ => self.align.min(1 << offset.trailing_zeros()),
        }
    }

    fn load(self, ty: Type, address: Operand, offset: u32) -> Op {
        Op::Load {
            ty,
            address,
            align: self.align(offset),
            ordering: self.ordering,
            volatile: self.volatile,
        }
    }

    fn store(self, ty: Type, address: Operand, value: Operand, offset: u32) -> Op {
        Op::Store {
            ty,
            address,
            value,
            align: self.align(offset),
            ordering: self.ordering,
            volatile: self.volatile,
        }
    }
}

/// Bytes of one variable of a frame: offsets are 32 bits.
const MOST_BYTES: u64 = 1 << 30;

fn ordering_of(ordering: LLVMAtomicOrdering) -> Ordering {
    use LLVMAtomicOrdering as A;
    match ordering {
        A::LLVMAtomicOrderingNotAtomic => Ordering::Plain,
        A::LLVMAtomicOrderingSequentiallyConsistent => Ordering::Strong,
        _ => Ordering::Weak,
    }
}
