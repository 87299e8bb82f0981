//! Sequences for floating-point numbers: conversions from and to unsigned integers, saturating
//! conversions, minimum and maximum.

use crate::asm::{Alu, Arith, Asm, Condition, Gpr, Mem, Shift, Sse, Width, Xmm};

/// A constant of the type, in the data behind the code.
pub(crate) fn constant(asm: &mut Asm, is_double: bool, value: f64) -> Mem {
    if is_double {
        asm.constant8(value.to_bits())
    } else {
        asm.constant4((value as f32).to_bits())
    }
}

/// `ucomiss` or `ucomisd`.
pub(crate) fn ucomis(is_double: bool) -> Sse {
    if is_double {
        Sse::UCOMISD
    } else {
        Sse::UCOMISS
    }
}

/// Converts from a signed integer of 32 or 64 bits.
pub(crate) fn from_signed(asm: &mut Asm, is_double: bool, width: Width, dst: Xmm, src: Gpr) {
    // The conversion writes only the low part: without this it depends on the last write of `dst`.
    asm.sse(Sse::XORPS, dst, dst);
    asm.cvt_from_int(is_double, width, dst, src);
}

/// Converts from an unsigned integer of 64 bits, rounded once: half of the number is converted,
/// with the lowest bit kept for the rounding, and doubled. `src` is not changed.
pub(crate) fn from_unsigned(asm: &mut Asm, is_double: bool, dst: Xmm, src: Gpr, scratch: [Gpr; 2]) {
    let [half, low] = scratch;
    let (large, end) = (asm.new_label(), asm.new_label());
    asm.sse(Sse::XORPS, dst, dst);
    asm.test(Width::W64, src, src);
    asm.jump_if(Condition::Sign, large);
    asm.cvt_from_int(is_double, Width::W64, dst, src);
    asm.jump(end);
    asm.bind(large);
    asm.mov(Width::W64, half, src);
    asm.mov(Width::W32, low, src);
    asm.shift_imm(Shift::Shr, Width::W64, half, 1);
    asm.alu_imm(Alu::And, Width::W32, low, 1);
    asm.alu(Alu::Or, Width::W64, half, low);
    asm.cvt_from_int(is_double, Width::W64, dst, half);
    asm.sse(Sse::scalar(Arith::Add, is_double), dst, dst);
    asm.bind(end);
}

/// Converts to an unsigned integer of 64 bits, towards zero. Both the number and the number less
/// 2^63 are converted. If the first result is negative, the number was too large for it, and the
/// second counts. `src` is not changed and may not be `scratch`.
pub(crate) fn to_unsigned(
    asm: &mut Asm,
    is_double: bool,
    dst: Gpr,
    src: Xmm,
    scratch: [Gpr; 2],
    scratch_xmm: Xmm,
) {
    let [large, mask] = scratch;
    let half = constant(asm, is_double, 9_223_372_036_854_775_808.0);
    asm.cvt_to_int(is_double, Width::W64, dst, src);
    asm.movaps(scratch_xmm, src);
    asm.sse(Sse::scalar(Arith::Sub, is_double), scratch_xmm, half);
    asm.cvt_to_int(is_double, Width::W64, large, scratch_xmm);
    asm.mov(Width::W64, mask, dst);
    asm.shift_imm(Shift::Sar, Width::W64, mask, 63);
    asm.alu(Alu::And, Width::W64, mask, large);
    asm.alu(Alu::Or, Width::W64, dst, mask);
}

/// The least and the greatest integer of `bits` bits, as integers of 64 bits.
fn bounds(bits: u8, is_signed: bool) -> (u64, u64) {
    let ones = u64::MAX >> (64 - bits);
    if is_signed {
        // All ones but the sign bit, and the complement.
        (!(ones >> 1), ones >> 1)
    } else {
        (0, ones)
    }
}

/// The greatest floating-point number of the type that is not greater than an integer.
fn floor(is_double: bool, value: u64) -> f64 {
    let digits = if is_double { 53 } else { 24 };
    let excess = (64 - value.leading_zeros()).saturating_sub(digits);
    (value >> excess << excess) as f64
}

/// Converts to an integer of `bits` bits, towards zero; out of range gives the nearest integer, and
/// NaN zero. Bits above are sign bits or zeros. `src` is not changed and may not be `scratch_xmm`.
pub(crate) fn to_int_saturated(
    asm: &mut Asm,
    (is_double, bits, is_signed): (bool, u8, bool),
    dst: Gpr,
    src: Xmm,
    scratch: [Gpr; 2],
    scratch_xmm: Xmm,
) {
    let bound = scratch[0];
    let (least, greatest) = bounds(bits, is_signed);
    if bits == 64 && !is_signed {
        to_unsigned(asm, is_double, dst, src, scratch, scratch_xmm);
    } else {
        asm.cvt_to_int(is_double, Width::W64, dst, src);
    }
    // Below the least integer, or NaN: the flags are the same.
    let floor_least = -floor(is_double, least.wrapping_neg());
    let low = constant(asm, is_double, if is_signed { floor_least } else { 0.0 });
    asm.mov_imm(bound, least);
    asm.sse(ucomis(is_double), src, low);
    asm.cmov(Condition::Below, Width::W64, dst, bound);
    let high = constant(asm, is_double, floor(is_double, greatest));
    asm.mov_imm(bound, greatest);
    asm.sse(ucomis(is_double), src, high);
    asm.cmov(Condition::Above, Width::W64, dst, bound);
    if is_signed {
        asm.zero(bound);
        asm.sse(ucomis(is_double), src, src);
        asm.cmov(Condition::Parity, Width::W64, dst, bound);
    }
}

/// The lesser (`Arith::Min`) or the greater (`Arith::Max`) of two numbers; if one is NaN, the
/// other. The bits equal those of LLVM's sequence, for zeros of both signs too: `b op a`, which is
/// `a` where both are zero, unless `a` is NaN. `scratch` may be `b`.
pub(crate) fn pick_number(
    asm: &mut Asm,
    (op, is_double): (Arith, bool),
    dst: Xmm,
    [a, b]: [Xmm; 2],
    scratch: Xmm,
) {
    let end = asm.new_label();
    if scratch != b {
        asm.movaps(scratch, b);
    }
    asm.sse(ucomis(is_double), a, a);
    asm.jump_if(Condition::Parity, end);
    asm.sse(Sse::scalar(op, is_double), scratch, a);
    asm.bind(end);
    asm.movaps(dst, scratch);
}

#[cfg(test)]
mod tests {
    use super::{bounds, floor};

    #[test]
    fn bounds_of_integers() {
        assert_eq!(bounds(8, false), (0, 255));
        assert_eq!(bounds(8, true), (-128_i64 as u64, 127));
        assert_eq!(bounds(1, true), (u64::MAX, 0));
        assert_eq!(bounds(64, true), (1 << 63, u64::MAX >> 1));
        assert_eq!(bounds(64, false), (0, u64::MAX));
    }

    #[test]
    fn numbers_that_fit() {
        assert_eq!(floor(true, 255), 255.0);
        assert_eq!(floor(false, 0x7fff_ffff), 2_147_483_520.0);
        assert_eq!(floor(true, 0x7fff_ffff), 2_147_483_647.0);
        assert_eq!(floor(true, u64::MAX), 18_446_744_073_709_549_568.0);
        assert_eq!(floor(false, 1 << 63), 9_223_372_036_854_775_808.0);
    }
}
