//! Every relocation type on its own: in range, at the edge, and out of range.

mod support;

use object::{SectionKind, elf};
use support::write::Writer;
use support::{CODE, FAR, Image, MODULE, NEAR, READ_WRITE, STATIC_OFFSET, World};
use uruk_base::{SlotAddress, StubAddress};
use uruk_link::{LinkError, Problem, Resolved};

/// An object with one field in data, against the external `target`.
fn in_data(kind: elf::RelocationType, addend: i64) -> Vec<u8> {
    let mut writer = Writer::new();
    let data = writer.section(".data", SectionKind::Data, &[0xaa; 32], 8);
    let target = writer.external("target");
    writer.define("here", data, 8, 8);
    writer.relocate(data, 8, kind, target, addend);
    writer.finish()
}

/// An object whose code is `before`, a 4-byte field and `after`.
fn in_code(before: &[u8], after: &[u8], kind: elf::RelocationType, addend: i64) -> Vec<u8> {
    let mut writer = Writer::new();
    let code = [before, &[0; 4], after, &[0xc3]].concat();
    let text = writer.section(".text", SectionKind::Text, &code, 16);
    let target = writer.external("target");
    writer.relocate(text, before.len() as u64, kind, target, addend);
    writer.finish()
}

fn world(target: u64) -> World {
    World::default().external("target", Resolved::at(target))
}

