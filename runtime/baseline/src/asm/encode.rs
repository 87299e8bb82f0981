//! Encodes one instruction: prefixes, REX, opcode, ModRM, SIB, displacement, immediate.
//!
//! See the manual of Intel, volume 2, chapter 2. This file finds the shortest form of an address;
//! its callers choose the shortest instruction.

use super::types::{Base, Label, Mem};
use super::{Asm, LabelUse};
use crate::code::Fixup;

/// An opcode with its prefix and flags: bits 0-7 the last byte, 8 whether `0f` precedes it, 10-11 the prefix, then
/// flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opcode(u32);

impl Opcode {
    /// 64-bit operands: `REX.W`.
    const W: u32 = 1 << 12;
    /// The operand in ModRM.reg is a byte of a general register.
    const BYTE_REG: u32 = 1 << 13;
    /// The operand in ModRM.rm is a byte, of a general register if it is a register.
    const BYTE_RM: u32 = 1 << 14;
    /// With `lock`.
    const LOCK: u32 = 1 << 15;

    /// One byte.
    pub(super) const fn one(byte: u8) -> Opcode {
        Opcode(byte as u32)
    }

    /// `0f` and a byte.
    pub(super) const fn two(byte: u8) -> Opcode {
        Opcode(byte as u32 | 1 << 8)
    }

    /// After `66`.
    pub(super) const fn p66(self) -> Opcode {
        Opcode(self.0 | 1 << 10)
    }

    /// After `f2`.
    pub(super) const fn pf2(self) -> Opcode {
        Opcode(self.0 | 2 << 10)
    }

    /// After `f3`.
    pub(super) const fn pf3(self) -> Opcode {
        Opcode(self.0 | 3 << 10)
    }

    /// With 64-bit operands.
    pub(super) const fn w(self) -> Opcode {
        Opcode(self.0 | Opcode::W)
    }

    /// With a byte register in ModRM.reg.
    pub(super) const fn byte_reg(self) -> Opcode {
        Opcode(self.0 | Opcode::BYTE_REG)
    }

    /// With a byte in ModRM.rm.
    pub(super) const fn byte_rm(self) -> Opcode {
        Opcode(self.0 | Opcode::BYTE_RM)
    }

    /// After `lock`.
    pub(super) const fn lock(self) -> Opcode {
        Opcode(self.0 | Opcode::LOCK)
    }
}

/// The immediate after an instruction's operands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Imm {
    None,
    I8(i8),
    I16(i16),
    I32(i32),
}

impl Imm {
    fn bytes(self) -> u8 {
        match self {
            Imm::None => 0,
            Imm::I8(_) => 1,
            Imm::I16(_) => 2,
            Imm::I32(_) => 4,
        }
    }
}

/// The operand in ModRM.rm.
#[derive(Debug, Clone, Copy)]
pub(super) enum RmOperand {
    /// A register of either kind, by its number.
    Register(u8),
    /// Memory.
    Mem(Mem),
}

/// Up to 8 bytes that are assembled in a register: a wide load after byte stores stalls the
/// processor.
#[derive(Clone, Copy)]
struct Draft {
    bytes: u64,
    len: u32,
}

impl Draft {
    const EMPTY: Draft = Draft { bytes: 0, len: 0 };

    fn push(&mut self, byte: u8) {
        self.bytes |= u64::from(byte) << (8 * self.len);
        self.len += 1;
    }

    fn push_i32(&mut self, value: i32) {
        self.bytes |= u64::from(value as u32) << (8 * self.len);
        self.len += 4;
    }
}

impl Asm {
    /// Appends an instruction.
    pub(super) fn instruction(&mut self, opcode: Opcode, reg: u8, rm: RmOperand, imm: Imm) {
        // Prefixes, opcode, ModRM and SIB are at most 8 bytes, and so is what follows them.
        let (mut head, mut tail) = (Draft::EMPTY, Draft::EMPTY);
        let rm = match rm {
            RmOperand::Mem(mem) => RmOperand::Mem(normal(mem)),
            register => register,
        };
        push_opcode(&mut head, opcode, reg, &rm);
        let reg = (reg & 7) << 3;
        match rm {
            RmOperand::Register(number) => head.push(0xc0 | reg | number & 7),
            RmOperand::Mem(mem) => match mem.base {
                Base::Nothing | Base::Gpr(_) => push_address(&mut head, &mut tail, reg, &mem),
                Base::Label(_) | Base::Symbol(..) => {
                    debug_assert!(mem.index.is_none());
                    head.push(reg | 5);
                    let at = self.len() + head.len;
                    self.leads_to(at, &mem, imm.bytes());
                    tail.push_i32(0);
                }
            },
        }
        match imm {
            Imm::None => {}
            Imm::I8(value) => tail.push(value as u8),
            Imm::I16(value) => {
                let [low, high] = value.to_le_bytes();
                tail.push(low);
                tail.push(high);
            }
            Imm::I32(value) => tail.push_i32(value),
        }
        let all = u128::from(head.bytes) | u128::from(tail.bytes) << (8 * head.len);
        let end = self.bytes.len() + (head.len + tail.len) as usize;
        // A store of constant length is one instruction.
        self.bytes.extend_from_slice(&all.to_le_bytes());
        self.bytes.truncate(end);
    }

