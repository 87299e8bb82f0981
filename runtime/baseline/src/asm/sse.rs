//! Instructions of vector registers.
//!
//! The encodings are regular: an instruction is a constant of [`Sse`], and one method serves each
//! kind of operands. All are SSE2.

use super::encode::{Imm, Opcode, RmOperand};
use super::{Asm, Gpr, Mem, Rm, Width, Xmm, XmmRm};

/// An instruction `op xmm, xmm/mem`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sse(Opcode);

/// Arithmetic of scalars of both types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub(crate) enum Arith {
    Sqrt = 0x51,
    Add = 0x58,
    Mul = 0x59,
    Sub = 0x5c,
    Min = 0x5d,
    Div = 0x5e,
    Max = 0x5f,
}

macro_rules! instructions {
    ($($name:ident = $opcode:expr;)*) => {
        #[allow(missing_docs)]
        impl Sse {
            $(pub(crate) const $name: Sse = Sse($opcode);)*

            /// All constants, with their names.
            #[cfg(test)]
            pub(crate) const NAMED: &[(&str, Sse)] = &[$((stringify!($name), Sse::$name)),*];
        }
    };
}

const fn ps(byte: u8) -> Opcode {
    Opcode::two(byte)
}

const fn pd(byte: u8) -> Opcode {
    Opcode::two(byte).p66()
}

const fn ss(byte: u8) -> Opcode {
    Opcode::two(byte).pf3()
}

const fn sd(byte: u8) -> Opcode {
    Opcode::two(byte).pf2()
}

instructions! {
    MOVAPS = ps(0x28);
    MOVUPS = ps(0x10);
    MOVSS = ss(0x10);
    MOVSD = sd(0x10);
    UCOMISS = ps(0x2e);
    UCOMISD = pd(0x2e);
    CVTSS2SD = ss(0x5a);
    CVTSD2SS = sd(0x5a);
    ANDPS = ps(0x54);
    ORPS = ps(0x56);
    XORPS = ps(0x57);
}

impl Sse {
    /// Arithmetic of one number.
    pub(crate) const fn scalar(op: Arith, is_double: bool) -> Sse {
        Sse(if is_double {
            sd(op as u8)
        } else {
            ss(op as u8)
        })
    }
}

impl From<XmmRm> for RmOperand {
    fn from(rm: XmmRm) -> RmOperand {
        match rm {
            XmmRm::Xmm(register) => RmOperand::Register(register.number()),
            XmmRm::Mem(mem) => RmOperand::Mem(mem),
        }
    }
}

impl Asm {
    /// `op dst, src`.
    pub(crate) fn sse(&mut self, op: Sse, dst: Xmm, src: impl Into<XmmRm>) {
        self.instruction(op.0, dst.number(), src.into().into(), Imm::None);
    }

    /// `movaps dst, src`: all 128 bits, which is the shortest move of any scalar.
    pub(crate) fn movaps(&mut self, dst: Xmm, src: Xmm) {
        self.sse(Sse::MOVAPS, dst, src);
    }

    /// Loads a `float` or `double`; the rest becomes zero.
    pub(crate) fn load_float(&mut self, is_double: bool, dst: Xmm, mem: Mem) {
        self.sse(if is_double { Sse::MOVSD } else { Sse::MOVSS }, dst, mem);
    }

    /// Stores a `float` or `double`.
    pub(crate) fn store_float(&mut self, is_double: bool, mem: Mem, src: Xmm) {
        let opcode = if is_double { sd(0x11) } else { ss(0x11) };
        self.instruction(opcode, src.number(), RmOperand::Mem(mem), Imm::None);
    }

    /// Loads 16 bytes; `aligned`: their address is a multiple of 16.
    pub(crate) fn load_vector(&mut self, aligned: bool, dst: Xmm, mem: Mem) {
        self.sse(if aligned { Sse::MOVAPS } else { Sse::MOVUPS }, dst, mem);
    }

    /// Writes 16 bytes.
    pub(crate) fn store_vector(&mut self, aligned: bool, mem: Mem, src: Xmm) {
        let opcode = if aligned { ps(0x29) } else { ps(0x11) };
        self.instruction(opcode, src.number(), RmOperand::Mem(mem), Imm::None);
    }

    /// `movd` or `movq dst, src`, of 32 or 64 bits of a general register or memory; the rest
    /// becomes zero.
    pub(crate) fn mov_from_gpr(&mut self, width: Width, dst: Xmm, src: impl Into<Rm>) {
        let opcode = wide(pd(0x6e), width);
        self.instruction(opcode, dst.number(), src.into().into(), Imm::None);
    }

    /// `movd` or `movq dst, src`, of 32 or 64 bits.
    pub(crate) fn mov_to_gpr(&mut self, width: Width, dst: Gpr, src: Xmm) {
        let opcode = wide(pd(0x7e), width);
        self.instruction(
            opcode,
            src.number(),
            RmOperand::Register(dst.number()),
            Imm::None,
        );
    }

    /// `cvtsi2ss` or `cvtsi2sd`: from a signed integer of 32 or 64 bits. The rest of `dst` is kept,
    /// so the instruction depends on the last write of `dst`.
    pub(crate) fn cvt_from_int(
        &mut self,
        is_double: bool,
        width: Width,
        dst: Xmm,
        src: impl Into<Rm>,
    ) {
        let opcode = wide(if is_double { sd(0x2a) } else { ss(0x2a) }, width);
        self.instruction(opcode, dst.number(), src.into().into(), Imm::None);
    }

    /// `cvttss2si` or `cvttsd2si`: to a signed integer of 32 or 64 bits, towards zero; out of range
    /// gives the least integer.
    pub(crate) fn cvt_to_int(
        &mut self,
        is_double: bool,
        width: Width,
        dst: Gpr,
        src: impl Into<XmmRm>,
    ) {
        let opcode = wide(if is_double { sd(0x2c) } else { ss(0x2c) }, width);
        self.instruction(opcode, dst.number(), src.into().into(), Imm::None);
    }
}

/// The opcode with a 64-bit general register, if the width is 64.
fn wide(opcode: Opcode, width: Width) -> Opcode {
    match width {
        Width::W64 => opcode.w(),
        _ => opcode,
    }
}
