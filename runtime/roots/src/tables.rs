//! Finds the unwind tables of the process's code: of loaded files by their `.eh_frame_hdr`, of other
//! code by a function of the caller.
//!
//! All data are read through the kernel, which reports unmapped memory: a library may be unloaded
//! meanwhile. The dynamic loader is not called, as it takes a lock that a thread may hold for long.
//!
//! # Source
//! The table's format: "Linux Standard Base Core Specification", section "Exception Frames".

use std::collections::HashMap;

use crate::maps;
use crate::sys;

/// Gives the address of the frame description entry of the code at an address outside all files.
pub type RowsOf = fn(u64) -> Option<u64>;

/// Largest entry in bytes, of tables that compilers write.
const LARGEST: usize = 64 << 10;

/// An entry and its common entry, as they lie in memory.
pub(crate) struct FrameEntry {
    /// The common entry, then the entry, whose distance to the common one is adjusted.
    pub(crate) bytes: Vec<u8>,
    /// Offset of the entry in the bytes.
    pub(crate) at: usize,
    /// The address of the bytes: correct for the entry.
    pub(crate) base: u64,
}

impl FrameEntry {
    /// Address of the entry in memory.
    pub(crate) fn address(&self) -> u64 {
        self.base.wrapping_add(self.at as u64)
    }
}

/// A file's table of entries, sorted by the code's address. Parts of the file's image may be other mappings
/// by now: native code that is exchanged is one.
#[derive(Clone, Copy, Debug)]
struct Table {
    header: u64,
    count: u64,
    /// The end of the file's image.
    end: u64,
}

/// Mappings of files, and the tables that were requested so far.
#[derive(Debug)]
pub(crate) struct Tables {
    pid: i32,
    rows: RowsOf,
    /// Addresses at which files are mapped from their first byte on, in order.
    files: Vec<u64>,
    known: HashMap<u64, Option<Table>>,
}

impl Tables {
    pub(crate) fn take(pid: i32, rows: RowsOf) -> std::io::Result<Tables> {
        let text = uruk_files::read("/proc/thread-self/maps")?;
        let files = maps::lines(&text).filter(|line| line.is_first && !line.anonymous);
        Ok(Tables {
            pid,
            rows,
            files: files.map(|line| line.range.start).collect(),
            known: HashMap::new(),
        })
    }

    /// The process.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether two addresses are in code of the same file.
    pub(crate) fn are_of_one_file(&mut self, one: u64, other: u64) -> bool {
        let [one, other] = [one, other].map(|pc| Some(self.table_of(pc)?.header));
        one.is_some() && one == other
    }

    /// The table of the file whose image contains an address.
    fn table_of(&mut self, pc: u64) -> Option<Table> {
        let before = self.files.partition_point(|&start| start <= pc);
        (0..before).rev().find_map(|at| {
            let base = self.files[at];
            let known = self.known.get(&base).copied();
            let table = known.unwrap_or_else(|| {
                let found = self.table(base);
                self.known.insert(base, found);
                found
            });
            table.filter(|table| pc < table.end)
        })
    }

    /// The entry of the code at `pc`. It may be of other code, as its own range shows.
    pub(crate) fn find(&mut self, pc: u64) -> Option<FrameEntry> {
        let entry = match self.table_of(pc) {
            Some(table) => self.find_in(table, pc)?,
            None => (self.rows)(pc)?,
        };
        self.read(entry)
    }

    /// Some bytes; `None` if not all can be read.
    pub(crate) fn bytes(&self, from: u64, count: usize) -> Option<Vec<u8>> {
        let mut words = vec![0; count.div_ceil(8)];
        let read = sys::read_words(self.pid, from, &mut words);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(count);
        // The last word may reach beyond what is mapped.
        match read == words.len() {
            true => Some(bytes),
            false => None,
        }
    }

    fn find_in(&self, table: Table, pc: u64) -> Option<u64> {
        let relative = |field: u32| table.header.wrapping_add_signed(i64::from(field as i32));
        let entry = |index: u64| -> Option<(u64, u64)> {
            let bytes = self.bytes(table.header + 12 + index * 8, 8)?;
            let (code, entry) = bytes.split_first_chunk::<4>()?;
            let entry = entry.first_chunk::<4>()?;
            Some((
                relative(u32::from_le_bytes(*code)),
                relative(u32::from_le_bytes(*entry)),
            ))
        };
        // The last entry that does not begin behind `pc`.
        let (mut low, mut high) = (0, table.count);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let (start, place) = entry(middle)?;
            match start <= pc {
                true => (low, found) = (middle + 1, Some(place)),
                false => high = middle,
            }
        }
        found
    }

    /// The table of a file that is mapped from `base` on.
    fn table(&self, base: u64) -> Option<Table> {
        const LOAD: u32 = 1;
        const EH_FRAME: u32 = 0x6474_e550;
        let head = self.bytes(base, 64)?;
        let short = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
        if !head.starts_with(b"\x7fELF\x02\x01") || short(54)? != 56 {
            return None;
        }
        let place = u64::from_le_bytes(*head.get(32..)?.first_chunk()?);
        let headers = self.bytes(base.checked_add(place)?, usize::from(short(56)?) * 56)?;
        let (mut lowest, mut highest, mut found) = (None, 0, None);
        for header in headers.chunks_exact(56) {
            let kind = u32::from_le_bytes(*header.first_chunk()?);
            let address = u64::from_le_bytes(*header.get(16..)?.first_chunk()?);
            match kind {
                LOAD => {
                    let size = u64::from_le_bytes(*header.get(40..)?.first_chunk()?);
                    lowest = lowest.or(Some(address & !0xfff));
                    highest = highest.max(address.checked_add(size)?);
                }
                EH_FRAME => found = Some(address),
                _ => {}
            }
        }
        let image = base.wrapping_sub(lowest?);
        let header = image.wrapping_add(found?);
        let bytes = self.bytes(header, 12)?;
        // Version 1; the entries' address relative to itself, their count plain, the table relative to
        // its header: the format of all linkers.
        let count = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
        let is_usual = bytes.starts_with(&[1, 0x1b, 0x03, 0x3b]);
        is_usual.then_some(Table {
            header,
            count: u64::from(count),
            end: image.wrapping_add(highest),
        })
    }

    /// Reads an entry with its common entry.
    fn read(&self, address: u64) -> Option<FrameEntry> {
        let entry = self.record(address)?;
        let distance = u32::from_le_bytes(*entry.get(4..)?.first_chunk()?);
        if distance == 0 {
            return None;
        }
        let common = address.wrapping_add(4).wrapping_sub(u64::from(distance));
        let mut bytes = self.record(common)?;
        let at = bytes.len();
        bytes.extend(&entry);
        let distance = u32::try_from(at + 4).ok()?.to_le_bytes();
        bytes.get_mut(at + 4..at + 8)?.copy_from_slice(&distance);
        Some(FrameEntry {
            bytes,
            at,
            base: address.wrapping_sub(at as u64),
        })
    }

    fn record(&self, address: u64) -> Option<Vec<u8>> {
        let length = self.bytes(address, 8)?;
        let length = u32::from_le_bytes(*length.first_chunk()?) as usize;
        match (4..LARGEST).contains(&length) {
            true => self.bytes(address, length + 4),
            false => None,
        }
    }
}
