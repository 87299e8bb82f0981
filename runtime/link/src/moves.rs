//! The fields of a code segment that change when it moves, and the move itself.
//!
//! A field of the segment holds a value that is linear in the segment's address
//! (see `linear.rs`). From `a` to `b`, with `d = b - a`:
//!
//! | slope | content of the field | change |
//! |---|---|---|
//! | -1 | distance from the code to something that stays | `-= d` |
//! | 0 | distance within the code, or of things that stay | none |
//! | +1 | address in the code, or its distance from something that stays | `+= d` |
//!
//! # Invariants
//! - Moving is exact: bytes linked at `a` and moved to `b` are the bytes that a
//!   link at `b` gives, as long as both links choose the same way to reach each
//!   symbol. A choice that no longer reaches is [`LinkError::OutOfReach`].
//! - No two recorded fields share a byte.
//!
//! # Encoding
//! One stream for each [`FieldKind`] in its order: the number of fields, then for each field
//! the gap from the end of the field before it (from the segment's start for the first), all as
//! LEB128. Trailing empty streams are left out. Distances between calls are mostly below 128,
//! so a record is mostly one byte.

use crate::error::LinkError;
use crate::relocation::Range;
use crate::segment::Segment;
use uruk_base::allocated::of_slice;

/// The fields of a code segment that depend on its address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moves {
    streams: Box<[u8]>,
    /// Alignment of the segment is `1 << align`.
    align: u8,
}

/// The reason why an image must stay where it was linked: something outside of its code segment
/// holds an address in it, or may come to hold one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Immovable {
    /// A field of another segment depends on where the code is.
    #[error("{segment}+{offset:#x} depends on where the code is")]
    Segment {
        /// The segment.
        segment: Segment,
        /// Offset of the field in it.
        offset: u64,
    },
    /// A field of the thread-locals' initial contents depends on where the code is.
    #[error("the template of thread-locals depends on where the code is, at +{offset:#x}")]
    Template {
        /// Offset of the field in the template.
        offset: u64,
    },
    /// The image has constructors or destructors: their addresses are in lists.
    #[error("constructors or destructors are in the code")]
    Arrays,
    /// The image has ifuncs: their words hold addresses that a resolver returned.
    #[error("words of ifuncs hold addresses in the code")]
    Ifuncs,
    /// The code takes or stores the address of a place inside a function that is
    /// not its start: a table of a computed `goto`, or an absolute jump table.
    /// The program may keep a copy.
    #[error("the code's field at +{offset:#x} holds the address of a label")]
    Labels {
        /// Offset of the field in the code segment.
        offset: u64,
    },
    /// The code takes or stores the address of a function of its own, of which
    /// the program may keep a copy.
    #[error("the code's field at +{offset:#x} holds the address of a function in it")]
    Functions {
        /// Offset of the field in the code segment.
        offset: u64,
    },
    /// A symbol from outside was found inside the code segment.
    #[error("an external symbol is at {address:#x}, in the image's own code")]
    External {
        /// Its address, or that of its slot.
        address: u64,
    },
    /// A field that depends on where the code is has fewer than 4 bytes.
    #[error("the code's field at +{offset:#x} is too narrow to follow a move")]
    Narrow {
        /// Offset of the field in the code segment.
        offset: u64,
    },
    /// Relocations of one section are not in order, or change a byte twice.
    #[error("relocations overlap, or are out of order, at +{offset:#x}")]
    Overlap {
        /// Offset in the code segment.
        offset: u64,
    },
}

/// The kinds of recorded fields, in the order of their streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// Slope -1, 4 bytes, signed.
    Relative32,
    /// Slope -1, 8 bytes.
    Relative64,
    /// Slope 1, 8 bytes.
    Absolute64,
    /// Slope 1, 4 bytes, unsigned.
    Absolute32,
    /// Slope 1, 4 bytes, signed.
    Absolute32Signed,
}

