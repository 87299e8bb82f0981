//! Code that moves, and code that cannot, with the reason. The comparison of moved bytes with
//! linked ones runs in every test of this package that links ([`support::moves`]).

mod support;

use object::{SectionKind, elf};
use support::write::{SectionId, Writer};
use support::{FAR, NEAR, World, compile};
use uruk_base::{SlotAddress, StubAddress};
use uruk_link::{Immovable, Resolved, Segment};
use uruk_testing::Random;

fn world() -> World {
    let stub = Resolved::stub(StubAddress(NEAR), SlotAddress(NEAR + 0x800));
    let mut world = World {
        otherwise: Some(stub),
        ..World::default()
    };
    world.options.merge_read_only = true;
    world.external("target", Resolved::at(NEAR + 0x100))
}

/// The reason why an object cannot move.
fn reason(bytes: &[u8]) -> Option<Immovable> {
    support::moves::check(&world(), &[bytes])
}

/// An object with 32 bytes of code, a function `own` at its start, and one field in a
/// section of `kind`.
fn field(
    name: &str,
    kind: SectionKind,
    relocation: elf::RelocationType,
    target: &str,
    addend: i64,
) -> Vec<u8> {
    let mut writer = Writer::new();
    let text = writer.section(".text", SectionKind::Text, &[0x90; 32], 16);
    let own = object::write::SymbolSection::Section(text);
    let own = writer.symbol("own", own, 0, 32, object::SymbolKind::Text, false);
    let section = match name {
        ".text" => text,
        _ => writer.section(name, kind, &[0; 16], 8),
    };
    let target = match target {
        "own" => own,
        name => writer.external(name),
    };
    writer.relocate(section, 8, relocation, target, addend);
    writer.finish()
}

#[test]
fn each_reason_against_moving_is_found() {
    use SectionKind as K;
    use elf::{R_X86_64_16, R_X86_64_64, R_X86_64_PC16, R_X86_64_PC32, R_X86_64_PLT32};
    let data = Immovable::Segment {
        segment: Segment::ReadWrite,
        offset: 8,
    };
    let constant = 40;
    let cases = [
        (".rodata", K::ReadOnlyData, R_X86_64_64, "target", 0, None),
        (".data", K::Data, R_X86_64_64, "target", 0, None),
        (".data", K::Data, R_X86_64_64, "own", 0, Some(data)),
        (".data", K::Data, R_X86_64_PC32, "own", 0, Some(data)),
        (
            ".tdata",
            K::Tls,
            R_X86_64_64,
            "own",
            0,
            Some(Immovable::Template { offset: 8 }),
        ),
        (
            ".rodata",
            K::ReadOnlyData,
            R_X86_64_64,
            "own",
            5,
            Some(Immovable::Labels { offset: constant }),
        ),
        (
            ".rodata",
            K::ReadOnlyData,
            R_X86_64_64,
            "own",
            0,
            Some(Immovable::Functions { offset: constant }),
        ),
        (
            ".rodata",
            K::ReadOnlyData,
            R_X86_64_PLT32,
            "own",
            0,
            Some(Immovable::Functions { offset: constant }),
        ),
        (".rodata", K::ReadOnlyData, R_X86_64_PC32, "own", 5, None),
        (".rodata", K::ReadOnlyData, R_X86_64_16, "own", 0, None),
        (
            ".text",
            K::Text,
            R_X86_64_PC32,
            "own",
            -4,
            Some(Immovable::Functions { offset: 8 }),
        ),
        (".text", K::Text, R_X86_64_PLT32, "own", -4, None),
        (".text", K::Text, R_X86_64_PC16, "target", 0, None),
    ];
    for (name, kind, relocation, target, addend, wanted) in cases {
        // A 16-bit field reaches only addresses a few kilobytes away.
        let narrow = [R_X86_64_16, R_X86_64_PC16].contains(&relocation);
        let bytes = field(name, kind, relocation, target, addend);
        if !narrow {
            assert_eq!(
                reason(&bytes),
                wanted,
                "{name} {relocation:?} {target}+{addend}"
            );
            continue;
        }
        let mut world = world().external("target", Resolved::at(0x4000));
        world.at.code = 0x2000;
        let linked = world.link_only(&[&bytes]).expect("links").linked;
        let wanted = match target {
            "own" => Immovable::Functions { offset: constant },
            _ => Immovable::Narrow { offset: 8 },
        };
        assert_eq!(linked.immovable, Some(wanted));
    }
    let inside = support::CODE + 3;
    let world = world().external(
        "target",
        Resolved::stub(StubAddress(NEAR), SlotAddress(inside)),
    );
    let bytes = field(".text", SectionKind::Text, R_X86_64_PLT32, "target", -4);
    let linked = world.link_only(&[&bytes]).expect("links").linked;
    let wanted = Immovable::External { address: inside };
    assert_eq!(linked.immovable, Some(wanted));
}

