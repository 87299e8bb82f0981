//! Memory: objects in the frame, loads and stores, addresses; and aggregates, which are their
//! scalars.

use smallvec::SmallVec;
use uruk_baseline::ir::{Op, Operand, Ordering, Term, Type};
use uruk_bitcode::ir::{self as bitcode, Definition, Instruction, TypeId, ValueId};

use crate::Refused;
use crate::atomics::ordering_of;
use crate::lanes::Lanes;
use crate::operands::Step;
use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::{Shape, Vectors};

/// Whether an address so many bytes behind a symbol takes only a few steps of 2 GiB: no object is
/// larger than the address space of processors.
pub(crate) fn is_near(bytes: i64) -> bool {
    bytes.unsigned_abs() < 1 << 36
}

impl Reading<'_> {
    pub(crate) fn alloca(
        &mut self,
        it: &Instruction,
        of: TypeId,
        align: u32,
        is_special: bool,
    ) -> Covered<()> {
        if is_special {
            return not("an alloca for arguments, or of an error");
        }
        let align = explicit(align)?;
        let Some(size) = self.lowering.types.info(of).size else {
            self.leaves(of)?;
            return invalid("an alloca of what has no size");
        };
        let [count] = self.operands(it)?;
        if self.block == 0
            && let Some(count) = self.number(count)
        {
            let size = size.saturating_mul(count.max(0) as u64).max(1);
            if size > MOST_BYTES {
                return not("a very large frame");
            }
            self.notes.frame = self.notes.frame.saturating_add(size);
            return self.emit_for(it, Op::Alloca { size, align });
        }
        self.notes.frame = u64::MAX;
        let (count, from) = self.typed(count)?;
        if !from.is_int() {
            return invalid(TYPES);
        }
        let count = self.resize(from, Type::PTR, count);
        self.emit_for(it, Op::DynamicAlloca { count, size, align })
    }

    pub(crate) fn load(
        &mut self,
        it: &Instruction,
        align: u32,
        volatile: bool,
        ordering: bitcode::Ordering,
    ) -> Covered<()> {
        let [address] = self.operands(it)?;
        let address = self.address(address)?;
        let known = self.result(it)?;
        let access = self.access(known, align, volatile, ordering)?;
        if let Shape::Scalar(ty) = self.shape_of(known) {
            return self.emit_for(it, access.load(ty, address, 0));
        }
        let mut values = SmallVec::<[Operand; 4]>::new();
        for leaf in self.leaves(known)? {
            let place = self.at(address, i64::from(leaf.offset));
            values.push(self.emit_one(access.load(leaf.ty, place, leaf.offset)));
        }
        self.stand(it, values)
    }

    pub(crate) fn store(
        &mut self,
        it: &Instruction,
        align: u32,
        volatile: bool,
        ordering: bitcode::Ordering,
    ) -> Covered<()> {
        let [address, value] = self.operands(it)?;
        let address = self.address(address)?;
        let known = self.type_of(value)?;
        let access = self.access(known, align, volatile, ordering)?;
        let scalars = self.scalars(value)?;
        for (at, leaf) in self.leaves(known)?.iter().enumerate() {
            let value = self.values.of(scalars)[at];
            if value == Operand::Undef && !access.volatile {
                // Any content is allowed.
                continue;
            }
            let place = self.at(address, i64::from(leaf.offset));
            self.emit(access.store(leaf.ty, place, value, leaf.offset));
        }
        Ok(())
    }

    /// The kind of memory access of a load or store of a type.
    fn access(
        &self,
        known: TypeId,
        align: u32,
        volatile: bool,
        ordering: bitcode::Ordering,
    ) -> Covered<Access> {
        let ordering = ordering_of(ordering);
        match self.shape_of(known) {
            Shape::Scalar(_) => {}
            Shape::Nothing => return invalid(TYPES),
            _ if self.lowering.types.info(known).vectors == Vectors::Bits => {
                return not("a vector of bits in memory");
            }
            _ => {}
        }
        let align = explicit(align)?;
        if ordering != Ordering::Plain {
            self.atomic(known, align)?;
        }
        Ok(Access {
            align,
            ordering,
            volatile,
        })
    }

    /// The address so many bytes further.
    pub(crate) fn at(&mut self, address: Operand, bytes: i64) -> Operand {
        match address {
            _ if bytes == 0 => address,
            Operand::Address(symbol, so_far) if is_near(so_far.wrapping_add(bytes)) => {
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
    pub(crate) fn element(&mut self, it: &Instruction, source: TypeId) -> Covered<()> {
        let Some((&base, indices)) = self.body.operands_of(it).split_first() else {
            return invalid("another number of operands");
        };
        if let Shape::Vector { lanes, .. } = self.shape_of(self.result(it)?) {
            return self.elements(it, source, lanes as usize);
        }
        let base = self.address(base)?;
        let mut within = source;
        let (mut bytes, mut terms) = (0i64, SmallVec::<[Term; 1]>::new());
        for (at, &index) in indices.iter().enumerate() {
            let step = self.step(at == 0, within)?;
            let number = match step {
                Step::Field(..) => match self.number(index) {
                    Some(number) => Some(number),
                    None => return not("an unusual index"),
                },
                _ => self.constant_index(index)?,
            };
            let (moved, next) = self.take(step, within, number.unwrap_or(1))?;
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
        let address = match terms.is_empty() {
            true => self.at(base, bytes),
            false => self.emit_one(Op::Offset { base, terms, bytes }),
        };
        self.stand(it, [address])
    }

    /// `getelementptr` of a vector of addresses, or by one of indices: a scalar operand is used for
    /// all lanes.
    fn elements(&mut self, it: &Instruction, source: TypeId, lanes: usize) -> Covered<()> {
        let body = self.body;
        let mut operands = SmallVec::<[(Lanes, Type); 4]>::new();
        for &value in body.operands_of(it) {
            let numbers = self.numbers(self.type_of(value)?)?;
            if !numbers.ty.is_int() || numbers.lanes.is_some_and(|it| it as usize != lanes) {
                return invalid(TYPES);
            }
            operands.push((self.lanes_as(value, numbers)?, numbers.ty));
        }
        let mut addresses = Lanes::new();
        for lane in 0..lanes {
            let mut each = operands
                .iter()
                .map(|(all, ty)| (all[lane % all.len()], *ty));
            let Some((base, Type::PTR)) = each.next() else {
                return invalid(TYPES);
            };
            let mut within = source;
            let (mut bytes, mut terms) = (0i64, SmallVec::<[Term; 1]>::new());
            for (at, index) in each.enumerate() {
                let step = self.step(at == 0, within)?;
                let number = match index {
                    (Operand::Int(number), Type::Int(bits)) => {
                        Some((number << (64 - bits)) as i64 >> (64 - bits))
                    }
                    (Operand::Undef, _) => Some(0),
                    _ if matches!(step, Step::Field(..)) => return not("an unusual index"),
                    _ => None,
                };
                let (moved, next) = self.take(step, within, number.unwrap_or(1))?;
                within = next;
                match (number, index) {
                    (Some(_), _) => bytes = bytes.wrapping_add(moved),
                    (None, (operand, Type::Int(bits))) if moved != 0 => terms.push(Term {
                        operand,
                        bits,
                        scale: moved as u64,
                    }),
                    _ => {}
                }
            }
            addresses.push(match terms.is_empty() {
                true => self.at(base, bytes),
                false => self.emit_one(Op::Offset { base, terms, bytes }),
            });
        }
        self.stand(it, addresses)
    }

    /// The number of a constant index.
    fn constant_index(&mut self, index: ValueId) -> Covered<Option<i64>> {
        let scalars = self.scalars(index)?;
        let number = match self.values.of(scalars) {
            [Operand::Int(low), rest @ ..] => match (self.number(index), rest) {
                (Some(number), _) => Some(number),
                // The low half of a number of 128 bits.
                (None, [Operand::Int(_)]) if self.is_wide_constant(index) => Some(*low as i64),
                _ => None,
            },
            [Operand::Undef, ..] => Some(0),
            _ => None,
        };
        Ok(number)
    }

    fn is_wide_constant(&self, value: ValueId) -> bool {
        let ty = self.body.type_of(self.module, value);
        let is_wide = ty.is_some_and(|ty| self.shape_of(ty) == Shape::Wide);
        is_wide && matches!(self.definition(value), Some(Definition::Constant(_)))
    }

    fn term(&mut self, index: ValueId, scale: u64) -> Covered<Term> {
        let known = self.type_of(index)?;
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

    pub(crate) fn extract(&mut self, it: &Instruction, path: &[u32]) -> Covered<()> {
        let [aggregate] = self.operands(it)?;
        let (first, count, _) = self.part(path, aggregate)?;
        match self.scalars(aggregate)?.part(first, count) {
            Some(part) => self.bind(it, part),
            None => invalid(TYPES),
        }
    }

    pub(crate) fn insert(&mut self, it: &Instruction, path: &[u32]) -> Covered<()> {
        let [aggregate, value] = self.operands(it)?;
        let (first, count, ty) = self.part(path, aggregate)?;
        if self.type_of(value)? != ty {
            return invalid(TYPES);
        }
        let (whole, part) = (self.scalars(aggregate)?, self.scalars(value)?);
        let mut list: SmallVec<[Operand; 4]> = self.values.of(whole).into();
        let part = self.values.of(part);
        let range = first as usize..(first + count) as usize;
        match list.get_mut(range) {
            Some(into) if into.len() == part.len() => into.copy_from_slice(part),
            _ => return invalid(TYPES),
        }
        self.stand(it, list)
    }

    /// The scalars of an aggregate that a path into it names: the first, the count, and their type.
    fn part(&self, path: &[u32], of: ValueId) -> Covered<(u32, u32, TypeId)> {
        let mut within = self.type_of(of)?;
        self.leaves(within)?;
        let mut first = 0;
        for &index in path {
            let types = &self.lowering.types;
            let (next, before) = match types.info(within).shape {
                Shape::Struct { fields, count } => match types.field(fields, count, index.into()) {
                    Some(field) => (field.ty, field.leaf),
                    None => return invalid(TYPES),
                },
                Shape::Array { element, .. } => {
                    // A part of a value with few scalars; without any, the value may have many
                    // parts.
                    let each = self.leaves(element)?.len() as u32;
                    (element, each.saturating_mul(index))
                }
                _ => return invalid(TYPES),
            };
            first += before;
            within = next;
        }
        Ok((first, self.leaves(within)?.len() as u32, within))
    }
}

/// The memory of an access.
#[derive(Clone, Copy)]
struct Access {
    align: u32,
    ordering: Ordering,
    volatile: bool,
}

impl Access {
    /// The alignment so many bytes further.
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

/// An alignment that must be explicit.
fn explicit(align: u32) -> Covered<u32> {
    match align {
        0 => Err(Refused::Unread("an alignment that is not said")),
        _ => Ok(align),
    }
}
