//! Instructions of the x87 stack.

use super::encode::{Imm, Opcode, RmOperand};
use super::{Asm, Mem};

/// Instructions whose operands are the top of the stack and another place of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs)]
pub(crate) enum X87 {
    /// `fstp st(i)`.
    StorePop = 0xddd8,
    /// `faddp st(i), st`: and likewise.
    AddPop = 0xdec0,
    MulPop = 0xdec8,
    /// `st(i) = st(i) - st`.
    SubPop = 0xdee8,
    DivPop = 0xdef8,
    /// `fucomi st, st(i)`.
    Compare = 0xdbe8,
    /// `fucompi st, st(i)`.
    ComparePop = 0xdfe8,
}

impl Asm {
    fn x87_memory(&mut self, byte: u8, reg: u8, mem: Mem) {
        self.instruction(Opcode::one(byte), reg, RmOperand::Mem(mem), Imm::None);
    }

    /// An instruction of the stack; `place` is under 8.
    pub(crate) fn x87(&mut self, op: X87, place: u8) {
        let [first, second] = (op as u16).to_be_bytes();
        self.bytes.extend_from_slice(&[first, second | place & 7]);
    }

    /// `fld`: pushes 4, 8 or 10 bytes.
    pub(crate) fn x87_load(&mut self, bytes: u32, mem: Mem) {
        match bytes {
            4 => self.x87_memory(0xd9, 0, mem),
            8 => self.x87_memory(0xdd, 0, mem),
            _ => self.x87_memory(0xdb, 5, mem),
        }
    }

    /// `fstp`: pops 4, 8 or 10 bytes.
    pub(crate) fn x87_store(&mut self, bytes: u32, mem: Mem) {
        match bytes {
            4 => self.x87_memory(0xd9, 3, mem),
            8 => self.x87_memory(0xdd, 3, mem),
            _ => self.x87_memory(0xdb, 7, mem),
        }
    }

    /// `fild`: pushes a signed integer of 2, 4 or 8 bytes.
    pub(crate) fn x87_load_int(&mut self, bytes: u32, mem: Mem) {
        match bytes {
            2 => self.x87_memory(0xdf, 0, mem),
            4 => self.x87_memory(0xdb, 0, mem),
            _ => self.x87_memory(0xdf, 5, mem),
        }
    }

    /// `fistp`: pops to a signed integer of 2, 4 or 8 bytes, rounded as the control word says.
    pub(crate) fn x87_store_int(&mut self, bytes: u32, mem: Mem) {
        match bytes {
            2 => self.x87_memory(0xdf, 3, mem),
            4 => self.x87_memory(0xdb, 3, mem),
            _ => self.x87_memory(0xdf, 7, mem),
        }
    }

    /// `fldcw`.
    pub(crate) fn x87_load_control(&mut self, mem: Mem) {
        self.x87_memory(0xd9, 5, mem);
    }

    /// `fnstcw`.
    pub(crate) fn x87_store_control(&mut self, mem: Mem) {
        self.x87_memory(0xd9, 7, mem);
    }

    /// `fadd dword [mem]`: what a table of corrections needs.
    pub(crate) fn x87_add_float(&mut self, mem: Mem) {
        self.x87_memory(0xd8, 0, mem);
    }

    /// `fchs`.
    pub(crate) fn x87_negate(&mut self) {
        self.bytes.extend_from_slice(&[0xd9, 0xe0]);
    }

    /// `fabs`.
    pub(crate) fn x87_abs(&mut self) {
        self.bytes.extend_from_slice(&[0xd9, 0xe1]);
    }

    /// `fsqrt`.
    pub(crate) fn x87_sqrt(&mut self) {
        self.bytes.extend_from_slice(&[0xd9, 0xfa]);
    }
}
