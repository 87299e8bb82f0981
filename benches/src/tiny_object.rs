//! The least object a compiler makes of a function that does something.

use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

/// A datum that the object refers to.
pub const DATA: &str = "bench_data";
/// A function that the object calls.
pub const CALLEE: &str = "bench_callee";

/// What a compiler makes of `int NAME(void) { bench_callee(&bench_data, "text");
/// return 0; }`: a call through a slot, an address load, a string constant, an
/// unwind record, and the sections and symbols that nothing refers to.
///
/// # Errors
/// None is expected; what the writer reports.
pub fn tiny_object(name: &str) -> Result<Vec<u8>, object::write::Error> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let code = [
        0x50, // push %rax
        0x48, 0x8b, 0x3d, 0, 0, 0, 0, // mov bench_data@GOTPCREL(%rip), %rdi
        0x48, 0x8d, 0x35, 0, 0, 0, 0, // lea text(%rip), %rsi
        0xff, 0x15, 0, 0, 0, 0, // call *bench_callee@GOTPCREL(%rip)
        0x31, 0xc0, 0x59, 0xc3, // xor %eax, %eax; pop %rcx; ret
    ];
    let mut section = |name: &str, kind, data: &[u8]| {
        let id = object.add_section(Vec::new(), name.into(), kind);
        object.append_section_data(id, data, 8);
        id
    };
    let text = section(".text.f", SectionKind::Text, &code);
    let constant = section(".rodata.str1.1", SectionKind::ReadOnlyString, b"text\0");
    section(".comment", SectionKind::OtherString, b"clang version 22\0");
    section(".note.GNU-stack", SectionKind::Other, b"");
    let frame = section(
        ".eh_frame",
        SectionKind::ReadOnlyData,
        &eh_frame(code.len() as u32),
    );
    let size = code.len() as u64;
    let local = SymbolScope::Compilation;
    let constant = symbol(&mut object, ".L.str", Some(constant), 5, local);
    let start = symbol(&mut object, "f.start", Some(text), 0, local);
    symbol(&mut object, name, Some(text), size, SymbolScope::Dynamic);
    let data = symbol(&mut object, DATA, None, 0, SymbolScope::Unknown);
    let callee = symbol(&mut object, CALLEE, None, 0, SymbolScope::Unknown);
    for (section, offset, symbol, kind, addend) in [
        (text, 4, data, elf::R_X86_64_REX_GOTPCRELX, -4),
        (text, 11, constant, elf::R_X86_64_PC32, -4),
        (text, 17, callee, elf::R_X86_64_GOTPCRELX, -4),
        (frame, 32, start, elf::R_X86_64_PC32, 0),
    ] {
        let flags = RelocationFlags::Elf { r_type: kind };
        object.add_relocation(
            section,
            Relocation {
                offset,
                symbol,
                addend,
                flags,
            },
        )?;
    }
    object.write()
}

/// An object with nothing but functions, all of the same code, each in a section of its own.
///
/// # Errors
/// None is expected; what the writer reports.
pub fn functions_object(names: &[&str], code: &[u8]) -> Result<Vec<u8>, object::write::Error> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    for name in names {
        let section = format!(".text.{name}").into_bytes();
        let text = object.add_section(Vec::new(), section, SectionKind::Text);
        object.append_section_data(text, code, 16);
        object.add_symbol(Symbol {
            name: (*name).into(),
            value: 0,
            size: code.len() as u64,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
    }
    object.write()
}

/// A CIE, and an FDE of a function that pushes one register and pops it.
fn eh_frame(code_len: u32) -> Vec<u8> {
    let cie = [0x14, 0, 0x0052_7a01, 0x0110_7801, 0x0807_0c1b, 0x0000_0190];
    let fde = [0x14, 0x1c, 0, code_len, 0x100e_4100, 0x0000_0854];
    cie.iter()
        .chain(&fde)
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect()
}

fn symbol(
    object: &mut Object<'_>,
    name: &str,
    section: Option<SectionId>,
    size: u64,
    scope: SymbolScope,
) -> SymbolId {
    object.add_symbol(Symbol {
        name: name.into(),
        value: 0,
        size,
        kind: SymbolKind::Data,
        scope,
        weak: false,
        section: section.map_or(SymbolSection::Undefined, SymbolSection::Section),
        flags: SymbolFlags::None,
    })
}