#[test]
fn fields_that_overlap_are_not_moved() {
    for (second, wanted) in [(12, None), (11, Some(11)), (8, Some(8)), (4, Some(4))] {
        let mut writer = Writer::new();
        let text = writer.section(".text", SectionKind::Text, &[0x90; 32], 16);
        let target = writer.external("target");
        writer.relocate(text, 8, elf::R_X86_64_PC32, target, -4);
        writer.relocate(text, second, elf::R_X86_64_PC32, target, -4);
        let linked = world()
            .link_only(&[&writer.finish()])
            .expect("links")
            .linked;
        let wanted = wanted.map(|offset| Immovable::Overlap { offset });
        assert_eq!(linked.immovable, wanted, "at {second}");
    }
}

#[test]
fn what_compilers_make_of_tables_of_labels_and_functions() {
    let labels = r#"
    int run(const unsigned char *p) {
      static const void *const table[] = {&&add, &&twice, &&end};
      int x = 0;
      goto *table[*p];
    add: x += p[1]; p += 2; goto *table[*p];
    twice: x *= 2; ++p; goto *table[*p];
    end: return x;
    }"#;
    let jumps = r#"
    extern int f(int);
    int run(int x) {
      switch (x) { case 0: return f(3); case 1: return f(x) + 1; case 2: return f(7) * 5;
        case 3: return f(9) ^ f(1); case 4: return f(2); case 5: return 1 - f(4); }
      return 0;
    }"#;
    let functions = r#"
    static int one(void) { return 1; } static int two(void) { return 2; }
    int (*const table[])(void) = {one, two};"#;
    let constructor = r#"
    extern void g(void); __attribute__((constructor)) static void up(void) { g(); }"#;
    let ifunc = r#"
    extern int g(void); static void *pick(void) { return g; }
    int i(void) __attribute__((ifunc("pick")));"#;
    let flags = ["-O2", "-fPIC", "-ffunction-sections"];
    let check = |source: &str, check: &dyn Fn(Option<Immovable>) -> bool| {
        let Some(bytes) = compile("c", source, &flags) else {
            return;
        };
        let reason = reason(&bytes);
        assert!(check(reason), "{reason:?}:{source}");
    };
    check(labels, &|r| matches!(r, Some(Immovable::Labels { .. })));
    check(jumps, &|r| r.is_none());
    check(functions, &|r| {
        matches!(r, Some(Immovable::Functions { .. }))
    });
    check(constructor, &|r| {
        matches!(r, Some(Immovable::Functions { .. }))
    });
    check(ifunc, &|r| r == Some(Immovable::Ifuncs));
}

/// An object of text, constants and data whose fields refer to each other and to
/// externals in every way that keeps code movable (`free`: in any way).
fn generated(random: &mut Random, free: bool) -> Vec<u8> {
    use elf::{
        R_X86_64_32S, R_X86_64_64, R_X86_64_GOTOFF64, R_X86_64_GOTPC32, R_X86_64_GOTPCREL,
        R_X86_64_GOTPCRELX, R_X86_64_PC32, R_X86_64_PC64, R_X86_64_PLT32, R_X86_64_REX_GOTPCRELX,
        R_X86_64_SIZE64,
    };
    const SIZE: usize = 512;
    let mut writer = Writer::new();
    let places = [
        (".text", SectionKind::Text),
        (".rodata", SectionKind::ReadOnlyData),
        (".data", SectionKind::Data),
    ];
    // Opcodes before the field, its type and width.
    let code: [(&[u8], elf::RelocationType, usize); 9] = [
        (&[0xe8], R_X86_64_PLT32, 4),
        (&[0x0f, 0x84], R_X86_64_PC32, 4),
        (&[0xff, 0x15], R_X86_64_GOTPCRELX, 4),
        (&[0xff, 0x25], R_X86_64_GOTPCRELX, 4),
        (&[0x48, 0x8b, 0x05], R_X86_64_REX_GOTPCRELX, 4),
        (&[0x48, 0x3b, 0x05], R_X86_64_REX_GOTPCRELX, 4),
        (&[0x48, 0x8b, 0x0d], R_X86_64_GOTPCREL, 4),
        (&[0x48, 0x8d, 0x05], R_X86_64_PC32, 4),
        (&[0x48, 0x8d, 0x1d], R_X86_64_GOTPC32, 4),
    ];
    let data = [
        (R_X86_64_64, 8),
        (R_X86_64_PC64, 8),
        (R_X86_64_PC32, 4),
        (R_X86_64_GOTOFF64, 8),
        (R_X86_64_SIZE64, 8),
        (R_X86_64_32S, 4),
    ];
    let mut fields: Vec<(usize, usize, elf::RelocationType, i64)> = Vec::new();
    let mut bytes = [const { [0x90; SIZE] }; 3];
    for (section, bytes) in bytes.iter_mut().enumerate() {
        let mut at = random.below(12);
        loop {
            let (before, kind, width, addend) = if section == 0 {
                let (before, kind, width) = code[random.below(code.len())];
                (before, kind, width, -4)
            } else {
                // No address in the low 2 GiB here.
                let (kind, width) = data[random.below(data.len() - 1)];
                (&[][..], kind, width, 0)
            };
            let field = at + before.len();
            if field + width > SIZE {
                break;
            }
            bytes[at..field].copy_from_slice(before);
            fields.push((section, field, kind, addend));
            let gap = if random.below(3) == 0 {
                0
            } else {
                random.below(200)
            };
            at = field + width + gap;
        }
    }
    let sections: Vec<SectionId> = places
        .iter()
        .zip(&bytes)
        .map(|(&(name, kind), bytes)| writer.section(name, kind, bytes, 1 << random.below(7)))
        .collect();
    let mut symbols = vec![
        (3, writer.external("target")),
        (3, writer.external("other")),
        (3, writer.weak_external("absent")),
        (3, writer.external("_GLOBAL_OFFSET_TABLE_")),
    ];
    for (number, &section) in sections.iter().enumerate() {
        for n in 0..3 {
            let value = random.below(SIZE) as u64;
            symbols.push((
                number,
                writer.define(&format!("s{number}{n}"), section, value, 8),
            ));
        }
    }
    for (section, at, kind, addend) in fields {
        let branch =
            kind == R_X86_64_PLT32 || bytes[section][at - at.min(2)..].starts_with(&[0x0f, 0x84]);
        loop {
            let (home, symbol) = symbols[random.below(symbols.len())];
            // Null is out of reach of distances.
            let null = symbol == symbols[2].1 && !matches!(kind, R_X86_64_64 | R_X86_64_PLT32);
            let got = symbol == symbols[3].1 && kind != R_X86_64_GOTPC32 && !branch;
            let leaks = home == 0 && !(section == 0 && branch);
            let in_code = home < 2 || symbol == symbols[3].1;
            let tied = section == 2 && (in_code != (kind == R_X86_64_GOTOFF64));
            if !null && !got && (free || !leaks && !tied || kind == R_X86_64_SIZE64) {
                writer.relocate(sections[section], at as u64, kind, symbol, addend);
                break;
            }
        }
    }
    writer.finish()
}

