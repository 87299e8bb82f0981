//! Evaluates operations on scalars by LLVM's language reference: bits to bits.
//!
//! `None` is a result that a program must not depend on: poison, undefined behaviour, and
//! unspecified results (the payload of a NaN, the lesser of two zeros).

use uruk_baseline::ir::{
    BitOp, Cast, FloatOp, FloatPredicate, FloatUnary, IntOp, IntPredicate, OverflowOp, RmwOp, Type,
    WideOp,
};

use crate::chance::mask;

/// Bits, or `None` for an unspecified result.
pub type Word = Option<u128>;

fn width(ty: Type) -> u32 {
    match ty {
        Type::Int(bits) => u32::from(bits),
        other => other.bytes() * 8,
    }
}

/// The value, sign-extended.
pub fn signed(bits: u128, width: u32) -> i128 {
    (bits << (128 - width)) as i128 >> (128 - width)
}

pub fn int(op: IntOp, ty: Type, a: u128, b: u128) -> Word {
    let bits = width(ty);
    let (x, y) = (signed(a, bits), signed(b, bits));
    let (least, most) = (-1i128 << (bits - 1), (1i128 << (bits - 1)) - 1);
    let shift = u32::try_from(b).ok().filter(|&by| by < bits);
    let divides = b != 0;
    let divides_signed = divides && !(x == least && y == -1);
    let all = mask(ty);
    let wide = match op {
        IntOp::Add => a.wrapping_add(b),
        IntOp::Sub => a.wrapping_sub(b),
        IntOp::Mul => a.wrapping_mul(b),
        IntOp::SDiv => divides_signed.then(|| (x / y) as u128)?,
        IntOp::UDiv => divides.then(|| a / b)?,
        IntOp::SRem => divides_signed.then(|| (x % y) as u128)?,
        IntOp::URem => divides.then(|| a % b)?,
        IntOp::Shl => a << shift?,
        IntOp::LShr => a >> shift?,
        IntOp::AShr => (x >> shift?) as u128,
        IntOp::And => a & b,
        IntOp::Or => a | b,
        IntOp::Xor => a ^ b,
        IntOp::SMin => x.min(y) as u128,
        IntOp::SMax => x.max(y) as u128,
        IntOp::UMin => a.min(b),
        IntOp::UMax => a.max(b),
        IntOp::SAddSat => (x + y).clamp(least, most) as u128,
        IntOp::SSubSat => (x - y).clamp(least, most) as u128,
        IntOp::UAddSat => (a + b).min(all),
        IntOp::USubSat => a.saturating_sub(b),
    };
    Some(wide & all)
}

/// The result, and whether it overflowed.
pub fn overflow(op: OverflowOp, ty: Type, a: u128, b: u128) -> (u128, bool) {
    let bits = width(ty);
    let (x, y) = (signed(a, bits), signed(b, bits));
    let (exact, is_signed) = match op {
        OverflowOp::SAdd => ((x + y) as u128, true),
        OverflowOp::SSub => ((x - y) as u128, true),
        OverflowOp::SMul => ((x * y) as u128, true),
        OverflowOp::UAdd => (a + b, false),
        OverflowOp::USub => (a.wrapping_sub(b), false),
        OverflowOp::UMul => (a * b, false),
    };
    let result = exact & mask(ty);
    let fits = match is_signed {
        true => signed(result, bits) as u128 == exact,
        false => result == exact,
    };
    (result, !fits)
}

pub fn bit(op: BitOp, ty: Type, a: u128) -> Word {
    let bits = width(ty);
    let value = match op {
        BitOp::Count => u128::from(a.count_ones()),
        BitOp::LeadingZeros => u128::from(a.leading_zeros() - (128 - bits)),
        BitOp::TrailingZeros => u128::from(a.trailing_zeros().min(bits)),
        BitOp::SwapBytes => a.swap_bytes() >> (128 - bits),
        BitOp::Reverse => a.reverse_bits() >> (128 - bits),
        BitOp::Abs => signed(a, bits).unsigned_abs(),
    };
    Some(value & mask(ty))
}

pub fn funnel(left: bool, ty: Type, a: u128, b: u128, by: u128) -> u128 {
    let bits = width(ty);
    let by = (by % u128::from(bits)) as u32;
    // Concatenated they have up to 128 bits: the high one's upper bits may be shifted out.
    let value = match (left, by) {
        (true, 0) => a,
        (false, 0) => b,
        (true, _) => a << by | b >> (bits - by),
        (false, _) => b >> by | a << (bits - by),
    };
    value & mask(ty)
}

