//! One file of the process: an executable or a shared library.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, SectionTable, Sym};

use super::locals::{self, LOCALS};
use super::mentions::Mentions;
use super::stream;
use super::symbols::{Listed, Place, PlaceKind, Symbols};

/// The sections with bitcode: of `uruk cc`, and of clang.
pub const BITCODE: [&str; 2] = [".urukbc", ".llvmbc"];

/// The section that lists where functions have room for a patch.
pub(super) const PATCHABLE: &str = "__patchable_function_entries";

/// The reason why no function of a file can be compiled again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// It cannot be read.
    #[error("{}: cannot be read: {message}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        message: String,
    },
    /// It is no program for this machine.
    #[error("{}: not an ELF file for x86-64: {message}", .file.display())]
    NotElf {
        /// The file.
        file: PathBuf,
        /// The error.
        message: String,
    },
    /// It was compiled without bitcode.
    #[error("{}: carries no bitcode: build it with `uruk cc`, or clang's `-Xclang -fembed-bitcode=bitcode`", .file.display())]
    NoBitcode {
        /// The file.
        file: PathBuf,
    },
    /// Its symbols were removed.
    #[error("{}: was stripped: without its symbol table, nobody knows where its functions and variables are", .file.display())]
    Stripped {
        /// The file.
        file: PathBuf,
    },
    /// Its functions cannot be redirected.
    #[error("{}: functions have no room for a jump: build it with `uruk cc`, or clang's `-fpatchable-function-entry=64,62`", .file.display())]
    NoEntries {
        /// The file.
        file: PathBuf,
    },
    /// The section is not a sequence of modules.
    #[error("{}: {cause}", .file.display())]
    Bitcode {
        /// The file.
        file: PathBuf,
        /// The error.
        cause: stream::Damaged,
    },
}

/// A file of the process whose functions can be compiled again.
#[derive(Debug, Clone)]
pub struct Image {
    /// The file.
    pub file: PathBuf,
    /// The offset that the loader added to the file's addresses.
    pub base: u64,
    /// Its symbols, with addresses of the process.
    pub symbols: Symbols,
    /// All ranges that are mapped.
    loaded: Vec<Range<u64>>,
    /// Executable ranges.
    pub text: Vec<Range<u64>>,
    /// Read-only ranges.
    pub constants: Vec<Range<u64>>,
    /// Segments that are read-only once the loader has relocated them.
    pub relocated: Vec<Range<u64>>,
    /// The bitcode of its modules, in link order.
    pub modules: Vec<Vec<u8>>,
    /// Local functions of each module that native code calls by their types, as far as the compiler
    /// recorded it.
    pub kept: Vec<locals::KeptNames>,
    /// Offset of each thread's block of its thread-locals from the thread pointer; for a library, the
    /// code that finds the loaded files sets it.
    pub threads: Option<i64>,
    /// The list of entries with room: each item is the address of the room's first byte.
    pub entries: Vec<Range<u64>>,
    /// Tables of addresses that the linker made: calls through them are of one function each.
    pub tables: Vec<Range<u64>>,
    /// Whether it is the executable.
    pub executable: bool,
    /// Names that the dynamic loader binds in its code and data; its linker has bound all others.
    pub bound_late: HashSet<String>,
    /// Its addresses that its code and data mention.
    pub mentions: Mentions,
}

pub(super) type Header = FileHeader64<Endianness>;

