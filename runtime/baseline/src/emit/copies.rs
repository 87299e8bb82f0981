//! `memcpy`, `memmove`, `memset`: a few moves where the length is a small constant, else calls.

use crate::analysis::effects;
use crate::asm::{Alu, Condition, Gpr, Mem, Scale, Width, Xmm};
use crate::ir::{MemoryOp, Operand, Type};
use crate::moves::Spot;

use super::operands::zero_extended;
use super::{Emitter, VECTOR_SCRATCH};

/// The register through which pieces are copied.
const THROUGH: Gpr = Gpr::RDX;

/// The longest memory argument that is copied without a loop.
const LONGEST_ARGUMENT: u32 = 256;

/// Splits a length into pieces, offset and size, the largest first. The last one may overlap the
/// one before if that saves pieces.
fn pieces(length: u32, mut piece: impl FnMut(u32, u32)) {
    let mut at = 0;
    while length - at >= 16 {
        piece(at, 16);
        at += 16;
    }
    let rest = length - at;
    match rest {
        0 => {}
        _ if length >= 16 && !matches!(rest, 1 | 2 | 4 | 8) => piece(length - 16, 16),
        _ => {
            for size in [8, 4, 2, 1] {
                if length - at >= size {
                    piece(at, size);
                    at += size;
                }
            }
        }
    }
}

