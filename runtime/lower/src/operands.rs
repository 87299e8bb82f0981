//! Operands: values that were read, constants, and addresses of symbols.
//!
//! Constants are evaluated once in each function, except addresses of thread-local variables, which
//! are computed at each use.

use smallvec::SmallVec;
use uruk_baseline::ir::{Op, Operand, Reach, Symbol, SymbolData, Type};
use uruk_bitcode::ir::{
    BinaryOp, CastOp, Constant, Definition, GlobalKind, Instruction, Type as BitcodeType, TypeId,
    ValueId,
};

use crate::memory::is_near;
use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::Shape;
use crate::values::{EVERYWHERE, NOWHERE, Scalars};
use crate::{Named, Refused};

const EXPRESSION: &str = "a constant expression";

/// Constants nested in each other, at most.
const DEPTH: u32 = 16;

/// Parts of constants that are visited in one function.
const PARTS: u32 = 1 << 16;

impl<'a> Reading<'a> {
    /// The operands of an instruction, as many as it has.
    pub(crate) fn operands<const N: usize>(&self, it: &Instruction) -> Covered<[ValueId; N]> {
        match <[ValueId; N]>::try_from(self.body.operands_of(it)) {
            Ok(operands) => Ok(operands),
            Err(_) => invalid("another number of operands"),
        }
    }

    /// The scalars of a value.
    pub(crate) fn scalars(&mut self, value: ValueId) -> Covered<Scalars> {
        let Some((scalars, block)) = self.values.get(value.0) else {
            return self.constant(value, 0);
        };
        if block == EVERYWHERE || block == self.block {
            return Ok(scalars);
        }
        if block == NOWHERE {
            return Err(Refused::Unread(
                "a result of an invoke with a shared way on",
            ));
        }
        match self.flow.dominates(block, self.block) {
            true => Ok(scalars),
            false => invalid("a use that its definition does not dominate"),
        }
    }

    /// The scalar of a value that has one.
    pub(crate) fn one(&mut self, value: ValueId) -> Covered<Operand> {
        let scalars = self.scalars(value)?;
        match self.values.of(scalars) {
            [operand] => Ok(*operand),
            _ => not("an operation on an aggregate"),
        }
    }

    /// The scalar of a value, and its type.
    pub(crate) fn typed(&mut self, value: ValueId) -> Covered<(Operand, Type)> {
        let ty = self.scalar(self.type_of(value)?)?;
        Ok((self.one(value)?, ty))
    }

    /// The scalar of a value of that type.
    pub(crate) fn one_as(&mut self, value: ValueId, ty: Type) -> Covered<Operand> {
        match self.typed(value)? {
            (operand, its) if its == ty => Ok(operand),
            _ => invalid(TYPES),
        }
    }

    /// An address.
    pub(crate) fn address(&mut self, value: ValueId) -> Covered<Operand> {
        self.one_as(value, Type::PTR)
    }

    /// The scalars of values of one type.
    pub(crate) fn all_as<const N: usize>(
        &mut self,
        values: [ValueId; N],
        ty: Type,
    ) -> Covered<[Operand; N]> {
        let mut operands = [Operand::Undef; N];
        for (operand, value) in operands.iter_mut().zip(values) {
            *operand = self.one_as(value, ty)?;
        }
        Ok(operands)
    }

