//! The end of assembly: shortens jumps, resolves labels, and appends constants and tables to the
//! code.
//!
//! All jumps are written in their long form. The first round finds the short ones with all jumps
//! long, the next rounds with those that became short. Code only gets shorter, so a jump that fits
//! continues to fit, and a round can only find more. [`ROUNDS`] bounds the rounds.

use super::{Asm, JumpUse, Label, UNBOUND};
use crate::code::Fixup;

/// Rounds that shorten jumps. The second round finds nearly all that the first did not.
const ROUNDS: usize = 3;

/// A constant behind the code, aligned to its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Four(u32),
    Eight(u64),
    Sixteen([u8; 16]),
}

/// Assembled code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assembled {
    /// Code, constants and tables.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the code.
    pub(crate) size: u32,
    /// Relocations, by rising offset.
    pub(crate) fixups: Vec<Fixup>,
}

/// Maps offsets to those after jumps are shortened: after the first `n` jumps, `removed[n]` bytes
/// less.
struct Shrunk {
    /// Whether each jump is short.
    short: Vec<bool>,
    /// One entry more than there are jumps.
    removed: Vec<u32>,
}

impl Asm {
    /// Ends the code. [`Asm::offset_of`] is valid from now on, until [`Asm::clear`].
    pub(crate) fn finish(&mut self) -> Assembled {
        self.shrink();
        let size = self.len();
        self.append_constants();
        self.append_tables();
        for &field in &self.uses {
            let to = self.labels[field.label.0 as usize];
            debug_assert!(to != UNBOUND, "{:?} is nowhere", field.label);
            let distance = to
                .wrapping_sub(field.at + 4)
                .wrapping_add(field.addend as u32);
            write(&mut self.bytes, field.at, distance);
        }
        Assembled {
            bytes: self.bytes.clone(),
            size,
            fixups: self.fixups.clone(),
        }
    }

    /// The offset of a label, after [`Asm::finish`].
    pub(crate) fn offset_of(&self, label: Label) -> u32 {
        self.labels[label.0 as usize]
    }

    /// Shortens jumps, moves code together, and adjusts all offsets.
    fn shrink(&mut self) {
        let jumps = std::mem::take(&mut self.jumps);
        // The number of jumps before each label.
        let before: Vec<u32> = self
            .labels
            .iter()
            .map(|&at| jumps.partition_point(|jump| jump.at < at) as u32)
            .collect();
        let shrunk = choose(&jumps, &self.labels, &before);
        for (at, &before) in self.labels.iter_mut().zip(&before) {
            if *at != UNBOUND {
                *at -= shrunk.removed[before as usize];
            }
        }
        let mut passed = 0;
        for fixup in &mut self.fixups {
            fixup.at -= removed_before(&jumps, &shrunk, &mut passed, fixup.at);
        }
        passed = 0;
        for field in &mut self.uses {
            field.at -= removed_before(&jumps, &shrunk, &mut passed, field.at);
        }
        self.move_together(&jumps, &shrunk);
        self.jumps = jumps;
    }

    /// Moves the code between jumps, and writes the jumps.
    fn move_together(&mut self, jumps: &[JumpUse], shrunk: &Shrunk) {
        // Ends of the processed old and new code.
        let (mut from, mut to) = (0, 0);
        for (jump, &is_short) in jumps.iter().zip(&shrunk.short) {
            let target = self.labels[jump.label.0 as usize];
            debug_assert!(target != UNBOUND, "{:?} is nowhere", jump.label);
            let start = jump.start() as usize;
            self.bytes.copy_within(from..start, to);
            to += start - from;
            from = jump.at as usize + 4;
            if is_short {
                let condition = self.bytes[jump.at as usize - 1] & 15;
                let opcode = match jump.is_conditional {
                    true => 0x70 | condition,
                    false => 0xeb,
                };
                let distance = target.wrapping_sub(to as u32 + 2);
                self.bytes[to..to + 2].copy_from_slice(&[opcode, distance as u8]);
                to += 2;
            } else {
                self.bytes.copy_within(start..from, to);
                to += from - start;
                let distance = target.wrapping_sub(to as u32);
                write(&mut self.bytes, to as u32 - 4, distance);
            }
        }
        let end = self.bytes.len();
        self.bytes.copy_within(from..end, to);
        self.bytes.truncate(to + end - from);
    }

