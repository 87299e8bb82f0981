//! Constants, of a module or of a body.

use crate::ir::{Assembly, BinaryOp, BlockId, CastOp, Constant, Type, TypeId, ValueId, Words};
use crate::module::Refused;
use crate::walk::{Entry, Extent, Standard, Walk};

/// Codes of records.
mod code {
    pub(super) const SET_TYPE: u64 = 1;
    pub(super) const NULL: u64 = 2;
    pub(super) const UNDEF: u64 = 3;
    pub(super) const INTEGER: u64 = 4;
    pub(super) const WIDE_INTEGER: u64 = 5;
    pub(super) const FLOAT: u64 = 6;
    pub(super) const AGGREGATE: u64 = 7;
    pub(super) const STRING: u64 = 8;
    pub(super) const C_STRING: u64 = 9;
    pub(super) const BINARY: u64 = 10;
    pub(super) const CAST: u64 = 11;
    pub(super) const LABEL: u64 = 21;
    pub(super) const DATA: u64 = 22;
    pub(super) const POISON: u64 = 26;
    pub(super) const DSO_LOCAL_EQUIVALENT: u64 = 27;
    pub(super) const NO_CFI: u64 = 29;
    pub(super) const ASSEMBLY: u64 = 30;
    pub(super) const OFFSET_IN_RANGE: u64 = 31;
    pub(super) const OFFSET: u64 = 32;
}

/// Decodes a number whose sign is its lowest bit.
pub(crate) fn signed(value: u64) -> u64 {
    match value & 1 {
        0 => value >> 1,
        _ if value == 1 => 1 << 63,
        _ => (value >> 1).wrapping_neg(),
    }
}

/// Reads a block of constants, and passes each to `put`.
pub(crate) fn read(
    walk: &mut Walk<'_>,
    extent: Extent,
    standard: &Standard,
    types: &[Type],
    mut put: impl FnMut(TypeId, Constant),
) -> Result<(), Refused> {
    let mut inside = walk.enter(extent, standard);
    let mut ty = None;
    loop {
        match walk.next(&mut inside)? {
            Entry::End => return Ok(()),
            Entry::Block(extent) => walk.pass(extent),
            Entry::Record(code::SET_TYPE) => {
                let number = walk.record.first().copied().unwrap_or(u64::MAX);
                if number >= types.len() as u64 {
                    return Err(Refused::OutOfRange);
                }
                ty = Some(TypeId(number as u32));
            }
            Entry::Record(code) => {
                // The type before the first type record is an integer of 32 bits.
                let of = ty.or_else(|| {
                    let at = types.iter().position(|ty| *ty == Type::Integer(32))?;
                    Some(TypeId(at as u32))
                });
                let of = of.ok_or(Refused::OutOfRange)?;
                put(of, one(code, &walk.record, &types[of.index()], types)?);
            }
        }
    }
}

fn one(code: u64, record: &[u64], ty: &Type, types: &[Type]) -> Result<Constant, Refused> {
    let ids = |list: &[u64]| list.iter().map(|&it| value(it)).collect::<Box<[ValueId]>>();
    Ok(match (code, record) {
        (code::NULL, _) => Constant::Null,
        (code::UNDEF, _) => Constant::Undef,
        (code::POISON, _) => Constant::Poison,
        (code::INTEGER, &[value, ..]) => Constant::Integer(Words::from_slice(&[signed(value)])),
        (code::WIDE_INTEGER, words) => {
            Constant::Integer(words.iter().map(|&it| signed(it)).collect())
        }
        // The high 64 bits come first, then the low 16.
        (code::FLOAT, &[high, low, ..]) if *ty == Type::X86Fp80 => {
            let words = [high << 16 | low & 0xffff, high >> 48];
            Constant::Float(Words::from_slice(&words))
        }
        (code::FLOAT, words) => Constant::Float(Words::from_slice(words)),
        (code::AGGREGATE, list) => Constant::Aggregate(ids(list)),
        (code::STRING | code::DATA, list) => data(list.into(), ty, types),
        (code::C_STRING, list) => data(list.iter().copied().chain(Some(0)).collect(), ty, types),
        (code::BINARY, &[op, a, b, ..]) => match binary(op) {
            Some(op) => Constant::Binary(op, value(a), value(b)),
            None => Constant::Other,
        },
        (code::CAST, &[op, _, a, ..]) => match cast(op) {
            Some(op) => Constant::Cast(op, value(a)),
            None => Constant::Other,
        },
        // Both mean the function's address here: all of a session's code is in reach, and no table of
        // control-flow integrity redirects calls.
        (code::DSO_LOCAL_EQUIVALENT | code::NO_CFI, &[_, function, ..]) => {
            Constant::Cast(CastOp::BitCast, value(function))
        }
        (code::OFFSET, [of, _, pairs @ ..])
            if *of < types.len() as u64 && are_operands(pairs, types) =>
        {
            let operands = pairs.chunks_exact(2).map(|pair| value(pair[1]));
            Constant::Offset(TypeId(*of as u32), operands.collect())
        }
        (code::OFFSET_IN_RANGE, _) => offset_in_range(record, types),
        (code::LABEL, &[_, function, block, ..]) => Constant::Label(
            value(function),
            BlockId(block.min(u64::from(u32::MAX)) as u32),
        ),
        (code::ASSEMBLY, [of, flags, rest @ ..]) => match assembly(*flags, rest) {
            Some(it) if is_function(types, *of) => Constant::Assembly(Box::new(it)),
            _ => Constant::Other,
        },
        _ => Constant::Other,
    })
}

