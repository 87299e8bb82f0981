//! Scalars of types: leaves in the order in which LLVM passes them, sizes, and offsets of fields,
//! on x86-64 Linux. All types of a module are analysed once.
//!
//! A type without a size, or with too many bytes to count, is [`Shape::Other`], and has no size.

use uruk_baseline::ir::Type;
use uruk_bitcode::ir::{self as bitcode, TypeId};

/// The layout of data, as LLVM's target has it.
pub(crate) const LAYOUT: &str =
    "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128";

/// Scalars that one value may have.
const MOST_LEAVES: usize = 32;

/// Bytes that one type may have.
const MOST_BYTES: u64 = 1 << 60;

/// Lanes that one vector may have.
const MOST_LANES: u32 = 64;

/// The reason why a vector has no leaves.
const VECTOR: &str = "a vector of an unusual type";

const SCALABLE: &str = "a vector of unknown length";
const UNSIZED: &str = "a type without a size";
const LARGE: &str = "a large aggregate";

/// A scalar of a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) ty: Type,
    /// Offset in bytes.
    pub(crate) offset: u32,
}

/// The kind of a type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// `void`, or a type without computable values.
    Nothing,
    /// A scalar.
    Scalar(Type),
    /// An integer of 128 bits.
    Wide,
    /// A struct: the index of its first field among all fields, and the field count.
    Struct { fields: u32, count: u32 },
    /// Elements of a type, one behind the other.
    Array { element: TypeId, stride: u64 },
    /// A vector: so many scalars of a type, which are its leaves.
    Vector { lane: Type, lanes: u32 },
    /// Any other type.
    Other,
}

/// The properties of a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    pub(crate) shape: Shape,
    /// Its leaves: the first and their number; or the reason why it has none.
    leaves: Result<(u32, u32), &'static str>,
    /// Bytes from one to the next; `None` for a type without a size.
    pub(crate) size: Option<u64>,
    /// Alignment in memory.
    pub(crate) align: u32,
    /// Whether it is a vector, or has one as a part.
    pub(crate) vectors: Vectors,
}

/// The kind of vectors that a type contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Vectors {
    /// None.
    #[default]
    None,
    /// Some, whose lanes are bytes.
    Bytes,
    /// Some of bits, which do not lie at the offsets of their leaves.
    Bits,
}

/// For a number that no type has.
const NONE: Info = Info {
    shape: Shape::Other,
    leaves: Err("an unusual type"),
    size: None,
    align: 1,
    vectors: Vectors::None,
};

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StructField {
    pub(crate) ty: TypeId,
    /// Offset in bytes.
    pub(crate) offset: u64,
    /// Leaves of the fields before it; meaningless in structs without leaves.
    pub(crate) leaf: u32,
}

/// The types of one module.
#[derive(Debug, Default)]
pub(crate) struct Types {
    infos: Vec<Info>,
    fields: Vec<StructField>,
    leaves: Vec<Leaf>,
}

/// Sizes and alignments of the types of a module, by their numbers.
pub struct Sizes(Types);

impl Sizes {
    /// For a list in which types are made of earlier ones.
    pub fn of(all: &[bitcode::Type]) -> Sizes {
        Sizes(Types::of(all))
    }

    /// Bytes of a type and its alignment in memory; `None` for a type without a size.
    pub fn of_type(&self, ty: TypeId) -> Option<(u64, u32)> {
        let info = self.0.info(ty);
        Some((info.size?, info.align))
    }
}

impl Types {
    /// For a list in which types are made of earlier ones.
    pub(crate) fn of(all: &[bitcode::Type]) -> Types {
        let mut types = Types::default();
        for ty in all {
            let info = types.look(ty, all);
            types.infos.push(info);
        }
        types
    }

    /// Whether one of them contains a vector.
    pub(crate) fn have_vectors(&self) -> bool {
        self.infos.iter().any(|it| it.vectors != Vectors::None)
    }

    pub(crate) fn info(&self, ty: TypeId) -> &Info {
        self.infos.get(ty.index()).unwrap_or(&NONE)
    }

