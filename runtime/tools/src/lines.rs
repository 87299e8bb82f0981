//! Reads the source lines of a function from the object it was linked from.
//!
//! An object's debug sections refer to each other and to code by relocations. They are applied here
//! to copies, for the function at its linked address. `gimli` reads the rest of the format (DWARF 2
//! to 5).

use std::collections::HashMap;
use std::path::PathBuf;

use gimli::{Dwarf, EndianSlice, FileEntry, LineProgramHeader, LittleEndian, SectionId, Unit};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex};

use crate::Line;
use crate::symfile::{SymfileError, wrong};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The lines of a function, by address.
#[derive(Debug, Default)]
pub struct Lines {
    files: Vec<String>,
    /// (Address, index of the file, line, discriminator).
    rows: Vec<(u64, usize, u32, u32)>,
}

/// The source line of each instruction of a function. Valid also for copies of its code.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    files: Box<[Box<str>]>,
    /// (Offset from the entry in bytes, index of the file, line), by offset.
    rows: Box<[(u32, u32, u32)]>,
}

impl Places {
    /// File and line of the instruction `offset` bytes behind the entry; the innermost, if calls
    /// were inlined. `None` for instructions without a line, such as those before the first.
    #[must_use]
    pub fn at(&self, offset: u32) -> Option<(&str, u32)> {
        let after = self.rows.partition_point(|row| row.0 <= offset);
        let &(_, file, line) = self.rows.get(after.checked_sub(1)?)?;
        Some((self.files.get(file as usize)?, line))
    }

    /// Whether there are no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Lines {
    /// The starts of all lines.
    #[must_use]
    pub fn lines(&self) -> Vec<Line<'_>> {
        let line = |&(address, file, line, discriminator): &(u64, usize, u32, u32)| Line {
            address,
            file: &self.files[file],
            line,
            discriminator,
        };
        self.rows.iter().map(line).collect()
    }

    /// Converts the lines to offsets from `entry`, for long storage.
    #[must_use]
    pub fn places(self, entry: u64) -> Places {
        let row = |&(address, file, line, _): &(u64, usize, u32, u32)| {
            let offset = u32::try_from(address.checked_sub(entry)?).ok()?;
            Some((offset, u32::try_from(file).ok()?, line))
        };
        let mut rows: Vec<_> = self.rows.iter().filter_map(row).collect();
        // Only rows that change the place.
        rows.dedup_by_key(|&mut (_, file, line)| (file, line));
        Places {
            files: self.files.into_iter().map(String::into_boxed_str).collect(),
            rows: rows.into_boxed_slice(),
        }
    }

    /// The lines of function `symbol` of a relocatable object, with its `size` bytes at `entry`;
    /// empty if the object has no line table or no such function.
    ///
    /// # Errors
    /// The bytes are not a relocatable ELF object, or its line table is invalid.
    pub fn of_object(
        object: &[u8],
        symbol: &str,
        entry: u64,
        size: u64,
    ) -> Result<Lines, SymfileError> {
        let file = ElfFile64::<object::LittleEndian>::parse(object).map_err(wrong)?;
        let found = file.symbols().find(|found| found.name() == Ok(symbol));
        let Some((found, code)) = found.and_then(|found| Some((found, found.section_index()?)))
        else {
            return Ok(Lines::default());
        };
        let base = entry.wrapping_sub(found.address());
        let mut sections = HashMap::new();
        for section in file.sections() {
            let name = section.name().map_err(wrong)?;
            if name.starts_with(".debug_") {
                sections.insert(name, relocated(&file, &section, code, base)?);
            }
        }
        let mut lines = Lines::default();
        lines
            .read(&sections, entry..entry.saturating_add(size))
            .map_err(unsound)?;
        lines.rows.sort_by_key(|row| row.0);
        Ok(lines)
    }

    fn read(
        &mut self,
        sections: &HashMap<&str, Vec<u8>>,
        range: std::ops::Range<u64>,
    ) -> gimli::Result<()> {
        let dwarf = Dwarf::load(|id: SectionId| -> gimli::Result<Bytes<'_>> {
            let bytes = sections.get(id.name()).map_or(&[][..], Vec::as_slice);
            Ok(EndianSlice::new(bytes, LittleEndian))
        })?;
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            let Some(program) = unit.line_program.clone() else {
                continue;
            };
            let mut known = HashMap::new();
            let mut rows = program.rows();
            while let Some((header, row)) = rows.next_row()? {
                let (Some(line), Some(file)) = (row.line(), row.file(header)) else {
                    continue;
                };
                if row.end_sequence() || !range.contains(&row.address()) {
                    continue;
                }
                let index = match known.get(&row.file_index()) {
                    Some(&index) => index,
                    None => {
                        self.files.push(path(&dwarf, &unit, header, file)?);
                        known.insert(row.file_index(), self.files.len() - 1);
                        self.files.len() - 1
                    }
                };
                let line = u32::try_from(line.get()).unwrap_or(u32::MAX);
                let discriminator = u32::try_from(row.discriminator()).unwrap_or(u32::MAX);
                self.rows.push((row.address(), index, line, discriminator));
            }
        }
        Ok(())
    }
}

/// The path of a file: below the unit's folder, if it is relative.
fn path(
    dwarf: &Dwarf<Bytes<'_>>,
    unit: &Unit<Bytes<'_>>,
    header: &LineProgramHeader<Bytes<'_>>,
    file: &FileEntry<Bytes<'_>>,
) -> gimli::Result<String> {
    let mut path = PathBuf::new();
    if let Some(folder) = unit.comp_dir {
        path.push(folder.to_string_lossy().as_ref());
    }
    // Number 0 is the unit's folder itself.
    if file.directory_index() != 0
        && let Some(folder) = file.directory(header)
    {
        path.push(dwarf.attr_string(unit, folder)?.to_string_lossy().as_ref());
    }
    let name = dwarf.attr_string(unit, file.path_name())?;
    path.push(name.to_string_lossy().as_ref());
    Ok(path.to_string_lossy().into_owned())
}

/// A section's bytes with its absolute relocations applied; `code` is at `base`, all other sections
/// are at 0, so that references to them are offsets.
fn relocated<'data>(
    file: &ElfFile64<'data, object::LittleEndian>,
    section: &object::read::elf::ElfSection64<'data, '_, object::LittleEndian>,
    code: SectionIndex,
    base: u64,
) -> Result<Vec<u8>, SymfileError> {
    let mut bytes = section.data().map_err(wrong)?.to_vec();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            continue;
        };
        let symbol = file.symbol_by_index(index).map_err(wrong)?;
        let start = if symbol.section_index() == Some(code) {
            base
        } else {
            0
        };
        let value = start.wrapping_add(symbol.address());
        let value = value.wrapping_add_signed(relocation.addend()).to_le_bytes();
        let size = usize::from(relocation.size() / 8).min(value.len());
        let place = usize::try_from(offset).ok();
        let place = place.and_then(|at| bytes.get_mut(at..)?.get_mut(..size));
        let place = place.ok_or_else(|| SymfileError::Object {
            reason: format!("a relocation at {offset:#x} of {:?}", section.name()),
        })?;
        place.copy_from_slice(&value[..size]);
    }
    Ok(bytes)
}

fn unsound(error: gimli::Error) -> SymfileError {
    SymfileError::Object {
        reason: format!("its line table: {error}"),
    }
}
