//! Joining of objects and the layout of an image: objects written by hand, so that these tests run
//! without a compiler.

mod support;

use object::write::Comdat;
use object::{ComdatKind, SectionKind, elf};
use support::write::Writer;
use support::{CODE, FAR, NEAR, READ_ONLY, READ_WRITE, World};
use uruk_link::{
    DEFAULT_PRIORITY, Graph, LayoutOptions, LinkError, Needer, Object, Resolved, Segment,
};

#[test]
fn an_image_looks_like_this() {
    let mut writer = Writer::new();
    let code = [0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];
    let text = writer.section(".text.f", SectionKind::Text, &code, 16);
    let data = writer.section(".data.x", SectionKind::Data, &[1; 12], 4);
    let bss = writer.section(".bss.y", SectionKind::UninitializedData, &[0; 0x3000], 64);
    let constant = writer.section(".rodata.c", SectionKind::ReadOnlyData, &[2; 5], 1);
    let init = writer.section(".init_array.7", SectionKind::Data, &[0; 8], 8);
    writer.flags(init, elf::SHT_INIT_ARRAY, elf::SHF_ALLOC | elf::SHF_WRITE);
    writer.section(".debug_info", SectionKind::Debug, &[0; 100], 1);
    let f = writer.define("f", text, 0, 13);
    let external = writer.external("external");
    let far = writer.external("far");
    writer.define("x", data, 4, 8);
    writer.define("y", bss, 0, 0x3000);
    writer.define("c", constant, 0, 5);
    writer.relocate(text, 3, elf::R_X86_64_REX_GOTPCRELX, external, -4);
    writer.relocate(text, 8, elf::R_X86_64_PLT32, far, -4);
    writer.relocate(init, 0, elf::R_X86_64_64, f, 0);
    let world = World::default()
        .external("external", Resolved::at(NEAR))
        .external("far", Resolved::at(FAR));
    let image = world.link(&[&writer.finish()]).expect("links");
    let wanted = "\
code 24 read-only 16 read-write 28
section 0:1 .text.f 0x700000200000+0xd
section 0:3 .data.x 0x700020000010+0xc
section 0:4 .bss.y 0x700020000040+0x3000
section 0:5 .rodata.c 0x700010000000+0x5
section 0:6 .init_array.7 0x700010000008+0x8
init 7 0x700000200000 of 0
";
    assert_eq!(image.linked.dump(), wanted);
    let code: Vec<String> = image
        .linked
        .code
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    // lea, call of the PLT entry, ret, filler; jmp through the second word, filler.
    let wanted = "48 8d 05 f9 ff df 2f e8 04 00 00 00 c3 cc cc cc ff 25 f2 ff df 1f cc cc";
    assert_eq!(code.join(" "), wanted);
    assert_eq!(image.zero_fill, 0x3024, "the gap and the zeros");
    assert_eq!(image.address("x"), READ_WRITE + 0x14);
}

#[test]
fn an_object_tells_what_it_defines_for_itself() {
    let object = |value: u8| {
        let mut writer = Writer::new();
        let text = writer.section(".text", SectionKind::Text, &[0xc3; 8], 16);
        let data = writer.section(".data", SectionKind::Data, &[value; 8], 8);
        writer.local("code", text, 4);
        writer.local("data", data, 0);
        writer.define(&format!("global{value}"), text, 0, 4);
        writer.finish()
    };
    let (first, second) = (object(1), object(2));
    let objects = [("a.o", &first), ("b.o", &second)];
    let objects = objects.map(|(name, bytes)| Object::parse(name, bytes).expect("sound"));
    let laid = Graph::new(objects.into()).expect("joins");
    let laid = laid.layout(&LayoutOptions::default()).expect("fits");
    let at = uruk_link::Placement {
        code: CODE,
        read_only: READ_ONLY,
        read_write: READ_WRITE,
        tls: None,
    };
    let placed = laid.place(at).expect("aligned");
    let locals = |number| -> Vec<(&str, u64)> {
        let locals = placed.locals(number);
        locals.map(|(local, at)| (local.name, at)).collect()
    };
    assert_eq!(locals(0), [("code", CODE + 4), ("data", READ_WRITE)]);
    assert_eq!(locals(1), [("code", CODE + 20), ("data", READ_WRITE + 8)]);
    assert_eq!(locals(2), []);
}

