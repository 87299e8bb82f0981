//! Makes an [`Object`] from code in memory: the output of our own compiler, without a file.
//!
//! An [`Assembly`] is one function with its constants, its unwind records and the table that its
//! personality reads; fields in them follow the relocations of the x86-64 psABI. Its object is
//! linked like any other, so GOT words, relaxation, call slots and moves work as for files. Words
//! that hold the address of a personality or of a type are words of the GOT.
//!
//! # Invariants
//! - An assembly's object meets the checks of [`Object::parse`] by construction: indices are in
//!   range. Fields are checked when they are used, as those of files are.

use object::{I64, LittleEndian, U64, elf};

use crate::error::LinkError;
use crate::object::{MAX_ALIGN, Object};
use crate::section::{Class, Presence, Rela, Section, SectionId};
use crate::symbol::{Bind, Kind, Origin, Symbol, SymbolId};

const LE: LittleEndian = LittleEndian;

/// One function in memory.
#[derive(Debug)]
pub struct Assembly<'d> {
    name: &'d str,
    symbols: Vec<Symbol<'d>>,
    align: u64,
    /// By number of the part.
    bytes: [&'d [u8]; PARTS],
    relocations: [Vec<Rela>; PARTS],
}

/// The parts of an assembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The function, then its constants.
    Code,
    /// Unwind records.
    Unwind,
    /// The table that the personality reads.
    Handlers,
}

const PARTS: usize = 3;
/// Section names, as in files. A section's number is that of its part plus one, because section 0
/// is empty.
const NAMES: [&str; PARTS] = [".text", ".eh_frame", ".gcc_except_table"];

/// The target of a field of an assembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target(u32);

impl Target {
    /// The first byte of the function.
    pub const FUNCTION: Target = Target(1);
    /// The first byte of [`Part::Handlers`].
    pub const HANDLERS: Target = Target(2);
}

/// The value of a field, with the psABI's `S`, `A`, `P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// 8 bytes: `S + A` (`R_X86_64_64`).
    Absolute,
    /// 4 bytes: `S + A - P` (`R_X86_64_PC32`).
    Distance,
    /// 4 bytes: the distance to a word that holds `S` (`R_X86_64_GOTPCREL`).
    Word,
    /// Like [`Form::Word`]: the operand of a `call` or `jmp`, which may become direct
    /// (`R_X86_64_GOTPCRELX`).
    CallWord,
    /// Like [`Form::Word`]: the operand of a `mov` with a REX prefix, which may become a `lea`
    /// (`R_X86_64_REX_GOTPCRELX`).
    LoadWord,
    /// 4 bytes: the distance to the two words of a thread-local (`R_X86_64_TLSGD`).
    ThreadLocalWords,
}

impl Form {
    fn kind(self) -> elf::RelocationType {
        match self {
            Form::Absolute => elf::R_X86_64_64,
            Form::Distance => elf::R_X86_64_PC32,
            Form::Word => elf::R_X86_64_GOTPCREL,
            Form::CallWord => elf::R_X86_64_GOTPCRELX,
            Form::LoadWord => elf::R_X86_64_REX_GOTPCRELX,
            Form::ThreadLocalWords => elf::R_X86_64_TLSGD,
        }
    }
}

impl<'d> Assembly<'d> {
    /// The function `function`, `size` bytes of `code` with alignment `align`; `name` is the
    /// assembly's name in errors.
    ///
    /// # Errors
    /// The alignment is invalid, or the size is beyond the code.
    pub fn new(
        name: &'d str,
        function: &'d str,
        code: &'d [u8],
        size: u64,
        align: u64,
    ) -> Result<Assembly<'d>, LinkError> {
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(LinkError::Alignment {
                object: name.into(),
                section: NAMES[Part::Code as usize].into(),
                align,
            });
        }
        if size > code.len() as u64 {
            return Err(LinkError::Symbol {
                object: name.into(),
                symbol: function.into(),
                index: Target::FUNCTION.0 as usize,
                what: "lies beyond its section",
            });
        }
        let function = Symbol {
            size,
            bind: Bind::Strong,
            kind: Kind::Function,
            callable: true,
            ..own(function, Target::FUNCTION, Part::Code)
        };
        let handlers = own("", Target::HANDLERS, Part::Handlers);
        let nothing = Symbol {
            origin: Origin::Undefined,
            ..own("", Target(0), Part::Code)
        };
        Ok(Assembly {
            name,
            symbols: vec![nothing, function, handlers],
            align,
            bytes: [code, &[], &[]],
            relocations: Default::default(),
        })
    }

    /// Adds these unwind records: a table as in `.eh_frame`.
    #[must_use]
    pub fn with_unwind(mut self, records: &'d [u8]) -> Self {
        self.bytes[Part::Unwind as usize] = records;
        self
    }

    /// Adds this table for the personality, aligned to 4.
    #[must_use]
    pub fn with_handlers(mut self, table: &'d [u8]) -> Self {
        self.bytes[Part::Handlers as usize] = table;
        self
    }

    /// Reserves memory for so many symbols from outside, and so many fields in the code.
    pub fn reserve(&mut self, externals: usize, fields: usize) {
        self.symbols.reserve_exact(externals);
        self.relocations[Part::Code as usize].reserve_exact(fields);
    }

    /// Adds a symbol from outside; call it once for each name. A weak one may be absent.
    pub fn external(&mut self, name: &'d str, weak: bool) -> Target {
        let target = Target(self.symbols.len() as u32);
        self.symbols.push(Symbol {
            origin: Origin::Undefined,
            bind: if weak { Bind::Weak } else { Bind::Strong },
            ..own(name, target, Part::Code)
        });
        target
    }

    /// Adds a field to be filled, by rising offset in each part; the addend is the psABI's `A`.
    pub fn fill(&mut self, part: Part, at: u64, form: Form, target: Target, addend: i64) {
        let mut relocation = Rela {
            r_offset: U64::new(LE, at),
            r_info: U64::default(),
            r_addend: I64::new(LE, addend),
        };
        relocation.set_r_info(LE, false, target.0, form.kind());
        self.relocations[part as usize].push(relocation);
    }

    /// The object, to be linked.
    pub fn object(&self) -> Object<'_> {
        let mut sections = Vec::with_capacity(PARTS + 1);
        sections.push(Section {
            class: Class::Dropped,
            ..self.section(Part::Code)
        });
        sections.extend([Part::Code, Part::Unwind, Part::Handlers].map(|part| self.section(part)));
        Object::of(self.name, sections, self.symbols.clone())
    }

    fn section(&self, part: Part) -> Section<'_> {
        let bytes = self.bytes[part as usize];
        let (class, align) = match part {
            // An empty section is not placed.
            _ if bytes.is_empty() => (Class::Dropped, 1),
            Part::Code => (Class::Text, self.align),
            Part::Unwind => (Class::EhFrame, 8),
            Part::Handlers => (Class::ReadOnly, 4),
        };
        Section {
            name: NAMES[part as usize],
            object: 0,
            data: bytes,
            size: bytes.len() as u64,
            align,
            relocations: &self.relocations[part as usize],
            class,
            presence: Presence::Live,
            link: None,
            group: None,
            retain: false,
        }
    }
}

/// A local symbol at the start of a part.
fn own(name: &str, target: Target, part: Part) -> Symbol<'_> {
    Symbol {
        name,
        value: 0,
        size: 0,
        origin: Origin::Section(SectionId(part as u32 + 1)),
        bind: Bind::Local,
        kind: Kind::Data,
        hidden: false,
        callable: false,
        canonical: SymbolId(target.0),
    }
}
