//! The whitelist of signatures: the functions and calls that the baseline compiler takes, and how
//! each value is passed. A signature in no table here is left to LLVM, for callers and callees
//! alike.
//!
//! A caller and its callee may be compiled by different compilers, so both have to pass values the
//! same way. A row is added together with a run of `cargo xtask abi`, which compares both compilers
//! in all pairings.
//!
//! | | covered | passed |
//! |---|---|---|
//! | conventions | [`CONVENTIONS`] | as in C |
//! | integers of 1 to 64 bits, pointers | parameters, parts, results | in one register or 8 bytes of stack |
//! | `i128` | parameters, results | both halves in registers, or both on the stack |
//! | `i128` | parts of aggregates and variable aggregates | as two integers: one half may be on the stack |
//! | `float`, `double`, `x86_fp80` | all | by the psABI |
//! | vectors of at most 16 bytes | see `pieces` | in one vector register, or lane by lane |
//! | aggregates | of the above, few parts | part by part |
//! | attributes of parameters and results | `attributes` | |
//!
//! Registers and the order of the stack are in `uruk_baseline`'s `abi`.
//!
//! # Why
//! LLVM has a rule for each type and convention, and a guessed rule silently gives wrong results.
//! `coldcc` preserves nearly all registers; `tailcc` callees pop their arguments; an `i128` is kept
//! whole only as a parameter by itself (`functionArgumentNeedsConsecutiveRegisters`).

use smallvec::SmallVec;
use uruk_baseline::ir::{Argument, Extension, Function, Operand, Passing, Returned, Type};
use uruk_bitcode::ir::{Type as BitcodeType, TypeId, ValueId};

use crate::attributes::Passed;
use crate::reading::{Covered, Reading, TYPES, invalid, not};
use crate::types::Shape;

/// Calling conventions that are covered, by LLVM's numbers: `ccc`, `fastcc`, `x86_64_sysvcc`.
const CONVENTIONS: [u32; 3] = [0, 8, 78];

/// Whether a calling convention is covered.
pub(crate) fn convention(number: u32) -> Covered<()> {
    match CONVENTIONS.contains(&number) {
        true => Ok(()),
        false => not("a calling convention"),
    }
}

impl Reading<'_> {
    /// Adds the scalars of an argument.
    pub(crate) fn argument(
        &mut self,
        value: ValueId,
        ty: TypeId,
        passed: Passed,
        into: &mut Vec<Argument>,
    ) -> Covered<()> {
        let scalars = self.scalars(value)?;
        let start = into.len();
        self.passing(ty, passed, |ty, passing, _| {
            // The operand is set below.
            into.push(Argument {
                operand: Operand::Undef,
                ty,
                passing,
            });
        })?;
        if self.holds_vectors(ty) {
            let operands = self.packed(ty, scalars)?;
            for (argument, operand) in into[start..].iter_mut().zip(operands) {
                argument.operand = operand;
            }
            return Ok(());
        }
        let operands = self.values.of(scalars);
        for (argument, operand) in into[start..].iter_mut().zip(operands) {
            argument.operand = *operand;
        }
        Ok(())
    }

    /// Determines how each scalar of a parameter or argument is passed.
    pub(crate) fn passing(
        &mut self,
        ty: TypeId,
        passed: Passed,
        mut each: impl FnMut(Type, Passing, &mut Function),
    ) -> Covered<()> {
        if let Some(what) = passed.not {
            return not(what);
        }
        let whole = if let Some(copied) = passed.by_value {
            let info = self.lowering.types.info(copied);
            let align = match (passed.stack_align, passed.align) {
                (0, 0) => info.align.max(8),
                (0, align) | (align, _) => align.max(8),
            };
            let size = info.size.and_then(|it| u32::try_from(it).ok());
            let Some(size) = size.filter(|&it| it < 1 << 30) else {
                return not("a very large argument");
            };
            Some(Passing::Memory { size, align })
        } else if passed.stack_align != 0 {
            return not("a place on the stack of another alignment");
        } else if passed.is_result {
            Some(Passing::Result)
        } else if passed.is_nest {
            Some(Passing::Nest)
        } else {
            None
        };
        if self.holds_vectors(ty) {
            for piece in self.pieces(ty)? {
                each(piece.ty, Passing::Plain, &mut self.out);
            }
            return Ok(());
        }
        // Halves of an integer within an aggregate are two integers.
        let is_wide = self.shape_of(ty) == Shape::Wide;
        let leaves = self.leaves(ty)?;
        if whole.is_some() && !matches!(self.module.ty(ty), BitcodeType::Pointer(0)) {
            return invalid(TYPES);
        }
        for (at, leaf) in leaves.iter().enumerate() {
            let passing = match (whole, passed.extension, leaf.ty) {
                (Some(passing), ..) => passing,
                _ if is_wide && at == 0 => Passing::Paired,
                (_, Some(extension), Type::Int(..64)) => match extension {
                    Extension::Sign => Passing::SignExtended,
                    Extension::Zero => Passing::ZeroExtended,
                },
                _ => Passing::Plain,
            };
            each(leaf.ty, passing, &mut self.out);
        }
        Ok(())
    }

    /// The scalars of a result.
    pub(crate) fn returned(
        &mut self,
        ty: TypeId,
        passed: Passed,
    ) -> Covered<SmallVec<[Returned; 2]>> {
        if let Some(what) = passed.not {
            return not(what);
        }
        let returned = |ty: Type| Returned {
            ty,
            extension: passed.extension.filter(|_| ty.is_int()),
        };
        if self.holds_vectors(ty) {
            let pieces = self.pieces(ty)?;
            return Ok(pieces.iter().map(|piece| returned(piece.ty)).collect());
        }
        let leaves = self.leaves(ty)?;
        Ok(leaves.iter().map(|leaf| returned(leaf.ty)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::convention;

    #[test]
    fn conventions_that_were_not_compared_are_not_covered() {
        let covered: Vec<u32> = (0..1024).filter(|&it| convention(it).is_ok()).collect();
        assert_eq!(covered, [0, 8, 78]);
    }
}