#[test]
fn merging_leaves_one_allocation() {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[0xe8, 0, 0, 0, 0, 0xc3], 16);
    let constant = writer.section(".rodata", SectionKind::ReadOnlyData, &[0; 16], 8);
    let relro = writer.section(".data.rel.ro", SectionKind::Data, &[0; 8], 8);
    let f = writer.define("f", text, 0, 6);
    let far = writer.external("far");
    writer.define("constant", constant, 0, 16);
    writer.relocate(text, 1, elf::R_X86_64_PLT32, far, -4);
    writer.relocate(relro, 0, elf::R_X86_64_64, f, 0);
    let bytes = writer.finish();
    let mut world = World::default().external("far", Resolved::at(FAR));
    world.options.merge_read_only = true;
    let image = world.link(&[&bytes]).expect("links");
    assert!(image.linked.read_only.is_empty() && image.linked.read_write.is_empty());
    let end = CODE + image.linked.code.len() as u64;
    assert!((CODE..end).contains(&image.address("constant")));
}

#[test]
fn all_missing_symbols_are_listed_with_who_needs_them() {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[0x90; 32], 16);
    let data = writer.section(".data", SectionKind::Data, &[0; 16], 8);
    writer.define("caller", text, 0, 16);
    writer.define("other", text, 16, 16);
    let (one, two) = (writer.external("one"), writer.external("two"));
    let absent = writer.weak_external("absent");
    writer.external("unused");
    writer.relocate(text, 4, elf::R_X86_64_PLT32, one, -4);
    writer.relocate(text, 20, elf::R_X86_64_PLT32, one, -4);
    writer.relocate(data, 0, elf::R_X86_64_64, two, 0);
    writer.relocate(data, 8, elf::R_X86_64_64, absent, 0);
    let bytes = writer.finish();
    let error = World::default().error(&[&bytes]);
    let text = error.to_string();
    let LinkError::Missing(missing) = error else {
        panic!("{text}")
    };
    let needer = |section: &str, inside: Option<&str>| Needer {
        object: "0.o".into(),
        section: section.into(),
        inside: inside.map(Into::into),
    };
    assert_eq!(missing.len(), 2);
    assert_eq!(&*missing[0].symbol, "one");
    let callers = [
        needer(".text", Some("caller")),
        needer(".text", Some("other")),
    ];
    assert_eq!(missing[0].needed_by, callers);
    assert_eq!(missing[1].needed_by, [needer(".data", None)]);
    let wanted = "undefined symbols: `one` (needed by 0.o: caller and 1 more), \
                  `two` (needed by 0.o: .data)";
    assert_eq!(text, wanted);

    let graph = Graph::new(vec![Object::parse("a.o", &bytes).expect("sound")]).expect("joins");
    let undefined: Vec<_> = graph.undefined().map(|u| (u.name, u.weak)).collect();
    assert_eq!(
        undefined,
        [("one", false), ("two", false), ("absent", true)]
    );
}

fn one_function(name: &str, byte: u8, weak: bool) -> Vec<u8> {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[byte; 4], 16);
    if weak {
        writer.weak(name, text, 0, 4);
    } else {
        writer.define(name, text, 0, 4);
    }
    writer.local("local", text, 1);
    let data = writer.section(".data", SectionKind::Data, &[0; 16], 8);
    let target = writer
        .object
        .symbol_id(name.as_bytes())
        .expect("just added");
    let local = writer.object.symbol_id(b"local").expect("just added");
    writer.relocate(data, 0, elf::R_X86_64_64, target, 0);
    writer.relocate(data, 8, elf::R_X86_64_64, local, 0);
    writer.finish()
}

#[test]
fn strong_wins_over_weak_and_the_first_weak_over_others() {
    let at = |files: &[&[u8]]| {
        let image = World::default().link(files).expect("links");
        image.linked.code[(image.address("f") - CODE) as usize]
    };
    let (strong, weak, other) = (
        one_function("f", 1, false),
        one_function("f", 2, true),
        one_function("f", 3, true),
    );
    assert_eq!(at(&[&weak, &strong, &other]), 1);
    assert_eq!(at(&[&weak, &other]), 2);
    assert_eq!(at(&[&other, &weak]), 3);
    let error = World::default().error(&[&strong, &weak, &strong]);
    assert_eq!(error.to_string(), "`f` is defined in 0.o and in 2.o");
}

