//! Makes an [`Object`] from data in memory: a module's variables, without a file.
//!
//! [`Variables`] takes sections and symbols as an object file has them; its object is linked like
//! any other. Sections are classified by flags and names as those of files are ([`classify`]).
//!
//! # Invariants
//! - The checks of [`Object::parse`] are done here when a part is added: alignments, the sizes of
//!   arrays of functions, symbols within their sections. Fields are checked when they are used.

use object::{I64, LittleEndian, U64, elf};

use crate::error::LinkError;
use crate::object::{MAX_ALIGN, Object};
use crate::section::{Class, Presence, Rela, Section, SectionId, classify};
use crate::symbol::{Bind, Kind, Origin, Symbol, SymbolId};

const LE: LittleEndian = LittleEndian;

/// Variables in memory.
#[derive(Debug)]
pub struct Variables<'d> {
    name: &'d str,
    /// The first is empty; relocations are kept separately, as sections borrow them.
    sections: Vec<Section<'d>>,
    relocations: Vec<Vec<Rela>>,
    /// The first is empty.
    symbols: Vec<Symbol<'d>>,
}

/// The content of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'d> {
    /// Bytes.
    Bytes(&'d [u8]),
    /// This many zeros.
    Zeros(u64),
}

/// The access that a section allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Constant after relocation.
    Read,
    /// The program writes to it.
    Write,
    /// Each thread has its own copy.
    Thread,
}

/// The value of a field of a section, with the psABI's `S`, `A`, `P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 8 bytes: `S + A` (`R_X86_64_64`).
    Address,
    /// 4 bytes: `S + A - P` (`R_X86_64_PC32`).
    Distance,
    /// 8 bytes: `S + A - P` (`R_X86_64_PC64`).
    LongDistance,
}

impl<'d> Variables<'d> {
    /// An empty set of variables; `name` is their name in errors.
    pub fn new(name: &'d str) -> Variables<'d> {
        let none = Section {
            name: "",
            object: 0,
            data: &[],
            size: 0,
            align: 1,
            relocations: &[],
            class: Class::Dropped,
            presence: Presence::Live,
            link: None,
            group: None,
            retain: false,
        };
        Variables {
            name,
            sections: vec![none],
            relocations: vec![Vec::new()],
            symbols: vec![symbol("", 0, Origin::Undefined, Bind::Local)],
        }
    }

    /// Whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.sections.len() == 1
    }

    /// Adds a section. Sections are numbered from 0.
    ///
    /// # Errors
    /// The alignment is invalid, an array of functions does not consist of words, or the name is
    /// reserved for another kind of section.
    pub fn section(
        &mut self,
        name: &'d str,
        content: Content<'d>,
        align: u64,
        access: Access,
    ) -> Result<(), LinkError> {
        let index = self.sections.len();
        let fail = |what| LinkError::Section {
            object: self.name.into(),
            section: name.into(),
            index,
            what,
        };
        let align = self.checked_align(name, align)?;
        let flags = elf::SHF_ALLOC.0
            | match access {
                Access::Read => 0,
                Access::Write => elf::SHF_WRITE.0,
                Access::Thread => elf::SHF_WRITE.0 | elf::SHF_TLS.0,
            };
        let (kind, data, size) = match content {
            Content::Bytes(data) => (elf::SHT_PROGBITS, data, data.len() as u64),
            Content::Zeros(size) => (elf::SHT_NOBITS, &[][..], size),
        };
        let class = classify(kind.0, flags, name).map_err(fail)?;
        if matches!(class, Class::Array { .. }) && !size.is_multiple_of(8) {
            return Err(fail("size is not a multiple of 8"));
        }
        if class == Class::EhFrame {
            return Err(fail("variables among unwind records"));
        }
        self.sections.push(Section {
            name,
            data,
            size,
            align,
            class,
            ..self.sections[0].clone()
        });
        self.relocations.push(Vec::new());
        Ok(())
    }

    /// Defines a symbol at an offset in a section. Symbols are numbered from 0, in the order of
    /// their definition.
    ///
    /// # Errors
    /// The section does not exist, or the offset is beyond it.
    pub fn define(
        &mut self,
        name: &'d str,
        section: u32,
        at: u64,
        size: u64,
        weak: bool,
    ) -> Result<(), LinkError> {
        let id = SectionId(section.saturating_add(1));
        let class = match self.sections.get(id.index()) {
            Some(section) if at <= section.size => section.class,
            Some(_) => return Err(self.symbol_error(name, "lies beyond its section")),
            None => return Err(self.symbol_error(name, "section does not exist")),
        };
        let kind = match class {
            Class::TlsData | Class::TlsZeroFill => Kind::Tls,
            _ => Kind::Data,
        };
        self.push(Symbol {
            value: at,
            size,
            kind,
            ..symbol(name, 0, Origin::Section(id), bind(weak))
        });
        Ok(())
    }

    /// Defines a symbol tentatively.
    ///
    /// # Errors
    /// The alignment is invalid.
    pub fn common(&mut self, name: &'d str, size: u64, align: u64) -> Result<(), LinkError> {
        let value = self.checked_align(name, align)?;
        self.push(Symbol {
            value,
            size,
            ..symbol(name, 0, Origin::Common, Bind::Strong)
        });
        Ok(())
    }

    /// Adds a symbol from outside. A weak one may be absent.
    pub fn external(&mut self, name: &'d str, weak: bool) {
        self.push(symbol(name, 0, Origin::Undefined, bind(weak)));
    }

