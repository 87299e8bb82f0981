//! Cuts `.eh_frame` into records before relocation, so that the image's table consists of the
//! records of live functions only.
//!
//! A record is a length word and as many bytes. A CIE has a zero word after the length. An FDE has
//! there the distance from that word back to its CIE, and then the start of its function. In an
//! object file the start is always a relocation: its target is the function of the record.

use crate::error::LinkError;
use crate::section::{Section, SectionId};

/// One CIE or FDE of one object.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) section: SectionId,
    /// Offset in the section, of the length word.
    pub(crate) start: u64,
    /// Length in bytes with the length word.
    pub(crate) size: u64,
    /// The section's relocations that are in the record.
    pub(crate) relocations: std::ops::Range<usize>,
    /// For an FDE, the index of its CIE in the image's list.
    pub(crate) cie: Option<usize>,
}

/// Offset in a record of the word that tells a CIE from an FDE.
pub(crate) const ID_OFFSET: u64 = 4;
/// Offset in an FDE of the start of its function.
pub(crate) const FUNCTION_OFFSET: u64 = 8;

/// Appends the records of one section to `records`.
pub(crate) fn split(
    object: &str,
    id: SectionId,
    section: &Section<'_>,
    records: &mut Vec<Record>,
) -> Result<(), LinkError> {
    let data = section.data;
    let relocations = section.relocations;
    let offset_of = |i: usize| relocations[i].r_offset.get(object::LittleEndian);
    let first = records.len();
    let mut next = 0;
    let mut at = 0usize;
    while at < data.len() {
        let fail = |what| LinkError::Unwind {
            object: object.into(),
            offset: at as u64,
            what,
        };
        let length = word(data, at).ok_or_else(|| fail("record is cut short"))?;
        // The end of the table. The image writes an end of its own.
        if length == 0 {
            break;
        }
        if length == u32::MAX {
            return Err(fail("64-bit record"));
        }
        let end = at + 4 + length as usize;
        if end > data.len() || length < 4 {
            return Err(fail("length is out of bounds"));
        }
        let distance = word(data, at + 4).ok_or_else(|| fail("record is cut short"))?;
        let cie = match distance {
            0 => None,
            distance => {
                let start = ((at + 4) as u64).checked_sub(u64::from(distance));
                let found = start.and_then(|start| cie_at(&records[first..], start));
                Some(first + found.ok_or_else(|| fail("has no CIE"))?)
            }
        };
        let begin = next;
        while next < relocations.len() && offset_of(next) < end as u64 {
            if offset_of(next) < at as u64 {
                return Err(fail("relocations are not in order"));
            }
            next += 1;
        }
        records.push(Record {
            section: id,
            start: at as u64,
            size: (end - at) as u64,
            relocations: begin..next,
            cie,
        });
        at = end;
    }
    if next < relocations.len() {
        let what = "relocations beyond the last record, or not in order";
        return Err(LinkError::Unwind {
            object: object.into(),
            offset: offset_of(next),
            what,
        });
    }
    Ok(())
}

/// The index of the CIE that starts at an offset, in a section's records in order.
fn cie_at(records: &[Record], start: u64) -> Option<usize> {
    let found = records
        .binary_search_by_key(&start, |record| record.start)
        .ok()?;
    records[found].cie.is_none().then_some(found)
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