#[test]
fn common_symbols_merge_and_yield_to_definitions() {
    let common = |size, align| {
        let mut writer = Writer::new();
        let c = writer.common("c", size, align);
        let data = writer.section(".data", SectionKind::Data, &[0; 8], 8);
        writer.relocate(data, 0, elf::R_X86_64_64, c, 0);
        writer.finish()
    };
    let (small, aligned) = (common(100, 4), common(8, 256));
    let image = World::default().link(&[&small, &aligned]).expect("links");
    assert_eq!(image.address("c") % 256, 0);
    assert!(image.zero_fill >= 100);
    let mut writer = Writer::new();
    let data = writer.section(".data", SectionKind::Data, &[7; 8], 8);
    writer.define("c", data, 0, 8);
    let real = writer.finish();
    for files in [[&small, &real], [&real, &small]] {
        let image = World::default()
            .link(&files.map(Vec::as_slice))
            .expect("links");
        assert_eq!(image.word(image.address("c")), Some(0x0707_0707_0707_0707));
    }
    assert!(matches!(
        World::default().error(&[&common(8, 4 << 20)]),
        LinkError::Alignment {
            align: 0x40_0000,
            ..
        }
    ));
}

/// A function and data that refer to it, in the COMDAT group `key`.
fn grouped(key: &str, byte: u8) -> Vec<u8> {
    let mut writer = Writer::new();
    let text = writer.section(".text.g", SectionKind::Text, &[byte; 4], 16);
    let init = writer.section(".init_array", SectionKind::Data, &[0; 8], 8);
    writer.flags(
        init,
        elf::SHT_INIT_ARRAY,
        elf::SHF_ALLOC | elf::SHF_WRITE | elf::SHF_GROUP,
    );
    let symbol = writer.weak(key, text, 0, 4);
    writer.relocate(init, 0, elf::R_X86_64_64, symbol, 0);
    let data = writer.section(".data", SectionKind::Data, &[0; 8], 8);
    writer.relocate(data, 0, elf::R_X86_64_64, symbol, 0);
    writer.object.add_comdat(Comdat {
        kind: ComdatKind::Any,
        symbol,
        sections: vec![text, init],
    });
    writer.finish()
}

#[test]
fn groups_win_and_lose_as_a_whole() {
    let (one, two, other) = (grouped("g", 1), grouped("g", 2), grouped("h", 3));
    let image = World::default().link(&[&one, &two, &other]).expect("links");
    let bytes: Vec<u8> = image
        .linked
        .code
        .iter()
        .copied()
        .filter(|b| *b != 0xcc)
        .collect();
    assert_eq!(bytes, [1, 1, 1, 1, 3, 3, 3, 3]);
    assert_eq!(
        image.linked.init.len(),
        2,
        "the loser's constructor is gone"
    );
    let mut world = World::default().external("g", Resolved::at(NEAR));
    world.discard = vec!["g"];
    let image = world.link(&[&one]).expect("links");
    assert_eq!((image.linked.code.len(), image.linked.init.len()), (0, 0));
    assert_eq!(image.word(READ_WRITE), Some(NEAR));
}

/// Three `nop`, a call whose field is at 4, a `lea` whose field is at 11, `ret`.
const BODY: [u8; 16] = [
    0x90, 0x90, 0x90, 0xe8, 0, 0, 0, 0, 0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3,
];