    /// The definition of a value, if it is a constant or a global.
    pub(crate) fn definition(&self, value: ValueId) -> Option<Definition<'a>> {
        self.body.definition(self.module, value)
    }

    /// The value of a constant integer of at most 64 bits.
    pub(crate) fn number(&self, value: ValueId) -> Option<i64> {
        let Some(Definition::Constant(constant)) = self.definition(value) else {
            return None;
        };
        let ty = self.body.type_of(self.module, value)?;
        let BitcodeType::Integer(bits @ 1..=64) = *self.module.ty(ty) else {
            return None;
        };
        match constant {
            Constant::Null => Some(0),
            Constant::Integer(words) => {
                let above = 64 - bits;
                Some((*words.first()? << above) as i64 >> above)
            }
            _ => None,
        }
    }

    fn constant(&mut self, value: ValueId, depth: u32) -> Covered<Scalars> {
        self.count_part(depth)?;
        let constant = match self.definition(value) {
            Some(Definition::Global(global)) => return self.global_address(value, global),
            Some(Definition::Constant(constant)) => constant,
            Some(_) => return invalid("a use before its definition"),
            None => return not("an unusual value"),
        };
        let ty = self.type_of(value)?;
        let operand = match constant {
            Constant::Integer(words) => return self.integer(value, ty, words),
            Constant::Float(words) => self.floating(ty, words)?,
            Constant::Null => return self.zero(value, ty),
            Constant::Undef | Constant::Poison => {
                let count = self.leaves(ty)?.len();
                let scalars = self.values.add(std::iter::repeat_n(Operand::Undef, count));
                self.values.set(value.0, EVERYWHERE, scalars);
                return Ok(scalars);
            }
            Constant::Aggregate(parts) => return self.aggregate(value, ty, parts, depth),
            Constant::Data(words) => return self.data(value, ty, words),
            Constant::Offset(..)
            | Constant::Cast(..)
            | Constant::Binary(..)
            | Constant::Label(..) => match self.evaluate(value, 0)? {
                (Some(_), bytes) if !is_near(bytes) => {
                    return Err(Refused::Unread("an address far beyond its symbol"));
                }
                (Some(symbol), bytes) => Operand::Address(symbol, bytes),
                (None, bytes) => Operand::Int(bytes as u64),
            },
            Constant::Assembly(_) => return not("assembly"),
            Constant::Other => return Err(Refused::Unread("an unusual constant")),
        };
        Ok(self.always(value, [operand]))
    }

    /// Counts a visited part of a constant.
    pub(crate) fn count_part(&mut self, depth: u32) -> Covered<()> {
        self.parts += 1;
        match depth > DEPTH || self.parts > PARTS + self.body.operands.len() as u32 {
            true => not(EXPRESSION),
            false => Ok(()),
        }
    }

    /// Makes operands the scalars of a constant.
    fn always(&mut self, value: ValueId, operands: impl IntoIterator<Item = Operand>) -> Scalars {
        let scalars = self.values.add(operands);
        self.values.set(value.0, EVERYWHERE, scalars);
        scalars
    }

    fn global_address(&mut self, value: ValueId, global: u32) -> Covered<Scalars> {
        let symbol = self.symbol(global)?;
        if self.out.symbols[symbol.index()].reach != Reach::ThreadLocal {
            return Ok(self.always(value, [Operand::Address(symbol, 0)]));
        }
        if !self.may_emit() {
            return not("a thread-local variable in a phi");
        }
        let address = self.emit_one(Op::ThreadLocal(symbol));
        Ok(self.values.add([address]))
    }

    fn integer(&mut self, value: ValueId, ty: TypeId, words: &[u64]) -> Covered<Scalars> {
        let low = words.first().copied().unwrap_or(0);
        if !matches!(self.module.ty(ty), BitcodeType::Integer(_)) {
            self.leaves(ty)?;
            return invalid(TYPES);
        }
        match self.shape_of(ty) {
            Shape::Scalar(Type::Int(bits)) => {
                Ok(self.always(value, [Operand::Int(low & u64::MAX >> (64 - bits))]))
            }
            Shape::Wide => {
                // Missing words above are zero.
                let high = words.get(1).copied().unwrap_or(0);
                Ok(self.always(value, [low, high].map(Operand::Int)))
            }
            _ => {
                self.leaves(ty)?;
                invalid(TYPES)
            }
        }
    }

    fn floating(&mut self, ty: TypeId, words: &[u64]) -> Covered<Operand> {
        let low = words.first().copied().unwrap_or(0);
        match self.shape_of(ty) {
            Shape::Scalar(Type::F32) => Ok(Operand::Float(low & u64::from(u32::MAX))),
            Shape::Scalar(Type::F64) => Ok(Operand::Float(low)),
            Shape::Scalar(Type::F80) => {
                let high = words.get(1).copied().unwrap_or(0) & 0xffff;
                Ok(self.wide_constant(u128::from(high) << 64 | u128::from(low)))
            }
            _ => {
                self.leaves(ty)?;
                invalid(TYPES)
            }
        }
    }

    pub(crate) fn wide_constant(&mut self, bits: u128) -> Operand {
        self.out.wide.push(bits.to_le_bytes());
        Operand::Wide(self.out.wide.len() as u32 - 1)
    }

    fn zero(&mut self, value: ValueId, ty: TypeId) -> Covered<Scalars> {
        let mut operands = SmallVec::<[Operand; 4]>::new();
        for leaf in self.leaves(ty)? {
            let zero = self.zero_of(leaf.ty);
            operands.push(zero);
        }
        Ok(self.always(value, operands))
    }

    pub(crate) fn zero_of(&mut self, ty: Type) -> Operand {
        match ty {
            Type::Int(_) => Operand::Int(0),
            Type::F32 | Type::F64 => Operand::Float(0),
            Type::F80 | Type::V128 | Type::V64 => self.wide_constant(0),
        }
    }

    /// A constant struct, array or vector: the scalars of its parts, in order.
    fn aggregate(
        &mut self,
        value: ValueId,
        ty: TypeId,
        parts: &[ValueId],
        depth: u32,
    ) -> Covered<Scalars> {
        let leaves = self.leaves(ty)?;
        let module = self.module;
        let (types, element) = match module.ty(ty) {
            BitcodeType::Struct(fields, _) => (&fields[..], None),
            BitcodeType::Array(_, of) | BitcodeType::Vector(_, of, _) => (&[][..], Some(*of)),
            _ => return invalid(TYPES),
        };
        let mut operands = SmallVec::<[Operand; 8]>::new();
        for (index, &part) in parts.iter().enumerate() {
            let of = element.or(types.get(index).copied());
            if of != Some(self.type_of(part)?) {
                return invalid(TYPES);
            }
            let known = self.values.get(part.0);
            let scalars = match known {
                Some((scalars, EVERYWHERE)) if !self.is_parameter(part) => scalars,
                Some(_) => return invalid("a constant that is made of no constant"),
                None => self.constant(part, depth + 1)?,
            };
            operands.extend_from_slice(self.values.of(scalars));
            if operands.len() > leaves.len() {
                return invalid(TYPES);
            }
        }
        if operands.len() != leaves.len() {
            return invalid(TYPES);
        }
        Ok(self.always(value, operands))
    }

    fn is_parameter(&self, value: ValueId) -> bool {
        matches!(self.definition(value), Some(Definition::Parameter(_)))
    }

    /// An array or vector of simple numbers.
    fn data(&mut self, value: ValueId, ty: TypeId, words: &[u64]) -> Covered<Scalars> {
        let leaves = self.leaves(ty)?;
        let is_list = matches!(
            self.shape_of(ty),
            Shape::Array { .. } | Shape::Vector { .. }
        );
        if leaves.len() != words.len() || !is_list {
            return invalid(TYPES);
        }
        let mut operands = SmallVec::<[Operand; 8]>::new();
        for (leaf, &word) in leaves.iter().zip(words) {
            operands.push(match leaf.ty {
                Type::Int(bits) => Operand::Int(word & u64::MAX >> (64 - bits)),
                Type::F32 => Operand::Float(word & u64::from(u32::MAX)),
                Type::F64 => Operand::Float(word),
                _ => return invalid(TYPES),
            });
        }
        Ok(self.always(value, operands))
    }

    /// Evaluates an expression to an address, or a number.
    fn evaluate(&mut self, value: ValueId, depth: u32) -> Covered<(Option<Symbol>, i64)> {
        self.count_part(depth)?;
        let constant = match self.definition(value) {
            Some(Definition::Global(global)) => {
                let symbol = self.symbol(global)?;
                return match self.out.symbols[symbol.index()].reach {
                    Reach::ThreadLocal => not("a constant expression of a thread-local variable"),
                    _ => Ok((Some(symbol), 0)),
                };
            }
            Some(Definition::Constant(constant)) => constant,
            _ => return invalid("a constant that is made of no constant"),
        };
        if self.shape_of(self.type_of(value)?) != Shape::Scalar(Type::PTR) {
            return not(EXPRESSION);
        }
        match constant {
            Constant::Null => Ok((None, 0)),
            &Constant::Label(function, block) => {
                let (space, at) = self.label(function, block)?;
                Ok((Some(space), at))
            }
            Constant::Integer(words) => Ok((None, words.first().copied().unwrap_or(0) as i64)),
            Constant::Offset(source, parts) => self.evaluate_offset(*source, parts, depth),
            Constant::Cast(
                CastOp::BitCast
                | CastOp::AddrSpaceCast
                | CastOp::PtrToInt
                | CastOp::PtrToAddr
                | CastOp::IntToPtr,
                one,
            ) if self.shape_of(self.type_of(*one)?) == Shape::Scalar(Type::PTR) => {
                let Constant::Cast(op, _) = constant else {
                    return invalid(TYPES);
                };
                if !self.casts(*op, self.type_of(*one)?, self.type_of(value)?) {
                    return invalid(TYPES);
                }
                self.evaluate(*one, depth + 1)
            }
            Constant::Binary(BinaryOp::Add, a, b) => {
                let (a, b) = (self.evaluate(*a, depth + 1)?, self.evaluate(*b, depth + 1)?);
                match (a, b) {
                    ((symbol, a), (None, b)) | ((None, a), (symbol, b)) => {
                        Ok((symbol, a.wrapping_add(b)))
                    }
                    _ => not(EXPRESSION),
                }
            }
            Constant::Binary(BinaryOp::Sub, a, b) => {
                let (a, b) = (self.evaluate(*a, depth + 1)?, self.evaluate(*b, depth + 1)?);
                match (a, b) {
                    ((symbol, a), (None, b)) => Ok((symbol, a.wrapping_sub(b))),
                    ((Some(x), a), (Some(y), b)) if x == y => Ok((None, a.wrapping_sub(b))),
                    _ => not(EXPRESSION),
                }
            }
            _ => not(EXPRESSION),
        }
    }

    /// The place that a constant `getelementptr` computes.
    fn evaluate_offset(
        &mut self,
        source: TypeId,
        parts: &[ValueId],
        depth: u32,
    ) -> Covered<(Option<Symbol>, i64)> {
        let Some((&base, indices)) = parts.split_first() else {
            return invalid(EXPRESSION);
        };
        if !self.is_pointer(base)? {
            return invalid(TYPES);
        }
        let (symbol, mut bytes) = self.evaluate(base, depth + 1)?;
        let mut within = source;
        for (at, &index) in indices.iter().enumerate() {
            let Some(number) = self.number(index) else {
                return not(EXPRESSION);
            };
            let step = self.step(at == 0, within)?;
            if matches!(step, Step::Field(..)) && !self.is_field_number(index)? {
                return invalid(TYPES);
            }
            let (moved, next) = self.take(step, within, number)?;
            bytes = bytes.wrapping_add(moved);
            within = next;
        }
        Ok((symbol, bytes))
    }

    /// The effect of an index into a type.
    pub(crate) fn step(&self, first: bool, within: TypeId) -> Covered<Step> {
        let info = self.lowering.types.info(within);
        match info.shape {
            _ if first => match info.size {
                Some(size) => Ok(Step::Each(size)),
                None => {
                    self.leaves(within)?;
                    invalid("an index of what has no size")
                }
            },
            Shape::Struct { fields, count } => Ok(Step::Field(fields, count)),
            Shape::Array { element, stride } => Ok(Step::Element(element, stride)),
            _ => not("an index into a vector"),
        }
    }

    /// The place that a constant index leads to: bytes, and the type there.
    pub(crate) fn take(&self, step: Step, within: TypeId, index: i64) -> Covered<(i64, TypeId)> {
        Ok(match step {
            Step::Each(size) => (index.wrapping_mul(size as i64), within),
            Step::Element(element, stride) => (index.wrapping_mul(stride as i64), element),
            Step::Field(fields, count) => {
                match self.lowering.types.field(fields, count, index as u64) {
                    Some(field) => (field.offset as i64, field.ty),
                    None => return invalid("a field that there is not"),
                }
            }
        })
    }

    /// The symbol of a global.
    pub(crate) fn symbol(&mut self, global: u32) -> Covered<Symbol> {
        if let Some(known) = self.values.symbol(global) {
            return Ok(known);
        }
        let it = &self.module.globals[global as usize];
        if it.is_special && it.kind != GlobalKind::Function {
            return Err(Refused::Unread("an address space"));
        }
        if let Named::Intrinsic(_) | Named::Not(_) = self.lowering.named[global as usize] {
            return invalid("an intrinsic whose address is taken");
        }
        let data = self.outside.symbol(global)?;
        let symbol = self.add_symbol(data);
        self.values.set_symbol(global, symbol);
        Ok(symbol)
    }

    /// A function that the compiler's code calls by its name.
    pub(crate) fn library(&mut self, name: &str) -> Symbol {
        if let Some(&symbol) = self.libraries.get(name) {
            return symbol;
        }
        let known = self.out.symbols.iter().position(|it| &*it.name == name);
        let symbol = match known {
            Some(at) => Symbol(at as u32),
            None => self.add_symbol(SymbolData {
                name: name.into(),
                reach: Reach::Indirect,
                is_weak: false,
            }),
        };
        self.libraries.insert(name.into(), symbol);
        symbol
    }

    pub(crate) fn add_symbol(&mut self, data: SymbolData) -> Symbol {
        self.out.symbols.push(data);
        Symbol(self.out.symbols.len() as u32 - 1)
    }
}

/// The effect of an index.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// The first index: moves by so many whole values.
    Each(u64),
    /// Moves to an element of that type, with so many bytes each.
    Element(TypeId, u64),
    /// Moves to a field of the struct whose fields begin there, with that count.
    Field(u32, u32),
}