    /// Records the label or symbol of a 4-byte field that is followed by `after` bytes of the
    /// instruction.
    fn leads_to(&mut self, at: u32, mem: &Mem, after: u8) {
        match mem.base {
            Base::Label(label) => {
                self.use_label(at, label, mem.disp.wrapping_sub(i32::from(after)))
            }
            Base::Symbol(kind, symbol) => self.fixups.push(Fixup {
                at,
                kind,
                symbol,
                addend: i64::from(mem.disp) - i64::from(after),
            }),
            Base::Nothing | Base::Gpr(_) => {}
        }
    }

    /// Records that the field at an offset holds the distance from its end to a label, plus
    /// `addend`.
    pub(super) fn use_label(&mut self, at: u32, label: Label, addend: i32) {
        self.uses.push(LabelUse { at, label, addend });
    }
}

/// The same address in its shortest form. An unscaled index alone becomes a base; a doubled index
/// becomes base plus index, which needs no displacement of 4 bytes.
fn normal(mem: Mem) -> Mem {
    use super::types::Scale;
    match (mem.base, mem.index) {
        (Base::Nothing, Some((index, Scale::S1))) => Mem::at(index, mem.disp),
        (Base::Nothing, Some((index, Scale::S2))) => {
            Mem::indexed(index, index, Scale::S1, mem.disp)
        }
        // As the base, `rbp` and `r13` need a displacement; as the index they do not.
        (Base::Gpr(base), Some((index, Scale::S1)))
            if mem.disp == 0 && base.number() & 7 == 5 && index.number() & 7 != 5 =>
        {
            Mem::indexed(index, base, Scale::S1, 0)
        }
        _ => mem,
    }
}

fn push_opcode(draft: &mut Draft, opcode: Opcode, reg: u8, rm: &RmOperand) {
    let bits = opcode.0;
    if bits & Opcode::LOCK != 0 {
        draft.push(0xf0);
    }
    match bits >> 10 & 3 {
        0 => {}
        1 => draft.push(0x66),
        2 => draft.push(0xf2),
        _ => draft.push(0xf3),
    }
    let mut rex = (reg & 8) >> 1 | ((bits & Opcode::W != 0) as u8) << 3;
    // Without any REX, the numbers 4 to 7 are `ah` to `bh`.
    let mut needed = bits & Opcode::BYTE_REG != 0 && reg >= 4;
    match rm {
        RmOperand::Register(number) => {
            rex |= number >> 3;
            needed |= bits & Opcode::BYTE_RM != 0 && *number >= 4;
        }
        RmOperand::Mem(mem) => {
            if let Base::Gpr(base) = mem.base {
                rex |= base.number() >> 3;
            }
            if let Some((index, _)) = mem.index {
                rex |= index.number() >> 3 << 1;
            }
        }
    }
    if rex != 0 || needed {
        draft.push(0x40 | rex);
    }
    if bits >> 8 & 1 != 0 {
        draft.push(0x0f);
    }
    draft.push(bits as u8);
}

/// Writes ModRM, SIB and displacement of an address of registers; `reg` is already shifted.
fn push_address(draft: &mut Draft, tail: &mut Draft, reg: u8, mem: &Mem) {
    let sib_index = |index: Option<(super::Gpr, super::Scale)>| match index {
        Some((index, scale)) => {
            debug_assert!(index != super::Gpr::RSP);
            (scale as u8) << 6 | (index.number() & 7) << 3
        }
        None => 4 << 3,
    };
    let Base::Gpr(base) = mem.base else {
        draft.push(reg | 4);
        draft.push(sib_index(mem.index) | 5);
        tail.push_i32(mem.disp);
        return;
    };
    let base = base.number() & 7;
    let mode = match mem.disp {
        // `rbp` and `r13` without a displacement encode another address.
        0 if base != 5 => 0,
        -128..=127 => 0x40,
        _ => 0x80,
    };
    if mem.index.is_some() || base == 4 {
        draft.push(mode | reg | 4);
        draft.push(sib_index(mem.index) | base);
    } else {
        draft.push(mode | reg | base);
    }
    match mode {
        0 => {}
        0x40 => tail.push(mem.disp as u8),
        _ => tail.push_i32(mem.disp),
    }
}
