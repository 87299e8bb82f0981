//! Preempted definitions: references that are bound outside, and those that stay.

mod support;

use object::elf;
use object::{SectionKind, write::SectionId};
use support::write::Writer;
use support::{CODE, NEAR, READ_WRITE, World};
use uruk_base::{SlotAddress, StubAddress};
use uruk_link::{Graph, Linked, Object, Resolved};

const STUB: u64 = NEAR + 0x100;
const SLOT: u64 = NEAR + 0x900;
const OLD: u64 = NEAR + 0x2000;

/// The result of a link of `bytes` with the names in `yields` preempted, and the addresses of
/// those.
fn link(bytes: &[u8], yields: &[&str]) -> (Linked, Vec<(String, u64)>, Vec<String>) {
    let mut graph = Graph::new(vec![Object::parse("o", bytes).expect("an object")]).expect("sound");
    graph.preempt(|definition| yields.contains(&definition.name));
    let bypassed = graph.bypassed().into_iter().map(str::to_owned).collect();
    let world = World::default();
    let laid = graph.layout(&world.options).expect("fits");
    let placed = laid.place(world.at).expect("aligned");
    for name in yields {
        let mut own = placed.definitions();
        assert!(!own.any(|(d, _)| d.name == *name), "{name} is preempted");
    }
    let places = placed.preempted();
    let places = places.map(|(place, at)| (place.definition.name.to_owned(), at));
    let places = places.collect();
    let linked = placed.fix_up(|name, _| match name {
        "f" => Some(Resolved::stub(StubAddress(STUB), SlotAddress(SLOT))),
        "v" => Some(Resolved::at(OLD)),
        _ => None,
    });
    (linked.expect("links"), places, bypassed)
}

/// `call f; ret`, then `f: ret` in the same section, and a pointer to `f` and to the section.
fn object(call: impl Fn(&mut Writer, SectionId)) -> Vec<u8> {
    let mut writer = Writer::new();
    let code = [0xe8, 0, 0, 0, 0, 0xc3, 0x90, 0x90, 0xc3];
    let text = writer.section(".text", SectionKind::Text, &code, 16);
    writer.define("caller", text, 0, 6);
    call(&mut writer, text);
    writer.finish()
}

fn field(linked: &Linked, at: usize) -> u64 {
    let bytes = linked.code[at..at + 4].try_into().expect("four bytes");
    (CODE + at as u64 + 4).wrapping_add(i32::from_le_bytes(bytes) as u64)
}

#[test]
fn references_by_name_go_outside_and_the_definition_stays() {
    let bytes = object(|writer, text| {
        let f = writer.define("f", text, 8, 1);
        writer.relocate(text, 1, elf::R_X86_64_PLT32, f, -4);
        let data = writer.section(".data", SectionKind::Data, &[0; 16], 8);
        writer.relocate(data, 0, elf::R_X86_64_64, f, 0);
        let v = writer.define("v", data, 8, 8);
        writer.relocate(data, 8, elf::R_X86_64_64, v, 0);
    });
    let (linked, places, bypassed) = link(&bytes, &[]);
    assert_eq!(field(&linked, 1), CODE + 8);
    assert!(places.is_empty() && bypassed.is_empty() && linked.escapes);
    let (linked, places, bypassed) = link(&bytes, &["f", "v"]);
    assert_eq!(field(&linked, 1), STUB);
    let words: Vec<u64> = linked.read_write[linked.read_write.len() - 16..]
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    assert_eq!(words, [STUB, OLD]);
    assert!(bypassed.is_empty());
    assert!(!linked.escapes, "only addresses of others");
    assert_eq!(places[0], (String::from("f"), CODE + 8));
    assert_eq!(places[1].0, "v");
    assert!((READ_WRITE..READ_WRITE + 64).contains(&places[1].1));
}

#[test]
fn tentative_definitions_that_yield_take_no_room() {
    let bytes = object(|writer, text| {
        let v = writer.common("v", 64, 8);
        writer.relocate(text, 1, elf::R_X86_64_PC32, v, -4);
    });
    let (linked, places, _) = link(&bytes, &["v"]);
    assert_eq!(field(&linked, 1), OLD);
    assert!(places.is_empty());
}

