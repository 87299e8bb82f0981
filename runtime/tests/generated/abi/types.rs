//! Types as a signature has them, and the scalars and vectors in them, each of which has a slot of
//! its own in the buffers that values come from and go to.

use std::fmt;

/// Bytes between two slots.
pub const SLOT: usize = 64;

/// A type of LLVM IR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ty {
    Int(u32),
    Half,
    BFloat,
    Float,
    Double,
    X87,
    Quad,
    Ptr,
    Vector(u32, Box<Ty>),
    Array(u32, Box<Ty>),
    /// Whether it is packed.
    Struct(Vec<Ty>, bool),
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ty::Int(bits) => write!(f, "i{bits}"),
            Ty::Half => f.write_str("half"),
            Ty::BFloat => f.write_str("bfloat"),
            Ty::Float => f.write_str("float"),
            Ty::Double => f.write_str("double"),
            Ty::X87 => f.write_str("x86_fp80"),
            Ty::Quad => f.write_str("fp128"),
            Ty::Ptr => f.write_str("ptr"),
            Ty::Vector(count, lane) => write!(f, "<{count} x {lane}>"),
            Ty::Array(count, element) => write!(f, "[{count} x {element}]"),
            Ty::Struct(fields, packed) => {
                let fields: Vec<String> = fields.iter().map(Ty::to_string).collect();
                let fields = fields.join(", ");
                match packed {
                    true => write!(f, "<{{ {fields} }}>"),
                    false => write!(f, "{{ {fields} }}"),
                }
            }
        }
    }
}

/// A scalar or vector within a type, and the indices that lead to it.
#[derive(Debug, Clone)]
pub struct Leaf {
    pub path: Vec<u32>,
    pub ty: Ty,
}

impl Ty {
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut all = Vec::new();
        self.add_leaves(&mut Vec::new(), &mut all);
        all
    }

    fn add_leaves(&self, path: &mut Vec<u32>, all: &mut Vec<Leaf>) {
        let parts: Vec<&Ty> = match self {
            Ty::Struct(fields, _) => fields.iter().collect(),
            Ty::Array(count, element) => vec![&**element; *count as usize],
            ty => {
                all.push(Leaf {
                    path: path.clone(),
                    ty: ty.clone(),
                });
                return;
            }
        };
        for (at, part) in (0..).zip(parts) {
            path.push(at);
            part.add_leaves(path, all);
            path.pop();
        }
    }

    /// Bits of a scalar or vector.
    pub fn bits(&self) -> u32 {
        match self {
            Ty::Int(bits) => *bits,
            Ty::Half | Ty::BFloat => 16,
            Ty::Float => 32,
            Ty::Double | Ty::Ptr => 64,
            Ty::X87 => 80,
            Ty::Quad => 128,
            Ty::Vector(count, lane) => count * lane.bits(),
            Ty::Array(..) | Ty::Struct(..) => unreachable!("an aggregate has no bits"),
        }
    }

    /// Whether it can be a lane of a vector whose lanes lie one behind the other in memory.
    pub fn may_be_lane(&self) -> bool {
        matches!(
            self,
            Ty::Int(_) | Ty::Half | Ty::BFloat | Ty::Float | Ty::Double | Ty::Quad | Ty::Ptr
        )
    }
}

/// The integer that an integer of so many bits is cut out of by callers, and that it is extended to
/// by callees: what is above its bits is then seen.
pub fn container(bits: u32) -> u32 {
    bits.next_power_of_two().max(64)
}

/// How an integer is extended to its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    Zero,
    Sign,
}

pub type Bytes = [u8; SLOT];

fn bit(bytes: &Bytes, at: u32) -> bool {
    bytes[at as usize / 8] >> (at % 8) & 1 != 0
}

fn set_bit(bytes: &mut Bytes, at: u32, to: bool) {
    let byte = &mut bytes[at as usize / 8];
    *byte = *byte & !(1 << (at % 8)) | u8::from(to) << (at % 8);
}

/// The contents of a slot that a value of the type may be loaded from, made of bytes by chance.
///
/// Bits above an integer's are any: it is cut out of its container. Bits above other types' are
/// zero. No 16-bit floating-point number is a NaN or infinite: their conversions keep the rest.
pub fn given(ty: &Ty, mut random: Bytes) -> Bytes {
    let (lane, lanes) = match ty {
        Ty::Int(_) => return random,
        Ty::Vector(count, lane) => (&**lane, *count),
        ty => (ty, 1),
    };
    if matches!(lane, Ty::Half | Ty::BFloat) {
        for at in 0..lanes {
            set_bit(&mut random, at * 16 + 14, false);
        }
    }
    for at in ty.bits()..SLOT as u32 * 8 {
        set_bit(&mut random, at, false);
    }
    random
}

/// The bytes of a slot after a store of the value that was given from another one, and how many of
/// the slot's bits the store defines.
pub fn stored(ty: &Ty, given: &Bytes, extension: Extension) -> (Bytes, u32) {
    let Ty::Int(bits) = *ty else {
        return (*given, ty.bits());
    };
    let mut bytes = *given;
    let above = extension == Extension::Sign && bit(given, bits - 1);
    for at in bits..container(bits) {
        set_bit(&mut bytes, at, above);
    }
    (bytes, container(bits))
}

/// Whether the first bits are the same.
pub fn same(a: &Bytes, b: &Bytes, bits: u32) -> bool {
    (0..bits).all(|at| bit(a, at) == bit(b, at))
}