impl Image {
    /// Reads a file that the loader mapped at `base`.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn read(file: &Path, base: u64, executable: bool) -> Result<Image, ImageError> {
        let bytes = uruk_files::read(file).map_err(|cause| ImageError::Unreadable {
            file: file.to_owned(),
            message: cause.to_string(),
        })?;
        Image::parse(file, &bytes, base, executable)
    }

    /// Like [`Image::read`], from bytes.
    ///
    /// # Errors
    /// [`ImageError`], but for `Unreadable`.
    pub fn parse(
        file: &Path,
        bytes: &[u8],
        base: u64,
        executable: bool,
    ) -> Result<Image, ImageError> {
        let not_elf = |message: String| ImageError::NotElf {
            file: file.to_owned(),
            message,
        };
        let broken = |cause: object::read::Error| not_elf(cause.to_string());
        let header = Header::parse(bytes).map_err(broken)?;
        let endian = header.endian().map_err(broken)?;
        if header.e_machine(endian) != elf::EM_X86_64 {
            return Err(not_elf("it is for another machine".to_owned()));
        }
        let sections = header.sections(endian, bytes).map_err(broken)?;
        let mut image = Image {
            file: file.to_owned(),
            base,
            symbols: Symbols::default(),
            loaded: Vec::new(),
            text: Vec::new(),
            constants: Vec::new(),
            relocated: Vec::new(),
            modules: Vec::new(),
            kept: Vec::new(),
            threads: None,
            entries: Vec::new(),
            tables: Vec::new(),
            executable,
            bound_late: HashSet::new(),
            mentions: Mentions::default(),
        };
        for segment in header.program_headers(endian, bytes).map_err(broken)? {
            image.add_segment(segment, endian, executable);
        }
        for section in sections.iter() {
            image.add_section(section, &sections, endian, bytes)?;
        }
        image.kept = locals::kept(&records(&sections, endian, bytes), &image.modules);
        if image.modules.is_empty() {
            return Err(ImageError::NoBitcode {
                file: file.to_owned(),
            });
        }
        let table = sections
            .symbols(endian, bytes, elf::SHT_SYMTAB)
            .map_err(broken)?;
        let listed = table.iter().filter_map(|symbol| {
            let name = symbol.name(endian, table.strings()).ok()?;
            let name = String::from_utf8_lossy(name).into_owned();
            list(name, symbol, endian, base)
        });
        image.symbols = Symbols::new(listed);
        if image.symbols.is_empty() {
            return Err(ImageError::Stripped {
                file: file.to_owned(),
            });
        }
        image.mentions = Mentions::of(bytes, base);
        match image.entries.is_empty() {
            true => Err(ImageError::NoEntries {
                file: file.to_owned(),
            }),
            false => Ok(image),
        }
    }

    fn add_section(
        &mut self,
        section: &elf::SectionHeader64<Endianness>,
        sections: &SectionTable<'_, Header>,
        endian: Endianness,
        bytes: &[u8],
    ) -> Result<(), ImageError> {
        let broken = |cause: object::read::Error| ImageError::NotElf {
            file: self.file.clone(),
            message: cause.to_string(),
        };
        let name = sections.section_name(endian, section).map_err(broken)?;
        let start = self.base.wrapping_add(section.sh_addr(endian));
        let range = start..start.wrapping_add(section.sh_size(endian));
        if BITCODE.iter().any(|known| name == known.as_bytes()) {
            let data = section.data(endian, bytes).map_err(broken)?;
            let found = stream::modules(data).map_err(|cause| ImageError::Bitcode {
                file: self.file.clone(),
                cause,
            })?;
            let modules = found.into_iter().map(|at| data[at].to_vec());
            self.modules.extend(modules);
        } else if !self.executable && section.sh_type(endian) == elf::SHT_RELA {
            self.add_bound(section, sections, endian, bytes);
        } else if name.starts_with(b".got") {
            self.tables.push(range);
        } else if name == PATCHABLE.as_bytes() {
            let is_around = |it: &Range<u64>| it.start <= range.start && range.end <= it.end;
            if range.end < range.start || !self.loaded.iter().any(is_around) {
                return Err(ImageError::NotElf {
                    file: self.file.clone(),
                    message: "the list of entries is in no segment".to_owned(),
                });
            }
            self.entries.push(range);
        }
        Ok(())
    }

    /// Adds the names that dynamic relocations of a section mention; a damaged section adds none.
    fn add_bound(
        &mut self,
        section: &elf::SectionHeader64<Endianness>,
        sections: &SectionTable<'_, Header>,
        endian: Endianness,
        bytes: &[u8],
    ) {
        let (Ok(Some((relocations, table))), Ok(symbols)) = (
            section.rela(endian, bytes),
            sections.symbols(endian, bytes, elf::SHT_DYNSYM),
        ) else {
            return;
        };
        if symbols.section() != table {
            return;
        }
        for relocation in relocations {
            let number = relocation.symbol(endian, false);
            let symbol = number.and_then(|number| symbols.symbol(number).ok());
            // Protected names are the library's own, whatever their relocations say.
            let symbol = symbol.filter(|symbol| symbol.st_visibility() != elf::STV_PROTECTED);
            let name = symbol.and_then(|symbol| symbol.name(endian, symbols.strings()).ok());
            if let Some(name) = name {
                let name = String::from_utf8_lossy(name).into_owned();
                self.bound_late.insert(name);
            }
        }
    }

    fn add_segment(
        &mut self,
        segment: &elf::ProgramHeader64<Endianness>,
        endian: Endianness,
        executable: bool,
    ) {
        let start = self.base.wrapping_add(segment.p_vaddr(endian));
        let range = start..start.saturating_add(segment.p_memsz(endian));
        let flags = segment.p_flags(endian);
        if segment.p_type(endian) == elf::PT_LOAD {
            self.loaded.push(range.clone());
        }
        match segment.p_type(endian) {
            elf::PT_LOAD if flags.contains(elf::PF_X) => self.text.push(range),
            elf::PT_LOAD if !flags.contains(elf::PF_W) => self.constants.push(range),
            elf::PT_GNU_RELRO => self.relocated.push(range),
            elf::PT_TLS if executable => {
                let align = segment.p_align(endian).max(1);
                let size = segment.p_memsz(endian).next_multiple_of(align);
                self.threads = Some((size as i64).wrapping_neg());
            }
            _ => {}
        }
    }

    /// Whether a write to an address would end the program.
    pub fn is_only_read(&self, address: u64) -> bool {
        let mut all = self
            .text
            .iter()
            .chain(&self.constants)
            .chain(&self.relocated);
        all.any(|range| range.contains(&address))
    }

    /// Offset of a thread-local of the file from the thread pointer; `None` for other places.
    pub fn distance(&self, place: Place) -> Option<i64> {
        let block = self.threads?;
        (place.kind == PlaceKind::ThreadLocal).then(|| block.wrapping_add_unsigned(place.address))
    }

    /// First bytes of the rooms that functions have in front of their entries, as the loader
    /// relocated the list.
    ///
    /// # Safety
    /// The file is loaded at its base.
    pub unsafe fn rooms(&self) -> HashSet<u64> {
        let mut rooms = HashSet::new();
        for list in &self.entries {
            let count = (list.end - list.start) / 8;
            for index in 0..count {
                // SAFETY: a word of a section that is loaded, by the caller's promise.
                rooms.insert(unsafe { ((list.start + index * 8) as *const u64).read_unaligned() });
            }
        }
        rooms
    }
}

