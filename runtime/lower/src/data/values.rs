//! Values of variables to bytes, as LLVM's `AsmPrinter` writes them.

use uruk_bitcode::ir::{Constant, Type, TypeId, ValueId};

use super::addresses::Address;
use super::{MOST_BYTES, Making};
use crate::Refused;
use crate::refused::{Covered, TYPES, invalid};
use crate::types::Shape;

/// The bytes of a value in memory.
pub(super) struct Bytes {
    pub(super) bytes: Vec<u8>,
    /// The addresses in it, by offset and size; by rising offset.
    pub(super) addresses: Vec<(u64, u64, Address)>,
}

impl Bytes {
    pub(super) fn of_size(size: u64) -> Bytes {
        Bytes {
            bytes: vec![0; size as usize],
            addresses: Vec::new(),
        }
    }

    /// Writes the low bytes of a number at an offset.
    fn put(&mut self, at: u64, number: u64, width: u64) -> Covered<()> {
        let width = width.min(8) as usize;
        let place = self.bytes.get_mut(at as usize..at as usize + width);
        let Some(place) = place else {
            return invalid(TYPES);
        };
        place.copy_from_slice(&number.to_le_bytes()[..width]);
        Ok(())
    }
}

impl Making<'_> {
    /// The bytes of a value of a type, which has that size.
    pub(super) fn bytes(&mut self, value: ValueId, ty: TypeId, size: u64) -> Covered<Bytes> {
        if size > MOST_BYTES {
            return Err(Refused::Unread("a large variable"));
        }
        let mut bytes = Bytes::of_size(size);
        self.write(value, ty, 0, &mut bytes, 0)?;
        Ok(bytes)
    }

    fn write(
        &mut self,
        value: ValueId,
        ty: TypeId,
        at: u64,
        bytes: &mut Bytes,
        depth: u32,
    ) -> Covered<()> {
        let info = *self.types.info(ty);
        let size = match info.size {
            Some(0) => return Ok(()),
            Some(size) => size,
            None => return invalid("a value without a size"),
        };
        if self.type_of(value) != Some(ty) {
            return invalid(TYPES);
        }
        let Some(constant) = self.constant(value, depth)? else {
            return self.write_address(value, at, size, bytes);
        };
        match constant {
            Constant::Null | Constant::Undef | Constant::Poison => Ok(()),
            Constant::Integer(words) => match *self.module.ty(ty) {
                Type::Integer(bits) => write_number(words, bits, at, bytes),
                _ => invalid(TYPES),
            },
            Constant::Float(words) => match float_bits(self.module.ty(ty)) {
                Some(bits) => write_number(words, bits, at, bytes),
                None => invalid(TYPES),
            },
            Constant::Data(elements) => self.write_data(elements, ty, at, bytes),
            Constant::Aggregate(parts) => self.write_parts(parts, ty, at, bytes, depth),
            _ => self.write_address(value, at, size, bytes),
        }
    }

    /// Writes a sequence of numbers of whole bytes.
    fn write_data(&self, elements: &[u64], ty: TypeId, at: u64, bytes: &mut Bytes) -> Covered<()> {
        let (count, element, stride) = self.sequence(ty)?;
        let simple = matches!(
            self.module.ty(element),
            Type::Integer(8 | 16 | 32 | 64)
                | Type::Half
                | Type::BFloat
                | Type::Float
                | Type::Double
        );
        if !simple || elements.len() as u64 != count {
            return invalid(TYPES);
        }
        for (index, &element) in elements.iter().enumerate() {
            bytes.put(at + index as u64 * stride, element, stride)?;
        }
        Ok(())
    }

    /// Writes the fields of a struct, or the elements of a sequence.
    fn write_parts(
        &mut self,
        parts: &[ValueId],
        ty: TypeId,
        at: u64,
        bytes: &mut Bytes,
        depth: u32,
    ) -> Covered<()> {
        if let Shape::Struct { fields, count } = self.types.info(ty).shape
            && parts.len() == count as usize
        {
            for (index, &part) in parts.iter().enumerate() {
                let Some(field) = self.types.field(fields, count, index as u64) else {
                    return invalid(TYPES);
                };
                self.write(part, field.ty, at + field.offset, bytes, depth + 1)?;
            }
            return Ok(());
        }
        let (count, element, stride) = self.sequence(ty)?;
        if parts.len() as u64 != count {
            return invalid(TYPES);
        }
        for (index, &part) in parts.iter().enumerate() {
            let at = at + index as u64 * stride;
            self.write(part, element, at, bytes, depth + 1)?;
        }
        Ok(())
    }

    /// The number of elements, their type, and the distance between them.
    fn sequence(&self, ty: TypeId) -> Covered<(u64, TypeId, u64)> {
        match *self.module.ty(ty) {
            Type::Array(count, element) => match self.types.info(element).size {
                Some(stride) => Ok((count, element, stride)),
                None => invalid(TYPES),
            },
            Type::Vector(count, element, false) => {
                let bits = match *self.module.ty(element) {
                    Type::Integer(bits @ (8 | 16 | 32 | 64)) => bits,
                    Type::Half | Type::BFloat => 16,
                    Type::Float => 32,
                    Type::Double | Type::Pointer(0) => 64,
                    _ => return Err(Refused::Unread("an unusual vector")),
                };
                Ok((count.into(), element, u64::from(bits) / 8))
            }
            _ => invalid(TYPES),
        }
    }

    fn write_address(
        &mut self,
        value: ValueId,
        at: u64,
        size: u64,
        bytes: &mut Bytes,
    ) -> Covered<()> {
        let address = self.address(value, 0)?;
        match (address.plus, address.minus) {
            (None, None) if size <= 8 => bytes.put(at, address.addend as u64, size),
            (None, None) => Err(Refused::Unread("a wide constant expression")),
            _ => {
                bytes.addresses.push((at, size, address));
                Ok(())
            }
        }
    }
}

/// The width of a floating-point type in bits.
fn float_bits(ty: &Type) -> Option<u32> {
    match ty {
        Type::Half | Type::BFloat => Some(16),
        Type::Float => Some(32),
        Type::Double => Some(64),
        Type::X86Fp80 => Some(80),
        Type::Fp128 => Some(128),
        _ => None,
    }
}

/// Writes so many bits; the rest of the last byte is zero.
fn write_number(words: &[u64], bits: u32, at: u64, bytes: &mut Bytes) -> Covered<()> {
    let store = u64::from(bits).div_ceil(8);
    // A number may have fewer words than its type; the missing words repeat the sign.
    let Some(&last) = words.last() else {
        return invalid(TYPES);
    };
    let sign = ((last as i64) >> 63) as u64;
    for first in (0..store).step_by(8) {
        let mut word = words.get(first as usize / 8).copied().unwrap_or(sign);
        let left = u64::from(bits) - first * 8;
        if left < 64 {
            word &= (1 << left) - 1;
        }
        bytes.put(at + first, word, (store - first).min(8))?;
    }
    Ok(())
}