pub(crate) const KINDS: [FieldKind; 5] = [
    FieldKind::Relative32,
    FieldKind::Relative64,
    FieldKind::Absolute64,
    FieldKind::Absolute32,
    FieldKind::Absolute32Signed,
];

impl FieldKind {
    /// Kind of a field; `None` for widths that are not recorded.
    pub(crate) fn of(slope: i8, width: usize, range: Range) -> Option<FieldKind> {
        match (slope, width, range) {
            (-1, 4, _) => Some(FieldKind::Relative32),
            (-1, 8, _) => Some(FieldKind::Relative64),
            (1, 8, _) => Some(FieldKind::Absolute64),
            (1, 4, Range::Unsigned) => Some(FieldKind::Absolute32),
            (1, 4, _) => Some(FieldKind::Absolute32Signed),
            _ => None,
        }
    }

    fn width(self) -> usize {
        match self {
            FieldKind::Relative64 | FieldKind::Absolute64 => 8,
            FieldKind::Relative32 | FieldKind::Absolute32 | FieldKind::Absolute32Signed => 4,
        }
    }
}

impl Moves {
    /// Bytes that the allocator took for the records, without the value itself.
    pub fn bytes(&self) -> usize {
        of_slice(&self.streams)
    }

    /// Number of fields that a move changes.
    pub fn len(&self) -> usize {
        let mut reader = StreamReader(&self.streams);
        let mut total = 0;
        while let Some(count) = reader.uleb() {
            total += count as usize;
            for _ in 0..count {
                reader.uleb();
            }
        }
        total
    }

    /// Whether the bytes are the same at every address.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Alignment of the code segment in bytes, a power of two: moves go from a
    /// multiple of it to a multiple of it.
    pub fn align(&self) -> usize {
        1 << self.align
    }

    /// Bytes of memory that the records take.
    pub fn size(&self) -> usize {
        self.streams.len()
    }
}

/// Changes the bytes of a code segment that was linked at `from` (or moved there) to those of a
/// link at `to`.
///
/// # Errors
///
/// [`LinkError::Misplaced`] if an address breaks the segment's alignment;
/// [`LinkError::OutOfReach`] if a field cannot hold its value at `to`;
/// [`LinkError::NotMovable`] if `bytes` is shorter than the segment that
/// `moves` is about. After an error in the middle `bytes` are of no use.
pub fn relocate(bytes: &mut [u8], moves: &Moves, from: u64, to: u64) -> Result<(), LinkError> {
    let align = moves.align() as u64;
    for address in [from, to] {
        if !address.is_multiple_of(align) || address.checked_add(bytes.len() as u64).is_none() {
            return Err(LinkError::Misplaced {
                segment: Segment::Code,
                address,
                size: bytes.len() as u64,
                align,
            });
        }
    }
    let distance = to.wrapping_sub(from);
    if distance == 0 {
        return Ok(());
    }
    let mut reader = StreamReader(&moves.streams);
    for kind in KINDS {
        let Some(count) = reader.uleb() else { break };
        match kind {
            FieldKind::Relative32 => reader.change(bytes, count, |field: &mut [u8; 4]| {
                let old = i32::from_le_bytes(*field);
                narrow(field, (old as u64).wrapping_sub(distance) as i64)
            }),
            FieldKind::Absolute32Signed => reader.change(bytes, count, |field: &mut [u8; 4]| {
                let old = i32::from_le_bytes(*field);
                narrow(field, (old as u64).wrapping_add(distance) as i64)
            }),
            FieldKind::Absolute32 => reader.change(bytes, count, |field: &mut [u8; 4]| {
                let new = u64::from(u32::from_le_bytes(*field)).wrapping_add(distance);
                *field = u32::try_from(new).map_err(|_| new as i64)?.to_le_bytes();
                Ok(())
            }),
            FieldKind::Relative64 => reader.change(bytes, count, |field: &mut [u8; 8]| {
                *field = u64::from_le_bytes(*field)
                    .wrapping_sub(distance)
                    .to_le_bytes();
                Ok(())
            }),
            FieldKind::Absolute64 => reader.change(bytes, count, |field: &mut [u8; 8]| {
                *field = u64::from_le_bytes(*field)
                    .wrapping_add(distance)
                    .to_le_bytes();
                Ok(())
            }),
        }
        .map_err(|failure| failure.at(to))?;
    }
    Ok(())
}

