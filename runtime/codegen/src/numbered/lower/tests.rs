//! What is lowered without LLVM against what is read in LLVM's memory: the same functions, and the
//! same found out of them.

use std::collections::BTreeMap;
use std::path::Path;

use uruk_baseline::ir;
use uruk_lower::Refused;

use super::Plain;
use crate::bitcode::Bitcode;
use crate::compile::{Compile, Counters};
use crate::fuzz::plan_alone;
use crate::numbered::Numbered;
use crate::reader::Reader;
use crate::summary::SymbolId;

/// What became of the functions of a module.
#[derive(Debug, Default)]
struct Compared {
    same: u32,
    /// Covered by neither.
    neither: u32,
    /// Those that LLVM has to read.
    unread: u32,
    /// Those with whole vectors, which are lanes here, jumps to addresses, which are switches, or
    /// loops that can be left only here.
    otherwise: u32,
    /// Those that only this way covers.
    more: u32,
    /// Why functions are not covered here that are there.
    less: BTreeMap<String, u32>,
    /// Likewise by neither.
    reasons: BTreeMap<String, u32>,
}

/// Compares all functions of a module.
fn compare(bitcode: &Bitcode) -> Compared {
    let mut reader = Reader::new(bitcode).expect("valid");
    let numbered = Numbered::read(bitcode, reader.summary()).expect("read here, too");
    let plan = plan_alone(reader.summary());
    let mut how = Compile::baseline().counting(Counters::Entry);
    how.leaves = true;
    let mut plain = Plain::default();
    let mut compared = Compared::default();
    for index in 0..reader.summary().symbols.len() as u32 {
        let symbol = SymbolId(index);
        if numbered.body(symbol).is_none() {
            continue;
        }
        let name = reader.summary().symbols[symbol.index()].name.clone();
        let old = reader.baseline(&plan, symbol, &how).expect("valid");
        let new = numbered
            .read_into(symbol, &mut plain)
            .and_then(|()| numbered.baseline(&plan, symbol, &how, &mut plain));
        match (old, new) {
            (Ok(old), Ok(new)) => {
                if let Err(broken) = ir::check(&new.function) {
                    panic!("{name}: {broken}\n{}", new.function);
                }
                let (one, other) = (old.function.to_string(), new.function.to_string());
                let is_other = ["v128", "indirectjump"].iter().any(|it| one.contains(it));
                let is_other = is_other || other.contains(" stored ");
                if one != other && is_other {
                    compared.otherwise += 1;
                    continue;
                }
                assert_eq!(one, other, "{name}");
                assert_eq!(format!("{:?}", old.compiled), format!("{:?}", new.compiled));
                compared.same += 1;
            }
            (Ok(_), Err(refused)) => {
                compared.unread += u32::from(matches!(refused, Refused::Unread(_)));
                *compared.less.entry(refused.to_string()).or_default() += 1;
            }
            (Err(_), Err(refused)) => {
                compared.neither += 1;
                *compared.reasons.entry(refused.to_string()).or_default() += 1;
            }
            (Err(_), Ok(new)) => {
                if let Err(broken) = ir::check(&new.function) {
                    panic!("{name}: {broken}\n{}", new.function);
                }
                compared.more += 1;
            }
        }
    }
    compared
}

#[test]
fn functions_are_as_they_are_read_in_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/baseline");
    let mut same = 0;
    for file in std::fs::read_dir(folder).expect("the folder") {
        let path = file.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let bitcode = Bitcode::from_ir_text("m", &text).expect("valid");
        let compared = compare(&bitcode);
        println!("{}: {compared:#?}", path.display());
        same += compared.same;
    }
    assert!(same >= 32, "{same}");
}

/// Of the files that `URUK_BITCODE` names, with spaces between them.
#[test]
#[ignore = "files are to be named"]
fn functions_of_files_are_as_they_are_read_in_place() {
    let files = std::env::var("URUK_BITCODE").expect("names of files");
    for file in files.split_whitespace() {
        let bytes = std::fs::read(file).expect("readable");
        println!("{file}: {:#?}", compare(&Bitcode::new(file, bytes)));
    }
}

/// Whatever damaged bitcode is lowered to keeps a reader's promises.
#[test]
fn damage_never_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/baseline");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut lowered, mut refused) = (0, 0);
    for file in std::fs::read_dir(folder).expect("the folder") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
        let bitcode = Bitcode::from_ir_text("m", &text).expect("valid");
        for _ in 0..600 {
            let mut bytes = bitcode.bytes().to_vec();
            for _ in 0..1 + random(4) {
                let at = random(bytes.len());
                bytes[at] ^= 1 << random(8);
            }
            let (some, others) = lower_damaged(&bytes);
            lowered += some;
            refused += others;
        }
    }
    assert!(lowered > 1000 && refused > 1000, "{lowered}, {refused}");
}

/// Names that mean what they say.
struct AsNamed;

impl uruk_lower::Outside for AsNamed {
    fn symbol(&self, global: u32) -> Result<ir::SymbolData, Refused> {
        Ok(ir::SymbolData {
            name: global.to_string().into(),
            reach: match global % 3 {
                0 => ir::Reach::Near,
                1 => ir::Reach::Indirect,
                _ => ir::Reach::ThreadLocal,
            },
            is_weak: false,
        })
    }

    fn must_be_inlined(&self, global: u32) -> bool {
        global % 17 == 3
    }
}

/// How many functions were lowered, and how many refused.
fn lower_damaged(bytes: &[u8]) -> (u32, u32) {
    let Ok(source) = uruk_bitcode::Source::read(bytes) else {
        return (0, 0);
    };
    let lowering = uruk_lower::Lowering::new(source.module.clone());
    let mut plain = Plain::default();
    let (mut lowered, mut refused) = (0, 0);
    for global in 0..source.module.globals.len() as u32 {
        let Some(number) = source.body_of(global) else {
            continue;
        };
        if source.read_body(bytes, number, &mut plain.body).is_err() {
            continue;
        }
        let wanted = uruk_lower::Wanted {
            counters: Some("counters"),
            leaves: Some("loops"),
            contract: false,
        };
        let Plain { body, buffers } = &mut plain;
        match lowering.lower(body, global, &AsNamed, wanted, buffers) {
            Ok(done) => {
                lowered += 1;
                if let Err(broken) = ir::check(&done.function) {
                    panic!("{broken}\n{}", done.function);
                }
            }
            Err(_) => refused += 1,
        }
    }
    (lowered, refused)
}

#[test]
fn llvm_knows_each_intrinsic() {
    use uruk_lower::intrinsics::{MACHINE, TABLE};
    for (name, _) in TABLE.iter().chain(MACHINE) {
        // SAFETY: pointer and length describe the name.
        let id = unsafe {
            inkwell::llvm_sys::core::LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len())
        };
        assert_ne!(id, 0, "{name}");
    }
}