impl Emitter<'_> {
    /// Emits a memory intrinsic.
    pub(super) fn memory(&mut self, op: MemoryOp, operands: [Operand; 3]) {
        let [to, value, length] = operands;
        if let (Operand::Int(length), true) = (length, effects::is_inline(op, value, length)) {
            match op {
                MemoryOp::Copy => self.copy(to, value, length as u32),
                MemoryOp::Move => self.move_short(to, value, length as u32),
                MemoryOp::Set => {
                    let byte = match value {
                        Operand::Int(byte) => zero_extended(byte, 8) as u8,
                        _ => 0,
                    };
                    self.set_bytes(to, byte, length as u32);
                }
            }
            return;
        }
        let name = match op {
            MemoryOp::Copy => "memcpy",
            MemoryOp::Move => "memmove",
            MemoryOp::Set => "memset",
        };
        let second = match op {
            MemoryOp::Set => Type::Int(8),
            _ => Type::PTR,
        };
        self.call_library(
            name,
            &[(to, Type::PTR), (value, second), (length, Type::PTR)],
        );
    }

    /// Calls a library function with scalars in registers. Its result is in the ABI's place.
    pub(super) fn call_library(&mut self, name: &'static str, arguments: &[(Operand, Type)]) {
        let symbol = self.library(name);
        self.moves.clear();
        let mut places = crate::abi::Arguments::default();
        for &(operand, ty) in arguments {
            let to = match places.next(ty, crate::ir::Passing::Plain) {
                crate::abi::ArgumentPlace::Gpr(register) => Spot::Gpr(register),
                crate::abi::ArgumentPlace::Xmm(register) => Spot::Xmm(register),
                // Library functions called here take fewer arguments.
                _ => continue,
            };
            self.move_operand(to, operand, ty);
        }
        self.do_moves(Gpr::RAX);
        self.asm.call_symbol(symbol);
    }

    fn copy(&mut self, to: Operand, from: Operand, length: u32) {
        let to = self.address(to, Gpr::RAX);
        let from = self.address(from, Gpr::RCX);
        self.copy_pieces(to, from, length);
    }

    /// Copies memory to an argument of a call, `at` bytes above the stack pointer.
    pub(super) fn copy_argument(&mut self, from: Operand, size: u32, at: u32) {
        let from = self.address(from, Gpr::RCX);
        let to = Mem::at(Gpr::RSP, at as i32);
        if size <= LONGEST_ARGUMENT {
            self.copy_pieces(to, from, size);
            return;
        }
        // `rep movsb` would need registers that still hold other arguments.
        self.lea(Gpr::RCX, from);
        let (many, rest) = (size & !15, size % 16);
        self.asm.zero(Gpr::RAX);
        let again = self.asm.here();
        let from = Mem::indexed(Gpr::RCX, Gpr::RAX, Scale::S1, 0);
        self.asm.load_vector(false, VECTOR_SCRATCH[0], from);
        let piece = Mem::indexed(Gpr::RSP, Gpr::RAX, Scale::S1, at as i32);
        self.asm.store_vector(false, piece, VECTOR_SCRATCH[0]);
        self.asm.alu_imm(Alu::Add, Width::W32, Gpr::RAX, 16);
        self.asm
            .alu_imm(Alu::Cmp, Width::W32, Gpr::RAX, many as i32);
        self.asm.jump_if(Condition::Below, again);
        let from = Mem::at(Gpr::RCX, many as i32);
        self.copy_pieces(at_offset(to, many), from, rest);
    }

    fn copy_pieces(&mut self, to: Mem, from: Mem, length: u32) {
        pieces(length, |at, size| {
            self.read_piece(at_offset(from, at), size, VECTOR_SCRATCH[0]);
            self.write_piece(at_offset(to, at), size, VECTOR_SCRATCH[0]);
        });
    }

    /// Copies a range that may overlap: all loads come first.
    fn move_short(&mut self, to: Operand, from: Operand, length: u32) {
        if length > 8 && length < 16 {
            let to = self.address(to, Gpr::RAX);
            let from = self.address(from, Gpr::RCX);
            let [first, second] = VECTOR_SCRATCH;
            let last = length - 8;
            self.asm.load_float(true, first, from);
            self.asm.load_float(true, second, at_offset(from, last));
            self.asm.store_float(true, to, first);
            self.asm.store_float(true, at_offset(to, last), second);
            return;
        }
        if length.is_power_of_two() || length == 0 {
            self.copy(to, from, length);
            return;
        }
        // 3, 5, 6 or 7 bytes: two pieces that overlap.
        let to = self.address(to, Gpr::RAX);
        let from = self.address(from, Gpr::RCX);
        let (size, width) = match length {
            3 => (2, Width::W16),
            _ => (4, Width::W32),
        };
        let last = length - size;
        self.asm.load(width, THROUGH, from);
        // The source's address is not needed after this load.
        self.asm.load(width, Gpr::RCX, at_offset(from, last));
        self.asm.store(width, to, THROUGH);
        self.asm.store(width, at_offset(to, last), Gpr::RCX);
    }

    fn set_bytes(&mut self, to: Operand, byte: u8, length: u32) {
        let to = self.address(to, Gpr::RAX);
        let all = u64::from(byte) * 0x0101_0101_0101_0101;
        if length >= 16 {
            if byte == 0 {
                self.zero_vector(VECTOR_SCRATCH[0]);
            } else {
                let mem = self.asm.constant16([byte; 16]);
                self.asm.load_vector(true, VECTOR_SCRATCH[0], mem);
            }
        }
        let is_small = matches!(byte, 0 | 255);
        if length % 16 >= 8 && !is_small {
            self.asm.mov_imm(THROUGH, all);
        }
        pieces(length, |at, size| {
            let to = at_offset(to, at);
            match size {
                16 => self.asm.store_vector(false, to, VECTOR_SCRATCH[0]),
                8 if !is_small => self.asm.store(Width::W64, to, THROUGH),
                _ => {
                    let width = Width::of_bits(8 * size as u8);
                    self.asm.store_imm(width, to, all as u32 as i32);
                }
            }
        });
    }

    fn read_piece(&mut self, mem: Mem, size: u32, vector: Xmm) {
        match size {
            16 => self.asm.load_vector(false, vector, mem),
            _ => self.asm.load(Width::of_bits(8 * size as u8), THROUGH, mem),
        }
    }

    fn write_piece(&mut self, mem: Mem, size: u32, vector: Xmm) {
        match size {
            16 => self.asm.store_vector(false, mem, vector),
            _ => self.asm.store(Width::of_bits(8 * size as u8), mem, THROUGH),
        }
    }
}

/// The address plus `bytes`, which its displacement has room for.
fn at_offset(mem: Mem, bytes: u32) -> Mem {
    mem.plus(bytes as i32).unwrap_or(mem)
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn pieces_cover_each_byte() {
        for length in 0..=200 {
            let mut covered = vec![false; length as usize];
            let mut count = 0;
            pieces(length, |at, size| {
                count += 1;
                covered[at as usize..(at + size) as usize].fill(true);
            });
            assert!(covered.iter().all(|&is| is), "{length}");
            assert!(count <= length / 16 + 4);
        }
    }
}