    fn append_constants(&mut self) {
        let mut constants = std::mem::take(&mut self.constants);
        // The larger ones first, so that no padding is needed between them.
        constants.sort_by_key(|(_, constant)| std::cmp::Reverse(constant.bytes()));
        for &(label, constant) in &constants {
            self.align(constant.bytes());
            self.labels[label.0 as usize] = self.len();
            match constant {
                Constant::Four(bits) => self.bytes.extend_from_slice(&bits.to_le_bytes()),
                Constant::Eight(bits) => self.bytes.extend_from_slice(&bits.to_le_bytes()),
                Constant::Sixteen(bytes) => self.bytes.extend_from_slice(&bytes),
            }
        }
        self.constants = constants;
    }

    fn append_tables(&mut self) {
        for index in 0..self.tables.len() {
            let (label, range) = self.tables[index].clone();
            self.align(4);
            let table = self.len();
            self.labels[label.0 as usize] = table;
            for entry in range {
                let target = self.labels[self.entries[entry as usize].0 as usize];
                let distance = target.wrapping_sub(table);
                self.bytes.extend_from_slice(&distance.to_le_bytes());
            }
        }
    }

    /// Pads with `int3` to a multiple.
    fn align(&mut self, align: usize) {
        let len = self.bytes.len().next_multiple_of(align);
        self.bytes.resize(len, 0xcc);
    }
}

impl JumpUse {
    /// The offset of its first byte.
    fn start(&self) -> u32 {
        self.at - if self.is_conditional { 2 } else { 1 }
    }

    /// The bytes that the short form saves.
    fn saves(&self) -> u32 {
        if self.is_conditional { 4 } else { 3 }
    }
}

impl Constant {
    fn bytes(self) -> usize {
        match self {
            Constant::Four(_) => 4,
            Constant::Eight(_) => 8,
            Constant::Sixteen(_) => 16,
        }
    }
}

/// Chooses the short jumps.
fn choose(jumps: &[JumpUse], labels: &[u32], before: &[u32]) -> Shrunk {
    let mut shrunk = Shrunk {
        short: vec![false; jumps.len()],
        removed: vec![0; jumps.len() + 1],
    };
    for _ in 0..ROUNDS {
        let mut changed = false;
        for (index, jump) in jumps.iter().enumerate() {
            let label = jump.label.0 as usize;
            if shrunk.short[index] || labels[label] == UNBOUND {
                continue;
            }
            let target = labels[label] - shrunk.removed[before[label] as usize];
            // Measured from the present end of the jump; a later target comes nearer by the bytes
            // that the jump itself saves.
            let end = jump.at + 4 - shrunk.removed[index];
            let forward = labels[label] > jump.at;
            let own = if forward { 0 } else { jump.saves() as i32 };
            let distance = (target as i32).wrapping_sub(end as i32) + own;
            if i8::try_from(distance).is_ok() {
                shrunk.short[index] = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
        let mut sum = 0;
        for (index, jump) in jumps.iter().enumerate() {
            if shrunk.short[index] {
                sum += jump.saves();
            }
            shrunk.removed[index + 1] = sum;
        }
    }
    shrunk
}

/// Bytes removed before an offset; calls must be in rising order of offsets.
fn removed_before(jumps: &[JumpUse], shrunk: &Shrunk, passed: &mut usize, at: u32) -> u32 {
    while jumps.get(*passed).is_some_and(|jump| jump.at < at) {
        *passed += 1;
    }
    shrunk.removed[*passed]
}

fn write(bytes: &mut [u8], at: u32, value: u32) {
    let at = at as usize;
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