fn field(image: &Image, width: usize) -> u64 {
    let bytes = image
        .bytes(image.address("here"), width)
        .expect("in the image");
    let mut word = [0; 8];
    word[..width].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn problem(error: LinkError) -> Problem {
    match error {
        LinkError::Relocation { site, problem } => {
            assert_eq!((&*site.object, &*site.symbol), ("0.o", "target"));
            problem
        }
        other => panic!("{other}"),
    }
}

#[test]
fn absolute_fields_take_their_range_and_no_more() {
    let cases: [(elf::RelocationType, usize, &[u64], &[u64]); 5] = [
        (
            elf::R_X86_64_8,
            1,
            &[0, 255, (-128i64) as u64],
            &[256, (-129i64) as u64],
        ),
        (
            elf::R_X86_64_16,
            2,
            &[0, 0xffff, (-0x8000i64) as u64],
            &[0x1_0000, FAR],
        ),
        (elf::R_X86_64_32, 4, &[0, 0xffff_ffff], &[1 << 32, u64::MAX]),
        (
            elf::R_X86_64_32S,
            4,
            &[0x7fff_ffff, u64::MAX << 31],
            &[1 << 31, (u64::MAX << 31) - 1],
        ),
        (elf::R_X86_64_64, 8, &[0, FAR, u64::MAX], &[]),
    ];
    for (kind, width, good, bad) in cases {
        let bytes = in_data(kind, 0);
        for &value in good {
            let image = world(value).link(&[&bytes]).expect("in range");
            assert_eq!(field(&image, width), value & (u64::MAX >> (64 - 8 * width)));
            let around = image.bytes(image.address("here") + width as u64, 1);
            assert_eq!(around, Some(&[0xaa][..]), "beyond the field");
        }
        for &value in bad {
            let bits = 8 * width as u32;
            let wanted = Problem::OutOfRange {
                value: value as i64,
                bits,
            };
            assert_eq!(problem(world(value).error(&[&bytes])), wanted);
        }
    }
}

#[test]
fn relative_fields_take_their_range_and_no_more() {
    // Without entries of the PLT, which move the data.
    let world = |target| World {
        hint: uruk_link::Hint::Near,
        ..world(target)
    };
    let here = READ_WRITE + 8;
    for (kind, bits) in [
        (elf::R_X86_64_PC8, 8u32),
        (elf::R_X86_64_PC16, 16),
        (elf::R_X86_64_PC32, 32),
        (elf::R_X86_64_PC64, 64),
    ] {
        let bytes = in_data(kind, 3);
        let half = 1i64 << (bits - 1).min(40);
        for distance in [-half, 0, half - 1] {
            let target = here.wrapping_add(distance as u64).wrapping_sub(3);
            world(target).link(&[&bytes]).expect("in range");
        }
        for distance in [-half - 1, half] {
            let target = here.wrapping_add(distance as u64).wrapping_sub(3);
            let value = distance;
            if bits < 64 {
                let wanted = Problem::OutOfRange { value, bits };
                assert_eq!(problem(world(target).error(&[&bytes])), wanted);
            }
        }
    }
}

#[test]
fn an_error_names_the_whole_site() {
    let bytes = in_data(elf::R_X86_64_PC32, 0);
    let error = world(FAR).error(&[&bytes]).to_string();
    let near = world(READ_WRITE).link(&[&bytes]).expect("in range");
    let distance = FAR - near.address("here");
    assert_eq!(
        error,
        format!(
            "0.o: .data+0x8: R_X86_64_PC32 against `target`: \
             value {distance:#x} ({distance}) does not fit into 32 bits"
        )
    );
}

#[test]
fn branches_go_direct_or_through_the_plt() {
    let call = in_code(&[0xe8], &[], elf::R_X86_64_PLT32, -4);
    let jump = in_code(&[0xe9], &[], elf::R_X86_64_PC32, -4);
    let condition = in_code(&[0x0f, 0x85], &[], elf::R_X86_64_PC32, -4);
    for bytes in [call, jump, condition] {
        let near = world(NEAR).link(&[&bytes]).expect("near");
        let far = world(FAR).link(&[&bytes]).expect("far, through the PLT");
        assert_eq!(
            near.linked.code.len(),
            far.linked.code.len(),
            "planned for both"
        );
        let mut hinted = world(NEAR);
        hinted.hint = uruk_link::Hint::Near;
        let small = hinted.link(&[&bytes]).expect("near, as promised");
        assert!(small.linked.code.len() < near.linked.code.len());
        assert_eq!(small.linked.read_write.len(), 0);
        hinted.externals.insert("target".into(), Resolved::at(FAR));
        let broken = problem(hinted.error(&[&bytes]));
        assert!(
            matches!(broken, Problem::OutOfRange { bits: 32, .. }),
            "{broken}"
        );
    }
    // Data out of reach cannot use an entry.
    let load = in_code(&[0x8b, 0x05], &[], elf::R_X86_64_PC32, -4);
    let broken = problem(world(FAR).error(&[&load]));
    assert!(
        matches!(broken, Problem::OutOfRange { bits: 32, .. }),
        "{broken}"
    );
    // An offset table of functions may use PLT entries.
    let table = in_data(elf::R_X86_64_PLT32, 0);
    world(FAR).link(&[&table]).expect("through the PLT");
}

/// The rewritten instruction, without addresses.
fn rewritten(image: &Image) -> String {
    let mut decoder = iced_x86::Decoder::with_ip(64, &image.linked.code, CODE, 0);
    let instruction = decoder.decode();
    format!("{:?} {:?}", instruction.code(), instruction.op0_register())
}

/// Bytes before and after the field, type, and the instruction with a near and a far target.
type Relaxable = (
    &'static [u8],
    &'static [u8],
    elf::RelocationType,
    &'static str,
    &'static str,
);

#[test]
fn relaxable_accesses_do_without_the_word_where_they_can() {
    let kinds = [elf::R_X86_64_GOTPCRELX, elf::R_X86_64_REX_GOTPCRELX];
    let code4 = elf::R_X86_64_CODE_4_GOTPCRELX;
    let cases: &[Relaxable] = &[
        (
            &[0xff, 0x15],
            &[],
            kinds[0],
            "Call_rm64 None",
            "Call_rm64 None",
        ),
        (
            &[0xff, 0x25],
            &[],
            kinds[0],
            "Jmp_rm64 None",
            "Jmp_rm64 None",
        ),
        (
            &[0x48, 0x8b, 0x05],
            &[],
            kinds[1],
            "Lea_r64_m RAX",
            "Mov_r64_rm64 RAX",
        ),
        (
            &[0x4c, 0x8b, 0x3d],
            &[],
            kinds[1],
            "Lea_r64_m R15",
            "Mov_r64_rm64 R15",
        ),
        (
            &[0x8b, 0x0d],
            &[],
            kinds[0],
            "Lea_r32_m ECX",
            "Mov_r32_rm32 ECX",
        ),
        (
            &[0x48, 0x3b, 0x05],
            &[],
            kinds[1],
            "Cmp_r64_rm64 RAX",
            "Cmp_r64_rm64 RAX",
        ),
        (
            &[0x48, 0x85, 0x05],
            &[],
            kinds[1],
            "Test_rm64_r64 None",
            "Test_rm64_r64 None",
        ),
        (
            &[0x48, 0x03, 0x1d],
            &[],
            kinds[1],
            "Add_r64_rm64 RBX",
            "Add_r64_rm64 RBX",
        ),
        (
            &[0xff, 0x35],
            &[],
            kinds[0],
            "Push_rm64 None",
            "Push_rm64 None",
        ),
    ];
    for &(before, after, kind, near, far) in cases {
        let bytes = in_code(before, after, kind, -4);
        let image = world(NEAR).link(&[&bytes]).expect("near");
        assert_eq!(rewritten(&image), near);
        let image = world(FAR).link(&[&bytes]).expect("far");
        assert_eq!(rewritten(&image), far);
        let slot = NEAR + 0x40;
        let stub = World::default().external(
            "target",
            Resolved::stub(StubAddress(NEAR), SlotAddress(slot)),
        );
        stub.link(&[&bytes]).expect("with a slot");
        let absent = World::default().link(&[&weak_version(before, after, kind)]);
        absent.expect("a weak one that is absent is null");
        // Near by promise: no word at all, so calls become direct.
        let mut hinted = world(NEAR);
        hinted.hint = uruk_link::Hint::Near;
        let image = hinted.link(&[&bytes]).expect("near, as promised");
        let direct = match before {
            [0xff, 0x15] => "Call_rel32_64 None",
            [0xff, 0x25] => "Jmp_rel32_64 None",
            _ => near,
        };
        assert_eq!(rewritten(&image), direct);
    }
    // REX2 with and without high registers; iced-x86 does not know REX2.
    for (payload, opcode) in [(0x48u8, 0x8b), (0x08, 0x8b)] {
        let bytes = in_code(&[0xd5, payload, opcode, 0x05], &[], code4, -4);
        let near = world(NEAR).link_only(&[&bytes]).expect("near").linked;
        assert_eq!(near.code[..4], [0xd5, payload, 0x8d, 0x05]);
        assert_eq!(near.code[4..8], ((NEAR - CODE - 8) as u32).to_le_bytes());
        let far = world(FAR).link_only(&[&bytes]).expect("far").linked;
        assert_eq!(far.code[..4], [0xd5, payload, 0x8b, 0x05]);
        assert_eq!(far.read_write[..8], FAR.to_le_bytes());
    }
}

fn weak_version(before: &[u8], after: &[u8], kind: elf::RelocationType) -> Vec<u8> {
    let mut writer = Writer::new();
    let code = [before, &[0; 4], after, &[0xc3]].concat();
    let text = writer.section(".text", SectionKind::Text, &code, 16);
    let target = writer.weak_external("target");
    writer.relocate(text, before.len() as u64, kind, target, -4);
    writer.finish()
}

#[test]
fn calls_of_own_definitions_become_direct() {
    for (before, wanted) in [
        (&[0xff, 0x15][..], &[0x67, 0xe8][..]),
        (&[0xff, 0x25], &[0xe9]),
        (&[0x66, 0x48, 0xff, 0x15], &[0x66, 0x66, 0x48, 0xe8]),
    ] {
        let mut writer = Writer::new();
        let code = [before, &[0; 4], &[0xc3]].concat();
        let text = writer.section(".text", SectionKind::Text, &code, 16);
        let target = writer.define("__tls_get_addr", text, before.len() as u64 + 4, 1);
        writer.relocate(
            text,
            before.len() as u64,
            elf::R_X86_64_GOTPCRELX,
            target,
            -4,
        );
        let image = World::default().link(&[&writer.finish()]).expect("links");
        assert!(
            image.linked.code.starts_with(wanted),
            "{:x?}",
            image.linked.code
        );
        assert_eq!(image.linked.read_write.len(), 0, "no word is planned");
    }
}

#[test]
fn words_of_the_got_hold_addresses() {
    for kind in [elf::R_X86_64_GOTPCREL, elf::R_X86_64_GOTPCREL64] {
        world(FAR)
            .link(&[&in_data(kind, 0)])
            .expect("through the word");
    }
    let from_got = [
        elf::R_X86_64_GOT32,
        elf::R_X86_64_GOT64,
        elf::R_X86_64_GOTPLT64,
        elf::R_X86_64_GOTOFF64,
        elf::R_X86_64_PLTOFF64,
    ];
    for kind in from_got {
        for tell in [elf::R_X86_64_GOTPC32, elf::R_X86_64_GOTPC64] {
            let mut writer = Writer::new();
            let data = writer.section(".data", SectionKind::Data, &[0; 32], 8);
            let target = writer.external("target");
            let got = writer.external("_GLOBAL_OFFSET_TABLE_");
            writer.relocate(data, 0, tell, got, 0);
            writer.relocate(data, 8, kind, target, 0);
            let bytes = writer.finish();
            world(FAR).link(&[&bytes]).expect("links");
            let mut merged = world(FAR);
            merged.options.merge_read_only = true;
            let image = merged.link(&[&bytes]).expect("links");
            assert_eq!(
                image.linked.read_write.len(),
                32,
                "the GOT is in the code segment"
            );
        }
    }
    // An addend on a GOT access selects another word of the table.
    let mut writer = Writer::new();
    let data = writer.section(".data", SectionKind::Data, &[0; 8], 8);
    let target = writer.external("target");
    writer.relocate(data, 0, elf::R_X86_64_GOTPCREL, target, 0x10);
    world(FAR).link(&[&writer.finish()]).expect("links");
}

#[test]
fn sizes_are_those_of_the_symbol() {
    for (kind, width) in [(elf::R_X86_64_SIZE32, 4), (elf::R_X86_64_SIZE64, 8)] {
        let mut writer = Writer::new();
        let data = writer.section(".data", SectionKind::Data, &[0; 32], 8);
        let here = writer.define("here", data, 8, 24);
        writer.relocate(data, 8, kind, here, 2);
        let image = World::default().link(&[&writer.finish()]).expect("links");
        assert_eq!(field(&image, width), 26);
    }
}

#[test]
fn thread_local_fields() {
    let cases = [
        (elf::R_X86_64_DTPMOD64, 8, MODULE),
        (elf::R_X86_64_DTPOFF64, 8, 4 + 1),
        (elf::R_X86_64_DTPOFF32, 4, 4 + 1),
        (elf::R_X86_64_TPOFF64, 8, (STATIC_OFFSET + 5) as u64),
        (elf::R_X86_64_TPOFF32, 4, (STATIC_OFFSET + 5) as u32 as u64),
    ];
    for (kind, width, wanted) in cases {
        let mut writer = Writer::new();
        let data = writer.section(".data", SectionKind::Data, &[0; 32], 8);
        let template = writer.section(".tdata", SectionKind::Tls, &[1, 2, 3, 4, 5, 6, 7, 8], 4);
        writer.define("here", data, 8, 8);
        let variable = writer.define("variable", template, 4, 4);
        writer.relocate(data, 8, kind, variable, 1);
        let bytes = writer.finish();
        let image = World::default().link(&[&bytes]).expect("links");
        assert_eq!(field(&image, width), wanted);
        let tls = image.linked.tls.expect("a template");
        assert_eq!((tls.image.len(), tls.size, tls.align), (8, 8, 4));
        let mut world = World::default();
        world.at.tls = None;
        let error = world.error(&[&bytes]).to_string();
        assert!(
            error.contains("no place for thread-locals was given"),
            "{error}"
        );
        // The same relocations against a symbol that is not thread-local.
        assert_eq!(problem(not_thread_local(kind)), Problem::NotThreadLocal);
    }
    let mut writer = Writer::new();
    let data = writer.section(".data", SectionKind::Data, &[0; 8], 8);
    let template = writer.section(".tbss", SectionKind::UninitializedTls, &[0; 64], 32);
    let variable = writer.define("target", template, 4, 4);
    writer.relocate(data, 0, elf::R_X86_64_64, variable, 0);
    assert_eq!(
        problem(World::default().error(&[&writer.finish()])),
        Problem::ThreadLocal
    );
}

fn not_thread_local(kind: elf::RelocationType) -> LinkError {
    world(NEAR).error(&[&in_data(kind, 0)])
}

#[test]
fn instructions_that_are_not_what_the_type_says_are_refused() {
    let mut world = World::default();
    let external = Resolved {
        static_tls: Some(-8),
        ..Resolved::thread_local(1, 8)
    };
    world.externals.insert("target".into(), external);
    let lea = in_code(&[0x48, 0x8b, 0x05], &[], elf::R_X86_64_GOTPC32_TLSDESC, -4);
    assert_eq!(problem(world.error(&[&lea])), Problem::WrongInstruction);
    let call = in_code(&[0x90], &[0x90, 0x90], elf::R_X86_64_TLSDESC_CALL, 0);
    assert_eq!(problem(world.error(&[&call])), Problem::WrongInstruction);
    // REX2, with register 16: the high bits move with the register.
    let lea = in_code(
        &[0xd5, 0x48, 0x8d, 0x05],
        &[],
        elf::R_X86_64_CODE_4_GOTPC32_TLSDESC,
        -4,
    );
    let linked = world.link_only(&[&lea]).expect("links").linked;
    assert_eq!(
        linked.code[..8],
        [0xd5, 0x18, 0xc7, 0xc0, 0xf8, 0xff, 0xff, 0xff]
    );
}

#[test]
fn types_without_meaning_are_named() {
    let unknown = |number| problem(world(NEAR).error(&[&in_data(elf::RelocationType(number), 0)]));
    assert_eq!(unknown(52), Problem::UnknownType(52));
    assert_eq!(unknown(0xffff_ffff), Problem::UnknownType(u32::MAX));
    for kind in [
        elf::R_X86_64_COPY,
        elf::R_X86_64_RELATIVE,
        elf::R_X86_64_IRELATIVE,
    ] {
        assert_eq!(unknown(kind.0), Problem::DynamicOnly);
    }
    world(NEAR)
        .link(&[&in_data(elf::R_X86_64_NONE, 0)])
        .expect("nothing to do");
}

#[test]
fn fields_stay_inside_their_section() {
    for (kind, offset) in [
        (elf::R_X86_64_64, 25),
        (elf::R_X86_64_PC32, 29),
        (elf::R_X86_64_8, 32),
        (elf::R_X86_64_64, u64::MAX),
    ] {
        let mut writer = Writer::new();
        let data = writer.section(".data", SectionKind::Data, &[0; 32], 8);
        let target = writer.external("target");
        writer.relocate(data, offset, kind, target, 0);
        assert_eq!(
            problem(world(NEAR).error(&[&writer.finish()])),
            Problem::OutsideSection
        );
    }
}