pub fn wide(op: WideOp, a: u128, b: u128) -> Word {
    let (x, y) = (a as i128, b as i128);
    let shift = u32::try_from(b).ok().filter(|&by| by < 128);
    Some(match op {
        WideOp::Add => a.wrapping_add(b),
        WideOp::Sub => a.wrapping_sub(b),
        WideOp::Mul => a.wrapping_mul(b),
        WideOp::SDiv => x.checked_div(y)? as u128,
        WideOp::UDiv => a.checked_div(b)?,
        WideOp::SRem => x.checked_rem(y)? as u128,
        WideOp::URem => a.checked_rem(b)?,
        WideOp::Shl => a << shift?,
        WideOp::LShr => a >> shift?,
        WideOp::AShr => (x >> shift?) as u128,
    })
}

pub fn compare(predicate: IntPredicate, bits: u32, a: u128, b: u128) -> bool {
    let (x, y) = (signed(a, bits), signed(b, bits));
    match predicate {
        IntPredicate::Eq => a == b,
        IntPredicate::Ne => a != b,
        IntPredicate::UGt => a > b,
        IntPredicate::UGe => a >= b,
        IntPredicate::ULt => a < b,
        IntPredicate::ULe => a <= b,
        IntPredicate::SGt => x > y,
        IntPredicate::SGe => x >= y,
        IntPredicate::SLt => x < y,
        IntPredicate::SLe => x <= y,
    }
}

pub fn float_compare(predicate: FloatPredicate, ty: Type, a: u128, b: u128) -> Word {
    use FloatPredicate as P;
    let order = as_f64(ty, a)?.partial_cmp(&as_f64(ty, b)?);
    let (less, equal, greater) = (
        order.is_some_and(|order| order.is_lt()),
        order.is_some_and(|order| order.is_eq()),
        order.is_some_and(|order| order.is_gt()),
    );
    let unordered = order.is_none();
    Some(u128::from(match predicate {
        P::False => false,
        P::OEq => equal,
        P::OGt => greater,
        P::OGe => greater || equal,
        P::OLt => less,
        P::OLe => less || equal,
        P::ONe => less || greater,
        P::Ord => !unordered,
        P::Uno => unordered,
        P::UEq => equal || unordered,
        P::UGt => greater || unordered,
        P::UGe => greater || equal || unordered,
        P::ULt => less || unordered,
        P::ULe => less || equal || unordered,
        P::UNe => !equal,
        P::True => true,
    }))
}

/// The exact number.
fn as_f64(ty: Type, bits: u128) -> Option<f64> {
    match ty {
        Type::F32 => Some(f64::from(f32::from_bits(bits as u32))),
        Type::F64 => Some(f64::from_bits(bits as u64)),
        _ => None,
    }
}

/// The bits that make a NaN quiet, and those of SSE's default NaN.
fn nans(ty: Type) -> (u128, u128) {
    match ty {
        Type::F32 => (0x0040_0000, 0xffc0_0000),
        _ => (0x0008_0000_0000_0000, 0xfff8_0000_0000_0000),
    }
}

fn is_nan(ty: Type, bits: u128) -> bool {
    as_f64(ty, bits).is_some_and(f64::is_nan)
}

/// The result of SSE if an operand, or the result, is NaN.
fn settled(ty: Type, operands: &[u128], result: u128) -> Word {
    let (quiet, made) = nans(ty);
    let mut nan = operands.iter().filter(|&&one| is_nan(ty, one));
    match (nan.next(), nan.next()) {
        (Some(_), Some(_)) => None,
        (Some(one), None) => Some(one | quiet),
        _ if is_nan(ty, result) => Some(made),
        _ => Some(result),
    }
}

pub fn float(op: FloatOp, ty: Type, a: u128, b: u128) -> Word {
    let either = is_nan(ty, a) || is_nan(ty, b);
    let quiet = |one: u128| !is_nan(ty, one) || one & nans(ty).0 != 0;
    if op == FloatOp::CopySign {
        let sign = mask(ty) ^ mask(ty) >> 1;
        return Some(a & !sign | b & sign);
    }
    if matches!(op, FloatOp::MinNum | FloatOp::MaxNum) {
        let (x, y) = (as_f64(ty, a)?, as_f64(ty, b)?);
        let zeros = x == 0.0 && y == 0.0 && a != b;
        let least = (x < y) == (op == FloatOp::MinNum);
        return match (x.is_nan(), y.is_nan()) {
            _ if !quiet(a) || !quiet(b) || zeros => None,
            (true, true) => None,
            (true, false) => Some(b),
            (false, true) => Some(a),
            _ => Some(if x == y || least { a } else { b }),
        };
    }
    let result = match ty {
        Type::F32 => {
            let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            let result = match op {
                FloatOp::Add => x + y,
                FloatOp::Sub => x - y,
                FloatOp::Mul => x * y,
                FloatOp::Div => x / y,
                _ => x % y,
            };
            u128::from(result.to_bits())
        }
        Type::F64 => {
            let (x, y) = (f64::from_bits(a as u64), f64::from_bits(b as u64));
            let result = match op {
                FloatOp::Add => x + y,
                FloatOp::Sub => x - y,
                FloatOp::Mul => x * y,
                FloatOp::Div => x / y,
                _ => x % y,
            };
            u128::from(result.to_bits())
        }
        _ => return None,
    };
    // The NaN of a library function is unspecified.
    match op == FloatOp::Rem && (either || is_nan(ty, result)) {
        true => None,
        false => settled(ty, &[a, b], result),
    }
}

