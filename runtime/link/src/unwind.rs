//! Reads [`FdeRow`]s from `.eh_frame` after relocation: the code that each record is for.
//!
//! Reads versions 1 and 3 of the CIE with augmentations out of `z R P L S B G`
//! (LSB Core, *Exception Frames*). A row needs the start of the function,
//! which may be absolute or relative to its own place, and its length.

use crate::error::LinkError;
use crate::linked::FdeRow;

/// The rows of the records in `table`, which runs at `address`, sorted by start.
pub(crate) fn rows(table: &[u8], address: u64) -> Result<Vec<FdeRow>, LinkError> {
    let mut rows = Vec::new();
    let mut last_cie = None;
    let mut at = 0;
    loop {
        let fail = |what| LinkError::Unwind {
            object: "image".into(),
            offset: at as u64,
            what,
        };
        let mut reader = Reader { bytes: table, at };
        let length = reader.word().ok_or_else(|| fail("table is cut short"))? as usize;
        if length == 0 {
            break;
        }
        let end = reader
            .at
            .checked_add(length)
            .filter(|&end| end <= table.len());
        let end = end.ok_or_else(|| fail("length is out of bounds"))?;
        reader.bytes = &table[..end];
        let id_at = reader.at;
        let distance = reader.word().ok_or_else(|| fail("record is cut short"))? as usize;
        if distance != 0 {
            let cie = id_at
                .checked_sub(distance)
                .ok_or_else(|| fail("has no CIE"))?;
            let encoding = match last_cie {
                Some((start, encoding)) if start == cie => encoding,
                _ => cie_encoding(table, cie).map_err(fail)?,
            };
            last_cie = Some((cie, encoding));
            let row = fde_row(reader, encoding, address, at).map_err(fail)?;
            rows.extend(row);
        }
        at = end;
    }
    if !rows.is_sorted() {
        rows.sort_unstable();
    }
    Ok(rows)
}

fn fde_row(
    mut reader: Reader<'_>,
    encoding: Encoding,
    table: u64,
    record: usize,
) -> Result<Option<FdeRow>, &'static str> {
    let field = table.wrapping_add(reader.at as u64);
    let start = reader
        .pointer(encoding)
        .ok_or("start of the function is cut short")?;
    let start = match encoding.0 & 0xf0 {
        0x00 => start,
        0x10 => start.wrapping_add(field),
        _ => return Err("start of the function has an unknown encoding"),
    };
    let length = reader
        .pointer(encoding)
        .ok_or("length of the function is cut short")?;
    let end = start
        .checked_add(length)
        .ok_or("function leaves the address space")?;
    let fde = table.wrapping_add(record as u64);
    Ok((start < end).then_some(FdeRow { start, end, fde }))
}

/// The encoding of pointers: `DW_EH_PE_*`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Encoding(u8);

/// The encoding of function addresses in the FDEs of the CIE at `start`.
fn cie_encoding(table: &[u8], start: usize) -> Result<Encoding, &'static str> {
    const CUT: &str = "CIE is cut short";
    let mut reader = Reader {
        bytes: table,
        at: start,
    };
    let length = reader.word().ok_or(CUT)? as usize;
    let end = reader
        .at
        .checked_add(length)
        .filter(|&end| end <= table.len())
        .ok_or(CUT)?;
    reader.bytes = &table[..end];
    if reader.word() != Some(0) {
        return Err("refers to a record that is no CIE");
    }
    let version = reader.byte().ok_or(CUT)?;
    if version != 1 && version != 3 {
        return Err("unknown version of the CIE");
    }
    let augmentation_at = reader.at;
    while reader.byte().ok_or(CUT)? != 0 {}
    let augmentation = &table[augmentation_at..reader.at - 1];
    // Alignment factors of code and data, return address register.
    reader.uleb().ok_or(CUT)?;
    reader.uleb().ok_or(CUT)?;
    if version == 1 {
        reader.byte().ok_or(CUT)?;
    } else {
        reader.uleb().ok_or(CUT)?;
    }
    let Some((b'z', rest)) = augmentation.split_first() else {
        // Without augmentation data pointers are plain addresses.
        return if augmentation.is_empty() {
            Ok(Encoding(0))
        } else {
            Err("unknown augmentation")
        };
    };
    reader.uleb().ok_or(CUT)?;
    for letter in rest {
        match letter {
            b'R' => return Ok(Encoding(reader.byte().ok_or(CUT)?)),
            b'L' => _ = reader.byte().ok_or(CUT)?,
            b'P' => {
                let encoding = Encoding(reader.byte().ok_or(CUT)?);
                reader
                    .pointer(encoding)
                    .ok_or("personality has an unknown encoding")?;
            }
            b'S' | b'B' | b'G' => {}
            _ => return Err("unknown augmentation"),
        }
    }
    Ok(Encoding(0))
}

/// Reads from `at` on, up to the end of `bytes`.
#[derive(Clone, Copy)]
struct Reader<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads a LEB128 number of either sign, of any length: the low 64 bits.
    fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    /// A pointer's stored value, extended to 64 bits, before its base is added.
    fn pointer(&mut self, encoding: Encoding) -> Option<u64> {
        match encoding.0 & 0x0f {
            0x00 | 0x04 | 0x0c => self.take().map(u64::from_le_bytes),
            0x01 => self.uleb(),
            0x02 => self.take().map(u16::from_le_bytes).map(u64::from),
            0x03 => self.word().map(u64::from),
            0x0a => self.take().map(i16::from_le_bytes).map(|v| v as u64),
            0x0b => self.take().map(i32::from_le_bytes).map(|v| v as u64),
            _ => None,
        }
    }
}
