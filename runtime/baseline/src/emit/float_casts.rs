//! Conversions of `float` and `double`: into each other, from and to integers.

use crate::asm::{Gpr, Sse, Width};
use crate::ir::{Cast, Extension, Operand, Type};
use crate::sequences::floats;

use super::operands::bits_of;
use super::{Emitter, VECTOR_SCRATCH};

impl Emitter<'_> {
    /// A conversion from or to `float` or `double`.
    pub(super) fn cast_float(
        &mut self,
        cast: Cast,
        from: Type,
        to: Type,
        operand: Operand,
        result: u32,
    ) {
        if from == Type::F80 || to == Type::F80 {
            return self.x87_cast(cast, from, to, operand, result);
        }
        match cast {
            Cast::FpTrunc | Cast::FpExt => {
                let target = self.vector_target(result);
                // In place, as the conversion keeps the upper part of its destination.
                self.load_vector_into(operand, from, target);
                let op = match cast {
                    Cast::FpTrunc => Sse::CVTSD2SS,
                    _ => Sse::CVTSS2SD,
                };
                self.asm.sse(op, target, target);
                self.put_vector(result, target);
            }
            Cast::SiToFp => self.float_of_int(Extension::Sign, from, to, operand, result),
            Cast::UiToFp => self.float_of_int(Extension::Zero, from, to, operand, result),
            Cast::FpToSi | Cast::FpToUi => self.int_of_float(cast, from, to, operand, result),
            Cast::FpToSiSat | Cast::FpToUiSat => {
                let x = self.xmm(operand, from, VECTOR_SCRATCH[0]);
                let target = self.target(result, Gpr::RAX);
                let what = (from == Type::F64, bits_of(to), cast == Cast::FpToSiSat);
                let scratch = [Gpr::RCX, Gpr::RDX];
                floats::to_int_saturated(self.asm, what, target, x, scratch, VECTOR_SCRATCH[1]);
                self.put(result, target);
            }
            Cast::Bits => self.cast_bits(from, to, operand, result),
            Cast::Trunc | Cast::ZExt | Cast::SExt => {
                self.cast_int(cast, from, to, operand, result);
            }
        }
    }

    fn float_of_int(
        &mut self,
        extension: Extension,
        from: Type,
        to: Type,
        operand: Operand,
        result: u32,
    ) {
        let is_double = to == Type::F64;
        let bits = bits_of(from);
        let target = self.vector_target(result);
        if extension == Extension::Zero && bits == 64 {
            let x = self.gpr(operand, from, Gpr::RAX);
            floats::from_unsigned(self.asm, is_double, target, x, [Gpr::RCX, Gpr::RDX]);
            self.put_vector(result, target);
            return;
        }
        // A narrower unsigned integer is a signed one of the next width.
        let width = match (extension, bits) {
            (Extension::Sign, ..=32) | (Extension::Zero, ..=31) => Width::W32,
            _ => Width::W64,
        };
        let x = if bits == width.bits() {
            self.gpr(operand, from, Gpr::RAX)
        } else {
            self.extend_into(operand, from, extension, width, Gpr::RAX);
            Gpr::RAX
        };
        floats::from_signed(self.asm, is_double, width, target, x);
        self.put_vector(result, target);
    }

    fn int_of_float(&mut self, cast: Cast, from: Type, to: Type, operand: Operand, result: u32) {
        let is_double = from == Type::F64;
        let bits = bits_of(to);
        let target = self.target(result, Gpr::RAX);
        if cast == Cast::FpToUi && bits == 64 {
            let x = self.xmm(operand, from, VECTOR_SCRATCH[0]);
            let scratch = [Gpr::RCX, Gpr::RDX];
            floats::to_unsigned(self.asm, is_double, target, x, scratch, VECTOR_SCRATCH[1]);
        } else {
            let width = match (cast, bits) {
                (Cast::FpToSi, ..=32) | (_, ..=31) => Width::W32,
                _ => Width::W64,
            };
            let x = self.vector_rm(operand, from, VECTOR_SCRATCH[0]);
            self.asm.cvt_to_int(is_double, width, target, x);
        }
        self.put(result, target);
    }
}
