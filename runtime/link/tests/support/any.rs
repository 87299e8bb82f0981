//! All steps of a link on any bytes: for tests with damaged objects, and for the fuzzer.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection, ObjectSymbol};
use uruk_link::{
    Graph, Laid, LayoutOptions, LinkError, Linked, Object, Placement, Resolved, Segment, TlsPlace,
    relocate,
};

/// Links `bytes` as one object, and then as two in one image with merged constants, at two places,
/// with every external symbol at one address. The image moved from the first place to the second
/// must equal the image linked at the second. Returns the result of the first link.
///
/// # Errors
///
/// Any error in the bytes.
///
/// # Panics
///
/// Never, if the linker is correct. It checks that the segments have the announced sizes.
pub fn link_any(bytes: &[u8]) -> Result<Linked, LinkError> {
    let first = link_objects(&[bytes], false, FIRST);
    let here = link_objects(&[bytes, bytes], true, FIRST);
    let there = link_objects(&[bytes, bytes], true, SECOND);
    if let (Ok((mut here, tame)), Ok((there, _))) = (here, there)
        && here.immovable.is_none()
    {
        let moved = relocate(&mut here.code, &here.moves, FIRST, SECOND);
        if tame {
            assert!(moved.is_ok(), "a move that a link could make: {moved:?}");
            assert_eq!(here.code, there.code, "moved and linked bytes differ");
        }
    }
    first.map(|(linked, _)| linked)
}

const FIRST: u64 = 0x1000_0000;
const SECOND: u64 = 0x1400_0000;

/// Whether all distances are so small that they do not decide how a symbol is reached.
fn is_tame(bytes: &[u8]) -> bool {
    const LARGE: u64 = 1 << 24;
    let Ok(file) = ElfFile64::<LittleEndian>::parse(bytes) else {
        return false;
    };
    let small = |addend: i64| addend.unsigned_abs() < LARGE;
    let mut relocations = file.sections().flat_map(|section| section.relocations());
    file.symbols().all(|symbol| symbol.address() < LARGE)
        && relocations.all(|(_, relocation)| small(relocation.addend()))
}

/// Discards some definitions, and before that checks the users of undefined symbols.
fn thin_out(graph: &mut Graph<'_>) {
    for undefined in graph.undefined().take(8) {
        assert!(
            !undefined.needed_by().is_empty(),
            "listed, and nobody needs it"
        );
    }
    graph.prune(|name| name.len() % 2 == 0);
    let first = graph.definitions().next().map(|definition| definition.name);
    if let Some(name) = first {
        graph.discard(name);
    }
}

/// Fills the constants that lie apart; returns their addresses.
fn fill_apart(laid: &Laid<'_>) -> Result<Vec<u64>, LinkError> {
    let mut apart = Vec::new();
    for (number, constant) in laid.constants().iter().enumerate() {
        let address = 0x5000_0000 + 0x100_0000 * number as u64;
        let targets = vec![0x4000_0000; constant.references.len()];
        let bytes = laid.fill(constant, address, &targets)?;
        assert_eq!(bytes.len(), constant.bytes.len(), "a constant grew");
        apart.push(address);
    }
    Ok(apart)
}

fn link_objects(files: &[&[u8]], prune: bool, code: u64) -> Result<(Linked, bool), LinkError> {
    let mut objects = Vec::with_capacity(files.len());
    for bytes in files {
        objects.push(Object::parse("fuzz.o", bytes)?);
    }
    let mut graph = Graph::new(objects)?;
    if prune {
        thin_out(&mut graph);
    }
    // A damaged alignment must not cost gigabytes.
    let options = LayoutOptions {
        merge_read_only: prune,
        max_size: 16 << 20,
        apart: prune.then_some(".rodata.str"),
        ..LayoutOptions::default()
    };
    let laid = graph.layout(&options)?;
    let sizes = [Segment::Code, Segment::ReadOnly, Segment::ReadWrite]
        .map(|segment| laid.segment(segment).size);
    let tls = TlsPlace {
        module: 3,
        static_offset: Some(-0x4000),
    };
    let at = Placement {
        code,
        read_only: 0x2000_0000,
        read_write: 0x3000_0000,
        tls: Some(tls),
    };
    let apart = fill_apart(&laid)?;
    let placed = laid.place_with(at, apart)?;
    let definitions = placed.definitions().count();
    assert!(
        definitions <= files.iter().map(|file| file.len()).sum(),
        "more names than bytes"
    );
    let linked = placed.fix_up(|_, need| {
        Some(if need.thread_local {
            Resolved {
                static_tls: Some(-64),
                ..Resolved::thread_local(1, 16)
            }
        } else {
            Resolved::at(0x4000_0000)
        })
    })?;
    let bytes = [&linked.code, &linked.read_only, &linked.read_write];
    assert_eq!(
        bytes.map(Vec::len),
        sizes,
        "segments have the sizes announced"
    );
    Ok((linked, files.iter().all(|file| is_tame(file))))
}