    /// Adds a field to be filled, by rising offset; the addend is the psABI's `A`.
    ///
    /// # Errors
    /// The section does not exist, or has no bytes.
    pub fn fill(
        &mut self,
        section: u32,
        at: u64,
        width: Width,
        symbol: u32,
        addend: i64,
    ) -> Result<(), LinkError> {
        let index = section.saturating_add(1) as usize;
        let has_bytes = self
            .sections
            .get(index)
            .is_some_and(|section| !matches!(section.class, Class::ZeroFill | Class::TlsZeroFill));
        if !has_bytes {
            return Err(LinkError::Section {
                object: self.name.into(),
                section: self.sections.get(index).map_or("", |it| it.name).into(),
                index,
                what: "relocations, but no bytes",
            });
        }
        let kind = match width {
            Width::Address => elf::R_X86_64_64,
            Width::Distance => elf::R_X86_64_PC32,
            Width::LongDistance => elf::R_X86_64_PC64,
        };
        let mut relocation = Rela {
            r_offset: U64::new(LE, at),
            r_info: U64::default(),
            r_addend: I64::new(LE, addend),
        };
        relocation.set_r_info(LE, false, symbol.saturating_add(1), kind);
        self.relocations[index].push(relocation);
        Ok(())
    }

    /// The object, to be linked.
    pub fn object(&self) -> Object<'_> {
        let sections = self.sections.iter().zip(&self.relocations);
        let sections = sections.map(|(section, relocations)| Section {
            relocations: match section.class {
                Class::Dropped => &[],
                _ => relocations,
            },
            ..section.clone()
        });
        Object::of(self.name, sections.collect(), self.symbols.clone())
    }

    fn push(&mut self, mut symbol: Symbol<'d>) {
        symbol.canonical = SymbolId(self.symbols.len() as u32);
        self.symbols.push(symbol);
    }

    fn checked_align(&self, name: &str, align: u64) -> Result<u64, LinkError> {
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

    fn symbol_error(&self, name: &str, what: &'static str) -> LinkError {
        LinkError::Symbol {
            object: self.name.into(),
            symbol: name.into(),
            index: self.symbols.len(),
            what,
        }
    }
}

fn bind(weak: bool) -> Bind {
    match weak {
        true => Bind::Weak,
        false => Bind::Strong,
    }
}

fn symbol(name: &str, value: u64, origin: Origin, bind: Bind) -> Symbol<'_> {
    Symbol {
        name,
        value,
        size: 0,
        origin,
        bind,
        kind: Kind::Data,
        hidden: false,
        callable: false,
        canonical: SymbolId(0),
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Content, Variables, Width};
    use crate::{Graph, LayoutOptions, LinkError, Placement, Resolved};

    /// The addresses of the definitions, and the bytes of the read-write segment.
    fn check(variables: &Variables<'_>) -> (Vec<(String, u64)>, Vec<u8>) {
        let graph = Graph::new(vec![variables.object()]).expect("sound");
        let laid = graph.layout(&LayoutOptions::default()).expect("room");
        let at = Placement {
            code: 0x10_0000,
            read_only: 0x20_0000,
            read_write: 0x30_0000,
            ..Placement::default()
        };
        let placed = laid.place(at).expect("in reach");
        let definitions = placed.definitions();
        let places = definitions.map(|(definition, at)| (definition.name.to_owned(), at));
        let places = places.collect();
        let linked = placed.fix_up(|name, _| (name == "there").then(|| Resolved::at(0x7000)));
        (places, linked.expect("all is there").read_write)
    }

    #[test]
    fn variables_are_linked_like_those_of_files() {
        let mut variables = Variables::new("m");
        const BYTES: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        let put = |it: &mut Variables<'_>| -> Result<(), LinkError> {
            it.section(".data", Content::Bytes(BYTES), 8, Access::Write)?;
            it.section(".bss", Content::Zeros(24), 16, Access::Write)?;
            it.external("there", false);
            it.define("one", 0, 0, 8, false)?;
            it.define("zeros", 1, 4, 20, true)?;
            it.common("tentative", 40, 32)?;
            it.fill(0, 8, Width::Address, 0, 5)
        };
        assert!(put(&mut variables).is_ok());
        let (mut places, bytes) = check(&variables);
        places.sort();
        let names: Vec<&str> = places.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["one", "tentative", "zeros"]);
        let aligned = places.iter().zip([8, 32, 4]);
        assert!(
            aligned.clone().all(|((_, at), align)| at % align == 0),
            "{places:?}"
        );
        assert_eq!(places[2].1 % 16, 4);
        assert_eq!(bytes[..8], BYTES[..8]);
        assert_eq!(bytes[8..16], 0x7005_u64.to_le_bytes());
    }

    #[test]
    fn what_is_not_sound_is_refused() {
        let mut variables = Variables::new("m");
        let bytes = [0; 12];
        let content = Content::Bytes(&bytes);
        assert!(
            variables
                .section(".data", content, 3, Access::Write)
                .is_err()
        );
        assert!(
            variables
                .section(".init_array", content, 8, Access::Write)
                .is_err()
        );
        assert!(
            variables
                .section(".eh_frame", content, 8, Access::Read)
                .is_err()
        );
        assert!(
            variables
                .section(".bss", Content::Zeros(8), 8, Access::Write)
                .is_ok()
        );
        assert!(variables.define("beyond", 0, 9, 1, false).is_err());
        assert!(variables.define("nowhere", 1, 0, 1, false).is_err());
        assert!(variables.fill(0, 0, Width::Address, 0, 0).is_err());
        assert!(variables.common("odd", 1, 12).is_err());
    }
}