#[test]
fn pruning_keeps_what_is_reachable() {
    let mut writer = Writer::new();
    let mut function = |name: &str| {
        let id = writer.section(&format!(".text.{name}"), SectionKind::Text, &BODY, 16);
        (id, writer.define(name, id, 0, 16))
    };
    let (main, _) = function("main");
    let (_, used) = function("used");
    let (dead, _) = function("dead");
    let list = writer.section("my_list", SectionKind::Data, &[0; 8], 8);
    let also = writer.section("other_list", SectionKind::Data, &[0; 8], 8);
    let from_list = function_at(&mut writer, "from_list");
    let from_dead = function_at(&mut writer, "from_dead");
    let start = writer.external("__start_my_list");
    writer.relocate(main, 4, elf::R_X86_64_PLT32, used, -4);
    writer.relocate(main, 11, elf::R_X86_64_PC32, start, -4);
    writer.relocate(list, 0, elf::R_X86_64_64, from_list, 0);
    writer.relocate(also, 0, elf::R_X86_64_64, from_dead, 0);
    writer.relocate(dead, 4, elf::R_X86_64_PLT32, from_dead, -4);
    let bytes = writer.finish();
    let mut world = World {
        prune: Some(vec!["main"]),
        ..World::default()
    };
    let names = |world: &World| {
        let image = world.link(&[&bytes]).expect("links");
        image.definitions.into_keys().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&world), "from_list main used");
    world.prune = None;
    assert_eq!(names(&world), "dead from_dead from_list main used");
}

fn function_at(writer: &mut Writer, name: &str) -> object::write::SymbolId {
    let id = writer.section(&format!(".text.{name}"), SectionKind::Text, &BODY, 16);
    writer.define(name, id, 0, 16)
}

#[test]
fn sections_of_one_name_lie_side_by_side() {
    let file = |bytes: &[u8], kind| {
        let mut writer = Writer::new();
        let list = writer.section("list", kind, bytes, 1);
        let data = writer.section(".data", SectionKind::Data, &[0; 16], 8);
        writer.define(if bytes.len() == 3 { "a" } else { "b" }, list, 0, 1);
        let (start, stop) = (
            writer.external("__start_list"),
            writer.external("__stop_list"),
        );
        writer.relocate(data, 0, elf::R_X86_64_64, start, 0);
        writer.relocate(data, 8, elf::R_X86_64_64, stop, 0);
        writer.finish()
    };
    let (one, two) = (
        file(&[1; 3], SectionKind::Data),
        file(&[2; 5], SectionKind::ReadOnlyData),
    );
    let image = World::default().link(&[&one, &two]).expect("links");
    let (start, stop) = (
        image.word(READ_WRITE).expect("a"),
        image.word(READ_WRITE + 8).expect("b"),
    );
    assert_eq!(image.bytes(start, 8), Some(&[1, 1, 1, 2, 2, 2, 2, 2][..]));
    assert_eq!(stop - start, 8);
    let code = file(&[3; 5], SectionKind::Text);
    let error = World::default().error(&[&one, &code]).to_string();
    assert!(
        error.contains("code here, data in another section of the name"),
        "{error}"
    );
}

#[test]
fn alignment_goes_up_to_two_mebibytes() {
    let aligned = |align| {
        let mut writer = Writer::new();
        let data = writer.section(".rodata", SectionKind::ReadOnlyData, &[1; 4], align);
        writer.define("d", data, 0, 4);
        writer.finish()
    };
    let mut world = World::default();
    world.at.read_only = 0x7000_1020_0000;
    world.link(&[&aligned(2 << 20)]).expect("2 MiB is fine");
    world.at.read_only += 0x1000;
    let error = world.error(&[&aligned(2 << 20)]).to_string();
    let wanted = "the read-only segment of 4 bytes cannot be placed at 0x700010201000 \
                  (alignment 2097152)";
    assert_eq!(error, wanted);
    let error = world.error(&[&aligned(4 << 20)]).to_string();
    assert_eq!(
        error,
        "0.o: section `.rodata`: alignment 4194304 is not a power of two up to 2097152"
    );
    world.at.read_only = READ_ONLY;
    world.options.max_size = 3 << 20;
    let mut writer = Writer::new();
    for i in 0..4 {
        writer.section(
            &format!(".rodata.{i}"),
            SectionKind::ReadOnlyData,
            &[1],
            2 << 20,
        );
    }
    let error = world.error(&[&writer.finish()]).to_string();
    assert_eq!(
        error,
        "the read-only segment needs more than the 3145728 bytes allowed"
    );
}

