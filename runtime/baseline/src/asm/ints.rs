//! Instructions of general registers.

use super::encode::{Imm, Opcode, RmOperand};
use super::types::Base;
use super::{Asm, Condition, Gpr, Mem, Rm, Width};

/// Operations of two operands, by their number in encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub(crate) enum Alu {
    Add = 0,
    Or = 1,
    Adc = 2,
    Sbb = 3,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts and rotations, by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub(crate) enum Shift {
    Rol = 0,
    Ror = 1,
    Shl = 4,
    Shr = 5,
    Sar = 7,
}

/// Operations of one operand. Those from [`Unary::Mul`] on take a second operand in `rax` (and
/// `rdx`) and give results there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub(crate) enum Unary {
    Inc = 0,
    Not = 2,
    Neg = 3,
    Mul = 4,
    Div = 6,
    Idiv = 7,
}

/// Bit operations that write a register. [`Scan::Bsf`] and [`Scan::Bsr`] give an undefined result
/// for zero; the others need a CPU feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(crate) enum Scan {
    Bsf,
    Bsr,
    Tzcnt,
    Lzcnt,
    Popcnt,
}

impl From<Rm> for RmOperand {
    fn from(rm: Rm) -> RmOperand {
        match rm {
            Rm::Gpr(register) => RmOperand::Register(register.number()),
            Rm::Mem(mem) => RmOperand::Mem(mem),
        }
    }
}

/// The opcode for a width, of an instruction whose opcode for bytes is one less.
fn by_width(wide: u8, width: Width) -> Opcode {
    match width {
        Width::W8 => Opcode::one(wide - 1).byte_rm(),
        Width::W16 => Opcode::one(wide).p66(),
        Width::W32 => Opcode::one(wide),
        Width::W64 => Opcode::one(wide).w(),
    }
}

/// Like [`by_width`], for an instruction whose ModRM.reg is a register too.
fn with_reg(wide: u8, width: Width) -> Opcode {
    let opcode = by_width(wide, width);
    match width {
        Width::W8 => opcode.byte_reg(),
        _ => opcode,
    }
}

/// The opcode for a width, of an instruction without a byte form.
fn sized(opcode: Opcode, width: Width) -> Opcode {
    match width {
        Width::W8 => {
            debug_assert!(false, "no form for bytes");
            opcode
        }
        Width::W16 => opcode.p66(),
        Width::W32 => opcode,
        Width::W64 => opcode.w(),
    }
}

/// The immediate of a width: at most 32 bits, which 64-bit instructions sign-extend.
fn immediate(width: Width, value: i32) -> Imm {
    match width {
        Width::W8 => Imm::I8(value as i8),
        Width::W16 => Imm::I16(value as i16),
        Width::W32 | Width::W64 => Imm::I32(value),
    }
}

impl Asm {
    fn rm(&mut self, opcode: Opcode, reg: u8, rm: impl Into<Rm>, imm: Imm) {
        self.instruction(opcode, reg, RmOperand::from(rm.into()), imm);
    }

    /// `mov dst, src`. Widths under 64 bits move 32, which zeroes the upper half.
    pub(crate) fn mov(&mut self, width: Width, dst: Gpr, src: Gpr) {
        let opcode = with_reg(0x89, width.at_least_32());
        self.rm(opcode, src.number(), dst, Imm::None);
    }

