//! Builds an object that can be linked from machine code of another assembler or compiler.

use std::collections::HashMap;
use std::fmt;

use object::write::{Object, Relocation, StandardSection, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SymbolFlags, SymbolKind, SymbolScope,
    elf,
};

use crate::error::Error;

/// How bytes refer to a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// Four bytes: the distance of a `call` or `jmp` from its end.
    Call,
    /// Four bytes: the distance from their end, by which an instruction reaches data that is near
    /// (`[rip + X]`): of the same object.
    Near,
    /// Four bytes: the distance from their end to a word that holds the symbol's address, for data
    /// that may be anywhere (`mov reg, [rip + X]`).
    AddressWord,
    /// Eight bytes: the symbol's address.
    Address,
}

impl Reference {
    fn relocation(self) -> (elf::RelocationType, i64) {
        match self {
            Reference::Call => (elf::R_X86_64_PLT32, -4),
            Reference::Near => (elf::R_X86_64_PC32, -4),
            Reference::AddressWord => (elf::R_X86_64_GOTPCREL, -4),
            Reference::Address => (elf::R_X86_64_64, 0),
        }
    }
}

/// Builds one object from functions and data as bytes, with references to symbols. The input of
/// [`Responsibility::link`](crate::Responsibility::link) and
/// [`Dylib::add_object`](crate::Dylib::add_object).
///
/// Functions have no unwind information: no exception or panic may pass through them.
///
/// ```
/// use uruk::{ObjectBuilder, Jit, Reference};
///
/// let mut code = ObjectBuilder::new();
/// code.data("base", &40_u64.to_le_bytes(), 8, false);
/// // mov rax, [rip + base]; add rax, 2; ret
/// code.function("answer", &[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x48, 0x83, 0xc0, 2, 0xc3]);
/// code.refer(3, Reference::Near, "base");
/// let jit = Jit::new()?;
/// jit.main().add_object("answer.o", code.finish()?)?;
/// // SAFETY: the function above.
/// let answer = unsafe { jit.function::<extern "C" fn() -> i64>("answer")? };
/// assert_eq!(answer.call(), 42);
/// # Ok::<(), uruk::Error>(())
/// ```
pub struct ObjectBuilder {
    object: Object<'static>,
    symbols: HashMap<String, SymbolId>,
    /// Section and start of the last addition.
    last: Option<(StandardSection, u64)>,
    references: Vec<(StandardSection, u64, Reference, String)>,
}

impl Default for ObjectBuilder {
    fn default() -> ObjectBuilder {
        ObjectBuilder::new()
    }
}

impl fmt::Debug for ObjectBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectBuilder")
            .field("symbols", &self.symbols.len())
            .field("references", &self.references.len())
            .finish_non_exhaustive()
    }
}

impl ObjectBuilder {
    /// An empty object.
    pub fn new() -> ObjectBuilder {
        ObjectBuilder {
            object: Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little),
            symbols: HashMap::new(),
            last: None,
            references: Vec::new(),
        }
    }

    /// Adds a function. Its bytes are found at a multiple of 16.
    pub fn function(&mut self, name: &str, bytes: &[u8]) -> &mut ObjectBuilder {
        self.add(StandardSection::Text, SymbolKind::Text, name, bytes, 16)
    }

    /// Adds a variable, or a constant, whose address is a multiple of `align`.
    pub fn data(
        &mut self,
        name: &str,
        bytes: &[u8],
        align: u64,
        constant: bool,
    ) -> &mut ObjectBuilder {
        let section = match constant {
            // Addresses in it are written before it is closed for writing.
            true => StandardSection::ReadOnlyDataWithRel,
            false => StandardSection::Data,
        };
        self.add(section, SymbolKind::Data, name, bytes, align)
    }

    fn add(
        &mut self,
        section: StandardSection,
        kind: SymbolKind,
        name: &str,
        bytes: &[u8],
        align: u64,
    ) -> &mut ObjectBuilder {
        let id = self.object.section_id(section);
        let at = self.object.append_section_data(id, bytes, align);
        let place = SymbolSection::Section(id);
        let symbol = self.symbol(name, place, at, bytes.len() as u64, kind);
        self.symbols.insert(name.to_owned(), symbol);
        self.last = Some((section, at));
        self
    }

    fn symbol(
        &mut self,
        name: &str,
        section: SymbolSection,
        value: u64,
        size: u64,
        kind: SymbolKind,
    ) -> SymbolId {
        self.object.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value,
            size,
            kind,
            scope: SymbolScope::Dynamic,
            weak: false,
            section,
            flags: SymbolFlags::None,
        })
    }

    /// Notes that the bytes at `offset` of the last addition refer to a symbol: of this object, or
    /// of any other definition found by that name.
    pub fn refer(&mut self, offset: u64, how: Reference, name: &str) -> &mut ObjectBuilder {
        if let Some((section, start)) = self.last {
            let reference = (section, start + offset, how, name.to_owned());
            self.references.push(reference);
        }
        self
    }

    /// Finishes the object.
    ///
    /// # Errors
    /// A reference lies behind the bytes it is in.
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        let fail = |message: String| Error::Layer {
            layer: "code",
            file: String::from("an object"),
            message,
        };
        for (section, offset, how, name) in std::mem::take(&mut self.references) {
            let symbol = match self.symbols.get(&name) {
                Some(symbol) => *symbol,
                None => {
                    let outside = SymbolSection::Undefined;
                    let symbol = self.symbol(&name, outside, 0, 0, SymbolKind::Unknown);
                    self.symbols.insert(name, symbol);
                    symbol
                }
            };
            let (r_type, addend) = how.relocation();
            let section = self.object.section_id(section);
            let relocation = Relocation {
                offset,
                symbol,
                addend,
                flags: RelocationFlags::Elf { r_type },
            };
            let added = self.object.add_relocation(section, relocation);
            added.map_err(|cause| fail(cause.to_string()))?;
        }
        self.object.write().map_err(|cause| fail(cause.to_string()))
    }
}
