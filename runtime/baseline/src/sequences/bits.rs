//! Sequences for bit counts, scans and reversals.

use crate::asm::{Alu, Asm, Condition, Gpr, Scan, Shift, Width};

/// `dst = dst op value`, where the value may need a register.
fn alu_wide(asm: &mut Asm, op: Alu, width: Width, dst: Gpr, value: u64, scratch: Gpr) {
    let value = if width == Width::W64 {
        value
    } else {
        value & 0xffff_ffff
    };
    match (width, i32::try_from(value as i64)) {
        (Width::W64, Err(_)) => {
            asm.mov_imm(scratch, value);
            asm.alu(op, width, dst, scratch);
        }
        _ => asm.alu_imm(op, width, dst, value as i32),
    }
}

/// Counts the set bits of `x`, a register of 32 or 64 bits; in place.
///
/// Pairs are counted, then groups of 4, then bytes, whose sum a multiplication brings to the top
/// (Warren, Hacker's Delight, 5-1).
pub(crate) fn count(asm: &mut Asm, width: Width, x: Gpr, scratch: [Gpr; 2]) {
    let [part, mask] = scratch;
    asm.mov(width, part, x);
    asm.shift_imm(Shift::Shr, width, part, 1);
    alu_wide(asm, Alu::And, width, part, 0x5555_5555_5555_5555, mask);
    asm.alu(Alu::Sub, width, x, part);
    asm.mov(width, part, x);
    asm.shift_imm(Shift::Shr, width, x, 2);
    alu_wide(asm, Alu::And, width, x, 0x3333_3333_3333_3333, mask);
    alu_wide(asm, Alu::And, width, part, 0x3333_3333_3333_3333, mask);
    asm.alu(Alu::Add, width, x, part);
    asm.mov(width, part, x);
    asm.shift_imm(Shift::Shr, width, part, 4);
    asm.alu(Alu::Add, width, x, part);
    alu_wide(asm, Alu::And, width, x, 0x0f0f_0f0f_0f0f_0f0f, mask);
    if width == Width::W64 {
        asm.mov_imm(mask, 0x0101_0101_0101_0101);
        asm.imul(width, x, mask);
    } else {
        asm.imul_imm(width, x, x, 0x0101_0101);
    }
    asm.shift_imm(Shift::Shr, width, x, width.bits() - 8);
}

/// Counts the zeros above the highest set bit of `src`, a value of `bits` bits with zeros above;
/// `bits` if there is none. `dst` may be `src`.
pub(crate) fn leading_zeros(
    asm: &mut Asm,
    (bits, has_lzcnt): (u8, bool),
    dst: Gpr,
    src: Gpr,
    scratch: Gpr,
) {
    let width = Width::of_bits(bits).at_least_32();
    if has_lzcnt {
        asm.scan(Scan::Lzcnt, width, dst, src);
        if bits != width.bits() {
            asm.alu_imm(Alu::Sub, Width::W32, dst, i32::from(width.bits() - bits));
        }
        return;
    }
    // For zero, processors keep the old value of `dst`, but no manual promises it, so it is set
    // here.
    asm.scan(Scan::Bsr, width, dst, src);
    asm.mov_imm(scratch, u64::from(u32::MAX));
    asm.cmov(Condition::Equal, Width::W32, dst, scratch);
    asm.unary(crate::asm::Unary::Neg, Width::W32, dst);
    asm.alu_imm(Alu::Add, Width::W32, dst, i32::from(bits) - 1);
}

/// Counts the zeros below the lowest set bit of `src`, a value of `bits` bits with undefined ones
/// above; `bits` if there is none. `dst` may be `src`.
pub(crate) fn trailing_zeros(
    asm: &mut Asm,
    (bits, has_tzcnt): (u8, bool),
    dst: Gpr,
    src: Gpr,
    scratch: Gpr,
) {
    let width = Width::of_bits(bits).at_least_32();
    if bits < width.bits() {
        // Sets a bit above the type's, so that there is always one.
        if dst != src {
            asm.mov(width, dst, src);
        }
        alu_wide(asm, Alu::Or, width, dst, 1 << bits, scratch);
        asm.scan(Scan::Bsf, width, dst, dst);
    } else if has_tzcnt {
        asm.scan(Scan::Tzcnt, width, dst, src);
    } else {
        asm.scan(Scan::Bsf, width, dst, src);
        asm.mov_imm(scratch, u64::from(bits));
        asm.cmov(Condition::Equal, Width::W32, dst, scratch);
    }
}

/// Reverses the bits of `x`, a value of `bits` bits with undefined ones above; zeros above. In
/// place.
pub(crate) fn reverse(asm: &mut Asm, bits: u8, x: Gpr, scratch: [Gpr; 2]) {
    let [part, mask] = scratch;
    let width = Width::of_bits(bits).at_least_32();
    if bits > 8 {
        asm.bswap(width, x);
    }
    for (shift, pattern) in [
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        asm.mov(width, part, x);
        asm.shift_imm(Shift::Shr, width, part, shift);
        alu_wide(asm, Alu::And, width, part, pattern, mask);
        alu_wide(asm, Alu::And, width, x, pattern, mask);
        asm.shift_imm(Shift::Shl, width, x, shift);
        asm.alu(Alu::Or, width, x, part);
    }
    // A single byte was reversed in its place.
    let top = if bits > 8 { width.bits() } else { 8 };
    if bits <= 8 {
        asm.movzx(Width::W8, x, x);
    }
    if top != bits {
        asm.shift_imm(Shift::Shr, width, x, top - bits);
    }
}
