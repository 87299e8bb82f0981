//! The assembler: methods that append x86-64 instructions to a buffer.
//!
//! # Contract
//! - Each method appends the instruction of its name in the shortest usual form; no choice of form
//!   changes flags or other registers that the name does not imply.
//! - Positions needed after [`Asm::finish`] are [`Label`]s: instructions may still become shorter,
//!   so an offset into the buffer is not final.
//! - Constants and jump tables come behind the code, once each.
//!
//! | file | instructions |
//! |---|---|
//! | `types` | registers, widths, conditions, places in memory |
//! | `encode` | an opcode and its operands as bytes |
//! | `ints` | moves, arithmetic and bits of general registers |
//! | `control` | labels, jumps, calls, relocated fields |
//! | `finish` | jumps made short, labels resolved, constants and tables appended |
//! | `sse` | vector registers: scalars and packed |
//! | `atomic` | locked instructions, fences |
//! | `x87` | the stack of `x86_fp80` |
//!
//! # Why
//! dynasm fixes the shape of an address (displacement, index, scale) when the compiler is built.
//! Here shapes are known only when a function is compiled: each instruction with a memory operand
//! would be written ten times, with a choice between them, or in its longest form. So the regular
//! part of the encoding is in `encode`, once, and instructions are opcodes; tests decode each of
//! them with another library.

mod atomic;
mod control;
mod encode;
mod finish;
mod ints;
mod sse;
mod types;
mod x87;

#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;

use crate::code::Fixup;

pub(crate) use ints::{Alu, Scan, Shift, Unary};
pub(crate) use sse::{Arith, Sse};
pub(crate) use types::{Base, Condition, Gpr, Label, Mem, Rm, Scale, Width, Xmm, XmmRm};
pub(crate) use x87::X87;

/// Offset of a label that is not bound yet.
const UNBOUND: u32 = u32::MAX;

/// A 4-byte field that holds the distance from its end to a label, plus `addend`.
#[derive(Debug, Clone, Copy)]
struct LabelUse {
    at: u32,
    label: Label,
    addend: i32,
}

/// A jump to a label in its long form, whose field is at `at`: it may become short.
#[derive(Debug, Clone, Copy)]
struct JumpUse {
    at: u32,
    label: Label,
    /// Whether it is `0f 8x`, 6 bytes; else `e9`, 5 bytes.
    is_conditional: bool,
}

/// Code being written.
#[derive(Debug, Default)]
pub(crate) struct Asm {
    bytes: Vec<u8>,
    /// Offsets of labels.
    labels: Vec<u32>,
    uses: Vec<LabelUse>,
    jumps: Vec<JumpUse>,
    fixups: Vec<Fixup>,
    /// Constants, each with its label.
    constants: Vec<(Label, finish::Constant)>,
    constant_labels: FxHashMap<finish::Constant, Label>,
    /// Tables: the label of each, and the range of its entries.
    tables: Vec<(Label, std::ops::Range<u32>)>,
    entries: Vec<Label>,
}

impl Asm {
    /// Empties the assembler; buffers keep their capacity.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.labels.clear();
        self.uses.clear();
        self.jumps.clear();
        self.fixups.clear();
        self.constants.clear();
        self.constant_labels.clear();
        self.tables.clear();
        self.entries.clear();
    }

    /// Bytes written so far: an upper bound of the next instruction's final offset.
    pub(crate) fn len(&self) -> u32 {
        self.bytes.len() as u32
    }
}
