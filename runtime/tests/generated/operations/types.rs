//! Types of values: scalars and vectors, their spelling, sizes, and constants at their edges.

use std::fmt;

use uruk_testing::Random;

/// A scalar type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Int(u32),
    Half,
    F32,
    F64,
    F80,
    F128,
    Ptr,
}

/// A scalar type, or a vector of so many lanes; 0 lanes for a scalar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ty {
    pub part: Part,
    pub lanes: u32,
}

pub const I1: Ty = int(1);
pub const I32: Ty = int(32);
pub const I64: Ty = int(64);
pub const PTR: Ty = scalar(Part::Ptr);

/// The scalar integer of so many bits.
pub const fn int(bits: u32) -> Ty {
    scalar(Part::Int(bits))
}

pub const fn scalar(part: Part) -> Ty {
    Ty { part, lanes: 0 }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Int(bits) => write!(f, "i{bits}"),
            Part::Half => f.write_str("half"),
            Part::F32 => f.write_str("float"),
            Part::F64 => f.write_str("double"),
            Part::F80 => f.write_str("x86_fp80"),
            Part::F128 => f.write_str("fp128"),
            Part::Ptr => f.write_str("ptr"),
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lanes {
            0 => self.part.fmt(f),
            lanes => write!(f, "<{lanes} x {}>", self.part),
        }
    }
}

impl Part {
    pub const I1: Part = Part::Int(1);

    pub fn bits(self) -> u32 {
        match self {
            Part::Int(bits) => bits,
            Part::Half => 16,
            Part::F32 => 32,
            Part::F64 | Part::Ptr => 64,
            Part::F80 => 80,
            Part::F128 => 128,
        }
    }

    pub fn is_int(self) -> bool {
        matches!(self, Part::Int(_))
    }

    pub fn is_float(self) -> bool {
        !matches!(self, Part::Int(_) | Part::Ptr)
    }
}

impl Ty {
    /// A vector or scalar of the same shape, of another scalar type.
    pub fn of(self, part: Part) -> Ty {
        Ty { part, ..self }
    }

    pub fn lane(self) -> Ty {
        scalar(self.part)
    }

    /// Bits of one lane.
    pub fn bits(self) -> u32 {
        self.part.bits()
    }

    /// Bits of the whole.
    pub fn whole(self) -> u32 {
        self.bits() * self.lanes.max(1)
    }

    pub fn is_int(self) -> bool {
        self.part.is_int()
    }

    pub fn is_float(self) -> bool {
        self.part.is_float()
    }

    pub fn is_vector(self) -> bool {
        self.lanes != 0
    }

    /// Bytes that an access touches.
    pub fn bytes(self) -> u32 {
        self.whole().div_ceil(8)
    }

    /// Zero, and no bit set.
    pub fn zero(self) -> String {
        match self.part {
            _ if self.is_vector() => "zeroinitializer".into(),
            Part::F80 => "0xK00000000000000000000".into(),
            Part::F128 => "0xL00000000000000000000000000000000".into(),
            Part::Int(_) => self.number(0),
            _ => "0.0".into(),
        }
    }

    /// As names of intrinsics end.
    pub fn mangled(self) -> String {
        let part = match self.part {
            Part::Int(bits) => format!("i{bits}"),
            Part::Half => "f16".into(),
            Part::F32 => "f32".into(),
            Part::F64 => "f64".into(),
            Part::F80 => "f80".into(),
            Part::F128 => "f128".into(),
            Part::Ptr => "p0".into(),
        };
        match self.lanes {
            0 => part,
            lanes => format!("v{lanes}{part}"),
        }
    }

    /// A constant of which all lanes are the same.
    pub fn splat(self, one: &str) -> String {
        match self.lanes {
            0 => one.to_owned(),
            _ => format!("splat ({} {one})", self.part),
        }
    }

    /// A constant integer of the type's width, as text.
    pub fn number(self, value: u128) -> String {
        let text = match self.bits() {
            1 => (if value & 1 == 1 { "true" } else { "false" }).to_owned(),
            bits if bits <= 128 => (value & (u128::MAX >> (128 - bits))).to_string(),
            _ => value.to_string(),
        };
        self.splat(&text)
    }

    /// The smallest and greatest signed number.
    pub fn greatest(self) -> u128 {
        u128::MAX >> (128 - self.bits().min(128)) >> 1
    }

    /// A constant, at an edge or by chance.
    pub fn constant(self, random: &mut Random) -> String {
        if self.lanes != 0 {
            let lanes: Vec<_> = (0..self.lanes)
                .map(|_| format!("{} {}", self.part, self.lane().constant(random)))
                .collect();
            return format!("<{}>", lanes.join(", "));
        }
        match self.part {
            Part::Int(bits) => {
                let top = 1u128 << (bits - 1).min(127);
                let edges = [0, 1, 2, 3, 7, 10, 255, top, top - 1, top + 1, u128::MAX];
                let value = match random.below(3) {
                    0 => random.wide(),
                    _ => edges[random.below(edges.len())],
                };
                self.number(value)
            }
            Part::F80 => {
                let all = [
                    "0xK3FFF8000000000000000",
                    "0xKC000C000000000000000",
                    "0xK7FFF8000000000000000",
                    "0xK80000000000000000000",
                    "0xK403E8000000000000001",
                ];
                all[random.below(all.len())].into()
            }
            Part::F128 => "0xL00000000000000004001400000000000".into(),
            Part::Ptr => "%mem".into(),
            _ => {
                let all = [
                    "0.0",
                    "-0.0",
                    "1.0",
                    "-2.5",
                    "0.5",
                    "255.0",
                    "-129.0",
                    "1024.0",
                    // Infinity, NaN, the smallest of floats, 2^63, 2^64.
                    "0x7FF0000000000000",
                    "0x7FF8000000000000",
                    "0x36A0000000000000",
                    "0x43E0000000000000",
                    "0x43F0000000000000",
                ];
                let all = match self.part {
                    Part::Half => &all[..8],
                    _ => &all[..],
                };
                all[random.below(all.len())].into()
            }
        }
    }
}
