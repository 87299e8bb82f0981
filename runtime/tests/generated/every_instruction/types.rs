//! Types of operands, how functions get and leave them in memory, and values at their edges.

use std::fmt;
use uruk_testing::Random;

/// Bytes from one operand to the next.
pub const APART: usize = 32;

/// A type of operands and results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ty {
    Int(u32),
    F32,
    F64,
    F80,
    Ptr,
    /// So many of a part.
    Vector(u32, Part),
}

/// The type of a vector's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Int(u32),
    F32,
    F64,
}

impl Part {
    pub fn ty(self) -> Ty {
        match self {
            Part::Int(bits) => Ty::Int(bits),
            Part::F32 => Ty::F32,
            Part::F64 => Ty::F64,
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ty::Int(bits) => write!(f, "i{bits}"),
            Ty::F32 => f.write_str("float"),
            Ty::F64 => f.write_str("double"),
            Ty::F80 => f.write_str("x86_fp80"),
            Ty::Ptr => f.write_str("ptr"),
            Ty::Vector(lanes, part) => write!(f, "<{lanes} x {}>", part.ty()),
        }
    }
}

impl Ty {
    /// As intrinsics are named.
    pub fn mangled(self) -> String {
        match self {
            Ty::Int(bits) => format!("i{bits}"),
            Ty::F32 => "f32".into(),
            Ty::F64 => "f64".into(),
            Ty::F80 => "f80".into(),
            Ty::Ptr => "p0".into(),
            Ty::Vector(lanes, part) => format!("v{lanes}{}", part.ty().mangled()),
        }
    }

    /// The type that it is in memory as: of a whole number of bytes that loads know.
    fn held(self) -> Ty {
        match self {
            Ty::Int(bits) => Ty::Int(
                [8, 16, 32, 64, 128]
                    .into_iter()
                    .find(|it| *it >= bits)
                    .unwrap_or(128),
            ),
            Ty::Vector(lanes, Part::Int(1)) => Ty::Vector(lanes, Part::Int(8)),
            other => other,
        }
    }

    /// Text that loads operand number `at` as `%NAME`.
    pub fn load(self, name: &str, at: usize, volatile: bool) -> String {
        let held = self.held();
        let volatile = if volatile { "volatile " } else { "" };
        let mut text = format!(
            "  %{name}.at = getelementptr i8, ptr %in, i64 {}\n",
            at * APART
        );
        if held == self {
            text += &format!("  %{name} = load {volatile}{self}, ptr %{name}.at, align 1\n");
        } else {
            text += &format!("  %{name}.held = load {volatile}{held}, ptr %{name}.at, align 1\n");
            text += &format!("  %{name} = trunc {held} %{name}.held to {self}\n");
        }
        text
    }

    /// Text that leaves `value` as result number `at`.
    pub fn store(self, value: &str, at: usize) -> String {
        let held = self.held();
        let mut text = format!(
            "  %out{at} = getelementptr i8, ptr %out, i64 {}\n",
            at * APART
        );
        if held == self {
            text += &format!("  store {self} {value}, ptr %out{at}, align 1\n");
        } else {
            text += &format!("  %out{at}.held = zext {self} {value} to {held}\n");
            text += &format!("  store {held} %out{at}.held, ptr %out{at}, align 1\n");
        }
        text
    }

