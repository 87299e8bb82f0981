//! Reads a module: everything except its bodies, and their places.

use std::sync::Arc;

use crate::attributes::{self, Groups};
use crate::constants;
use crate::globals;
use crate::ir::{Global, GlobalKind, Module, Type};
use crate::stream::{Malformed, What};
use crate::types::{self, Known};
use crate::walk::{Entry, Extent, Standard, Walk};

/// Numbers of blocks.
pub(crate) mod block {
    pub(crate) const INFO: u32 = 0;
    pub(crate) const MODULE: u32 = 8;
    pub(crate) const ATTRIBUTES: u32 = 9;
    pub(crate) const ATTRIBUTE_GROUPS: u32 = 10;
    pub(crate) const CONSTANTS: u32 = 11;
    pub(crate) const FUNCTION: u32 = 12;
    pub(crate) const IDENTIFICATION: u32 = 13;
    pub(crate) const VALUE_SYMBOLS: u32 = 14;
    pub(crate) const TYPES: u32 = 17;
    pub(crate) const STRINGS: u32 = 23;
}

/// Codes of a module's records.
mod code {
    pub(super) const VERSION: u64 = 1;
    pub(super) const TRIPLE: u64 = 2;
    pub(super) const LAYOUT: u64 = 3;
    pub(super) const ASSEMBLY: u64 = 4;
    pub(super) const SECTION: u64 = 5;
    pub(super) const VARIABLE: u64 = 7;
    pub(super) const FUNCTION: u64 = 8;
    pub(super) const OLD_ALIAS: u64 = 9;
    pub(super) const COLLECTOR: u64 = 11;
    pub(super) const COMDAT: u64 = 12;
    pub(super) const ALIAS: u64 = 14;
    pub(super) const IFUNC: u64 = 18;
}

const WRAPPER: [u8; 4] = [0xDE, 0xC0, 0x17, 0x0B];
pub(crate) const MAGIC: u64 = 0xDEC0_4342;
/// Version with relative value numbers and a string table.
const VERSION: u64 = 2;
/// Releases of LLVM whose bitcode is read here.
const RELEASES: std::ops::RangeInclusive<u32> = 20..=22;

/// The reason why a module or a body is not read here. LLVM may still read it, or report a better error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The stream is damaged.
    #[error("damaged at bit {}: {}", .0.bit, .0.what)]
    Malformed(Malformed),
    /// A number of an entry that does not exist.
    #[error("a number is out of range")]
    OutOfRange,
    /// A form that is not known here.
    #[error("{0}")]
    Unknown(&'static str),
}

impl From<Malformed> for Refused {
    fn from(cause: Malformed) -> Refused {
        Refused::Malformed(cause)
    }
}

/// A module that was read, without its bytes, from which bodies are read.
#[derive(Debug)]
pub struct Source {
    /// Its tables.
    pub module: Arc<Module>,
    pub(crate) known: Known,
    pub(crate) standard: Standard,
    /// Places of bodies, in the order of definitions.
    pub(crate) bodies: Vec<Extent>,
    /// The globals of the bodies.
    pub(crate) defined: Vec<u32>,
    /// The range of the stream in its file.
    pub(crate) stream: std::ops::Range<usize>,
    /// Globals, and the words at which the symbol table places their bodies.
    entries: Vec<(u64, u64)>,
}

impl Source {
    /// Reads a module without its bodies.
    ///
    /// # Errors
    /// The module has a form that is not read here.
    pub fn read(bytes: &[u8]) -> Result<Source, Refused> {
        let stream = unwrap(bytes)?;
        let mut walk = Walk::new(&bytes[stream.clone()]);
        if walk.cursor.fixed(32)? != MAGIC {
            return Err(walk.cursor.fail(What::Magic).into());
        }
        let mut source = Source {
            module: Arc::default(),
            known: Known::default(),
            standard: Standard::new(),
            bodies: Vec::new(),
            defined: Vec::new(),
            stream,
            entries: Vec::new(),
        };
        let mut origin = 0;
        let mut module = Module::default();
        let (mut identified, mut found) = (false, false);
        // The rest may be padding.
        while walk.cursor.left() >= 64 {
            let start = walk.cursor.bit;
            if walk.cursor.fixed(2)? != 1 {
                return Err(walk.cursor.fail(What::Place).into());
            }
            let extent = walk.head()?;
            match extent.number {
                block::IDENTIFICATION => {
                    origin = start;
                    identified = source.identification(&mut walk, extent, &mut module.release)?;
                }
                block::MODULE if found => {
                    return Err(Refused::Unknown("several modules in one file"));
                }
                block::MODULE => {
                    found = true;
                    source.module(&mut walk, extent, &mut module)?;
                }
                block::STRINGS if module.strings.is_empty() => {
                    strings(&mut walk, extent, &source.standard, &mut module)?;
                }
                _ => walk.pass(extent),
            }
        }
        if !(identified && found) {
            return Err(Refused::Unknown("bitcode of an unknown release of LLVM"));
        }
        source.check(&module)?;
        source.check_entries(origin)?;
        source.module = Arc::new(module);
        Ok(source)
    }

