//! Code from memory is linked like the same code from a file: to the same bytes, rows and moves.

mod support;

use object::elf::{self, RelocationType};
use object::{SectionKind, SymbolKind};
use support::write::Writer;
use support::{FAR, NEAR, World, moves, oracle};
use uruk_base::{SlotAddress, StubAddress};
use uruk_link::{Assembly, Form, Immovable, LinkError, Linked, Part, Problem, Resolved, Target};

/// 8 instructions with a field each, two of which have 4 bytes behind the field or a prefix.
const CODE: [u8; 88] = {
    let mut code = [0x90; 88];
    let instructions: [(usize, &[u8]); 8] = [
        (0, &[0xff, 0x15]),                    // call *word(%rip)
        (6, &[0x48, 0x8b, 0x05]),              // mov word(%rip), %rax
        (13, &[0x8b, 0x0d]),                   // mov data(%rip), %ecx
        (19, &[0x48, 0x83, 0x3d]),             // cmp $0, word(%rip)
        (27, &[0x66, 0x48, 0x8d, 0x3d]),       // data16 lea pair(%rip), %rdi
        (35, &[0x66, 0x66, 0x48, 0xff, 0x15]), // call *__tls_get_addr(%rip), padded
        (44, &[0xff, 0x25]),                   // jmp *word(%rip)
        (50, &[0xff, 0x15]),                   // call *weak(%rip)
    ];
    let mut at = 0;
    while at < instructions.len() {
        let (start, bytes) = instructions[at];
        let mut byte = 0;
        while byte < bytes.len() {
            code[start + byte] = bytes[byte];
            byte += 1;
        }
        at += 1;
    }
    code
};
const SIZE: u64 = 56;

/// Offset, form, the relocation's type, number of the target in [`EXTERNALS`], and `A`.
const FIELDS: [(u64, Form, RelocationType, usize, i64); 9] = [
    (2, Form::CallWord, elf::R_X86_64_GOTPCRELX, 0, -4),
    (9, Form::LoadWord, elf::R_X86_64_REX_GOTPCRELX, 0, -4),
    (15, Form::Distance, elf::R_X86_64_PC32, 1, 4),
    (22, Form::Word, elf::R_X86_64_GOTPCREL, 1, -5),
    (31, Form::ThreadLocalWords, elf::R_X86_64_TLSGD, 2, -4),
    (40, Form::CallWord, elf::R_X86_64_GOTPCRELX, 3, -4),
    (46, Form::CallWord, elf::R_X86_64_GOTPCRELX, 4, -4),
    (52, Form::CallWord, elf::R_X86_64_GOTPCRELX, 5, -4),
    (64, Form::Absolute, elf::R_X86_64_64, 1, 16),
];
const EXTERNALS: [&str; 6] = [
    "function",
    "data",
    "variable",
    "__tls_get_addr",
    "far",
    "weak",
];
const PERSONALITY: &str = "personality";
const TYPE: &str = "type";

/// The table of handlers has one word for a type here.
const HANDLERS: [u8; 16] = [0xff, 0x9b, 12, 1, 4, 0, 6, 50, 1, 1, 0, 0, 0, 0, 0, 0];
const TYPE_AT: u64 = 12;

fn record(id: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [&id.to_le_bytes(), body].concat();
    bytes.resize(bytes.len().next_multiple_of(8) + 4, 0);
    [&(bytes.len() as u32).to_le_bytes(), bytes.as_slice()].concat()
}

/// The records, and the places of personality, function and handlers.
fn records() -> (Vec<u8>, [u64; 3]) {
    let cie = [
        &[1][..],
        b"zPLR\0",
        &[1, 0x78, 16, 7, 0x9b],
        &[0; 4],
        &[0x1b, 0x1b, 0x0c, 7, 8],
    ];
    let mut bytes = record(0, &cie.concat());
    let start = bytes.len();
    let fde = [&[0; 4][..], &(SIZE as u32).to_le_bytes(), &[4], &[0; 4]];
    bytes.extend(record(start as u32 + 4, &fde.concat()));
    let start = start as u64;
    (bytes, [8 + 1 + 5 + 5, start + 8, start + 17])
}

/// The code as a file.
fn file() -> Vec<u8> {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &CODE, 32);
    let function = writer.define("f", text, 0, SIZE);
    writer.object.symbol_mut(function).kind = SymbolKind::Text;
    let table = writer.section(".gcc_except_table", SectionKind::ReadOnlyData, &HANDLERS, 4);
    let start = writer.local("table", table, 0);
    let externals = EXTERNALS.map(|name| match name {
        "weak" => writer.weak_external(name),
        name => writer.external(name),
    });
    let of_type = writer.external(TYPE);
    let personality = writer.external(PERSONALITY);
    for (at, _, kind, to, addend) in FIELDS {
        writer.relocate(text, at, kind, externals[to], addend);
    }
    writer.relocate(table, TYPE_AT, elf::R_X86_64_GOTPCREL, of_type, 0);
    let (bytes, [of_personality, of_function, of_table]) = records();
    let frames = writer.section(".eh_frame", SectionKind::ReadOnlyData, &bytes, 8);
    writer.relocate(
        frames,
        of_personality,
        elf::R_X86_64_GOTPCREL,
        personality,
        0,
    );
    writer.relocate(frames, of_function, elf::R_X86_64_PC32, function, 0);
    writer.relocate(frames, of_table, elf::R_X86_64_PC32, start, 0);
    writer.finish()
}