/// Stores a value into a signed field; `Err` holds a value that does not fit.
#[inline]
fn narrow(field: &mut [u8; 4], new: i64) -> Result<(), i64> {
    *field = i32::try_from(new).map_err(|_| new)?.to_le_bytes();
    Ok(())
}

/// The reason why a field cannot be changed.
enum Failure {
    /// The code is shorter than the offset.
    Short { offset: u64, size: usize },
    /// The field cannot hold the value.
    Value { offset: u64, value: i64 },
}

impl Failure {
    #[cold]
    fn at(self, to: u64) -> LinkError {
        match self {
            Failure::Short { offset, size } => LinkError::NotMovable { offset, size },
            Failure::Value { offset, value } => LinkError::OutOfReach {
                offset,
                distance: value,
                to,
            },
        }
    }
}

/// Encodes the offsets of fields, by kind.
pub(crate) fn encode(mut fields: [Vec<u64>; KINDS.len()], align: u64) -> Moves {
    let mut streams = Vec::new();
    let mut empty = 0;
    for kind in KINDS {
        let offsets = &mut fields[kind as usize];
        if offsets.is_empty() {
            empty += 1;
            continue;
        }
        streams.extend(std::iter::repeat_n(0, std::mem::take(&mut empty)));
        // GOT and PLT are filled before the sections in front of them.
        offsets.sort_unstable();
        put_uleb(&mut streams, offsets.len() as u64);
        let mut end = 0;
        for &offset in &*offsets {
            put_uleb(&mut streams, offset - end);
            end = offset + kind.width() as u64;
        }
    }
    Moves {
        streams: streams.into_boxed_slice(),
        align: align.trailing_zeros() as u8,
    }
}

fn put_uleb(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct StreamReader<'s>(&'s [u8]);

