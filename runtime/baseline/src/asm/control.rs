//! Labels, jumps, calls, and instructions with a relocation.

use super::encode::{Imm, Opcode, RmOperand};
use super::finish::Constant;
use super::{Asm, Base, Condition, Gpr, JumpUse, Label, Mem, Rm, UNBOUND, Width};
use crate::code::{Fixup, FixupKind};
use crate::ir::Symbol;

/// A table of 4-byte distances from its start to labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table(Label);

impl Table {
    /// The label of the first byte.
    pub(crate) fn label(self) -> Label {
        self.0
    }
}

impl Asm {
    /// Creates a label that is not bound yet.
    pub(crate) fn new_label(&mut self) -> Label {
        let label = Label(self.labels.len() as u32);
        self.labels.push(UNBOUND);
        label
    }

    /// Binds the label to the present position. Each label is bound once.
    pub(crate) fn bind(&mut self, label: Label) {
        debug_assert!(self.labels[label.0 as usize] == UNBOUND);
        self.labels[label.0 as usize] = self.len();
    }

    /// Creates a label at the present position.
    pub(crate) fn here(&mut self) -> Label {
        let label = self.new_label();
        self.bind(label);
        label
    }

    /// `jmp label`.
    pub(crate) fn jump(&mut self, label: Label) {
        self.bytes.push(0xe9);
        self.jump_field(label, false);
    }

    /// `jcc label`.
    pub(crate) fn jump_if(&mut self, condition: Condition, label: Label) {
        self.bytes.push(0x0f);
        self.bytes.push(0x80 | condition as u8);
        self.jump_field(label, true);
    }

    fn jump_field(&mut self, label: Label, is_conditional: bool) {
        self.jumps.push(JumpUse {
            at: self.len(),
            label,
            is_conditional,
        });
        self.bytes.extend_from_slice(&[0; 4]);
    }

    /// `jmp` to an address.
    pub(crate) fn jump_to(&mut self, to: impl Into<Rm>) {
        self.instruction(Opcode::one(0xff), 4, RmOperand::from(to.into()), Imm::None);
    }

    /// `call` of an address.
    pub(crate) fn call(&mut self, to: impl Into<Rm>) {
        self.instruction(Opcode::one(0xff), 2, RmOperand::from(to.into()), Imm::None);
    }

    /// `call` through the word of a symbol.
    pub(crate) fn call_symbol(&mut self, symbol: Symbol) {
        self.call(through(FixupKind::CallThrough, symbol));
    }

    /// `jmp` through the word of a symbol.
    pub(crate) fn jump_symbol(&mut self, symbol: Symbol) {
        self.jump_to(through(FixupKind::CallThrough, symbol));
    }

    /// The address of a symbol, from a word.
    pub(crate) fn address_word(&mut self, dst: Gpr, symbol: Symbol) {
        self.load(Width::W64, dst, through(FixupKind::AddressWord, symbol));
    }

    /// The address of a symbol in reach of a 32-bit distance, plus `bytes`.
    pub(crate) fn address_near(&mut self, dst: Gpr, symbol: Symbol, bytes: i32) {
        self.lea(Width::W64, dst, Mem::symbol(symbol, bytes));
    }

    /// The address of a thread-local variable in `rax`, by the general dynamic model: a call, which
    /// clobbers the caller-saved registers. `get` is `__tls_get_addr`. Linkers recognize these 16
    /// bytes (ELF Handling for Thread-Local Storage, 4.4.1).
    pub(crate) fn thread_local(&mut self, symbol: Symbol, get: Symbol) {
        self.bytes.extend_from_slice(&[0x66, 0x48, 0x8d, 0x3d]);
        self.fixup(FixupKind::ThreadLocalPair, symbol);
        self.bytes.extend_from_slice(&[0x66, 0x48, 0xff, 0x15]);
        self.fixup(FixupKind::CallThrough, get);
    }

    /// A field of 4 bytes at the end of an instruction.
    fn fixup(&mut self, kind: FixupKind, symbol: Symbol) {
        self.fixups.push(Fixup {
            at: self.len(),
            kind,
            symbol,
            addend: 0,
        });
        self.bytes.extend_from_slice(&[0; 4]);
    }

    /// The address of a place in this code.
    pub(crate) fn address_label(&mut self, dst: Gpr, label: Label) {
        self.lea(Width::W64, dst, Mem::label(label));
    }

    /// A constant of 4, 8 or 16 bytes behind the code, aligned to its size; equal constants share
    /// their bytes.
    pub(crate) fn constant_of(&mut self, bytes: Constant) -> Label {
        if let Some(&label) = self.constant_labels.get(&bytes) {
            return label;
        }
        let label = self.new_label();
        self.constants.push((label, bytes));
        self.constant_labels.insert(bytes, label);
        label
    }

    /// The 4 bytes of a constant.
    pub(crate) fn constant4(&mut self, bits: u32) -> Mem {
        Mem::label(self.constant_of(Constant::Four(bits)))
    }

    /// The 8 bytes of a constant.
    pub(crate) fn constant8(&mut self, bits: u64) -> Mem {
        Mem::label(self.constant_of(Constant::Eight(bits)))
    }

    /// The 16 bytes of a constant.
    pub(crate) fn constant16(&mut self, bytes: [u8; 16]) -> Mem {
        Mem::label(self.constant_of(Constant::Sixteen(bytes)))
    }

    /// A table of distances behind the code.
    pub(crate) fn table(&mut self, entries: impl IntoIterator<Item = Label>) -> Table {
        let label = self.new_label();
        let from = self.entries.len() as u32;
        self.entries.extend(entries);
        self.tables.push((label, from..self.entries.len() as u32));
        Table(label)
    }

    /// `ret`.
    pub(crate) fn ret(&mut self) {
        self.bytes.push(0xc3);
    }

    /// `ud2`.
    pub(crate) fn ud2(&mut self) {
        self.bytes.extend_from_slice(&[0x0f, 0x0b]);
    }

    /// `pause`.
    pub(crate) fn pause(&mut self) {
        self.bytes.extend_from_slice(&[0xf3, 0x90]);
    }
}

/// The word of a symbol.
fn through(kind: FixupKind, symbol: Symbol) -> Mem {
    Mem {
        base: Base::Symbol(kind, symbol),
        index: None,
        disp: 0,
    }
}
