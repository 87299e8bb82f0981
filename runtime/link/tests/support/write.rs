//! Objects written by hand: one section per call, symbols, relocations.

pub use object::write::SectionId;
use object::write::{Object, Relocation, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionFlags, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope, elf,
};

/// An object that is being written.
pub struct Writer {
    pub object: Object<'static>,
}

impl Writer {
    pub fn new() -> Writer {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        object.set_mangling(object::write::Mangling::None);
        Writer { object }
    }

    pub fn section(&mut self, name: &str, kind: SectionKind, data: &[u8], align: u64) -> SectionId {
        let id = self.object.add_section(Vec::new(), name.into(), kind);
        if kind == SectionKind::UninitializedData || kind == SectionKind::UninitializedTls {
            self.object.append_section_bss(id, data.len() as u64, align);
        } else {
            self.object.append_section_data(id, data, align);
        }
        id
    }

    pub fn flags(&mut self, section: SectionId, kind: elf::SectionType, flags: elf::SectionFlags) {
        self.object.section_mut(section).flags = SectionFlags::Elf {
            sh_type: kind,
            sh_flags: flags,
        };
    }

    pub fn define(&mut self, name: &str, section: SectionId, value: u64, size: u64) -> SymbolId {
        self.symbol(
            name,
            SymbolSection::Section(section),
            value,
            size,
            SymbolKind::Data,
            false,
        )
    }

    pub fn weak(&mut self, name: &str, section: SectionId, value: u64, size: u64) -> SymbolId {
        self.symbol(
            name,
            SymbolSection::Section(section),
            value,
            size,
            SymbolKind::Data,
            true,
        )
    }

    pub fn external(&mut self, name: &str) -> SymbolId {
        self.symbol(
            name,
            SymbolSection::Undefined,
            0,
            0,
            SymbolKind::Unknown,
            false,
        )
    }

    pub fn weak_external(&mut self, name: &str) -> SymbolId {
        self.symbol(
            name,
            SymbolSection::Undefined,
            0,
            0,
            SymbolKind::Unknown,
            true,
        )
    }

    pub fn absolute(&mut self, name: &str, value: u64) -> SymbolId {
        self.symbol(
            name,
            SymbolSection::Absolute,
            value,
            0,
            SymbolKind::Data,
            false,
        )
    }

    pub fn local(&mut self, name: &str, section: SectionId, value: u64) -> SymbolId {
        let id = self.define(name, section, value, 0);
        self.object.symbol_mut(id).scope = SymbolScope::Compilation;
        id
    }

    pub fn common(&mut self, name: &str, size: u64, align: u64) -> SymbolId {
        let symbol = Symbol {
            name: name.into(),
            value: 0,
            size: 0,
            kind: SymbolKind::Data,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Undefined,
            flags: SymbolFlags::None,
        };
        self.object.add_common_symbol(symbol, size, align)
    }

    pub fn symbol(
        &mut self,
        name: &str,
        section: SymbolSection,
        value: u64,
        size: u64,
        kind: SymbolKind,
        weak: bool,
    ) -> SymbolId {
        self.object.add_symbol(Symbol {
            name: name.into(),
            value,
            size,
            kind,
            scope: if section == SymbolSection::Undefined {
                SymbolScope::Unknown
            } else {
                SymbolScope::Dynamic
            },
            weak,
            section,
            flags: SymbolFlags::None,
        })
    }

    pub fn relocate(
        &mut self,
        section: SectionId,
        offset: u64,
        kind: elf::RelocationType,
        symbol: SymbolId,
        addend: i64,
    ) {
        let flags = RelocationFlags::Elf { r_type: kind };
        let relocation = Relocation {
            offset,
            symbol,
            addend,
            flags,
        };
        self.object
            .add_relocation(section, relocation)
            .expect("relocations can be written");
    }

    pub fn finish(self) -> Vec<u8> {
        self.object.write().expect("the object can be written")
    }
}
