//! Constant expressions of addresses: a global, minus another, plus a number.

use uruk_bitcode::ir::{
    BinaryOp, CastOp, Constant, Details, Global, Module, Type, TypeId, ValueId,
};

use super::Making;
use crate::Refused;
use crate::refused::{Covered, invalid};
use crate::types::Shape;

/// Constants nested in each other, at most.
const DEPTH: u32 = 64;

/// Parts of constants that are visited in one module.
pub(super) const PARTS: u32 = 1 << 26;

/// Flag in the number of a global: it means the global's label space, not its own address.
const LABELS: u32 = 1 << 31;

/// The function whose label space a number of [`Address`] means, if it means one.
pub(super) fn labelled(number: u32) -> Option<u32> {
    (number & LABELS != 0).then_some(number & !LABELS)
}

const EXPRESSION: Refused = Refused::Unread("an unusual constant expression");

/// The value of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Address {
    /// The global whose address it is.
    pub(super) plus: Option<u32>,
    /// The global whose address is subtracted.
    pub(super) minus: Option<u32>,
    pub(super) addend: i64,
}

impl Address {
    pub(super) fn of(global: u32) -> Address {
        Address {
            plus: Some(global),
            ..Address::default()
        }
    }

    fn number(addend: i64) -> Address {
        Address {
            addend,
            ..Address::default()
        }
    }

    fn is_number(&self) -> bool {
        self.plus.is_none() && self.minus.is_none()
    }

    fn add(self, other: Address) -> Covered<Address> {
        let one = |a: Option<u32>, b: Option<u32>| match (a, b) {
            (Some(_), Some(_)) => Err(EXPRESSION),
            (a, b) => Ok(a.or(b)),
        };
        let plus = one(self.plus, other.plus)?;
        let minus = one(self.minus, other.minus)?;
        let is_distance = plus.is_some() && plus == minus;
        Ok(Address {
            plus: plus.filter(|_| !is_distance),
            minus: minus.filter(|_| !is_distance),
            addend: self.addend.wrapping_add(other.addend),
        })
    }

    fn negated(self) -> Address {
        Address {
            plus: self.minus,
            minus: self.plus,
            addend: self.addend.wrapping_neg(),
        }
    }
}

impl<'a> Making<'a> {
    pub(super) fn global(&self, number: u32) -> Covered<(&'a Global, &'a Details)> {
        let module: &'a Module = self.module;
        let at = number as usize;
        match (module.globals.get(at), module.details.get(at)) {
            (Some(global), Some(details)) => Ok((global, details)),
            _ => invalid("a global that there is not"),
        }
    }

    /// The constant behind a value; `None` for a global.
    pub(super) fn constant(&mut self, value: ValueId, depth: u32) -> Covered<Option<&'a Constant>> {
        let Some(left) = self.parts.checked_sub(1).filter(|_| depth < DEPTH) else {
            return Err(Refused::Unread("a deep constant"));
        };
        self.parts = left;
        let module: &'a Module = self.module;
        let Some(at) = value.0.checked_sub(module.globals.len() as u32) else {
            return Ok(None);
        };
        match module.constants.get(at as usize) {
            Some((_, constant)) => Ok(Some(constant)),
            None => invalid("a constant that there is not"),
        }
    }

    pub(super) fn type_of(&self, value: ValueId) -> Option<TypeId> {
        match value.0.checked_sub(self.module.globals.len() as u32) {
            None => self.module.pointer,
            Some(at) => self.module.constants.get(at as usize).map(|&(ty, _)| ty),
        }
    }

    /// The bits of an integer or address, at most 64.
    fn width(&self, value: ValueId) -> Covered<u32> {
        match self.type_of(value).map(|ty| self.module.ty(ty)) {
            Some(&Type::Integer(bits @ 1..=64)) => Ok(bits),
            Some(Type::Pointer(0)) => Ok(64),
            _ => Err(EXPRESSION),
        }
    }

    /// The value of an expression of an integer or address.
    pub(super) fn address(&mut self, value: ValueId, depth: u32) -> Covered<Address> {
        let Some(constant) = self.constant(value, depth)? else {
            return Ok(Address::of(value.0));
        };
        let bits = self.width(value)?;
        let address = match constant {
            Constant::Null | Constant::Undef | Constant::Poison => Address::default(),
            Constant::Integer(words) => Address::number(words.first().copied().unwrap_or(0) as i64),
            Constant::Offset(source, parts) => self.offset(*source, parts, depth)?,
            &Constant::Cast(op, of) => self.cast(op, of, bits, depth)?,
            &Constant::Binary(op, a, b) => {
                let a = self.address(a, depth + 1)?;
                let b = self.address(b, depth + 1)?;
                match op {
                    BinaryOp::Add => a.add(b)?,
                    BinaryOp::Sub => a.add(b.negated())?,
                    _ => return Err(EXPRESSION),
                }
            }
            Constant::Label(function, block) => Address {
                addend: i64::from(block.0),
                ..Address::of(function.0 | LABELS)
            },
            _ => return Err(EXPRESSION),
        };
        let above = 64 - bits;
        Ok(match address.is_number() {
            true => Address::number(address.addend << above >> above),
            false => address,
        })
    }

    fn cast(&mut self, op: CastOp, of: ValueId, bits: u32, depth: u32) -> Covered<Address> {
        let from = self.width(of)?;
        let address = self.address(of, depth + 1)?;
        let is_number = address.is_number();
        match op {
            CastOp::PtrToInt | CastOp::PtrToAddr | CastOp::IntToPtr | CastOp::BitCast
                if from == bits =>
            {
                Ok(address)
            }
            // Distances are short; a truncated address is not covered.
            CastOp::Trunc if is_number || (address.minus.is_some() && bits == 32) => Ok(address),
            CastOp::PtrToInt if is_number => Ok(address),
            CastOp::ZExt | CastOp::IntToPtr if is_number && from < 64 => {
                Ok(Address::number(address.addend & ((1 << from) - 1)))
            }
            CastOp::SExt if is_number => Ok(address),
            _ => Err(EXPRESSION),
        }
    }

    fn offset(&mut self, source: TypeId, parts: &[ValueId], depth: u32) -> Covered<Address> {
        let Some((&base, indices)) = parts.split_first() else {
            return Err(EXPRESSION);
        };
        let mut address = self.address(base, depth + 1)?;
        let mut within = source;
        for (at, &index) in indices.iter().enumerate() {
            let index = self.address(index, depth + 1)?;
            if !index.is_number() {
                return Err(EXPRESSION);
            }
            let info = *self.types.info(within);
            let moved = match (at, info.shape) {
                (0, _) => info.size.map(|size| index.addend.wrapping_mul(size as i64)),
                (_, Shape::Struct { fields, count }) => {
                    let field = self.types.field(fields, count, index.addend as u64);
                    field.map(|field| {
                        within = field.ty;
                        field.offset as i64
                    })
                }
                (_, Shape::Array { element, stride }) => {
                    within = element;
                    Some(index.addend.wrapping_mul(stride as i64))
                }
                _ => None,
            };
            let Some(moved) = moved else {
                return Err(EXPRESSION);
            };
            address.addend = address.addend.wrapping_add(moved);
        }
        Ok(address)
    }
}