#[test]
fn generated_objects_move_to_what_a_link_there_gives() {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let (mut movable, mut reasons) = (0, std::collections::BTreeSet::new());
    for n in 0..600 {
        let bytes = generated(&mut random, n % 4 == 0);
        let world = world().external(
            "other",
            Resolved::stub(StubAddress(NEAR), SlotAddress(NEAR + 0x40)),
        );
        let linked = world.link_only(&[&bytes]);
        if let Err(error) = &linked {
            panic!("{error}");
        }
        match support::moves::check(&world, &[&bytes]) {
            None => movable += 1,
            Some(reason) => {
                _ = reasons.insert(format!("{reason:?}").split(' ').next().map(String::from))
            }
        }
    }
    println!("{movable} can move; against it: {reasons:?}");
    assert!(movable > 400 && reasons.len() > 1);
}

/// Code like a tier's function: constants of its own, calls through slots.
#[test]
fn records_of_compiled_code_take_little_room() {
    let source = r#"
    extern int f(int), g(const char *, double); extern int data[];
    double run(int x, double y) {
      for (int i = 0; i < x; ++i) {
        if (f(i)) { y += g("positive", y * 1.25); data[i] += f(data[i]); }
        switch (f(x + i)) { case 0: f(1); break; case 1: g("one", 2.5); break; case 2: f(22); break;
          case 3: g("three", 3.5); break; case 4: f(4); f(5); break; case 5: y *= data[3]; break; }
      }
      return y / 3.7;
    }"#;
    for level in ["-O0", "-O2"] {
        let flags = [level, "-fPIC", "-fno-plt", "-ffunction-sections"];
        let Some(bytes) = compile("c", source, &flags) else {
            return;
        };
        let image = world().link(&[&bytes]).expect("links");
        let moves = &image.linked.moves;
        println!(
            "{level}: {} bytes of code, {} records, {} bytes",
            image.linked.code.len(),
            moves.len(),
            moves.size()
        );
        assert_eq!(image.linked.immovable, None);
        assert!(moves.len() >= 3 && moves.size() * 2 <= moves.len() * 3);
    }
}

#[test]
fn a_move_out_of_reach_names_the_field() {
    let bytes = field(".text", SectionKind::Text, elf::R_X86_64_PC32, "target", -4);
    let world = world();
    let linked = world.link_only(&[&bytes]).expect("links").linked;
    let mut code = linked.code.clone();
    let error = uruk_link::relocate(&mut code, &linked.moves, world.at.code, FAR).expect_err("far");
    let distance = (NEAR + 0x100 - 12).wrapping_sub(FAR) as i64;
    assert_eq!(
        error.to_string(),
        format!("code moved to {FAR:#x}: the field at +0x8 cannot hold {distance:#x} ({distance})")
    );
}
