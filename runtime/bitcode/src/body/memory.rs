//! Instructions that access memory.

use super::{Operands, Reading, ordering};
use crate::ir::{Op, Ordering, Type, TypeId};
use crate::module::Refused;

impl Reading<'_> {
    pub(super) fn memory(
        &mut self,
        code: u64,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        match code {
            19 => self.alloca(operands),
            20 | 41 => {
                self.typed(operands)?;
                let ty = self.type_id(operands)?;
                let (align, volatile, ordering) = access(operands, code == 41)?;
                let op = Op::Load {
                    align,
                    volatile,
                    ordering,
                };
                Ok((op, Some(ty)))
            }
            44 | 45 => {
                self.typed(operands)?;
                self.typed(operands)?;
                let (align, volatile, ordering) = access(operands, code == 45)?;
                let op = Op::Store {
                    align,
                    volatile,
                    ordering,
                };
                Ok((op, None))
            }
            23 => {
                let list = self.type_id(operands)?;
                self.relative_as(list, operands)?;
                let ty = self.type_id(operands)?;
                Ok((Op::VaArg, Some(ty)))
            }
            36 => self.fence(operands),
            46 => self.compare_exchange(operands),
            _ => {
                self.typed(operands)?;
                let (_, ty) = self.typed(operands)?;
                let op = operands.short()?;
                let volatile = operands.number()? != 0;
                // An ordering and a synchronization scope.
                strong(ordering(operands.number()?)?)?;
                let align = alignment_behind(operands, 1)?;
                let op = Op::Rmw {
                    op,
                    align,
                    volatile,
                };
                Ok((op, Some(ty)))
            }
        }
    }

    fn compare_exchange(
        &mut self,
        operands: &mut Operands<'_>,
    ) -> Result<(Op, Option<TypeId>), Refused> {
        self.typed(operands)?;
        let (_, ty) = self.typed(operands)?;
        self.relative(operands)?;
        let volatile = operands.number()? != 0;
        let bit = self.known(&Type::Integer(1))?;
        let pair = self.known(&Type::Struct(vec![ty, bit], false))?;
        // Two orderings with a scope between them, and whether the exchange is weak.
        strong(ordering(operands.number()?)?)?;
        operands.number()?;
        match strong(ordering(operands.number()?)?)? {
            Ordering::Release | Ordering::AcqRel => return Err(Refused::OutOfRange),
            _ => {}
        }
        let align = alignment_behind(operands, 1)?;
        Ok((Op::CompareExchange { align, volatile }, Some(pair)))
    }

    fn alloca(&mut self, operands: &mut Operands<'_>) -> Result<(Op, Option<TypeId>), Refused> {
        const FOR_ARGUMENTS: u64 = 1 << 5;
        const EXPLICIT: u64 = 1 << 6;
        const ERROR: u64 = 1 << 7;
        let of = self.type_id(operands)?;
        let of_count = self.type_id(operands)?;
        let count = self.absolute(operands)?;
        self.said(count, of_count)?;
        let flags = operands.number()?;
        if flags & EXPLICIT == 0 {
            return Err(Refused::Unknown("an alloca of an old form"));
        }
        if operands.option() != 0 {
            return Err(Refused::Unknown("an alloca in another address space"));
        }
        let op = Op::Alloca {
            of,
            align: alignment(flags & 0x1f | (flags >> 8 & 7) << 5)?,
            is_special: flags & (FOR_ARGUMENTS | ERROR) != 0,
        };
        Ok((op, Some(self.known(&Type::Pointer(0))?)))
    }

    fn fence(&mut self, operands: &mut Operands<'_>) -> Result<(Op, Option<TypeId>), Refused> {
        /// A fence within this thread: no instruction is emitted for it.
        const THREAD: u64 = 0;
        let ordering = strong(ordering(operands.number()?)?)?;
        if ordering == Ordering::Monotonic {
            return Err(Refused::OutOfRange);
        }
        let op = match operands.number()? {
            THREAD => Op::Fence(Ordering::NotAtomic),
            _ => Op::Fence(ordering),
        };
        Ok((op, None))
    }
}

/// The end of a load's or store's record.
fn access(operands: &mut Operands<'_>, atomic: bool) -> Result<(u32, bool, Ordering), Refused> {
    let align = alignment(operands.number()?)?;
    let volatile = operands.number()? != 0;
    let ordering = match atomic {
        true => {
            let ordering = ordering(operands.number()?)?;
            // A synchronization scope.
            operands.number()?;
            ordering
        }
        false => Ordering::NotAtomic,
    };
    Ok((align, volatile, ordering))
}

/// Checks that an ordering is stronger than unordered.
fn strong(ordering: Ordering) -> Result<Ordering, Refused> {
    match ordering {
        Ordering::NotAtomic | Ordering::Unordered => Err(Refused::OutOfRange),
        _ => Ok(ordering),
    }
}

/// The alignment behind `numbers` numbers; 0 if the record has none, as before LLVM 13.
fn alignment_behind(operands: &mut Operands<'_>, numbers: u32) -> Result<u32, Refused> {
    for _ in 0..numbers {
        operands.number()?;
    }
    match operands.is_empty() {
        true => Ok(0),
        false => alignment(operands.number()?),
    }
}

/// An alignment in bytes, from its logarithm plus one; 0 for the type's alignment.
fn alignment(number: u64) -> Result<u32, Refused> {
    match number {
        0 => Ok(0),
        1..=32 => Ok(1 << (number - 1)),
        _ => Err(Refused::Unknown("an alignment beyond 2 GiB")),
    }
}