pub fn float_unary(op: FloatUnary, ty: Type, a: u128) -> Word {
    let sign = mask(ty) ^ mask(ty) >> 1;
    match op {
        FloatUnary::Neg => Some(a ^ sign),
        FloatUnary::Abs => Some(a & !sign),
        FloatUnary::Sqrt => {
            let result = match ty {
                Type::F32 => u128::from(f32::from_bits(a as u32).sqrt().to_bits()),
                Type::F64 => u128::from(f64::from_bits(a as u64).sqrt().to_bits()),
                _ => return None,
            };
            settled(ty, &[a], result)
        }
    }
}

pub fn fma(ty: Type, a: u128, b: u128, c: u128) -> Word {
    let result = match ty {
        Type::F32 => {
            let [x, y, z] = [a, b, c].map(|one| f32::from_bits(one as u32));
            u128::from(x.mul_add(y, z).to_bits())
        }
        Type::F64 => {
            let [x, y, z] = [a, b, c].map(|one| f64::from_bits(one as u64));
            u128::from(x.mul_add(y, z).to_bits())
        }
        _ => return None,
    };
    (!is_nan(ty, result)).then_some(result)
}

pub fn cast(cast: Cast, from: Type, to: Type, a: u128) -> Word {
    let all = mask(to);
    match cast {
        Cast::Trunc => Some(a & all),
        Cast::ZExt | Cast::Bits => Some(a),
        Cast::SExt => Some(signed(a, width(from)) as u128 & all),
        Cast::FpTrunc if is_nan(from, a) => {
            let sign = a >> 63 << 31;
            Some(sign | 0x7fc0_0000 | (a >> 29 & 0x003f_ffff))
        }
        Cast::FpTrunc => Some(u128::from((as_f64(from, a)? as f32).to_bits())),
        Cast::FpExt if is_nan(from, a) => {
            let sign = a >> 31 << 63;
            Some(sign | 0x7ff8_0000_0000_0000 | (a & 0x003f_ffff) << 29)
        }
        Cast::FpExt => Some(u128::from(as_f64(from, a)?.to_bits())),
        Cast::FpToSi | Cast::FpToUi => {
            let value = as_f64(from, a)?.trunc();
            let (least, end) = match cast {
                Cast::FpToSi => (-exp2(width(to) - 1), exp2(width(to) - 1)),
                _ => (0.0, exp2(width(to))),
            };
            let fits = value >= least && value < end;
            fits.then_some(value as i128 as u128 & all)
        }
        Cast::FpToSiSat => {
            let (least, most) = (-1i128 << (width(to) - 1), (1i128 << (width(to) - 1)) - 1);
            Some((as_f64(from, a)? as i128).clamp(least, most) as u128 & all)
        }
        Cast::FpToUiSat => Some((as_f64(from, a)? as u128).min(all)),
        Cast::SiToFp => {
            let value = signed(a, width(from));
            rounded(to, value as f32, value as f64)
        }
        Cast::UiToFp => rounded(to, a as f32, a as f64),
    }
}

fn exp2(exponent: u32) -> f64 {
    2f64.powi(exponent as i32)
}

fn rounded(to: Type, single: f32, double: f64) -> Word {
    match to {
        Type::F32 => Some(u128::from(single.to_bits())),
        Type::F64 => Some(u128::from(double.to_bits())),
        _ => None,
    }
}

pub fn rmw(op: RmwOp, ty: Type, old: u128, value: u128) -> Word {
    match op {
        RmwOp::Exchange => Some(value),
        RmwOp::Add => int(IntOp::Add, ty, old, value),
        RmwOp::Sub => int(IntOp::Sub, ty, old, value),
        RmwOp::And => Some(old & value),
        RmwOp::Nand => Some(!(old & value) & mask(ty)),
        RmwOp::Or => Some(old | value),
        RmwOp::Xor => Some(old ^ value),
        RmwOp::Max => int(IntOp::SMax, ty, old, value),
        RmwOp::Min => int(IntOp::SMin, ty, old, value),
        RmwOp::UMax => int(IntOp::UMax, ty, old, value),
        RmwOp::UMin => int(IntOp::UMin, ty, old, value),
        RmwOp::FAdd => float(FloatOp::Add, ty, old, value),
        RmwOp::FSub => float(FloatOp::Sub, ty, old, value),
    }
}
