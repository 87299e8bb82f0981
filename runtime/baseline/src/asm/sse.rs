//! Instructions of vector registers.
//!
//! The encodings are regular: an instruction is a constant of [`Sse`], and one method serves each
//! kind of operands. All are SSE2 unless their doc says otherwise.

use super::encode::{Imm, Opcode, RmOperand};
use super::{Asm, Gpr, Mem, Rm, Width, Xmm, XmmRm};

/// An instruction `op xmm, xmm/mem`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sse(Opcode);

/// Arithmetic that exists for scalars and vectors of both types.
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
    MOVHLPS = ps(0x12);
    MOVLHPS = ps(0x16);
    UCOMISS = ps(0x2e);
    UCOMISD = pd(0x2e);
    CVTSS2SD = ss(0x5a);
    CVTSD2SS = sd(0x5a);
    CVTPS2PD = ps(0x5a);
    CVTPD2PS = pd(0x5a);
    CVTDQ2PS = ps(0x5b);
    CVTTPS2DQ = ss(0x5b);
    CVTDQ2PD = ss(0xe6);
    CVTTPD2DQ = pd(0xe6);
    ANDPS = ps(0x54);
    ANDPD = pd(0x54);
    ANDNPS = ps(0x55);
    ANDNPD = pd(0x55);
    ORPS = ps(0x56);
    ORPD = pd(0x56);
    XORPS = ps(0x57);
    XORPD = pd(0x57);
    UNPCKLPS = ps(0x14);
    UNPCKHPS = ps(0x15);
    UNPCKLPD = pd(0x14);
    UNPCKHPD = pd(0x15);
    PUNPCKLBW = pd(0x60);
    PUNPCKLWD = pd(0x61);
    PUNPCKLDQ = pd(0x62);
    PACKSSWB = pd(0x63);
    PCMPGTB = pd(0x64);
    PCMPGTW = pd(0x65);
    PCMPGTD = pd(0x66);
    PACKUSWB = pd(0x67);
    PUNPCKHBW = pd(0x68);
    PUNPCKHWD = pd(0x69);
    PUNPCKHDQ = pd(0x6a);
    PACKSSDW = pd(0x6b);
    PUNPCKLQDQ = pd(0x6c);
    PUNPCKHQDQ = pd(0x6d);
    MOVDQA = pd(0x6f);
    PCMPEQB = pd(0x74);
    PCMPEQW = pd(0x75);
    PCMPEQD = pd(0x76);
    PSRLW = pd(0xd1);
    PSRLD = pd(0xd2);
    PSRLQ = pd(0xd3);
    PADDQ = pd(0xd4);
    PMULLW = pd(0xd5);
    PSUBUSB = pd(0xd8);
    PSUBUSW = pd(0xd9);
    PMINUB = pd(0xda);
    PAND = pd(0xdb);
    PADDUSB = pd(0xdc);
    PADDUSW = pd(0xdd);
    PMAXUB = pd(0xde);
    PANDN = pd(0xdf);
    PAVGB = pd(0xe0);
    PSRAW = pd(0xe1);
    PSRAD = pd(0xe2);
    PAVGW = pd(0xe3);
    PMULHUW = pd(0xe4);
    PMULHW = pd(0xe5);
    PSUBSB = pd(0xe8);
    PSUBSW = pd(0xe9);
    PMINSW = pd(0xea);
    POR = pd(0xeb);
    PADDSB = pd(0xec);
    PADDSW = pd(0xed);
    PMAXSW = pd(0xee);
    PXOR = pd(0xef);
    PSLLW = pd(0xf1);
    PSLLD = pd(0xf2);
    PSLLQ = pd(0xf3);
    PMULUDQ = pd(0xf4);
    PMADDWD = pd(0xf5);
    PSADBW = pd(0xf6);
    PSUBB = pd(0xf8);
    PSUBW = pd(0xf9);
    PSUBD = pd(0xfa);
    PSUBQ = pd(0xfb);
    PADDB = pd(0xfc);
    PADDW = pd(0xfd);
    PADDD = pd(0xfe);
    // SSSE3.
    PSHUFB = Opcode::of_38(0x00).p66();
    PABSB = Opcode::of_38(0x1c).p66();
    PABSW = Opcode::of_38(0x1d).p66();
    PABSD = Opcode::of_38(0x1e).p66();
    // SSE4.1.
    PCMPEQQ = Opcode::of_38(0x29).p66();
    PMINSB = Opcode::of_38(0x38).p66();
    PMINSD = Opcode::of_38(0x39).p66();
    PMINUW = Opcode::of_38(0x3a).p66();
    PMINUD = Opcode::of_38(0x3b).p66();
    PMAXSB = Opcode::of_38(0x3c).p66();
    PMAXSD = Opcode::of_38(0x3d).p66();
    PMAXUW = Opcode::of_38(0x3e).p66();
    PMAXUD = Opcode::of_38(0x3f).p66();
    PMULLD = Opcode::of_38(0x40).p66();
    // SSE4.2.
    PCMPGTQ = Opcode::of_38(0x37).p66();
    // With an immediate.
    CMPSS = ss(0xc2);
    CMPSD = sd(0xc2);
    CMPPS = ps(0xc2);
    CMPPD = pd(0xc2);
    PSHUFD = pd(0x70);
    PSHUFHW = ss(0x70);
    PSHUFLW = sd(0x70);
    SHUFPS = ps(0xc6);
    SHUFPD = pd(0xc6);
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

    /// Arithmetic of a vector.
    pub(crate) const fn packed(op: Arith, is_double: bool) -> Sse {
        Sse(if is_double {
            pd(op as u8)
        } else {
            ps(op as u8)
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

    /// `op dst, src, value`.
    pub(crate) fn sse_imm(&mut self, op: Sse, dst: Xmm, src: impl Into<XmmRm>, value: u8) {
        let imm = Imm::I8(value as i8);
        self.instruction(op.0, dst.number(), src.into().into(), imm);
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

    /// Bits of signs: `movmskps` or `movmskpd`.
    pub(crate) fn signs(&mut self, is_double: bool, dst: Gpr, src: Xmm) {
        let opcode = if is_double { pd(0x50) } else { ps(0x50) };
        self.instruction(
            opcode,
            dst.number(),
            RmOperand::Register(src.number()),
            Imm::None,
        );
    }

    /// `pmovmskb`: bits of signs of bytes.
    pub(crate) fn byte_signs(&mut self, dst: Gpr, src: Xmm) {
        self.instruction(
            pd(0xd7),
            dst.number(),
            RmOperand::Register(src.number()),
            Imm::None,
        );
    }

    /// `pinsrw`: 16 bits of a general register to a place of a vector.
    pub(crate) fn insert_word(&mut self, dst: Xmm, src: impl Into<Rm>, place: u8) {
        let imm = Imm::I8(place as i8);
        self.instruction(pd(0xc4), dst.number(), src.into().into(), imm);
    }

    /// `pextrw`: 16 bits of a vector, zero-extended.
    pub(crate) fn extract_word(&mut self, dst: Gpr, src: Xmm, place: u8) {
        let imm = Imm::I8(place as i8);
        let src = RmOperand::Register(src.number());
        self.instruction(pd(0xc5), dst.number(), src, imm);
    }

    /// `psllw/d/q`, `psrlw/d/q`, `psraw/d` by a constant: of lanes of 16, 32 or 64 bits.
    pub(crate) fn shift_lanes(&mut self, shift: super::Shift, lane: Width, dst: Xmm, by: u8) {
        let opcode = match lane {
            Width::W64 => pd(0x73),
            Width::W32 => pd(0x72),
            _ => pd(0x71),
        };
        let reg = match shift {
            super::Shift::Shl => 6,
            super::Shift::Sar => 4,
            _ => 2,
        };
        let dst = RmOperand::Register(dst.number());
        self.instruction(opcode, reg, dst, Imm::I8(by as i8));
    }

    /// `pslldq` (left) or `psrldq`: all 128 bits, by a number of bytes.
    pub(crate) fn shift_bytes(&mut self, left: bool, dst: Xmm, by: u8) {
        let reg = if left { 7 } else { 3 };
        let dst = RmOperand::Register(dst.number());
        self.instruction(pd(0x73), reg, dst, Imm::I8(by as i8));
    }

    /// `ldmxcsr`.
    pub(crate) fn load_mxcsr(&mut self, mem: Mem) {
        self.instruction(Opcode::two(0xae), 2, RmOperand::Mem(mem), Imm::None);
    }

    /// `stmxcsr`.
    pub(crate) fn store_mxcsr(&mut self, mem: Mem) {
        self.instruction(Opcode::two(0xae), 3, RmOperand::Mem(mem), Imm::None);
    }
}

/// The opcode with a 64-bit general register, if the width is 64.
fn wide(opcode: Opcode, width: Width) -> Opcode {
    match width {
        Width::W64 => opcode.w(),
        _ => opcode,
    }
}