#[test]
fn absolute_symbols_are_numbers() {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[0x48, 0x8b, 5, 0, 0, 0, 0], 1);
    let number = writer.absolute("number", 0x1234);
    writer.relocate(text, 3, elf::R_X86_64_REX_GOTPCRELX, number, -4);
    let image = World::default().link(&[&writer.finish()]).expect("links");
    assert_eq!(
        image.word(READ_WRITE),
        Some(0x1234),
        "through the GOT, never relative"
    );
    assert_eq!(image.address("number"), 0x1234);
}

#[test]
fn own_data_in_a_far_segment_is_reached_through_a_word() {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[0x48, 0x8b, 5, 0, 0, 0, 0], 1);
    let data = writer.section(".rodata", SectionKind::ReadOnlyData, &[0; 8], 8);
    let symbol = writer.define("d", data, 0, 8);
    writer.relocate(text, 3, elf::R_X86_64_REX_GOTPCRELX, symbol, -4);
    let bytes = writer.finish();
    let mut world = World::default();
    world.at.read_only = FAR;
    assert!(
        world
            .error(&[&bytes])
            .to_string()
            .contains("needs a GOT word")
    );
    world.options.segments_near = false;
    let image = world.link(&[&bytes]).expect("links");
    assert_eq!(image.word(READ_WRITE), Some(FAR));
}

#[test]
fn more_sections_than_sixteen_bits_count() {
    let mut writer = Writer::new();
    let mut last = None;
    for i in 0..0xff20u32 {
        let id = writer.section(".data.s", SectionKind::Data, &i.to_le_bytes(), 4);
        last = Some((id, i));
    }
    let (id, i) = last.expect("many");
    let symbol = writer.define("last", id, 0, 4);
    let data = writer.section(".data", SectionKind::Data, &[0; 8], 8);
    writer.relocate(data, 0, elf::R_X86_64_64, symbol, 0);
    let bytes = writer.finish();
    let image = World::default().link_only(&[&bytes]).expect("links");
    assert_eq!(
        image.bytes(image.address("last"), 4),
        Some(&i.to_le_bytes()[..])
    );
}

#[test]
fn old_constructor_sections_are_framed_and_run_backwards() {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[0xc3; 32], 16);
    let f = writer.define("f", text, 0, 8);
    let g = writer.define("g", text, 8, 8);
    let ctors = writer.section(".ctors", SectionKind::Data, &[0xff; 32], 8);
    writer.relocate(ctors, 8, elf::R_X86_64_64, f, 0);
    writer.relocate(ctors, 16, elf::R_X86_64_64, g, 0);
    let dtors = writer.section(".dtors.65435", SectionKind::Data, &[0; 16], 8);
    writer.relocate(dtors, 0, elf::R_X86_64_64, f, 0);
    writer.relocate(dtors, 8, elf::R_X86_64_64, g, 0);
    let linked = World::default()
        .link(&[&writer.finish()])
        .expect("links")
        .linked;
    let list = |list: &[uruk_link::Init]| -> Vec<(u32, u64)> {
        list.iter()
            .map(|init| (init.priority, init.address - CODE))
            .collect()
    };
    assert_eq!(
        list(&linked.init),
        [(DEFAULT_PRIORITY, 8), (DEFAULT_PRIORITY, 0)]
    );
    assert_eq!(list(&linked.fini), [(100, 0), (100, 8)]);
}

#[test]
fn shapes_are_known_before_places() {
    let mut writer = Writer::new();
    writer.section(
        ".bss",
        SectionKind::UninitializedData,
        &[0; 0x10_0000],
        4096,
    );
    writer.section(".tbss", SectionKind::UninitializedTls, &[0; 100], 8);
    writer.section(".tdata", SectionKind::Tls, &[1; 10], 16);
    let bytes = writer.finish();
    let graph = Graph::new(vec![Object::parse("a.o", &bytes).expect("sound")]).expect("joins");
    let laid = graph.layout(&LayoutOptions::default()).expect("lays out");
    let shape = laid.segment(Segment::ReadWrite);
    assert_eq!(
        (shape.size, shape.zero_fill, shape.align),
        (0, 0x10_0000, 4096)
    );
    assert_eq!(laid.segment(Segment::Code).size, 0);
    let tls = laid.tls().expect("thread-locals");
    assert_eq!((tls.size, tls.align, tls.file_size), (116, 16, 10));
}