    /// Values at the edges, as they are in memory, and some by chance.
    pub fn values(self, random: &mut Random) -> Vec<[u8; APART]> {
        match self {
            Ty::Int(bits) => {
                let mut all = edges(bits);
                all.extend((0..4).map(|_| random.wide()));
                all.into_iter()
                    .map(|it| filled(&it.to_le_bytes()))
                    .collect()
            }
            Ty::Ptr => [0u64, 8, 0x7fff_0000_1234, u64::MAX]
                .map(|it| filled(&it.to_le_bytes()))
                .to_vec(),
            Ty::F32 => FLOATS
                .iter()
                .map(|&it| filled(&(it as f32).to_bits().to_le_bytes()))
                .chain(
                    [0x7fc0_1234_u32, 0x7f80_0001, 1, 0xff80_0000]
                        .map(|it| filled(&it.to_le_bytes())),
                )
                .chain((0..4).map(|_| filled(&(random.next() as u32).to_le_bytes())))
                .collect(),
            Ty::F64 => FLOATS
                .iter()
                .map(|&it| filled(&it.to_bits().to_le_bytes()))
                .chain(
                    [
                        0x7ff8_0000_0000_1234_u64,
                        0x7ff0_0000_0000_0001,
                        1,
                        0xfff0 << 48,
                    ]
                    .map(|it| filled(&it.to_le_bytes())),
                )
                .chain((0..4).map(|_| filled(&random.next().to_le_bytes())))
                .collect(),
            Ty::F80 => FLOATS.iter().map(|&it| extended(it)).collect(),
            Ty::Vector(lanes, part) => {
                let values = part.ty().values(random);
                let bytes = part.ty().bytes();
                let take = |_| {
                    let mut all = [0xa5; APART];
                    for lane in 0..lanes as usize {
                        let from = values[random.next() as usize % values.len()];
                        all[lane * bytes..(lane + 1) * bytes].copy_from_slice(&from[..bytes]);
                    }
                    all
                };
                (0..16).map(take).collect()
            }
        }
    }

    /// Bytes in memory.
    pub fn bytes(self) -> usize {
        match self.held() {
            Ty::Int(bits) => bits as usize / 8,
            Ty::F32 => 4,
            Ty::F64 | Ty::Ptr => 8,
            Ty::F80 => 10,
            Ty::Vector(lanes, part) => lanes as usize * part.ty().bytes(),
        }
    }
}

/// Numbers around which floating-point instructions change what they do.
const FLOATS: [f64; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.499_999_999_999_999_94,
    3.75,
    -100.25,
    255.0,
    256.0,
    -129.0,
    2_147_483_647.0,
    2_147_483_648.0,
    -2_147_483_649.0,
    9_223_372_036_854_775_808.0,
    18_446_744_073_709_551_616.0,
    1e300,
    -1e-300,
    f64::INFINITY,
    f64::MIN_POSITIVE,
];

/// Numbers of so many bits around which instructions change what they do, as two's complement.
pub fn edges(bits: u32) -> Vec<u128> {
    let mask = mask(bits);
    let top = 1u128 << (bits - 1);
    let mut all: Vec<u128> = [
        0,
        1,
        2,
        3,
        7,
        10,
        255,
        0x8000,
        0x5555_5555_5555_5555,
        1 << 31,
        1 << 63,
    ]
    .into_iter()
    .chain([top, top - 1, top + 1, mask, mask - 1, (bits - 1).into()])
    .map(|it| it & mask)
    .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The bits of a number of that width.
pub fn mask(bits: u32) -> u128 {
    u128::MAX >> (128 - bits)
}

/// A number of that width, with its sign.
pub fn signed(value: u128, bits: u32) -> i128 {
    let up = 128 - bits;
    (value << up) as i128 >> up
}

fn filled(bytes: &[u8]) -> [u8; APART] {
    let mut all = [0xa5; APART];
    all[..bytes.len()].copy_from_slice(bytes);
    all
}

/// A double as the x87 has it.
fn extended(value: f64) -> [u8; APART] {
    let bits = value.to_bits();
    let (sign, exponent) = ((bits >> 63) as u16, (bits >> 52 & 0x7ff) as u16);
    let fraction = bits << 12 >> 1;
    let (exponent, mantissa) = match exponent {
        0 => (0, fraction >> 1),
        0x7ff => (0x7fff, 1 << 63 | fraction),
        exponent => (exponent + (16383 - 1023), 1 << 63 | fraction),
    };
    let mut all = filled(&mantissa.to_le_bytes());
    all[8..10].copy_from_slice(&(sign << 15 | exponent).to_le_bytes());
    all
}
