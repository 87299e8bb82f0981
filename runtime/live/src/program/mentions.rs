//! Collects the addresses of a file that its own code and data mention, as the linker left them.
//!
//! The optimizer changes a local function because it sees all its uses. If its address occurs nowhere
//! natively, arguments and results may be gone, even if the bitcode uses the address. And of a string
//! with several copies, the copy that code mentions is meant.
//!
//! Code is not disassembled: all bytes that look like an instruction that computes an address count.
//! False matches, a few of 2^32, act as if this module did not exist.

use std::ops::Range;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader};

use super::image::Header;

/// Addresses, sorted.
#[derive(Debug, Clone, Default)]
pub struct Mentions(Vec<u64>);

impl Mentions {
    /// Collects from the bytes of a file that is loaded at `base`; a damaged file mentions nothing.
    pub(super) fn of(bytes: &[u8], base: u64) -> Mentions {
        let mut found = Vec::new();
        let _ = collect(bytes, &mut found);
        found.sort_unstable();
        found.dedup();
        found
            .iter_mut()
            .for_each(|address| *address = address.wrapping_add(base));
        Mentions(found)
    }

    /// Collects from code at address `at`, as the linker and the loader left it.
    pub(crate) fn in_code(bytes: &[u8], at: u64) -> Mentions {
        /// Addresses of a program that is not moved.
        const LOW: Range<u64> = 1..1 << 31;
        let mut found = Vec::new();
        let fixed = LOW.contains(&at);
        code(bytes, at, &LOW, fixed, &mut found);
        found.sort_unstable();
        Mentions(found)
    }

    /// Holds these addresses.
    #[cfg(test)]
    pub(crate) fn new(addresses: impl IntoIterator<Item = u64>) -> Mentions {
        let mut found: Vec<u64> = addresses.into_iter().collect();
        found.sort_unstable();
        Mentions(found)
    }

    /// Whether anything mentions an address.
    pub fn contains(&self, address: u64) -> bool {
        self.0.binary_search(&address).is_ok()
    }

    /// The addresses in a range.
    pub fn within(&self, range: &Range<u64>) -> &[u64] {
        let start = self.0.partition_point(|&address| address < range.start);
        let end = self.0.partition_point(|&address| address < range.end);
        self.0.get(start..end).unwrap_or_default()
    }
}

fn collect(bytes: &[u8], found: &mut Vec<u64>) -> Option<()> {
    let header = Header::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let loaded = || {
        segments
            .iter()
            .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
    };
    let start = loaded().map(|it| it.p_vaddr(endian)).min()?;
    let ends = loaded().map(|it| it.p_vaddr(endian).saturating_add(it.p_memsz(endian)));
    let all = start..ends.max()?;
    let fixed = header.e_type(endian) == elf::ET_EXEC;
    for segment in loaded() {
        let data = segment.data(endian, bytes).ok()?;
        let at = segment.p_vaddr(endian);
        if segment.p_flags(endian).contains(elf::PF_X) {
            code(data, at, &all, fixed, found);
        }
        // Tables may lie between functions, too.
        let skipped = at.wrapping_neg() as usize % 8;
        let words = data.get(skipped..).unwrap_or_default().chunks_exact(8);
        let words = words.filter_map(|word| word.try_into().ok());
        let words = words.map(u64::from_le_bytes);
        found.extend(words.filter(|word| all.contains(word) && *word != 0));
    }
    let sections = header.sections(endian, bytes).ok()?;
    for section in sections.iter() {
        relocations(section, &sections, endian, bytes, found);
    }
    Some(())
}

/// `lea reg, [rip + distance]`, and in a program at a fixed address all numbers that are addresses.
fn code(data: &[u8], at: u64, all: &Range<u64>, fixed: bool, found: &mut Vec<u64>) {
    for (place, part) in data.windows(4).enumerate() {
        let number = i32::from_le_bytes([part[0], part[1], part[2], part[3]]);
        if fixed {
            let absolute = u64::from(number as u32);
            found.extend(Some(absolute).filter(|address| all.contains(address)));
        }
        let before = place
            .checked_sub(3)
            .and_then(|start| data.get(start..place));
        let Some(&[rex, opcode, operands]) = before else {
            continue;
        };
        if rex & 0xf8 == 0x48 && opcode == 0x8d && operands & 0xc7 == 0x05 {
            let next = at.wrapping_add(place as u64 + 4);
            found.push(next.wrapping_add_signed(i64::from(number)));
        }
    }
}

/// Addresses of this file that the dynamic loader writes.
fn relocations(
    section: &elf::SectionHeader64<Endianness>,
    sections: &object::read::elf::SectionTable<'_, Header>,
    endian: Endianness,
    bytes: &[u8],
    found: &mut Vec<u64>,
) {
    let Ok(Some((listed, table))) = section.rela(endian, bytes) else {
        return;
    };
    let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM).ok();
    let symbols = symbols.filter(|symbols| symbols.section() == table);
    for relocation in listed {
        let addend = relocation.r_addend(endian) as u64;
        let of = relocation.symbol(endian, false).and_then(|number| {
            let symbol = symbols.as_ref()?.symbol(number).ok()?;
            Some(symbol.st_value.get(endian))
        });
        found.push(of.unwrap_or(0).wrapping_add(addend));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_mentions_what_it_computes() {
        let mut found = Vec::new();
        // lea rdi, [rip + 0x10]; call +0x20; lea r9, [rip - 0x1000]
        let bytes = [
            0x48, 0x8d, 0x3d, 0x10, 0, 0, 0, 0xe8, 0x20, 0, 0, 0, 0x4c, 0x8d, 0x0d, 0, 0xf0, 0xff,
            0xff,
        ];
        code(&bytes, 0x5000, &(0x4000..0x6000), false, &mut found);
        assert_eq!(found, [0x5017, 0x4013]);
        found.clear();
        // mov edi, 0x4321
        code(
            &[0xbf, 0x21, 0x43, 0, 0],
            0x5000,
            &(0x4000..0x6000),
            true,
            &mut found,
        );
        assert_eq!(found, [0x4321]);
    }

    #[test]
    fn the_tests_own_file_is_read() {
        let file = std::env::current_exe().expect("a file");
        let bytes = std::fs::read(file).expect("readable");
        let mentions = Mentions::of(&bytes, 0x1000_0000);
        assert!(mentions.0.len() > 1000);
        let first = mentions.0[0];
        assert!(mentions.contains(first));
        assert_eq!(mentions.within(&(first..first + 1)), [first]);
        assert!(mentions.within(&(first..first)).is_empty());
        assert!(Mentions::of(b"no ELF", 0).0.is_empty());
    }
}
