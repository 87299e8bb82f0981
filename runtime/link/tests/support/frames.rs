//! The oracle's part for unwind records: every function of the image that had one still has it,
//! with the same range, exception table and personality.

use std::collections::BTreeMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, Pointer, UnwindSection as _};
use object::{Object as _, ObjectSection as _, RelocationFlags, elf};

use super::oracle::{Meaning, Oracle};

/// The contents of a record, with addresses.
#[derive(Debug, PartialEq)]
struct Says {
    size: u64,
    exceptions: Option<u64>,
    personality: Option<u64>,
}

pub fn check(oracle: &Oracle<'_, '_>) {
    let wanted = expected(oracle);
    let linked = &oracle.image.linked;
    let Some(table) = linked.eh_frame else {
        assert!(
            wanted.is_empty(),
            "{} functions lost their unwind records",
            wanted.len()
        );
        return;
    };
    let bytes = oracle
        .image
        .bytes(table.address, table.size)
        .expect("the table is in the image");
    assert!(bytes.ends_with(&[0; 4]), "the table is ended");
    let frames = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(table.address);
    let mut got = BTreeMap::new();
    let mut rows = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Some(entry) = entries.next().expect("records are sound") {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial
            .parse(EhFrame::cie_from_offset)
            .expect("records are sound");
        let (start, size) = (fde.initial_address(), fde.len());
        let pointer = |pointer: Pointer| match pointer {
            Pointer::Direct(at) | Pointer::Indirect(at) => at,
        };
        let exceptions = fde.lsda().map(pointer);
        // An indirect pointer is replaced by the content of its word.
        let personality = fde.cie().personality().map(|pointer| match pointer {
            Pointer::Direct(at) => at,
            Pointer::Indirect(at) => oracle.image.word(at).expect("a word of the image"),
        });
        let says = Says {
            size,
            exceptions,
            personality,
        };
        assert!(
            got.insert(start, says).is_none(),
            "two records for {start:#x}"
        );
        rows.push((start, start + size, table.address + fde.offset() as u64));
        // Instructions must decode, too.
        let mut instructions = fde.instructions(&frames, &bases);
        while instructions
            .next()
            .expect("call frame instructions are sound")
            .is_some()
        {}
    }
    assert_eq!(got, wanted);
    rows.sort_unstable();
    let ours: Vec<_> = linked
        .fdes
        .iter()
        .map(|row| (row.start, row.end, row.fde))
        .collect();
    assert_eq!(ours, rows, "rows are those of the records");
}

/// The contents of the objects' records for functions that are in the image.
fn expected(oracle: &Oracle<'_, '_>) -> BTreeMap<u64, Says> {
    let mut all = BTreeMap::new();
    for (number, file) in oracle.files.iter().enumerate() {
        for section in file.sections().filter(|s| s.name() == Ok(".eh_frame")) {
            let data = section.data().expect("bytes");
            let relocations: Vec<_> = section.relocations().collect();
            let frames = EhFrame::new(data, LittleEndian);
            let bases = BaseAddresses::default().set_eh_frame(0);
            let mut entries = frames.entries(&bases);
            while let Some(entry) = entries.next().expect("records are sound") {
                let CieOrFde::Fde(partial) = entry else {
                    continue;
                };
                let fde = partial
                    .parse(EhFrame::cie_from_offset)
                    .expect("records are sound");
                let cie = fde.cie();
                let inside = |start: usize, length: usize| {
                    let end = (start + length + 4) as u64;
                    let of_record = relocations.iter();
                    of_record.filter(move |(at, _)| (start as u64..end).contains(at))
                };
                let reach = |relocation: &object::Relocation, at: u64| {
                    let RelocationFlags::Elf { r_type } = relocation.flags() else {
                        panic!()
                    };
                    assert!(
                        matches!(
                            r_type,
                            elf::R_X86_64_PC32
                                | elf::R_X86_64_GOTPCREL
                                | elf::R_X86_64_PC64
                                | elf::R_X86_64_64
                                | elf::R_X86_64_32
                        ),
                        "{at:#x}"
                    );
                    match oracle.meaning(number as u32, relocation.target()).0 {
                        Meaning::Gone => None,
                        meaning => Some(meaning.address().wrapping_add(relocation.addend() as u64)),
                    }
                };
                let mut fields = inside(fde.offset(), fde.entry_len());
                let (at, function) = fields.next().expect("an FDE has a function");
                assert_eq!(*at, fde.offset() as u64 + 8);
                // The record is for the function in its own file, even if another file's won the
                // name.
                let own = own_section(file, function.target());
                let Some(_) = oracle.home(number as u32, own) else {
                    continue;
                };
                let start = own_address(oracle, number as u32, file, function);
                let exceptions = fields.next().and_then(|(at, r)| reach(r, *at));
                let personality = inside(cie.offset(), cie.entry_len())
                    .next()
                    .and_then(|(at, r)| Some((r, reach(r, *at)?)));
                let personality = personality.map(|(relocation, at)| {
                    let word = elf::R_X86_64_GOTPCREL;
                    let named = relocation.flags() == RelocationFlags::Elf { r_type: word };
                    match cie.personality() {
                        Some(Pointer::Indirect(_)) if !named => {
                            oracle.image.word(at).expect("a word of the image")
                        }
                        _ => at,
                    }
                });
                let says = Says {
                    size: fde.len(),
                    exceptions,
                    personality,
                };
                assert!(
                    all.insert(start, says).is_none(),
                    "two functions at {start:#x}"
                );
            }
        }
    }
    all
}

fn own_section(file: &super::oracle::File<'_>, target: object::RelocationTarget) -> usize {
    use object::ObjectSymbol as _;
    let object::RelocationTarget::Symbol(index) = target else {
        panic!("an FDE without symbol")
    };
    let symbol = file.symbol_by_index(index).expect("there");
    symbol
        .section_index()
        .expect("functions of FDEs are defined")
        .0
}

fn own_address(
    oracle: &Oracle<'_, '_>,
    number: u32,
    file: &super::oracle::File<'_>,
    relocation: &object::Relocation,
) -> u64 {
    use object::ObjectSymbol as _;
    let object::RelocationTarget::Symbol(index) = relocation.target() else {
        panic!()
    };
    let symbol = file.symbol_by_index(index).expect("there");
    let home = oracle
        .home(number, own_section(file, relocation.target()))
        .expect("asked before");
    home + symbol.address() + relocation.addend() as u64
}