    /// The scalars of a type.
    pub(crate) fn leaves(&self, ty: TypeId) -> Result<&[Leaf], &'static str> {
        let (first, count) = self.info(ty).leaves?;
        Ok(&self.leaves[first as usize..(first + count) as usize])
    }

    /// A field of a struct; `None` if it has fewer.
    pub(crate) fn field(&self, fields: u32, count: u32, index: u64) -> Option<StructField> {
        let index = u32::try_from(index).ok().filter(|&it| it < count)?;
        Some(self.fields[(fields + index) as usize])
    }

    fn add(&mut self, leaves: &[Leaf]) -> (u32, u32) {
        let first = self.leaves.len();
        self.leaves.extend_from_slice(leaves);
        (first as u32, leaves.len() as u32)
    }

    fn look(&mut self, ty: &bitcode::Type, all: &[bitcode::Type]) -> Info {
        use bitcode::Type as T;
        let other = |what, bits| other(what, bits, natural(bits));
        match *ty {
            T::Void | T::Label | T::Metadata => Info {
                shape: Shape::Nothing,
                leaves: Ok((0, 0)),
                ..NONE
            },
            T::Integer(bits @ 1..=64) => self.scalar(Type::Int(bits as u8), bits),
            T::Integer(128) => self.wide(),
            T::Integer(bits) => other("an integer of unusual width", bits),
            T::Float => self.scalar(Type::F32, 32),
            T::Double => self.scalar(Type::F64, 64),
            T::X86Fp80 => self.scalar(Type::F80, 80),
            T::Pointer(0) => self.scalar(Type::PTR, 64),
            T::Pointer(270 | 271) => other("an address space", 32),
            T::Pointer(_) => other("an address space", 64),
            T::Half => other("half", 16),
            T::BFloat => other("bfloat", 16),
            T::Fp128 => other("fp128", 128),
            T::Struct(ref fields, packed) => self.structure(fields, packed),
            T::Array(count, element) => self.array(count, element),
            T::Vector(_, _, true) => nothing_of(SCALABLE),
            T::Vector(lanes, lane, false) => self.vector(lanes, lane, all),
            T::Token => nothing_of("a token"),
            _ => NONE,
        }
    }

    fn scalar(&mut self, ty: Type, bits: u32) -> Info {
        let leaf = Leaf { ty, offset: 0 };
        Info {
            shape: Shape::Scalar(ty),
            leaves: Ok(self.add(&[leaf])),
            ..other("", bits, natural(bits))
        }
    }

    fn wide(&mut self) -> Info {
        let half = |offset| Leaf {
            ty: Type::Int(64),
            offset,
        };
        Info {
            shape: Shape::Wide,
            leaves: Ok(self.add(&[half(0), half(8)])),
            ..other("", 128, 16)
        }
    }

    fn structure(&mut self, parts: &[TypeId], packed: bool) -> Info {
        let fields = self.fields.len() as u32;
        let (mut offset, mut most, mut leaf) = (0u64, 1, 0);
        for &ty in parts {
            let &Info {
                size,
                align,
                leaves,
                ..
            } = self.info(ty);
            let Some(size) = size else {
                self.fields.truncate(fields as usize);
                return nothing_of(match leaves {
                    Err(SCALABLE) => SCALABLE,
                    _ => UNSIZED,
                });
            };
            if !packed {
                most = most.max(align);
                offset = offset.next_multiple_of(align.into());
            }
            self.fields.push(StructField { ty, offset, leaf });
            leaf += leaves.map_or(0, |(_, count)| count);
            // Both are at most `MOST_BYTES`.
            offset += size;
            if offset > MOST_BYTES {
                self.fields.truncate(fields as usize);
                return nothing_of(LARGE);
            }
        }
        let parts: Vec<_> = self.fields[fields as usize..]
            .iter()
            .map(|field| (field.ty, field.offset))
            .collect();
        let vectors = parts.iter().map(|&(ty, _)| self.info(ty).vectors).max();
        Info {
            vectors: vectors.unwrap_or_default(),
            shape: Shape::Struct {
                fields,
                count: parts.len() as u32,
            },
            leaves: self.gather(parts.into_iter()),
            size: Some(offset.next_multiple_of(most.into())),
            align: most,
        }
    }

    fn array(&mut self, count: u64, element: TypeId) -> Info {
        let &Info {
            size,
            align,
            leaves,
            vectors,
            ..
        } = self.info(element);
        let Some(stride) = size else {
            return nothing_of(leaves.err().unwrap_or(UNSIZED));
        };
        let size = count.checked_mul(stride).filter(|&it| it <= MOST_BYTES);
        let Some(size) = size else {
            return nothing_of(LARGE);
        };
        let leaves = match count <= MOST_LEAVES as u64 {
            true => self.gather((0..count).map(|at| (element, at * stride))),
            false => Err(LARGE),
        };
        Info {
            shape: Shape::Array { element, stride },
            leaves,
            size: Some(size),
            align,
            vectors,
        }
    }

    fn vector(&mut self, lanes: u32, lane: TypeId, all: &[bitcode::Type]) -> Info {
        let info = vector(lanes, all.get(lane.index()));
        let lane = match self.info(lane).shape {
            Shape::Scalar(ty @ (Type::Int(1 | 8 | 16 | 32 | 64) | Type::F32 | Type::F64)) => ty,
            _ => return info,
        };
        if info.size.is_none() || lanes > MOST_LANES {
            return info;
        }
        let leaf = |at| Leaf {
            ty: lane,
            offset: at * lane.bytes(),
        };
        let all: Vec<Leaf> = (0..lanes).map(leaf).collect();
        Info {
            shape: Shape::Vector { lane, lanes },
            leaves: Ok(self.add(&all)),
            vectors: match lane {
                Type::Int(1) => Vectors::Bits,
                _ => Vectors::Bytes,
            },
            ..info
        }
    }

    /// The leaves of parts at offsets.
    fn gather(
        &mut self,
        parts: impl Iterator<Item = (TypeId, u64)>,
    ) -> Result<(u32, u32), &'static str> {
        let mut all = Vec::new();
        for (part, offset) in parts {
            for leaf in self.leaves(part)? {
                let offset = u64::from(leaf.offset) + offset;
                all.push(Leaf {
                    offset: u32::try_from(offset).map_err(|_| LARGE)?,
                    ..*leaf
                });
            }
            if all.len() > MOST_LEAVES {
                return Err(LARGE);
            }
        }
        Ok(self.add(&all))
    }
}