/// The sections about local functions that can be read.
fn records<'b>(
    sections: &SectionTable<'b, Header>,
    endian: Endianness,
    bytes: &'b [u8],
) -> Vec<&'b [u8]> {
    let is_one = |section: &&elf::SectionHeader64<Endianness>| {
        sections.section_name(endian, section) == Ok(LOCALS.as_bytes())
    };
    let found = sections.iter().filter(is_one);
    found
        .filter_map(|section| section.data(endian, bytes).ok())
        .collect()
}

/// Converts a symbol for the rest of the package; `None` for symbols that are not used.
fn list(
    name: String,
    symbol: &elf::Sym64<Endianness>,
    endian: Endianness,
    base: u64,
) -> Option<Listed> {
    let kind = symbol.st_type();
    let value = symbol.st_value(endian);
    if kind == elf::STT_FILE {
        return Some(Listed::File(name));
    }
    if name.is_empty() || symbol.st_shndx(endian) == elf::SHN_UNDEF {
        return None;
    }
    let kind = match kind {
        elf::STT_FUNC => PlaceKind::Function,
        elf::STT_OBJECT | elf::STT_NOTYPE => PlaceKind::Data,
        elf::STT_TLS => PlaceKind::ThreadLocal,
        // An ifunc's symbol is its resolver: the dynamic loader binds its callers.
        _ => return None,
    };
    let is_relative = kind != PlaceKind::ThreadLocal && symbol.st_shndx(endian) != elf::SHN_ABS;
    let place = Place {
        address: if is_relative {
            base.wrapping_add(value)
        } else {
            value
        },
        size: symbol.st_size(endian),
        kind,
        weak: symbol.st_bind() == elf::STB_WEAK,
        exported: symbol.st_bind() != elf::STB_LOCAL && symbol.st_visibility() == elf::STV_DEFAULT,
    };
    Some(match symbol.st_bind() {
        elf::STB_LOCAL => Listed::Local(name, place),
        _ => Listed::Global(name, place),
    })
}
