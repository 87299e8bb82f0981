//! The assembler: methods that append x86-64 instructions to a buffer.
//!
//! # What it promises
//! - Each method appends what its name says in the shortest usual form; nothing is chosen behind
//!   the caller's back that touches flags or other registers.
//! - Positions that matter after [`Asm::finish`] are [`Label`]s: instructions may still become
//!   shorter then, so that an offset into the buffer means nothing.
//! - Constants and tables of jumps come behind the code, once each.
//!
//! | file | instructions |
//! |---|---|
//! | `types` | registers, widths, conditions, places in memory |
//! | `encode` | an opcode and its operands as bytes |
//! | `ints` | moves, arithmetic and bits of general registers |
//! | `control` | labels, jumps, calls, what is filled in by a linker |
//! | `finish` | jumps made short, labels resolved, constants and tables appended |
//! | `sse` | vector registers: scalars and packed |
//! | `atomic` | locked instructions, fences |
//! | `x87` | the stack of `x86_fp80` |
//!
//! # Why
//! dynasm fixes the shape of an address (with a displacement or not, with an index or not, the
//! scale) when the compiler is built. Here shapes are known only when a function is compiled:
//! each instruction that takes memory would be there ten times, with a choice between them, or in
//! its longest form. So what is regular in the encoding is written down once, in `encode`, and
//! instructions are opcodes; tests decode each of them with another library.

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

pub(crate) use control::Table;
pub(crate) use finish::Assembled;
pub(crate) use ints::{Alu, Scan, Shift, Unary};
pub(crate) use sse::{Arith, Sse};
pub(crate) use types::{Base, Condition, Gpr, Label, Mem, Rm, Scale, Width, Xmm, XmmRm};
pub(crate) use x87::X87;

/// A label that has no place yet.
const UNBOUND: u32 = u32::MAX;

/// A field of 4 bytes that is the distance from its end to a label, and so many bytes.
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

/// Code that is being written.
#[derive(Debug, Default)]
pub(crate) struct Asm {
    bytes: Vec<u8>,
    /// Where labels are.
    labels: Vec<u32>,
    uses: Vec<LabelUse>,
    jumps: Vec<JumpUse>,
    fixups: Vec<Fixup>,
    /// Constants, the label of each.
    constants: Vec<(Label, finish::Constant)>,
    constant_labels: FxHashMap<finish::Constant, Label>,
    /// Tables: the label of each, and the range of its entries.
    tables: Vec<(Label, std::ops::Range<u32>)>,
    entries: Vec<Label>,
}

impl Asm {
    /// Empty, with the buffers of before.
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

    /// Bytes written so far. It is an upper bound of where the next instruction will be.
    pub(crate) fn len(&self) -> u32 {
        self.bytes.len() as u32
    }
}
