//! Calls, and instructions for exceptions.

use super::{METADATA, Operands, Reading, plain_call};
use crate::ir::{Call, Op, Type, TypeId};
use crate::marks::Mentioned;
use crate::module::Refused;

impl Reading<'_> {
    pub(super) fn call(
        &mut self,
        code: u64,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        match code {
            13 => self.invoke(operands),
            34 => self.plain(operands),
            _ => self.landing_pad(operands),
        }
    }

    fn plain(&mut self, operands: &mut Operands<'_>) -> Result<(Op, Option<TypeId>), Refused> {
        const TAIL: u32 = 1;
        const MUST_TAIL: u32 = 1 << 14;
        const EXPLICIT: u32 = 1 << 15;
        const FAST_MATH: u32 = 1 << 17;
        let attributes = self.attributes(operands)?;
        let flags = operands.short()?;
        let fast_math = match flags & FAST_MATH {
            0 => 0,
            _ => operands.short()?,
        };
        if flags & EXPLICIT == 0 {
            return Err(Refused::Unknown("a call of an old form"));
        }
        let function = self.type_id(operands)?;
        let bundles = std::mem::take(&mut self.bundles);
        let convention = (flags & 0x7ff) >> 1;
        let call = Call {
            tail: flags & TAIL != 0,
            must_tail: flags & MUST_TAIL != 0,
            fast_math,
            ..plain_call(attributes, convention, function, bundles)
        };
        let ty = self.callee_and_arguments(function, operands)?;
        Ok((Op::Call(call), ty))
    }

    fn invoke(&mut self, operands: &mut Operands<'_>) -> Result<(Op, Option<TypeId>), Refused> {
        const EXPLICIT: u32 = 1 << 13;
        let attributes = self.attributes(operands)?;
        let flags = operands.short()?;
        let to = [self.block(operands)?, self.block(operands)?];
        if flags & EXPLICIT == 0 {
            return Err(Refused::Unknown("an invoke of an old form"));
        }
        let function = self.type_id(operands)?;
        let bundles = std::mem::take(&mut self.bundles);
        let call = plain_call(attributes, flags & !EXPLICIT, function, bundles);
        let ty = self.callee_and_arguments(function, operands)?;
        Ok((Op::Invoke(call, to), ty))
    }

    /// A call of assembly that may continue at labels. [`ir`](crate::ir) has no form for it: only its
    /// references are used.
    pub(super) fn branching_call(
        &mut self,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        self.attributes(operands)?;
        operands.short()?;
        let mut to = vec![self.block(operands)?];
        for _ in 0..operands.number()? {
            to.push(self.block(operands)?);
        }
        let function = self.type_id(operands)?;
        self.bundles = false;
        let ty = self.callee_and_arguments(function, operands)?;
        Ok((Op::IndirectBranch(to.into()), ty))
    }

    /// The type of the result, if there is one.
    fn callee_and_arguments(
        &mut self,
        function: TypeId,
        operands: &mut Operands<'_>,
    ) -> Result<Option<TypeId>, Refused> {
        self.typed(operands)?;
        let types = self.types;
        let Some(Type::Function(result, parameters, variadic)) = types.get(function.index()) else {
            return Err(Refused::OutOfRange);
        };
        for &parameter in parameters {
            match self.ty(parameter) {
                Type::Metadata => {
                    let number = operands.number()? as u32;
                    let to = Mentioned::Metadata(self.next.wrapping_sub(number));
                    self.mark(operands, to);
                    self.mention(METADATA);
                }
                Type::Label => return Err(Refused::Unknown("a label as an argument")),
                _ => {
                    self.relative(operands)?;
                }
            }
        }
        while !operands.is_empty() {
            if !*variadic {
                return Err(Refused::OutOfRange);
            }
            self.typed(operands)?;
        }
        Ok((*self.ty(*result) != Type::Void).then_some(*result))
    }

    fn landing_pad(
        &mut self,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        let ty = self.type_id(operands)?;
        let cleanup = operands.number()? != 0;
        let clauses = operands.number()?;
        let mut filters = Vec::new();
        for _ in 0..clauses {
            filters.push(operands.number()? == 1);
            self.typed(operands)?;
        }
        Ok((Op::LandingPad(cleanup, filters.into()), Some(ty)))
    }
}
