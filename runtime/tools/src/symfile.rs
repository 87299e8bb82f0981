//! Makes ELF files in memory, for gdb.
//!
//! [`of_symbols`] makes one that names functions, with their unwind tables if there are any: an
//! `ET_EXEC` file whose `.text` has an address and no bytes. [`placed`] takes the relocatable
//! object a function was linked from, with all its debug information, and writes the sections'
//! addresses into its section headers; gdb then relocates the debug sections itself.

use object::elf;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::write::elf::{FileHeader, SectionHeader, SectionIndex, Sym, Writer};
use object::{Endianness, LittleEndian};

/// The reason why no file could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SymfileError {
    /// The list of symbols is empty.
    #[error("a symbol file without symbols")]
    Empty,
    /// A function ends after the last address.
    #[error("{name} at {address:#x} has {size} bytes, more than addresses")]
    Wraps {
        /// The function.
        name: String,
        /// Its address.
        address: u64,
        /// Its size.
        size: u64,
    },
    /// The file is not a relocatable ELF object of 64 bits.
    #[error("not an ELF object: {reason}")]
    Object {
        /// The reader's message.
        reason: String,
    },
    /// The file could not be laid out.
    #[error("cannot write ELF: {reason}")]
    Write {
        /// The writer's message.
        reason: String,
    },
}

/// A function with an address.
#[derive(Clone, Copy, Debug)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address.
    pub address: u64,
    /// Its size, bytes.
    pub size: u64,
}

/// Frame descriptions (`.eh_frame`) as they are in memory.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    /// Their address: they refer to code relative to themselves.
    pub address: u64,
    /// Their bytes.
    pub bytes: &'a [u8],
}

