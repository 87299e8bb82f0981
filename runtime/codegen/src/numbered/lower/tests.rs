//! Lowers damaged bitcode. Tests that run the code check the result (`tests/baseline_llvm.rs`);
//! `tests/baseline.rs` compares the properties found with those of a copy.

#[path = "../../../../baseline/tests/ir/mod.rs"]
mod ir;

use std::path::Path;

use uruk_lower::Refused;

use super::Plain;
use crate::bitcode::Bitcode;
use uruk_testing::Random;

/// Bodies lowered from damaged bitcode keep the reader's invariants.
#[test]
fn damage_never_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/baseline");
    let mut numbers = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut random = |below: usize| numbers.below(below);
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

/// Names that mean themselves.
pub(super) struct AsNamed;

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

    fn label_space(&self, function: u32) -> Result<ir::SymbolData, Refused> {
        Ok(ir::SymbolData {
            name: format!("labels of {function}").into(),
            reach: ir::Reach::Near,
            is_weak: false,
        })
    }

    fn must_be_inlined(&self, global: u32) -> bool {
        global % 17 == 3
    }
}

/// The number of functions that were lowered, and of those refused.
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
            exits: true,
            contract: false,
        };
        let Plain { body, buffers } = &mut plain;
        match lowering.lower(body, global, &AsNamed, wanted, buffers) {
            Ok(done) => {
                lowered += 1;
                if let Err(broken) = ir::check(&done.function) {
                    panic!("{broken}\n{}", ir::text(&done.function));
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