/// The alignment in bytes of so many bits.
fn natural(bits: u32) -> u32 {
    match bits {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        33..=64 => 8,
        _ => 16,
    }
}

/// The properties of a type with a size, but without scalars.
fn other(what: &'static str, bits: u32, align: u32) -> Info {
    let bytes = u64::from(bits).div_ceil(8);
    Info {
        shape: Shape::Other,
        leaves: Err(what),
        size: Some(bytes.next_multiple_of(align.into())),
        align,
        vectors: Vectors::None,
    }
}

fn nothing_of(what: &'static str) -> Info {
    Info {
        leaves: Err(what),
        ..NONE
    }
}

fn vector(lanes: u32, lane: Option<&bitcode::Type>) -> Info {
    use bitcode::Type as T;
    let bits: u32 = match lane {
        Some(&T::Integer(bits)) => bits,
        Some(T::Half | T::BFloat) => 16,
        Some(T::Float | T::Pointer(270 | 271)) => 32,
        Some(T::Double | T::Pointer(_)) => 64,
        Some(T::X86Fp80) => 80,
        Some(T::Fp128) => 128,
        _ => return nothing_of(VECTOR),
    };
    let bytes = (u64::from(bits) * u64::from(lanes)).div_ceil(8);
    let align = bytes.max(1).checked_next_power_of_two();
    match align.and_then(|it| u32::try_from(it).ok()) {
        Some(align) => Info {
            shape: Shape::Other,
            leaves: Err(VECTOR),
            size: Some(bytes.next_multiple_of(align.into())),
            align,
            vectors: Vectors::None,
        },
        None => nothing_of(VECTOR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcode::Type as T;

    #[test]
    fn sizes_are_those_of_x86_64() {
        let all = [
            T::Integer(8),
            T::Integer(64),
            T::Integer(128),
            T::X86Fp80,
            T::Struct(vec![TypeId(0), TypeId(1), TypeId(0)], false),
            T::Struct(vec![TypeId(0), TypeId(1), TypeId(0)], true),
            T::Array(3, TypeId(4)),
            T::Vector(3, TypeId(0), false),
            T::Integer(24),
            T::Struct(vec![TypeId(0), TypeId(2)], false),
            T::Array(u64::MAX, TypeId(1)),
            T::Struct(vec![TypeId(10)], false),
        ];
        let types = Types::of(&all);
        let sizes: Vec<_> = (0..all.len() as u32)
            .map(|at| types.info(TypeId(at)))
            .map(|info| (info.size, info.align))
            .collect();
        let is = |size, align| (Some(size), align);
        let expected = [
            is(1, 1),
            is(8, 8),
            is(16, 16),
            is(16, 16),
            is(24, 8),
            is(10, 1),
            is(72, 8),
            is(4, 4),
            is(4, 4),
            is(32, 16),
            (None, 1),
            (None, 1),
        ];
        assert_eq!(sizes, expected);
        let leaves = types.leaves(TypeId(6)).expect("few");
        let offsets: Vec<u32> = leaves.iter().map(|leaf| leaf.offset).collect();
        assert_eq!(offsets, [0, 8, 16, 24, 32, 40, 48, 56, 64]);
    }
}
