//! Reads [`Object`] from bytes: one relocatable ELF x86-64 file, read once.
//!
//! Nothing is copied: names, contents and relocations borrow from the file. After [`Object::parse`]
//! every index between tables is in range, every section's bytes and relocations are present,
//! alignments are valid, and symbols of sections lie within them. Relocations themselves (types,
//! offsets, symbol indices) are checked when they are used.

use object::LittleEndian;
use object::elf;
use object::read::StringTable;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};

use crate::error::LinkError;
use crate::relocation::{self, Expression};
use crate::section::{Class, Presence, Rela, Section, SectionId, classify};
use crate::symbol::{Bind, Kind, Origin, Symbol, SymbolId, plain};

/// The largest alignment that a section may have: a huge page.
pub const MAX_ALIGN: u64 = 2 << 20;

type Header = elf::FileHeader64<LittleEndian>;
type SectionHeader64 = elf::SectionHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;
/// Common symbols of the medium code model.
const LARGE_COMMON: elf::SymbolSection = elf::SymbolSection(0xff02);

/// A relocatable object file, checked and ready to be joined with others.
#[derive(Debug)]
pub struct Object<'d> {
    pub(crate) name: Box<str>,
    /// By section index in the file.
    pub(crate) sections: Vec<Section<'d>>,
    /// By symbol index in the file.
    pub(crate) symbols: Vec<Symbol<'d>>,
    pub(crate) groups: Vec<Group<'d>>,
    command_line: &'d [u8],
}

/// A section group.
#[derive(Debug)]
pub(crate) struct Group<'d> {
    /// Name of the symbol whose COMDAT it is.
    pub(crate) key: &'d str,
    /// One group per key in an image; otherwise the members are only kept or dropped together.
    pub(crate) comdat: bool,
    pub(crate) members: Vec<SectionId>,
}

impl<'d> Object<'d> {
    /// Reads the file `bytes`; `name` is the object's name in errors.
    ///
    /// # Errors
    ///
    /// The file is no valid relocatable ELF file for x86-64.
    pub fn parse(name: &str, bytes: &'d [u8]) -> Result<Object<'d>, LinkError> {
        Parser::parse(name, bytes)
    }

    /// Makes an object from parts in memory, with tables as [`Object::parse`] makes them.
    pub(crate) fn of(
        name: &str,
        sections: Vec<Section<'d>>,
        symbols: Vec<Symbol<'d>>,
    ) -> Object<'d> {
        Object {
            name: name.into(),
            sections,
            symbols,
            groups: Vec::new(),
            command_line: &[],
        }
    }

    /// The object's name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a part of the program holds addresses in fields of less than 64 bits, as code of the
    /// small non-PIC model does: such a part has to lie below 2 GiB.
    pub fn needs_low_addresses(&self) -> bool {
        let short = |relocation: &Rela| {
            let rule = relocation::rule(relocation.r_type(LE, false).0);
            rule.is_some_and(|rule| rule.expression == Expression::Absolute && rule.width < 8)
        };
        // Records in sections that are dropped are not kept.
        let mut all = self.sections.iter().flat_map(|section| section.relocations);
        all.any(short)
    }

    /// Whether a part of the program is in a section of that name.
    pub fn has_section(&self, name: &str) -> bool {
        let mut sections = self.sections.iter();
        sections.any(|section| section.name == name && section.class != Class::Dropped)
    }

    /// The compiler's command line, if it was recorded: words that end with spaces or zeros
    /// (`.GCC.command.line`).
    pub fn command_line(&self) -> &'d [u8] {
        self.command_line
    }
}

struct Parser<'n, 'd> {
    name: &'n str,
    bytes: &'d [u8],
    table: SectionTable<'d, Header>,
    sections: Vec<Section<'d>>,
}