/// Elements of an array or vector of numbers with a size that memory has.
fn data(elements: Box<[u64]>, ty: &Type, types: &[Type]) -> Constant {
    let (count, element) = match *ty {
        Type::Array(count, element) => (count, element),
        Type::Vector(count, element, false) => (u64::from(count), element),
        _ => return Constant::Other,
    };
    let is_number = matches!(
        types.get(element.index()),
        Some(
            Type::Integer(8 | 16 | 32 | 64)
                | Type::Half
                | Type::BFloat
                | Type::Float
                | Type::Double
        )
    );
    match is_number && count == elements.len() as u64 {
        true => Constant::Data(elements),
        false => Constant::Other,
    }
}

/// Whether the operands of an offset have existing types, the first one of pointers.
fn are_operands(pairs: &[u64], types: &[Type]) -> bool {
    let named = |number: u64| types.get(usize::try_from(number).ok()?);
    let is_pointer = |ty: &Type| match *ty {
        Type::Pointer(_) => true,
        Type::Vector(_, of, _) => matches!(types.get(of.index()), Some(Type::Pointer(_))),
        _ => false,
    };
    let mut said = pairs.chunks_exact(2).map(|pair| named(pair[0]));
    said.next().flatten().is_some_and(is_pointer) && said.all(|ty| ty.is_some())
}

/// Whether a type number is a function type.
fn is_function(types: &[Type], number: u64) -> bool {
    let ty = usize::try_from(number).ok().and_then(|it| types.get(it));
    matches!(ty, Some(Type::Function { .. }))
}

/// Inline assembly: two texts, each behind its length.
fn assembly(flags: u64, rest: &[u64]) -> Option<Assembly> {
    const SIDE_EFFECTS: u64 = 1;
    let (text, rest) = text(rest)?;
    let (constraints, _) = self::text(rest)?;
    Some(Assembly {
        text,
        constraints,
        is_special: flags & !SIDE_EFFECTS != 0,
    })
}

fn text(list: &[u64]) -> Option<(Box<str>, &[u64])> {
    let (&length, rest) = list.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let text: String = text.iter().map(|&it| it as u8 as char).collect();
    Some((text.into(), rest))
}

/// A `getelementptr` with the range of reachable offsets, which is skipped: its bits, and two ends.
fn offset_in_range(record: &[u64], types: &[Type]) -> Constant {
    let [of, _, bits, ref rest @ ..] = *record else {
        return Constant::Other;
    };
    let ends = match bits <= 64 {
        true => Some(2),
        false => None,
    };
    match ends.and_then(|ends| rest.get(ends..)) {
        Some(pairs)
            if of < types.len() as u64
                && pairs.len().is_multiple_of(2)
                && are_operands(pairs, types) =>
        {
            let operands = pairs.chunks_exact(2).map(|pair| value(pair[1]));
            Constant::Offset(TypeId(of as u32), operands.collect())
        }
        _ => Constant::Other,
    }
}

fn value(number: u64) -> ValueId {
    ValueId(number.min(u64::from(u32::MAX)) as u32)
}

/// The cast with a number in bitcode.
pub(crate) fn cast(number: u64) -> Option<CastOp> {
    const ALL: [CastOp; 14] = [
        CastOp::Trunc,
        CastOp::ZExt,
        CastOp::SExt,
        CastOp::FpToUi,
        CastOp::FpToSi,
        CastOp::UiToFp,
        CastOp::SiToFp,
        CastOp::FpTrunc,
        CastOp::FpExt,
        CastOp::PtrToInt,
        CastOp::IntToPtr,
        CastOp::BitCast,
        CastOp::AddrSpaceCast,
        CastOp::PtrToAddr,
    ];
    ALL.get(usize::try_from(number).ok()?).copied()
}

/// The binary operation with a number in bitcode.
pub(crate) fn binary(number: u64) -> Option<BinaryOp> {
    const ALL: [BinaryOp; 13] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::UDiv,
        BinaryOp::SDiv,
        BinaryOp::URem,
        BinaryOp::SRem,
        BinaryOp::Shl,
        BinaryOp::LShr,
        BinaryOp::AShr,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Xor,
    ];
    ALL.get(usize::try_from(number).ok()?).copied()
}