/// The code from memory, linked.
fn assembled(world: &World) -> Result<Linked, LinkError> {
    let (records, [personality, function, table]) = records();
    let assembly = Assembly::new("memory", "f", &CODE, SIZE, 32)?;
    let mut assembly = assembly.with_unwind(&records).with_handlers(&HANDLERS);
    assembly.reserve(EXTERNALS.len() + 2, FIELDS.len());
    let externals = EXTERNALS.map(|name| assembly.external(name, name == "weak"));
    for (at, form, _, to, addend) in FIELDS {
        assembly.fill(Part::Code, at, form, externals[to], addend);
    }
    let of_type = assembly.external(TYPE, false);
    assembly.fill(Part::Handlers, TYPE_AT, Form::Word, of_type, 0);
    let routine = assembly.external(PERSONALITY, false);
    assembly.fill(Part::Unwind, personality, Form::Word, routine, 0);
    assembly.fill(Part::Unwind, function, Form::Distance, Target::FUNCTION, 0);
    assembly.fill(Part::Unwind, table, Form::Distance, Target::HANDLERS, 0);
    let mut linked = world.link_objects(vec![assembly.object()])?.linked;
    linked.map.clear();
    Ok(linked)
}

fn world(merge: bool) -> World {
    let mut world = World::default();
    world.options.merge_read_only = merge;
    let (stub, slot) = (StubAddress(NEAR), SlotAddress(NEAR + 0x800));
    world
        .external("function", Resolved::stub(stub, slot))
        .external("data", Resolved::at(NEAR + 0x100))
        .external("variable", Resolved::thread_local(2, 0x30))
        .external("__tls_get_addr", Resolved::at(FAR + 0x10))
        .external("far", Resolved::at(FAR))
        .external(TYPE, Resolved::at(FAR + 0x20))
        .external(PERSONALITY, Resolved::at(FAR + 0x30))
}

#[test]
fn it_is_what_a_file_comes_to() {
    let file = file();
    for merge in [false, true] {
        let world = world(merge);
        let image = world.link_only(&[&file]).expect("the file links");
        oracle::check(&image, &[&file]);
        let linked = assembled(&world).expect("the assembly links");
        let mut of_file = image.linked;
        // Numbers of sections are those of the file.
        of_file.map.clear();
        assert_eq!(linked, of_file);
        assert_eq!(linked.fdes.len(), 1);
        assert_eq!(linked.fdes[0].end - linked.fdes[0].start, SIZE);
        assert!(!merge || linked.immovable.is_none(), "{linked:?}");
        // The PLT is code, too. Constants and records follow where they are merged.
        assert!(linked.text_size >= CODE.len());
        assert_eq!(linked.code.len() > linked.text_size, merge);
    }
    assert_eq!(moves::check(&world(true), &[&file]), None::<Immovable>);
}

#[test]
fn a_function_without_fields_or_records_is_placed() {
    let assembly = Assembly::new("memory", "f", &[0xc3], 1, 16).expect("it is sound");
    let image = world(true).link_objects(vec![assembly.object()]);
    let image = image.expect("it links");
    assert_eq!(image.linked.code, [0xc3]);
    assert_eq!(image.definitions["f"], support::CODE);
}

#[test]
fn what_is_wrong_is_an_error() {
    let code = [0xc3; 8];
    assert!(Assembly::new("memory", "f", &code, 8, 3).is_err());
    assert!(Assembly::new("memory", "f", &code, 9, 16).is_err());
    let mut assembly = Assembly::new("memory", "f", &code, 8, 16).expect("it is sound");
    let missing = assembly.external("missing", false);
    assembly.fill(Part::Code, 6, Form::Distance, missing, -4);
    match world(true).link_objects(vec![assembly.object()]) {
        Err(LinkError::Relocation { problem, .. }) => assert_eq!(problem, Problem::OutsideSection),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a field of 4 bytes has 2"),
    }
    let mut assembly = Assembly::new("memory", "f", &code, 8, 16).expect("it is sound");
    let missing = assembly.external("missing", false);
    assembly.fill(Part::Code, 2, Form::Distance, missing, -4);
    let linked = world(true).link_objects(vec![assembly.object()]);
    assert!(matches!(linked, Err(LinkError::Missing(_))));
}
