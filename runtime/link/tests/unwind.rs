//! Unwind records in forms that only some compilers write.

mod support;

use object::{SectionKind, elf};
use support::write::Writer;
use support::{CODE, FAR, READ_WRITE, World};
use uruk_link::{FdeRow, LinkError, Linked, Resolved};

/// A CIE and the encoding of addresses in its FDEs.
struct Cie {
    version: u8,
    augmentation: &'static [u8],
    /// The augmentation's data, with its length.
    data: &'static [u8],
    /// Bytes of an address, and the relocation that fills it.
    width: usize,
    relocation: elf::RelocationType,
    /// Offset of the personality in the CIE, if it is a plain relative pointer.
    personality: Option<u64>,
}

fn record(id: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [&id.to_le_bytes(), body].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    [&(bytes.len() as u32).to_le_bytes(), bytes.as_slice()].concat()
}

/// Two functions of 16 and 32 bytes, the later one described first.
fn object(cie: &Cie, unwind_type: bool) -> Vec<u8> {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[0xc3; 48], 16);
    let f = writer.define("f", text, 0, 16);
    let g = writer.define("g", text, 16, 32);
    let personality = writer.external("personality");
    let rest = [
        &[cie.version],
        cie.augmentation,
        &[0, 1, 0x78, 16],
        cie.data,
        &[0x0c, 7, 8],
    ];
    let mut bytes = record(0, &rest.concat());
    let mut fields = Vec::new();
    for (symbol, size) in [(g, 32u64), (f, 16)] {
        let start = bytes.len();
        let mut body = vec![0; cie.width];
        body.extend(&size.to_le_bytes()[..cie.width]);
        if cie.augmentation.starts_with(b"z") {
            body.push(0);
        }
        fields.push((start as u64 + 8, symbol));
        bytes.extend(record(start as u32 + 4, &body));
    }
    let frames = writer.section(".eh_frame", SectionKind::ReadOnlyData, &bytes, 8);
    if unwind_type {
        writer.flags(frames, elf::SHT_X86_64_UNWIND, elf::SHF_ALLOC);
    }
    if let Some(at) = cie.personality {
        writer.relocate(frames, at, elf::R_X86_64_PC32, personality, 0);
    }
    for (at, symbol) in fields {
        writer.relocate(frames, at, cie.relocation, symbol, 0);
    }
    writer.finish()
}

fn ranges(linked: &Linked) -> Vec<(u64, u64)> {
    linked
        .fdes
        .iter()
        .map(|FdeRow { start, end, .. }| (start - CODE, end - CODE))
        .collect()
}

#[test]
fn all_versions_and_encodings_give_rows() {
    let shapes = [
        (1, &b""[..], &[][..], 8, elf::R_X86_64_64),
        (3, b"", &[], 8, elf::R_X86_64_64),
        (1, b"zR", &[1, 0x1b], 4, elf::R_X86_64_PC32),
        (3, b"zR", &[1, 0x1b], 4, elf::R_X86_64_PC32),
        (1, b"zR", &[1, 0x1c], 8, elf::R_X86_64_PC64),
        (1, b"zRS", &[1, 0x1b], 4, elf::R_X86_64_PC32),
        (1, b"zSBR", &[1, 0x1b], 4, elf::R_X86_64_PC32),
        (1, b"zLR", &[2, 0xff, 0x1b], 4, elf::R_X86_64_PC32),
        (1, b"z", &[0], 8, elf::R_X86_64_64),
    ];
    for (version, augmentation, data, width, relocation) in shapes {
        let cie = Cie {
            version,
            augmentation,
            data,
            width,
            relocation,
            personality: None,
        };
        for unwind_type in [false, true] {
            let bytes = object(&cie, unwind_type);
            // The oracle's reader knows neither `B` nor an omitted exception table.
            let world = World::default();
            let known = !augmentation.iter().any(|letter| b"BL".contains(letter));
            let image = if known {
                world.link(&[&bytes])
            } else {
                world.link_only(&[&bytes])
            };
            let image = image.expect("links");
            let label = String::from_utf8_lossy(augmentation);
            assert_eq!(
                ranges(&image.linked),
                [(0, 16), (16, 48)],
                "{version} {label}"
            );
        }
    }
}

#[test]
fn a_plain_relative_personality_out_of_reach_is_its_plt_entry() {
    let cie = Cie {
        version: 1,
        augmentation: b"zPR",
        data: &[6, 0x1b, 0, 0, 0, 0, 0x1b],
        width: 4,
        relocation: elf::R_X86_64_PC32,
        personality: Some(18),
    };
    let world = World::default().external("personality", Resolved::at(FAR));
    let image = world.link_only(&[&object(&cie, false)]).expect("links");
    let linked = &image.linked;
    let table = linked.eh_frame.expect("a table").address;
    let stored = i32::from_le_bytes(
        image
            .bytes(table + 18, 4)
            .expect("there")
            .try_into()
            .expect("4"),
    );
    let entry = (table + 18).wrapping_add_signed(i64::from(stored));
    assert_eq!(entry, CODE + 48, "right behind the text");
    assert_eq!(image.bytes(entry, 2), Some(&[0xff, 0x25][..]));
    assert_eq!(image.word(READ_WRITE), Some(FAR));
}

#[test]
fn unsound_records_are_refused() {
    let good = |version, augmentation, data| Cie {
        version,
        augmentation,
        data,
        width: 4,
        relocation: elf::R_X86_64_PC32,
        personality: None,
    };
    for (cie, wanted) in [
        (good(2, b"zR", &[1, 0x1b]), "unknown version of the CIE"),
        (good(1, b"eh", &[]), "unknown augmentation"),
        (good(1, b"zQR", &[1, 0x1b]), "unknown augmentation"),
        (
            good(1, b"zR", &[1, 0x3b]),
            "start of the function has an unknown encoding",
        ),
        (
            good(1, b"zPR", &[2, 0xff, 0x1b]),
            "personality has an unknown encoding",
        ),
    ] {
        let error = World::default().error(&[&object(&cie, false)]);
        let LinkError::Unwind { what, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(what, wanted);
    }
}

#[test]
fn records_of_dropped_functions_go_with_them() {
    let mut writer = Writer::new();
    let kept = writer.section(".text.kept", SectionKind::Text, &[0xc3; 16], 16);
    let dead = writer.section(".text.dead", SectionKind::Text, &[0xc3; 16], 16);
    let kept = writer.define("kept", kept, 0, 16);
    let dead = writer.define("dead", dead, 0, 16);
    let mut bytes = record(0, &[1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8]);
    let mut fields = Vec::new();
    for symbol in [dead, kept] {
        let start = bytes.len() as u64;
        fields.push((start + 8, symbol));
        bytes.extend(record(start as u32 + 4, &[0, 0, 0, 0, 16, 0, 0, 0, 0]));
    }
    let frames = writer.section(".eh_frame", SectionKind::ReadOnlyData, &bytes, 8);
    for (at, symbol) in fields {
        writer.relocate(frames, at, elf::R_X86_64_PC32, symbol, 0);
    }
    let bytes = writer.finish();
    let all = World::default().link(&[&bytes]).expect("links").linked;
    let world = World {
        prune: Some(vec!["kept"]),
        ..World::default()
    };
    let pruned = world.link(&[&bytes]).expect("links").linked;
    assert_eq!((all.fdes.len(), pruned.fdes.len()), (2, 1));
    assert!(pruned.read_only.len() < all.read_only.len());
    assert_eq!(ranges(&pruned), [(0, 16)]);
}