    /// `mov dst, value`, in 64 bits; keeps flags.
    pub(crate) fn mov_imm(&mut self, dst: Gpr, value: u64) {
        let number = dst.number();
        if let Ok(value) = u32::try_from(value) {
            if number >= 8 {
                self.bytes.push(0x41);
            }
            self.bytes.push(0xb8 | number & 7);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value as i64) {
            self.rm(Opcode::one(0xc7).w(), 0, dst, Imm::I32(value));
        } else {
            self.bytes.push(0x48 | number >> 3);
            self.bytes.push(0xb8 | number & 7);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// `xor dst, dst`: zero, in 64 bits; changes flags.
    pub(crate) fn zero(&mut self, dst: Gpr) {
        self.alu(Alu::Xor, Width::W32, dst, dst);
    }

    /// [`Asm::zero`] or [`Asm::mov_imm`]; flags may change.
    pub(crate) fn constant(&mut self, dst: Gpr, value: u64) {
        if value == 0 {
            self.zero(dst);
        } else {
            self.mov_imm(dst, value);
        }
    }

    /// Loads `width` bits; zero-extends.
    pub(crate) fn load(&mut self, width: Width, dst: Gpr, mem: Mem) {
        match width {
            Width::W8 | Width::W16 => self.movzx(width, dst, mem),
            _ => self.rm(with_reg(0x8b, width), dst.number(), mem, Imm::None),
        }
    }

    /// Zero-extends from a width to 64 bits.
    pub(crate) fn movzx(&mut self, from: Width, dst: Gpr, src: impl Into<Rm>) {
        match from {
            Width::W8 => self.rm(Opcode::two(0xb6).byte_rm(), dst.number(), src, Imm::None),
            Width::W16 => self.rm(Opcode::two(0xb7), dst.number(), src, Imm::None),
            _ => self.rm(with_reg(0x8b, from), dst.number(), src, Imm::None),
        }
    }

    /// Sign-extends from one width to another; under 64 bits, the upper half becomes zero.
    pub(crate) fn movsx(&mut self, from: Width, to: Width, dst: Gpr, src: impl Into<Rm>) {
        let to = to.at_least_32();
        let opcode = match from {
            Width::W8 => sized(Opcode::two(0xbe), to).byte_rm(),
            Width::W16 => sized(Opcode::two(0xbf), to),
            Width::W32 if to == Width::W64 => Opcode::one(0x63).w(),
            _ => with_reg(0x8b, from),
        };
        self.rm(opcode, dst.number(), src, Imm::None);
    }

    /// Stores `width` bits.
    pub(crate) fn store(&mut self, width: Width, mem: Mem, src: Gpr) {
        self.rm(with_reg(0x89, width), src.number(), mem, Imm::None);
    }

    /// Stores a constant, which is sign-extended for 64 bits.
    pub(crate) fn store_imm(&mut self, width: Width, mem: Mem, value: i32) {
        self.rm(by_width(0xc7, width), 0, mem, immediate(width, value));
    }

    /// `op dst, src`.
    pub(crate) fn alu(&mut self, op: Alu, width: Width, dst: Gpr, src: impl Into<Rm>) {
        let opcode = with_reg((op as u8) << 3 | 3, width);
        self.rm(opcode, dst.number(), src, Imm::None);
    }

    /// `op dst, value`; for 64 bits it is sign-extended.
    pub(crate) fn alu_imm(&mut self, op: Alu, width: Width, dst: impl Into<Rm>, value: i32) {
        let dst = dst.into();
        // The value after truncation to the width.
        let value = match width {
            Width::W8 => i32::from(value as i8),
            Width::W16 => i32::from(value as i16),
            _ => value,
        };
        let small = i8::try_from(value).is_ok();
        if dst == Rm::Gpr(Gpr::RAX) && (width == Width::W8 || !small) {
            let prefix: &[u8] = match width {
                Width::W16 => &[0x66],
                Width::W64 => &[0x48],
                _ => &[],
            };
            self.bytes.extend_from_slice(prefix);
            self.bytes
                .push((op as u8) << 3 | 4 | u8::from(width != Width::W8));
            self.push_imm(immediate(width, value));
        } else if width != Width::W8 && small {
            self.rm(by_width(0x83, width), op as u8, dst, Imm::I8(value as i8));
        } else {
            self.rm(
                by_width(0x81, width),
                op as u8,
                dst,
                immediate(width, value),
            );
        }
    }

    /// `op [mem], src`.
    pub(crate) fn alu_store(&mut self, op: Alu, width: Width, mem: Mem, src: Gpr) {
        let opcode = with_reg((op as u8) << 3 | 1, width);
        self.rm(opcode, src.number(), mem, Imm::None);
    }

    fn push_imm(&mut self, imm: Imm) {
        match imm {
            Imm::None => {}
            Imm::I8(value) => self.bytes.push(value as u8),
            Imm::I16(value) => self.bytes.extend_from_slice(&value.to_le_bytes()),
            Imm::I32(value) => self.bytes.extend_from_slice(&value.to_le_bytes()),
        }
    }

    /// `test a, b`.
    pub(crate) fn test(&mut self, width: Width, a: impl Into<Rm>, b: Gpr) {
        self.rm(with_reg(0x85, width), b.number(), a, Imm::None);
    }

    /// `test a, value`; for 64 bits it is sign-extended. Only the bits of the value matter, so a
    /// value under 128 tests a byte. The sign flag is then zero, as for any value without the top
    /// bit of the width.
    pub(crate) fn test_imm(&mut self, width: Width, a: impl Into<Rm>, value: i32) {
        let a = a.into();
        let width = match value {
            0..=127 => Width::W8,
            _ => width,
        };
        if a == Rm::Gpr(Gpr::RAX) {
            let prefix: &[u8] = match width {
                Width::W16 => &[0x66],
                Width::W64 => &[0x48],
                _ => &[],
            };
            self.bytes.extend_from_slice(prefix);
            self.bytes.push(0xa8 | u8::from(width != Width::W8));
            self.push_imm(immediate(width, value));
        } else {
            self.rm(by_width(0xf7, width), 0, a, immediate(width, value));
        }
    }

    /// `lea dst, mem`.
    pub(crate) fn lea(&mut self, width: Width, dst: Gpr, mem: Mem) {
        let opcode = sized(Opcode::one(0x8d), width.at_least_32());
        self.rm(opcode, dst.number(), mem, Imm::None);
    }

    /// `imul dst, src`; not for bytes.
    pub(crate) fn imul(&mut self, width: Width, dst: Gpr, src: impl Into<Rm>) {
        let opcode = sized(Opcode::two(0xaf), width);
        self.rm(opcode, dst.number(), src, Imm::None);
    }

    /// `imul dst, src, value`; not for bytes.
    pub(crate) fn imul_imm(&mut self, width: Width, dst: Gpr, src: impl Into<Rm>, value: i32) {
        match i8::try_from(value) {
            Ok(small) => {
                let opcode = sized(Opcode::one(0x6b), width);
                self.rm(opcode, dst.number(), src, Imm::I8(small));
            }
            Err(_) => {
                let opcode = sized(Opcode::one(0x69), width);
                self.rm(opcode, dst.number(), src, immediate(width, value));
            }
        }
    }

    /// An operation of one operand.
    pub(crate) fn unary(&mut self, op: Unary, width: Width, operand: impl Into<Rm>) {
        let wide = match op {
            Unary::Inc => 0xff,
            _ => 0xf7,
        };
        self.rm(by_width(wide, width), op as u8, operand, Imm::None);
    }

    /// A shift by a constant.
    pub(crate) fn shift_imm(&mut self, op: Shift, width: Width, dst: impl Into<Rm>, by: u8) {
        if by == 1 {
            self.rm(by_width(0xd1, width), op as u8, dst, Imm::None);
        } else {
            self.rm(by_width(0xc1, width), op as u8, dst, Imm::I8(by as i8));
        }
    }

    /// A shift by `cl`.
    pub(crate) fn shift_cl(&mut self, op: Shift, width: Width, dst: impl Into<Rm>) {
        self.rm(by_width(0xd3, width), op as u8, dst, Imm::None);
    }

    /// `shld` (left) or `shrd` by a constant: the bits shifted in are from `src`. Not for bytes.
    pub(crate) fn double_shift_imm(
        &mut self,
        left: bool,
        width: Width,
        dst: impl Into<Rm>,
        src: Gpr,
        by: u8,
    ) {
        let opcode = sized(Opcode::two(if left { 0xa4 } else { 0xac }), width);
        self.rm(opcode, src.number(), dst, Imm::I8(by as i8));
    }

    /// `shld` (left) or `shrd` by `cl`. Not for bytes.
    pub(crate) fn double_shift_cl(
        &mut self,
        left: bool,
        width: Width,
        dst: impl Into<Rm>,
        src: Gpr,
    ) {
        let opcode = sized(Opcode::two(if left { 0xa5 } else { 0xad }), width);
        self.rm(opcode, src.number(), dst, Imm::None);
    }

    /// Moves if the condition holds, at least 32 bits; the upper half becomes zero in any case if
    /// 32.
    pub(crate) fn cmov(
        &mut self,
        condition: Condition,
        width: Width,
        dst: Gpr,
        src: impl Into<Rm>,
    ) {
        let opcode = sized(Opcode::two(0x40 | condition as u8), width.at_least_32());
        self.rm(opcode, dst.number(), src, Imm::None);
    }

    /// One byte, 1 if the condition holds, else 0; the rest of a register is kept.
    pub(crate) fn setcc(&mut self, condition: Condition, dst: impl Into<Rm>) {
        let opcode = Opcode::two(0x90 | condition as u8).byte_rm();
        self.rm(opcode, 0, dst, Imm::None);
    }

    /// A bit scan or count; not for bytes.
    pub(crate) fn scan(&mut self, scan: Scan, width: Width, dst: Gpr, src: impl Into<Rm>) {
        let (byte, is_f3) = match scan {
            Scan::Bsf => (0xbc, false),
            Scan::Bsr => (0xbd, false),
            Scan::Tzcnt => (0xbc, true),
            Scan::Lzcnt => (0xbd, true),
            Scan::Popcnt => (0xb8, true),
        };
        let opcode = match (is_f3, width) {
            (false, width) => sized(Opcode::two(byte), width),
            (true, Width::W64) => Opcode::two(byte).pf3().w(),
            (true, Width::W32) => Opcode::two(byte).pf3(),
            // Needs two prefixes; `instruction` writes one.
            (true, _) => {
                self.bytes.push(0x66);
                Opcode::two(byte).pf3()
            }
        };
        self.rm(opcode, dst.number(), src, Imm::None);
    }

    /// Reverses bytes of 32 or 64 bits.
    pub(crate) fn bswap(&mut self, width: Width, dst: Gpr) {
        let rex = u8::from(width == Width::W64) << 3 | dst.number() >> 3;
        if rex != 0 {
            self.bytes.push(0x40 | rex);
        }
        self.bytes.push(0x0f);
        self.bytes.push(0xc8 | dst.number() & 7);
    }

    /// Fills `rdx` with the sign of `rax`, as division needs: `cwd`, `cdq`, `cqo`; for bytes, `ah`
    /// with that of `al` (`cbw`).
    pub(crate) fn sign_to_rdx(&mut self, width: Width) {
        let bytes: &[u8] = match width {
            Width::W8 => &[0x66, 0x98],
            Width::W16 => &[0x66, 0x99],
            Width::W32 => &[0x99],
            Width::W64 => &[0x48, 0x99],
        };
        self.bytes.extend_from_slice(bytes);
    }

    /// `push` of a register.
    pub(crate) fn push(&mut self, src: Gpr) {
        if src.number() >= 8 {
            self.bytes.push(0x41);
        }
        self.bytes.push(0x50 | src.number() & 7);
    }

    /// `pop` of a register.
    pub(crate) fn pop(&mut self, dst: Gpr) {
        if dst.number() >= 8 {
            self.bytes.push(0x41);
        }
        self.bytes.push(0x58 | dst.number() & 7);
    }

    /// `leave`: `mov rsp, rbp; pop rbp`.
    pub(crate) fn leave(&mut self) {
        self.bytes.push(0xc9);
    }

    /// `rdtsc`: the cycle counter in `edx:eax`.
    pub(crate) fn rdtsc(&mut self) {
        self.bytes.extend_from_slice(&[0x0f, 0x31]);
    }

    /// `mov reg, fs:0`: the thread pointer, which the ABI keeps there.
    pub(crate) fn thread_pointer(&mut self, to: Gpr) {
        // An absolute address is one without a base.
        self.bytes.push(0x64);
        let (base, index, disp) = (Base::Nothing, None, 0);
        self.load(Width::W64, to, Mem { base, index, disp });
    }

    /// `prefetcht0`.
    pub(crate) fn prefetch(&mut self, mem: Mem) {
        self.rm(Opcode::two(0x18), 1, mem, Imm::None);
    }
}
