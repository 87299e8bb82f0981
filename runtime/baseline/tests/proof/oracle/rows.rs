//! Reads unwind rows from the table as an unwinder does (LSB Core 10.6, DWARF 4 chapter 6.4).

use std::collections::BTreeMap;

use uruk_baseline::Code;

use super::state::State;

/// A row: the CFA, and the distances below it at which registers are saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// DWARF's number of the register, and the distance.
    pub cfa: (u8, i64),
    pub saved: BTreeMap<u8, i64>,
}

/// Rows by the offset at which they begin.
#[derive(Debug, Default)]
pub struct Rows(Vec<(u64, Row)>);

pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl Reader<'_> {
    fn bytes(&mut self, count: usize) -> Result<&[u8], String> {
        let found = self.bytes.get(self.at..self.at + count);
        self.at += count;
        found.ok_or("an unwind table that ends too early".to_string())
    }

    pub(super) fn byte(&mut self) -> Result<u8, String> {
        Ok(self.bytes(1)?[0])
    }

    fn number(&mut self, count: usize) -> Result<u64, String> {
        let bytes = self.bytes(count)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    pub(super) fn uleb(&mut self) -> Result<u64, String> {
        let (mut sum, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            sum |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(sum);
            }
        }
    }
}

impl Rows {
    /// Reads the CIE and the FDE.
    pub fn read(code: &Code) -> Result<Rows, String> {
        let mut reader = Reader {
            bytes: &code.unwind,
            at: 0,
        };
        let cie_end = reader.number(4)? as usize + 4;
        if reader.number(4)? != 0 {
            return Err("an unwind table that begins with no CIE".to_string());
        }
        reader.byte()?;
        let mut letters = Vec::new();
        loop {
            match reader.byte()? {
                0 => break,
                letter => letters.push(letter),
            }
        }
        let factors = (reader.uleb()?, reader.uleb()?, reader.uleb()?);
        // -8 is 0x78 in one byte.
        if factors != (1, 0x78, 16) {
            return Err(format!("factors of the CIE are {factors:?}"));
        }
        let length = reader.uleb()? as usize;
        reader.at += length;
        let mut rows = Rows(vec![(0, Row::default())]);
        rows.run(&mut reader, cie_end)?;
        let fde = reader.at;
        let fde_end = reader.number(4)? as usize + 4 + fde;
        let back = reader.number(4)? as usize;
        if back != fde + 4 {
            return Err("an FDE without its CIE".to_string());
        }
        reader.bytes(4)?;
        if reader.number(4)? != u64::from(code.size) {
            return Err("an FDE of another size".to_string());
        }
        let length = reader.uleb()? as usize;
        reader.at += length;
        rows.run(&mut reader, fde_end)?;
        match reader.at == code.unwind.len() {
            true => Ok(rows),
            false => Err("more than an FDE".to_string()),
        }
    }

    fn run(&mut self, reader: &mut Reader<'_>, end: usize) -> Result<(), String> {
        while reader.at < end {
            let byte = reader.byte()?;
            let (from, mut row) = self.0.last().cloned().unwrap_or_default();
            let mut advance = None;
            match (byte & 0xc0, byte) {
                (0x40, _) => advance = Some(u64::from(byte & 0x3f)),
                (0x80, _) => {
                    let distance = reader.uleb()? as i64 * 8;
                    row.saved.insert(byte & 0x3f, distance);
                }
                (_, 0) => {}
                (_, 2) => advance = Some(reader.number(1)?),
                (_, 3) => advance = Some(reader.number(2)?),
                (_, 4) => advance = Some(reader.number(4)?),
                (_, 0x0c) => row.cfa = (reader.uleb()? as u8, reader.uleb()? as i64),
                (_, 0x0d) => row.cfa.0 = reader.uleb()? as u8,
                (_, 0x0e) => row.cfa.1 = reader.uleb()? as i64,
                _ => return Err(format!("{byte:#x} in an unwind table")),
            }
            match advance {
                Some(by) => self.0.push((from + by, row)),
                None => {
                    if let Some(last) = self.0.last_mut() {
                        last.1 = row;
                    }
                }
            }
        }
        match reader.at == end {
            true => Ok(()),
            false => Err("an unwind record that ends within an instruction".to_string()),
        }
    }

    /// Compares the row before an instruction with the tracked state.
    pub fn check(&self, ip: u64, state: &State) -> Result<(), String> {
        let behind = self.0.partition_point(|(from, _)| *from <= ip);
        let row = &self.0[behind - 1].1;
        state.check_row(row)
    }
}
