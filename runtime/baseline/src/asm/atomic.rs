//! Atomic read-modify-write instructions and fences.

use super::encode::{Imm, Opcode, RmOperand};
use super::{Alu, Asm, Gpr, Mem, Width};

/// The opcode for a width, of an instruction whose opcode for bytes is one less.
fn sized(wide: Opcode, byte: Opcode, width: Width) -> Opcode {
    match width {
        Width::W8 => byte.byte_reg(),
        Width::W16 => wide.p66(),
        Width::W32 => wide,
        Width::W64 => wide.w(),
    }
}

impl Asm {
    /// `lock op [mem], src`.
    pub(crate) fn lock_alu(&mut self, op: Alu, width: Width, mem: Mem, src: Gpr) {
        let byte = (op as u8) << 3;
        let opcode = sized(Opcode::one(byte | 1), Opcode::one(byte), width).lock();
        self.instruction(opcode, src.number(), RmOperand::Mem(mem), Imm::None);
    }

    /// `lock op [mem], value`; for 64 bits it is sign-extended.
    pub(crate) fn lock_alu_imm(&mut self, op: Alu, width: Width, mem: Mem, value: i32) {
        self.bytes.push(0xf0);
        self.alu_imm(op, width, mem, value);
    }

    /// `xchg [mem], src`, which is locked without a prefix.
    pub(crate) fn xchg_mem(&mut self, width: Width, mem: Mem, src: Gpr) {
        let opcode = sized(Opcode::one(0x87), Opcode::one(0x86), width);
        self.instruction(opcode, src.number(), RmOperand::Mem(mem), Imm::None);
    }

    /// `lock xadd [mem], src`: memory gets the sum, `src` the old value.
    pub(crate) fn lock_xadd(&mut self, width: Width, mem: Mem, src: Gpr) {
        let opcode = sized(Opcode::two(0xc1), Opcode::two(0xc0), width).lock();
        self.instruction(opcode, src.number(), RmOperand::Mem(mem), Imm::None);
    }

    /// `lock cmpxchg [mem], src`: if memory equals `rax`, it gets `src` and the zero flag is set;
    /// else `rax` gets memory.
    pub(crate) fn lock_cmpxchg(&mut self, width: Width, mem: Mem, src: Gpr) {
        let opcode = sized(Opcode::two(0xb1), Opcode::two(0xb0), width).lock();
        self.instruction(opcode, src.number(), RmOperand::Mem(mem), Imm::None);
    }

    /// `mfence`.
    pub(crate) fn mfence(&mut self) {
        self.bytes.extend_from_slice(&[0x0f, 0xae, 0xf0]);
    }
}