    /// The number of the body of a global.
    pub fn body_of(&self, global: u32) -> Option<usize> {
        self.defined.binary_search(&global).ok()
    }

    /// Whether this reader supports the release that wrote it.
    fn identification(
        &self,
        walk: &mut Walk<'_>,
        extent: Extent,
        said: &mut u32,
    ) -> Result<bool, Refused> {
        const NAME: u64 = 1;
        let mut inside = walk.enter(extent, &self.standard);
        let mut known = false;
        loop {
            match walk.next(&mut inside)? {
                Entry::End => return Ok(known),
                Entry::Block(extent) => walk.pass(extent),
                Entry::Record(NAME) => {
                    let text = text(&walk.record);
                    let release = text.strip_prefix("LLVM").unwrap_or_default();
                    let major = release.split('.').next().and_then(|it| it.parse().ok());
                    *said = major.unwrap_or_default();
                    known = RELEASES.contains(said);
                }
                Entry::Record(_) => {}
            }
        }
    }

    fn module(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        module: &mut Module,
    ) -> Result<(), Refused> {
        let none = Standard::new();
        let mut inside = walk.enter(extent, &none);
        let mut groups = Groups::new();
        module.attributes.push(Default::default());
        loop {
            match walk.next(&mut inside)? {
                Entry::End => return Ok(()),
                Entry::Block(extent) => self.block(walk, extent, module, &mut groups)?,
                Entry::Record(code) => self.record(code, &walk.record, module)?,
            }
        }
    }

    fn block(
        &mut self,
        walk: &mut Walk<'_>,
        extent: Extent,
        module: &mut Module,
        groups: &mut Groups,
    ) -> Result<(), Refused> {
        match extent.number {
            block::INFO => walk.standard(extent, &mut self.standard)?,
            block::TYPES => {
                (module.types, self.known, module.names_structs) =
                    types::read(walk, extent, &self.standard)?;
                module.pointer = self.known.id(&Type::Pointer(0));
            }
            block::ATTRIBUTE_GROUPS => *groups = attributes::groups(walk, extent, &self.standard)?,
            block::ATTRIBUTES => {
                module.attributes = attributes::lists(walk, extent, &self.standard, groups)?;
            }
            block::CONSTANTS => {
                let Module {
                    types, constants, ..
                } = module;
                constants::read(walk, extent, &self.standard, types, |ty, constant| {
                    constants.push((ty, constant));
                })?;
            }
            block::FUNCTION => {
                self.bodies.push(extent);
                walk.pass(extent);
            }
            block::VALUE_SYMBOLS => self.symbols(walk, extent)?,
            _ => walk.pass(extent),
        }
        Ok(())
    }

    /// Reads the symbol table of a module, which gives the places of bodies.
    fn symbols(&mut self, walk: &mut Walk<'_>, extent: Extent) -> Result<(), Refused> {
        const FUNCTION_ENTRY: u64 = 3;
        let mut inside = walk.enter(extent, &self.standard);
        loop {
            match walk.next(&mut inside)? {
                Entry::End => return Ok(()),
                Entry::Block(extent) => walk.pass(extent),
                Entry::Record(FUNCTION_ENTRY) => match walk.record[..] {
                    [global, word, ..] => self.entries.push((global, word)),
                    _ => return Err(Refused::OutOfRange),
                },
                Entry::Record(_) => {}
            }
        }
    }