/// Makes a file that names functions.
///
/// # Errors
/// No symbols, or a range that wraps.
pub fn of_symbols(
    symbols: &[Symbol<'_>],
    frames: Option<Frames<'_>>,
) -> Result<Vec<u8>, SymfileError> {
    let (mut start, mut end) = (u64::MAX, 0);
    for symbol in symbols {
        let wraps = || SymfileError::Wraps {
            name: symbol.name.to_owned(),
            address: symbol.address,
            size: symbol.size,
        };
        let after = symbol.address.checked_add(symbol.size).ok_or_else(wraps)?;
        (start, end) = (start.min(symbol.address), end.max(after));
    }
    if symbols.is_empty() {
        return Err(SymfileError::Empty);
    }
    let mut bytes = Vec::new();
    write(symbols, frames, start..end, &mut bytes).map_err(|error| SymfileError::Write {
        reason: error.to_string(),
    })?;
    Ok(bytes)
}

fn write(
    symbols: &[Symbol<'_>],
    frames: Option<Frames<'_>>,
    range: std::ops::Range<u64>,
    bytes: &mut Vec<u8>,
) -> object::write::Result<()> {
    // The writer's tables need names without zero bytes.
    let names = symbols.iter().map(|s| s.name.split('\0').next());
    let names: Vec<&str> = names.map(Option::unwrap_or_default).collect();

    let mut writer = Writer::new(Endianness::Little, true, bytes);
    writer.reserve_file_header();
    writer.reserve_null_section_index();
    let text_name = writer.add_section_name(b".text");
    let text = writer.reserve_section_index();
    let frames = frames.map(|frames| {
        let name = writer.add_section_name(b".eh_frame");
        writer.reserve_section_index();
        let offset = writer.reserve(frames.bytes.len() as u64, 8);
        (frames, name, offset)
    });
    writer.reserve_null_symbol_index();
    let string_ids: Vec<_> = names
        .iter()
        .map(|name| {
            writer.reserve_symbol_index(Some(text));
            writer.add_string(name.as_bytes())
        })
        .collect();
    writer.reserve_symtab_section_index();
    writer.reserve_symtab();
    writer.reserve_strtab_section_index();
    writer.reserve_strtab()?;
    writer.reserve_shstrtab_section_index();
    writer.reserve_shstrtab()?;
    writer.reserve_section_headers();

    writer.write_file_header(&FileHeader {
        e_type: elf::ET_EXEC,
        e_machine: elf::EM_X86_64,
        ..FileHeader::default()
    })?;
    if let Some((frames, _, offset)) = &frames {
        writer.pad_until(*offset);
        writer.write(frames.bytes);
    }
    writer.write_null_symbol();
    for (symbol, id) in symbols.iter().zip(string_ids) {
        let name = writer.string_offset(Some(id));
        writer.write_symbol(&function(text, name, symbol));
    }
    writer.write_strtab();
    writer.write_shstrtab();
    writer.write_null_section_header();
    let sh_name = writer.section_name_offset(Some(text_name));
    writer.write_section_header(&text_header(sh_name, &range));
    if let Some((frames, name, sh_offset)) = frames {
        let sh_name = writer.section_name_offset(Some(name));
        writer.write_section_header(&SectionHeader {
            sh_offset,
            ..frames_header(sh_name, &frames)
        });
    }
    // All symbols but the null one are global.
    writer.write_symtab_section_header(1);
    writer.write_strtab_section_header();
    writer.write_shstrtab_section_header();
    Ok(())
}

/// The header of the code, whose bytes are not in the file.
fn text_header(sh_name: u32, range: &std::ops::Range<u64>) -> SectionHeader {
    SectionHeader {
        sh_name,
        sh_type: elf::SHT_NOBITS,
        sh_flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
        sh_addr: range.start,
        sh_size: range.end - range.start,
        sh_addralign: 1,
        ..SectionHeader::default()
    }
}

/// The header of the unwind rows, without their file offset.
fn frames_header(sh_name: u32, frames: &Frames<'_>) -> SectionHeader {
    SectionHeader {
        sh_name,
        sh_type: elf::SHT_PROGBITS,
        sh_flags: elf::SHF_ALLOC,
        sh_addr: frames.address,
        sh_size: frames.bytes.len() as u64,
        sh_addralign: 8,
        ..SectionHeader::default()
    }
}

fn function(text: SectionIndex, name: u32, symbol: &Symbol<'_>) -> Sym {
    Sym {
        section: Some(text.0),
        st_name: name,
        st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
        st_value: symbol.address,
        st_size: symbol.size,
        st_other: elf::SymbolOther::default(),
        st_shndx: elf::SymbolSection::default(),
    }
}

/// The debug information of the relocatable object of function `symbol`, for the function at
/// `entry`; `None` if it has none. Only the function's section has an address: gdb gets symbols and
/// frames from [`of_symbols`].
///
/// # Errors
/// The bytes are not a relocatable ELF object.
pub fn of_debug_info(
    object: &[u8],
    symbol: &str,
    entry: u64,
) -> Result<Option<Vec<u8>>, SymfileError> {
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
    let file = object::read::elf::ElfFile64::<LittleEndian>::parse(object).map_err(wrong)?;
    let Some(found) = file.symbols().find(|found| found.name() == Ok(symbol)) else {
        return Ok(None);
    };
    let lines = file.section_by_name(".debug_line");
    let (Some(section), Some(_)) = (found.section_index(), lines.filter(|s| s.size() != 0)) else {
        return Ok(None);
    };
    let start = entry.wrapping_sub(found.address());
    placed(object, |index, _| (index == section.0).then_some(start)).map(Some)
}

pub(super) fn wrong(error: object::read::Error) -> SymfileError {
    SymfileError::Object {
        reason: error.to_string(),
    }
}

/// Makes a copy of the relocatable object with its sections placed. `place` gets the index and the
/// name of each allocated section, and returns its address. A section without one, for example
/// because the linker dropped or rewrote it, is hidden from gdb.
///
/// # Errors
/// The bytes are not a relocatable ELF object.
pub fn placed(
    object: &[u8],
    mut place: impl FnMut(usize, &str) -> Option<u64>,
) -> Result<Vec<u8>, SymfileError> {
    let endian = LittleEndian;
    let header = elf::FileHeader64::<LittleEndian>::parse(object).map_err(wrong)?;
    if header.e_type.get(endian) != elf::ET_REL {
        return Err(SymfileError::Object {
            reason: String::from("it is not relocatable"),
        });
    }
    let sections = header.sections(endian, object).map_err(wrong)?;
    let table = header.e_shoff.get(endian) as usize;
    let size = usize::from(header.e_shentsize.get(endian));
    let mut bytes = object.to_vec();
    let mut hidden = Vec::new();
    for (index, section) in sections.enumerate() {
        let flags = section.sh_flags(endian);
        if flags & elf::SHF_GROUP != elf::SectionFlags::default() {
            // `sh_flags` is at 8. The groups are removed below.
            let at = table + index.0 * size;
            let alone = (flags.0 & !elf::SHF_GROUP.0).to_le_bytes();
            bytes[at + 8..at + 16].copy_from_slice(&alone);
        }
        if flags & elf::SHF_ALLOC == elf::SectionFlags::default() {
            continue;
        }
        let name = sections.section_name(endian, section).map_err(wrong)?;
        let at = table + index.0 * size;
        // `sections` checked that all headers lie in the file. `sh_addr` is at 16 of a header.
        match place(index.0, &String::from_utf8_lossy(name)) {
            Some(address) => bytes[at + 16..at + 24].copy_from_slice(&address.to_le_bytes()),
            None => hidden.push(index.0),
        }
    }
    // gdb refuses a file with relocations of a missing section.
    let relocations = sections.enumerate().filter(|(_, section)| {
        section.sh_type(endian) == elf::SHT_RELA
            && hidden.contains(&(section.sh_info(endian) as usize))
    });
    let relocations: Vec<usize> = relocations.map(|(index, _)| index.0).collect();
    // And a file whose groups have missing members.
    let groups = sections.enumerate();
    let groups = groups.filter(|(_, section)| section.sh_type(endian) == elf::SHT_GROUP);
    let groups: Vec<usize> = groups.map(|(index, _)| index.0).collect();
    for index in hidden.iter().chain(&relocations).chain(&groups) {
        // `sh_type` is at 4.
        let at = table + index * size;
        bytes[at + 4..at + 8].copy_from_slice(&elf::SHT_NULL.0.to_le_bytes());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    use super::*;

    const TWO: [Symbol<'_>; 2] = [
        Symbol {
            name: "second",
            address: 0x7000_0000_0040,
            size: 32,
        },
        Symbol {
            name: "first\0x",
            address: 0x7000_0000_0000,
            size: 16,
        },
    ];

    #[test]
    fn symbols_come_back_with_their_addresses() {
        let frames = Frames {
            address: 0x7000_0000_1000,
            bytes: &[1, 2, 3],
        };
        let bytes = of_symbols(&TWO, Some(frames)).unwrap();
        let file = object::read::elf::ElfFile64::<Endianness>::parse(&*bytes).unwrap();
        let symbols: Vec<_> = file
            .symbols()
            .map(|s| (s.name(), s.address(), s.size()))
            .collect();
        assert_eq!(symbols.len(), 2);
        assert_eq!(symbols[0], (Ok("second"), 0x7000_0000_0040, 32));
        assert_eq!(symbols[1], (Ok("first"), 0x7000_0000_0000, 16));
        let text = file.section_by_name(".text").unwrap();
        assert_eq!((text.address(), text.size()), (0x7000_0000_0000, 0x60));
        let section = file.section_by_name(".eh_frame").unwrap();
        assert_eq!(section.address(), frames.address);
        assert_eq!(section.data().unwrap(), frames.bytes);
        assert!(of_symbols(&TWO, None).is_ok());
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        assert_eq!(of_symbols(&[], None), Err(SymfileError::Empty));
        let wraps = Symbol {
            name: "x",
            address: u64::MAX,
            size: 2,
        };
        assert!(matches!(
            of_symbols(&[wraps], None),
            Err(SymfileError::Wraps { .. })
        ));
        let linked = of_symbols(&TWO, None).unwrap();
        for bytes in [&linked[..], b"", b"\x7fELF", &[0; 4096]] {
            let placed = placed(bytes, |_, _| None);
            assert!(matches!(placed, Err(SymfileError::Object { .. })));
        }
    }

    #[test]
    fn damaged_objects_are_errors() {
        let mut object = of_symbols(&TWO, None).unwrap();
        // `placed` requires ET_REL.
        object[16] = 1;
        let whole = placed(&object, |_, name| (name == ".text").then_some(0x1234)).unwrap();
        let file = object::read::elf::ElfFile64::<Endianness>::parse(&*whole).unwrap();
        let text = file
            .sections()
            .find(|section| section.name() == Ok(".text"));
        assert_eq!(text.unwrap().address(), 0x1234);
        for at in 0..object.len() {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = object.clone();
                damaged[at] = value;
                // Must not panic; the byte decides whether it is an error.
                let _ = placed(&damaged, |_, _| Some(1));
                let _ = placed(&damaged[..at], |_, _| None);
            }
        }
    }
}
