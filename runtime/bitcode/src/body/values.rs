//! Instructions that compute values from values.

use super::{Operands, Reading};
use crate::constants::{binary, cast, signed};
use crate::ir::{BlockId, Op, Type, TypeId, ValueId};
use crate::marks::Mentioned;
use crate::module::Refused;

impl Reading<'_> {
    pub(super) fn value(
        &mut self,
        code: u64,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        let unknown = Refused::Unknown("an operation that is not known");
        let (op, ty) = match code {
            2 => {
                let (_, ty) = self.typed(operands)?;
                self.relative(operands)?;
                let op = binary(operands.number()?).ok_or(unknown)?;
                let flags = match self.is_float(ty) {
                    true => operands.option() as u32,
                    false => 0,
                };
                (Op::Binary(op, flags), ty)
            }
            3 => {
                self.typed(operands)?;
                let to = self.type_id(operands)?;
                let op = cast(operands.number()?).ok_or(unknown)?;
                (Op::Cast(op), to)
            }
            28 => {
                let (_, ty) = self.typed(operands)?;
                self.relative(operands)?;
                let predicate = operands.short()?;
                (Op::Compare(predicate), self.bit_like(ty)?)
            }
            29 => {
                let (_, ty) = self.typed(operands)?;
                self.relative(operands)?;
                self.typed(operands)?;
                (Op::Select, ty)
            }
            43 => return self.offset(operands),
            56 => {
                let (_, ty) = self.typed(operands)?;
                match operands.number()? {
                    0 => (Op::FNeg(operands.option() as u32), ty),
                    _ => return Err(unknown),
                }
            }
            _ => {
                let (_, ty) = self.typed(operands)?;
                (Op::Freeze, ty)
            }
        };
        Ok((op, Some(ty)))
    }

    fn is_float(&self, ty: TypeId) -> bool {
        let scalar = match *self.ty(ty) {
            Type::Vector(_, of, _) => of,
            _ => ty,
        };
        !matches!(self.ty(scalar), Type::Integer(_))
    }

    fn offset(&mut self, operands: &mut Operands<'_>) -> Result<(Op, Option<TypeId>), Refused> {
        // Flags.
        operands.number()?;
        let of = self.type_id(operands)?;
        let (_, base) = self.typed(operands)?;
        let mut ty = base;
        while !operands.is_empty() {
            let (_, index) = self.typed(operands)?;
            if let (&Type::Vector(count, _, scalable), Type::Pointer(_)) =
                (self.ty(index), self.ty(ty))
            {
                ty = self.known(&Type::Vector(count, ty, scalable))?;
            }
        }
        Ok((Op::GetElementPtr(of), Some(ty)))
    }

    pub(super) fn part(
        &mut self,
        code: u64,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        let (_, whole) = self.typed(operands)?;
        let (op, ty) = match code {
            6 => {
                self.typed(operands)?;
                (Op::ExtractElement, self.element(whole)?)
            }
            7 => {
                self.relative(operands)?;
                self.typed(operands)?;
                (Op::InsertElement, whole)
            }
            8 => {
                self.relative(operands)?;
                let (_, mask) = self.typed(operands)?;
                let of = self.element(whole)?;
                let ty = match *self.ty(mask) {
                    Type::Vector(count, _, scalable) => {
                        self.known(&Type::Vector(count, of, scalable))?
                    }
                    _ => return Err(Refused::OutOfRange),
                };
                (Op::ShuffleVector, ty)
            }
            26 => {
                let (path, ty) = self.path(operands, whole)?;
                (Op::ExtractValue(path), ty)
            }
            _ => {
                self.typed(operands)?;
                let (path, _) = self.path(operands, whole)?;
                (Op::InsertValue(path), whole)
            }
        };
        Ok((op, Some(ty)))
    }

    fn element(&self, vector: TypeId) -> Result<TypeId, Refused> {
        match *self.ty(vector) {
            Type::Vector(_, of, _) => Ok(of),
            _ => Err(Refused::OutOfRange),
        }
    }

    /// Indices into an aggregate, and the type of the element there.
    fn path(
        &mut self,
        operands: &mut Operands<'_>,
        mut ty: TypeId,
    ) -> Result<(Box<[u32]>, TypeId), Refused> {
        let mut path = Vec::new();
        while !operands.is_empty() {
            let index = operands.short()?;
            ty = match self.ty(ty) {
                Type::Struct(fields, _) => {
                    *fields.get(index as usize).ok_or(Refused::OutOfRange)?
                }
                Type::Array(count, of) if u64::from(index) < *count => *of,
                _ => return Err(Refused::OutOfRange),
            };
            path.push(index);
        }
        Ok((path.into(), ty))
    }

    pub(super) fn phi(
        &mut self,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        let ty = self.type_id(operands)?;
        let mut from = Vec::new();
        // A last number without a pair is flags.
        while operands.at + 1 < operands.record.len() {
            let number = signed(operands.number()?) as u32;
            let value = ValueId(self.next.wrapping_sub(number));
            self.mark(operands, Mentioned::Value(value));
            self.mention(value);
            let block: BlockId = self.block(operands)?;
            from.push(block);
        }
        Ok((Op::Phi(from.into()), Some(ty)))
    }
}
