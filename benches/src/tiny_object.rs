//! Objects without a compiler: the least one a compiler makes of a function that does
//! something, and some that are called.

use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

/// A datum that the object refers to.
pub const DATA: &str = "bench_data";
/// A function that the object calls.
pub const CALLEE: &str = "bench_callee";

/// The object that a compiler makes of `int NAME(void) { bench_callee(&bench_data, "text"); return
/// 0; }`: a call through a slot, an address load, a string constant, an unwind record, and the
/// sections and symbols that nothing refers to.
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
        &eh_frame(code.len() as u32, 0x0854),
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

/// The name, of one length with all that replace it, and the datum of [`value_object`].
pub const VALUE_NAME: &str = "f0000000";
/// See [`VALUE_NAME`].
pub const VALUE: u32 = 0x1122_3344;

/// The object that a compiler makes of `int datum = VALUE; int f0000000(void) { return datum; }`.
/// Name and datum are to be replaced in the bytes: each occurs once.
///
/// # Errors
/// None is expected; what the writer reports.
pub fn value_object() -> Result<Vec<u8>, object::write::Error> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let code = [
        0x50, // push %rax
        0x8b, 0x05, 0, 0, 0, 0, // mov datum(%rip), %eax
        0x59, 0xc3, // pop %rcx; ret
    ];
    let text = object.add_section(Vec::new(), ".text.f".into(), SectionKind::Text);
    object.append_section_data(text, &code, 16);
    let data = object.add_section(Vec::new(), ".data".into(), SectionKind::Data);
    object.append_section_data(data, &VALUE.to_le_bytes(), 4);
    let frame = object.add_section(Vec::new(), ".eh_frame".into(), SectionKind::ReadOnlyData);
    // Advance 1, offset 16, advance 7, offset 8.
    let records = eh_frame(code.len() as u32, 0x0008_0e47);
    object.append_section_data(frame, &records, 8);
    let local = SymbolScope::Compilation;
    let start = symbol(&mut object, "start", Some(text), 0, local);
    let datum = symbol(&mut object, "datum", Some(data), 4, local);
    let size = code.len() as u64;
    symbol(
        &mut object,
        VALUE_NAME,
        Some(text),
        size,
        SymbolScope::Dynamic,
    );
    for (section, offset, symbol, addend) in [(text, 3, datum, -4), (frame, 32, start, 0)] {
        object.add_relocation(
            section,
            pc_relative(offset, symbol, elf::R_X86_64_PC32, addend),
        )?;
    }
    object.write()
}

/// An object of `count` functions `f0`, `f1` and so on, each in a section of its own:
/// `int fN(int n) { return n == 0 ? 0 : fM(n - 1) + 1; }`, where M is the next, and after the
/// last, in a ring, the first. Otherwise the last returns 0.
///
/// # Errors
/// None is expected; what the writer reports.
pub fn chain_object(count: usize, ring: bool) -> Result<Vec<u8>, object::write::Error> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let calls = [
        0x85, 0xff, 0x74, 0x0c, // test %edi, %edi; je 1f
        0xff, 0xcf, 0x50, // dec %edi; push %rax
        0xe8, 0, 0, 0, 0, // call fM
        0x59, 0xff, 0xc0, 0xc3, // pop %rcx; inc %eax; ret
        0x31, 0xc0, 0xc3, // 1: xor %eax, %eax; ret
    ];
    let mut functions = Vec::with_capacity(count);
    for n in 0..count {
        let last = n + 1 == count && !ring;
        let code = if last { &calls[16..] } else { &calls[..] };
        let section = format!(".text.f{n}").into_bytes();
        let text = object.add_section(Vec::new(), section, SectionKind::Text);
        object.append_section_data(text, code, 16);
        let name = format!("f{n}");
        let (size, scope) = (code.len() as u64, SymbolScope::Dynamic);
        functions.push((text, symbol(&mut object, &name, Some(text), size, scope)));
    }
    let calling = if ring { count } else { count - 1 };
    for n in 0..calling {
        let next = functions[(n + 1) % count].1;
        let call = pc_relative(8, next, elf::R_X86_64_PLT32, -4);
        object.add_relocation(functions[n].0, call)?;
    }
    object.write()
}

fn pc_relative(
    offset: u64,
    symbol: SymbolId,
    kind: elf::RelocationType,
    addend: i64,
) -> Relocation {
    let flags = RelocationFlags::Elf { r_type: kind };
    Relocation {
        offset,
        symbol,
        addend,
        flags,
    }
}

/// A CIE, and an FDE of a function that pushes one register and pops it; `last` holds the
/// last instructions.
fn eh_frame(code_len: u32, last: u32) -> Vec<u8> {
    let cie = [0x14, 0, 0x0052_7a01, 0x0110_7801, 0x0807_0c1b, 0x0000_0190];
    let fde = [0x14, 0x1c, 0, code_len, 0x100e_4100, last];
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