    fn record(&mut self, code: u64, record: &[u64], module: &mut Module) -> Result<(), Refused> {
        let kind = match code {
            code::VERSION if record.first() != Some(&VERSION) => {
                return Err(Refused::Unknown("bitcode of an old form"));
            }
            code::TRIPLE => {
                module.triple = text(record);
                return Ok(());
            }
            code::LAYOUT => {
                module.layout = text(record);
                return Ok(());
            }
            code::ASSEMBLY => {
                module.assembly = text(record);
                return Ok(());
            }
            code::SECTION => {
                module.sections.push(text(record));
                return Ok(());
            }
            code::COLLECTOR => {
                module.collectors.push(text(record));
                return Ok(());
            }
            code::COMDAT => {
                module.comdats.push(globals::comdat(record)?);
                return Ok(());
            }
            code::OLD_ALIAS => return Err(Refused::Unknown("an alias of an old form")),
            code::VARIABLE => GlobalKind::Variable,
            code::FUNCTION => GlobalKind::Function,
            code::ALIAS => GlobalKind::Alias,
            code::IFUNC => GlobalKind::Ifunc,
            _ => return Ok(()),
        };
        // Globals are numbered before constants.
        if !module.constants.is_empty() {
            return Err(Refused::Unknown("a global behind constants"));
        }
        let (global, details) = globals::global(kind, record)?;
        if global.ty.index() >= module.types.len() {
            return Err(Refused::OutOfRange);
        }
        if kind == GlobalKind::Function && global.is_definition {
            self.defined.push(module.globals.len() as u32);
        }
        module.globals.push(global);
        module.details.push(details);
        Ok(())
    }

    /// Checks that the tables are consistent.
    fn check(&self, module: &Module) -> Result<(), Refused> {
        let strings = module.strings.len() as u32;
        let named = |global: &Global| {
            let values = [global.personality, global.aliasee].into_iter().flatten();
            global.name.start <= global.name.end
                && global.name.end <= strings
                && values.into_iter().all(|value| value.0 < u32::MAX)
        };
        match module.globals.iter().all(named) && self.bodies.len() == self.defined.len() {
            true => Ok(()),
            false => Err(Refused::OutOfRange),
        }
    }

    /// Checks that bodies, which are in the order of definitions, are where the symbol table places
    /// them. LLVM uses the table. `origin` is the bit of the identification.
    fn check_entries(&self, origin: u64) -> Result<(), Refused> {
        let is_there = |&(global, word): &(u64, u64)| {
            let global = u32::try_from(global).ok();
            let body = global.and_then(|it| self.body_of(it));
            let body = body.and_then(|it| self.bodies.get(it));
            // A place is that of the second word of the block, from the word before `origin` on.
            body.and_then(|it| (it.begin / 32 + 1).checked_sub(origin / 32 + 2)) == Some(word)
        };
        let complete = self.entries.is_empty() || self.entries.len() == self.bodies.len();
        match complete && self.entries.iter().all(is_there) {
            true => Ok(()),
            false => Err(Refused::Unknown("a body at another place")),
        }
    }
}

/// Characters, one per operand.
fn text(record: &[u64]) -> Box<str> {
    let text: String = record.iter().map(|&it| it as u8 as char).collect();
    text.into()
}

/// Reads the table of strings.
fn strings(
    walk: &mut Walk<'_>,
    extent: Extent,
    standard: &Standard,
    module: &mut Module,
) -> Result<(), Refused> {
    const BLOB: u64 = 1;
    let mut inside = walk.enter(extent, standard);
    loop {
        match walk.next(&mut inside)? {
            Entry::End => return Ok(()),
            Entry::Block(extent) => walk.pass(extent),
            Entry::Record(BLOB) => {
                module.strings = walk.record.iter().map(|&it| it as u8).collect();
            }
            Entry::Record(_) => {}
        }
    }
}

/// The range of the stream in a file, which may have a wrapper: magic, version, offset, size, CPU.
pub(crate) fn unwrap(bytes: &[u8]) -> Result<std::ops::Range<usize>, Refused> {
    if !bytes.starts_with(&WRAPPER) {
        return Ok(0..bytes.len());
    }
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word) as usize)
    };
    match (word(8), word(12)) {
        (Some(begin), Some(size)) if begin + size <= bytes.len() => Ok(begin..begin + size),
        _ => Err(Refused::OutOfRange),
    }
}