impl<'n, 'd> Parser<'n, 'd> {
    fn parse(name: &'n str, bytes: &'d [u8]) -> Result<Object<'d>, LinkError> {
        let malformed = |source| LinkError::Malformed {
            object: name.into(),
            source,
        };
        let wrong = |what| LinkError::WrongKind {
            object: name.into(),
            what,
        };
        let header = Header::parse(bytes).map_err(malformed)?;
        if header.is_big_endian() {
            return Err(wrong("big endian"));
        }
        if header.e_machine(LE) != elf::EM_X86_64 {
            return Err(wrong("another machine"));
        }
        if header.e_type(LE) != elf::ET_REL {
            return Err(wrong("not relocatable"));
        }
        let table = header.sections(LE, bytes).map_err(malformed)?;
        if u32::try_from(table.len()).is_err() {
            return Err(wrong("too many sections"));
        }
        let symbols = table
            .symbols(LE, bytes, elf::SHT_SYMTAB)
            .map_err(malformed)?;
        if u32::try_from(symbols.len()).is_err() {
            return Err(wrong("too many symbols"));
        }
        let mut parser = Parser {
            name,
            bytes,
            table,
            sections: Vec::with_capacity(table.len()),
        };
        let mut more = More::default();
        for (index, section) in table.enumerate() {
            let section = parser.section(index.0, section, &mut more)?;
            parser.sections.push(section);
        }
        for &index in &more.relocations {
            parser.relocations(index, &symbols)?;
        }
        let symbols_out = parser.symbols(&symbols)?;
        let mut groups = Vec::new();
        for &index in &more.groups {
            let group = parser.group(index, groups.len(), &symbols, &symbols_out)?;
            groups.push(group);
        }
        Ok(Object {
            name: name.into(),
            sections: parser.sections,
            symbols: symbols_out,
            groups,
            command_line: more.command_line,
        })
    }

    fn section(
        &self,
        index: usize,
        header: &'d SectionHeader64,
        more: &mut More<'d>,
    ) -> Result<Section<'d>, LinkError> {
        let name = self.section_name(index, header)?;
        let fail = |what| self.section_error(index, name, what);
        let kind = header.sh_type(LE).0;
        if kind == elf::SHT_RELA.0 {
            more.relocations.push(index);
        } else if kind == elf::SHT_GROUP.0 {
            more.groups.push(index);
        } else if kind == elf::SHT_REL.0 || kind == elf::SHT_CREL.0 {
            let target = self
                .table
                .section(header.info_link(LE))
                .map_err(|e| self.malformed(e))?;
            if target.sh_flags(LE).0 & elf::SHF_ALLOC.0 != 0 {
                return Err(fail("relocations without addends, or packed ones"));
            }
        }
        let flags = header.sh_flags(LE).0;
        let class = classify(kind, flags, name).map_err(fail)?;
        let mut section = Section {
            name,
            object: 0,
            data: &[],
            size: header.sh_size(LE),
            align: 1,
            relocations: &[],
            class,
            presence: Presence::Live,
            link: None,
            group: None,
            retain: flags & elf::SHF_GNU_RETAIN.0 != 0,
        };
        if class == Class::Dropped {
            if name == ".GCC.command.line" && flags & elf::SHF_COMPRESSED.0 == 0 {
                more.command_line = header.data(LE, self.bytes).unwrap_or_default();
            }
            return Ok(section);
        }
        section.align = self.alignment(name, header.sh_addralign(LE))?;
        if !matches!(class, Class::ZeroFill | Class::TlsZeroFill) {
            section.data = header.data(LE, self.bytes).map_err(|e| self.malformed(e))?;
        }
        if matches!(class, Class::Array { .. }) && !section.size.is_multiple_of(8) {
            return Err(fail("size is not a multiple of 8"));
        }
        let link = header.link(LE).0;
        if flags & elf::SHF_LINK_ORDER.0 != 0 && link != 0 {
            if link >= self.table.len() {
                return Err(fail("linked section does not exist"));
            }
            section.link = Some(SectionId(link as u32));
        }
        Ok(section)
    }

    fn relocations(
        &mut self,
        index: usize,
        symbols: &SymbolTable<'d, Header>,
    ) -> Result<(), LinkError> {
        let name = self.sections[index].name;
        let header = self
            .table
            .section(object::SectionIndex(index))
            .map_err(|e| self.malformed(e))?;
        let target = header.info_link(LE).0;
        let Some((relocations, link)) =
            header.rela(LE, self.bytes).map_err(|e| self.malformed(e))?
        else {
            return Ok(());
        };
        let Some(section) = self.sections.get_mut(target) else {
            return Err(self.section_error(index, name, "relocates a section that does not exist"));
        };
        if section.class == Class::Dropped || relocations.is_empty() {
            return Ok(());
        }
        if matches!(section.class, Class::ZeroFill | Class::TlsZeroFill) {
            return Err(self.section_error(target, name, "relocations, but no bytes"));
        }
        if !section.relocations.is_empty() {
            return Err(self.section_error(target, name, "relocated twice"));
        }
        section.relocations = relocations;
        if link != symbols.section() {
            return Err(self.section_error(index, name, "refers to another symbol table"));
        }
        Ok(())
    }

    fn symbols(&self, table: &SymbolTable<'d, Header>) -> Result<Vec<Symbol<'d>>, LinkError> {
        let strings = table.strings();
        let mut symbols = Vec::with_capacity(table.len());
        for (index, symbol) in table.enumerate() {
            symbols.push(self.symbol(index.0, symbol, table, strings)?);
        }
        Ok(symbols)
    }

    fn symbol(
        &self,
        index: usize,
        symbol: &'d elf::Sym64<LittleEndian>,
        table: &SymbolTable<'d, Header>,
        strings: StringTable<'d>,
    ) -> Result<Symbol<'d>, LinkError> {
        let name = symbol.name(LE, strings).map_err(|e| self.malformed(e))?;
        let Ok(name) = std::str::from_utf8(name) else {
            return Err(self.symbol_error(index, "", "name is not UTF-8"));
        };
        let fail = |what| Err(self.symbol_error(index, name, what));
        let origin = self.origin(index, name, symbol, table)?;
        match (origin, name) {
            (_, "__gnu_lto_slim") => {
                return fail("only gcc's optimizer reads this file; try -ffat-lto-objects");
            }
            (Origin::Undefined, "__morestack") => {
                return fail("stacks in pieces (-fsplit-stack) are not supported");
            }
            _ => {}
        }
        let name = plain(name, origin);
        let kind = match (origin, symbol.st_type()) {
            (Origin::Absolute, _) => Kind::Absolute,
            (_, elf::STT_TLS) => Kind::Tls,
            (_, elf::STT_GNU_IFUNC) => Kind::Ifunc,
            (_, elf::STT_FUNC) => Kind::Function,
            _ => Kind::Data,
        };
        let kind = match origin {
            Origin::Section(id) => self.kind_in(id, index, name, symbol.st_value(LE), kind)?,
            _ => kind,
        };
        let bind = match symbol.st_bind() {
            elf::STB_LOCAL => Bind::Local,
            elf::STB_GLOBAL => Bind::Strong,
            // Unique symbols come in groups, and any one of a group will do.
            elf::STB_WEAK | elf::STB_GNU_UNIQUE => Bind::Weak,
            _ => return fail("unknown binding"),
        };
        let visibility = symbol.st_visibility();
        Ok(Symbol {
            name,
            value: symbol.st_value(LE),
            size: symbol.st_size(LE),
            origin,
            bind,
            kind,
            callable: symbol.st_type() == elf::STT_FUNC,
            hidden: visibility == elf::STV_HIDDEN || visibility == elf::STV_INTERNAL,
            canonical: SymbolId(index as u32),
        })
    }

    /// The place of a symbol's definition.
    fn origin(
        &self,
        index: usize,
        name: &str,
        symbol: &'d elf::Sym64<LittleEndian>,
        table: &SymbolTable<'d, Header>,
    ) -> Result<Origin, LinkError> {
        let fail = |what| Err(self.symbol_error(index, name, what));
        let kind = symbol.st_type();
        Ok(match symbol.st_shndx(LE) {
            elf::SHN_UNDEF => Origin::Undefined,
            // The symbol with the file's name cannot be referred to.
            elf::SHN_ABS if kind == elf::STT_FILE => Origin::Undefined,
            elf::SHN_ABS => Origin::Absolute,
            elf::SHN_COMMON | LARGE_COMMON => {
                if symbol.st_bind() == elf::STB_LOCAL {
                    return fail("common, but local");
                }
                self.alignment(name, symbol.st_value(LE))?;
                Origin::Common
            }
            elf::SHN_XINDEX => match table.shndx(LE, object::SymbolIndex(index)) {
                Some(section) => Origin::Section(SectionId(section)),
                None => return fail("extended section index is missing"),
            },
            section if section.is_special() => return fail("reserved section index"),
            section => Origin::Section(SectionId(u32::from(section.0))),
        })
    }

    /// The kind of a symbol that declares `kind` and lies at offset `value` of a section.
    fn kind_in(
        &self,
        id: SectionId,
        index: usize,
        name: &str,
        value: u64,
        kind: Kind,
    ) -> Result<Kind, LinkError> {
        let fail = |what| Err(self.symbol_error(index, name, what));
        let Some(section) = self.sections.get(id.index()) else {
            return fail("section does not exist");
        };
        if section.class != Class::Dropped && value > section.size {
            return fail("lies beyond its section");
        }
        match (section.class, kind) {
            (Class::TlsData | Class::TlsZeroFill, _) => Ok(Kind::Tls),
            (Class::Text, Kind::Data) => Ok(Kind::Function),
            (Class::Dropped, _) => Ok(kind),
            (_, Kind::Tls) => fail("thread-local, but its section is not"),
            _ => Ok(kind),
        }
    }

    fn group(
        &mut self,
        index: usize,
        number: usize,
        table: &SymbolTable<'d, Header>,
        symbols: &[Symbol<'d>],
    ) -> Result<Group<'d>, LinkError> {
        let name = self.sections[index].name;
        let header = self
            .table
            .section(object::SectionIndex(index))
            .map_err(|e| self.malformed(e))?;
        let fail = |what| self.section_error(index, name, what);
        let content = header
            .group(LE, self.bytes)
            .map_err(|e| self.malformed(e))?;
        let Some((flags, indices)) = content else {
            return Err(fail("not a group"));
        };
        if header.link(LE) != table.section() {
            return Err(fail("refers to another symbol table"));
        }
        let Some(symbol) = symbols.get(header.sh_info(LE) as usize) else {
            return Err(fail("key is not a symbol"));
        };
        // A section symbol has no name: the section's name is the key.
        let key = match symbol.origin {
            Origin::Section(id) if symbol.name.is_empty() => self.sections[id.index()].name,
            _ => symbol.name,
        };
        let mut members = Vec::with_capacity(indices.len());
        for member in indices {
            let id = SectionId(member.get(LE));
            let Some(section) = self.sections.get_mut(id.index()) else {
                return Err(self.section_error(index, name, "member does not exist"));
            };
            if section.group.is_some() {
                return Err(self.section_error(index, name, "member of two groups"));
            }
            section.group = Some(number as u32);
            if section.class != Class::Dropped {
                members.push(id);
            }
        }
        Ok(Group {
            key,
            comdat: flags.0 & elf::GRP_COMDAT.0 != 0,
            members,
        })
    }

    fn section_name(
        &self,
        index: usize,
        header: &'d SectionHeader64,
    ) -> Result<&'d str, LinkError> {
        let name = self
            .table
            .section_name(LE, header)
            .map_err(|e| self.malformed(e))?;
        std::str::from_utf8(name).map_err(|_| self.section_error(index, "", "name is not UTF-8"))
    }

    fn alignment(&self, name: &str, align: u64) -> Result<u64, LinkError> {
        let align = align.max(1);
        if align.is_power_of_two() && align <= MAX_ALIGN {
            return Ok(align);
        }
        Err(LinkError::Alignment {
            object: self.name.into(),
            section: name.into(),
            align,
        })
    }

    fn malformed(&self, source: object::read::Error) -> LinkError {
        LinkError::Malformed {
            object: self.name.into(),
            source,
        }
    }

    fn section_error(&self, index: usize, name: &str, what: &'static str) -> LinkError {
        LinkError::Section {
            object: self.name.into(),
            section: name.into(),
            index,
            what,
        }
    }

    fn symbol_error(&self, index: usize, name: &str, what: &'static str) -> LinkError {
        LinkError::Symbol {
            object: self.name.into(),
            symbol: name.into(),
            index,
            what,
        }
    }
}

/// Sections about other sections, read once all sections are known.
#[derive(Default)]
struct More<'d> {
    relocations: Vec<usize>,
    groups: Vec<usize>,
    command_line: &'d [u8],
}