#[test]
fn calls_past_the_name_are_found() {
    let calls = |at: i64| {
        object(move |writer, text| {
            let apart = writer.section(".text.f", SectionKind::Text, &[0x90, 0xc3, 0xc3], 1);
            writer.define("f", apart, 1, 1);
            let start = writer.local("start", apart, 0);
            writer.relocate(text, 1, elf::R_X86_64_PLT32, start, at - 4);
        })
    };
    let (linked, places, bypassed) = link(&calls(1), &["f"]);
    assert_eq!(field(&linked, 1), places[0].1);
    assert_eq!(bypassed, ["f"]);
    assert_eq!(
        link(&calls(2), &["f"]).2,
        [""; 0],
        "another function's start"
    );
    assert_eq!(link(&calls(1), &[]).2, [""; 0], "nothing yields");
}

#[test]
fn an_unwind_record_is_about_the_code_here_whatever_its_name_means() {
    // A CIE for 4-byte relative addresses, and a record of one byte of code.
    let mut frames = vec![
        20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b,
    ];
    frames.extend([0x0c, 7, 8, 0, 0, 0, 0]);
    frames.extend([16, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let bytes = object(|writer, text| {
        let f = writer.define("f", text, 8, 1);
        let section = writer.section(".eh_frame", SectionKind::ReadOnlyData, &frames, 8);
        writer.relocate(section, 32, elf::R_X86_64_PC32, f, 0);
    });
    let (linked, ..) = link(&bytes, &["f"]);
    assert_eq!(
        (linked.fdes[0].start, linked.fdes[0].end),
        (CODE + 8, CODE + 9)
    );
}

#[test]
fn an_address_escapes_by_lea_or_as_a_number_and_by_no_operand() {
    let cases: [(&[u8], elf::RelocationType, bool); 4] = [
        (
            &[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3],
            elf::R_X86_64_PC32,
            true,
        ),
        (
            &[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3],
            elf::R_X86_64_PC32,
            false,
        ),
        (
            &[0xf2, 0x0f, 0x58, 0x05, 0, 0, 0, 0, 0xc3],
            elf::R_X86_64_PC32,
            false,
        ),
        (
            &[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3],
            elf::R_X86_64_REX_GOTPCRELX,
            true,
        ),
    ];
    for (code, kind, escapes) in cases {
        let mut writer = Writer::new();
        let text = writer.section(".text", SectionKind::Text, code, 16);
        let constant = writer.section(".rodata", SectionKind::ReadOnlyData, &[7; 8], 8);
        writer.define("f", text, 0, code.len() as u64);
        let local = writer.local("local", constant, 0);
        let at = code.len() as u64 - 5;
        writer.relocate(text, at, kind, local, -4);
        let (linked, ..) = link(&writer.finish(), &["f"]);
        assert_eq!(linked.escapes, escapes, "{code:x?} {kind:?}");
    }
}

#[test]
fn what_is_reached_without_a_word_or_a_whole_address_is_to_be_near() {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[0x90; 64], 16);
    let data = writer.section(".data", SectionKind::Data, &[0; 64], 8);
    let local = writer.section(".tdata", SectionKind::Tls, &[0; 16], 8);
    let [short, word, whole] = ["short", "word", "whole"].map(|name| {
        let at = ["short", "word", "whole"].iter().position(|n| *n == name);
        writer.define(name, data, 8 * at.unwrap_or(0) as u64, 8)
    });
    writer.relocate(text, 4, elf::R_X86_64_PC32, short, -4);
    writer.relocate(text, 12, elf::R_X86_64_REX_GOTPCRELX, short, -4);
    writer.relocate(text, 20, elf::R_X86_64_GOTPCREL, word, -4);
    writer.relocate(data, 40, elf::R_X86_64_64, whole, 0);
    let near = writer.define("near", local, 0, 8);
    let far = writer.define("far", local, 8, 8);
    writer.relocate(text, 28, elf::R_X86_64_TPOFF32, near, 0);
    writer.relocate(text, 36, elf::R_X86_64_TLSGD, far, -4);
    let bytes = writer.finish();
    let graph = Graph::new(vec![Object::parse("o", &bytes).expect("an object")]).expect("sound");
    let mut names: Vec<&str> = graph.reached_near().into_iter().collect();
    names.sort_unstable();
    assert_eq!(names, ["near", "short"]);
}
