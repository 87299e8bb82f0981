//! A compile may be cancelled at every look of LLVM's gate, for functions of any shape; the reader
//! and its pipeline are as good as new afterwards.
//!
//! Each look in turn ends a compile of the function, in one reader. Every few looks, and at the
//! end, a compile of the function runs to its end there. Its bytes must equal those of a reader
//! without a cancellation.

#[path = "../../tests/support/clang.rs"]
mod clang;
mod support;

use std::sync::OnceLock;

use support::{id, plan};
use uruk_codegen::{Bitcode, Cancellation, CodegenError, Compile, Compiled, Reader, Tier};

/// Looks between two compiles that run to their end.
const STRIDE: u64 = 50;

/// The tiers, and the step between tried looks: most passes of tier 3 are those of tier 2, and each
/// function begins at another look.
const TIERS: [(Tier, u64); 2] = [(Tier::Optimized, 1), (Tier::Guided, 4)];

fn reader() -> Reader {
    static BITCODE: OnceLock<Bitcode> = OnceLock::new();
    let bitcode = BITCODE.get_or_init(|| {
        let flags = ["-O1", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-w"];
        let source = include_str!("shapes/shapes.cpp");
        Bitcode::new(
            "shapes.bc",
            clang::compile("shapes", "shapes.cpp", source, &flags),
        )
    });
    Reader::new(bitcode).expect("readable")
}

fn compile(
    reader: &mut Reader,
    name: &str,
    tier: Tier,
    token: &Cancellation,
) -> Result<Compiled, CodegenError> {
    let (plan, function) = (plan(reader), id(reader, name));
    reader.compile(&plan, function, &Compile::at(tier).cancelled_by(token))
}

/// Looks of a compile when all data kept between compiles is available.
fn looks(reader: &mut Reader, name: &str, tier: Tier) -> u64 {
    let token = Cancellation::new();
    compile(reader, name, tier, &token).expect("compiles");
    token.looks()
}

fn check(name: &str) {
    for (tier, step) in TIERS {
        let never = compile(&mut reader(), name, tier, &Cancellation::new());
        let expected = never.expect("compiles");
        let mut used = reader();
        let first = looks(&mut used, name, tier);
        let total = looks(&mut used, name, tier).max(first);
        // Also before passes of code generation, of which there are some thirty.
        assert!(total > 80, "{name}: only {total} looks at tier {tier:?}");
        for look in 1..=total {
            if !(look + name.len() as u64).is_multiple_of(step) && look != total {
                continue;
            }
            let token = Cancellation::at_look(look);
            let result = compile(&mut used, name, tier, &token);
            let cancelled = result.as_ref().is_err_and(CodegenError::is_cancelled);
            assert!(cancelled || look > token.looks(), "{name}: {look}");
            assert!(used.is_sound(), "{name}: {look} of {total} left traces");
            if look % STRIDE < step || look == total {
                let made = compile(&mut used, name, tier, &Cancellation::new());
                let object = made.expect("compiles").object;
                assert!(object == expected.object, "{name}: another after {look}");
            }
        }
    }
}

macro_rules! shapes {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

shapes! {
    switch_loop jump_tables vector_loops floating nests webs recursion labels atomics
    variadic stacks exceptions wide
}