impl StreamReader<'_> {
    /// Changes `count` fields of `N` bytes; about a dozen instructions for each.
    #[inline]
    fn change<const N: usize>(
        &mut self,
        bytes: &mut [u8],
        count: u64,
        each: impl Fn(&mut [u8; N]) -> Result<(), i64>,
    ) -> Result<(), Failure> {
        let size = bytes.len();
        // A local copy stays in registers.
        let mut stream = StreamReader(self.0);
        let mut at = 0usize;
        for _ in 0..count {
            at = at.saturating_add(stream.uleb().unwrap_or(u64::MAX) as usize);
            let end = at.saturating_add(N);
            let offset = at as u64;
            let Some(field) = bytes.get_mut(at..end).and_then(|f| f.first_chunk_mut()) else {
                return Err(Failure::Short { offset, size });
            };
            each(field).map_err(|value| Failure::Value { offset, value })?;
            at = end;
        }
        *self = stream;
        Ok(())
    }

    #[inline]
    fn uleb(&mut self) -> Option<u64> {
        let (&byte, rest) = self.0.split_first()?;
        if byte < 0x80 {
            self.0 = rest;
            return Some(u64::from(byte));
        }
        self.long_uleb()
    }

    #[cold]
    #[inline(never)]
    fn long_uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldKind, KINDS, Moves, encode, relocate};
    use crate::error::LinkError;

    #[test]
    fn records_take_a_byte_or_two_and_come_back() {
        let calls = (0..1000).map(|n| n * 40).collect();
        let fields = [calls, vec![], vec![90_000, 49_000], vec![50_000], vec![]];
        let moves = encode(fields, 64);
        assert_eq!((moves.len(), moves.align()), (1003, 64));
        assert!(moves.size() < 1003 + 16, "{} bytes", moves.size());
        let mut bytes = vec![0; 90_008];
        bytes[40..44].copy_from_slice(&100_i32.to_le_bytes());
        relocate(&mut bytes, &moves, 0x1000, 0x1040).expect("in reach");
        assert_eq!(bytes[..4], (-0x40_i32).to_le_bytes());
        assert_eq!(bytes[40..44], (100 - 0x40_i32).to_le_bytes());
        assert_eq!(bytes[49_000..49_008], 0x40_u64.to_le_bytes());
        assert_eq!(bytes[50_000..50_004], 0x40_u32.to_le_bytes());
        assert_eq!(bytes[90_000..], 0x40_u64.to_le_bytes());
        let changed = bytes.iter().filter(|&&byte| byte != 0).count();
        assert!(changed <= 1000 * 4 + 3 * 8);
        relocate(&mut bytes, &moves, 0x1040, 0x1000).expect("and back");
        assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 1);
    }

    #[test]
    fn fields_end_where_their_ranges_do() {
        let moved = |kind: FieldKind, old: u32, distance: u64| {
            let mut fields = [const { Vec::new() }; KINDS.len()];
            fields[kind as usize].push(0);
            let mut field = old.to_le_bytes();
            let from = 1_u64 << 62;
            match relocate(
                &mut field,
                &encode(fields, 1),
                from,
                from.wrapping_add(distance),
            ) {
                Ok(()) => Ok(u32::from_le_bytes(field)),
                Err(LinkError::OutOfReach { distance, .. }) => Err(distance),
                Err(other) => panic!("{other}"),
            }
        };
        let relative = FieldKind::Relative32;
        assert_eq!(moved(relative, 5, 5), Ok(0));
        assert_eq!(moved(relative, 0, 1 << 31), Ok(1 << 31));
        assert_eq!(moved(relative, 0, (1 << 31) + 1), Err(-(1 << 31) - 1));
        assert_eq!(
            moved(relative, 0, (1_u64 << 31).wrapping_neg()),
            Err(1 << 31)
        );
        let absolute = FieldKind::Absolute32;
        assert_eq!(moved(absolute, u32::MAX - 1, 1), Ok(u32::MAX));
        assert_eq!(moved(absolute, u32::MAX, 1), Err(1 << 32));
        assert_eq!(moved(absolute, 0, u64::MAX), Err(-1));
        let signed = FieldKind::Absolute32Signed;
        assert_eq!(moved(signed, 0, u64::MAX), Ok(u32::MAX));
        assert_eq!(moved(signed, i32::MAX as u32, 1), Err(1 << 31));
    }

    #[test]
    fn a_move_names_what_is_wrong() {
        let mut fields = [const { Vec::new() }; KINDS.len()];
        fields[FieldKind::Relative32 as usize].push(4);
        let moves = encode(fields, 16);
        let mut bytes = [0; 8];
        let error = |result: Result<(), LinkError>| result.expect_err("refused").to_string();
        assert_eq!(
            error(relocate(&mut bytes, &moves, 0, 1 << 33)),
            "code moved to 0x200000000: the field at +0x4 cannot hold 0xfffffffe00000000 (-8589934592)"
        );
        assert_eq!(
            error(relocate(&mut bytes[..7], &moves, 0, 16)),
            "records of a move name offset 0x4, the code has 7 bytes"
        );
        assert_eq!(
            error(relocate(&mut bytes, &moves, 0, 8)),
            "the code segment of 8 bytes cannot be placed at 0x8 (alignment 16)"
        );
        let nothing = Moves::default();
        assert!(nothing.is_empty() && nothing.align() == 1);
        relocate(&mut bytes, &nothing, 3, 77).expect("nothing to do");
        assert_eq!(bytes, [0; 8]);
    }

    #[test]
    fn kinds_stand_at_their_numbers() {
        for (number, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }
}
