//! An object file with one function, made without a compiler.

use object::write::{Object, StandardSection, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope};

/// An object file that defines the function `name`, which returns `value`.
pub fn object(name: &str, value: u8) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let text = object.section_id(StandardSection::Text);
    let code = [0xb8, value, 0, 0, 0, 0xc3];
    let value = object.append_section_data(text, &code, 16);
    object.add_symbol(Symbol {
        name: name.into(),
        value,
        size: code.len() as u64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(text),
        flags: SymbolFlags::None,
    });
    object.write().expect("an object")
}
