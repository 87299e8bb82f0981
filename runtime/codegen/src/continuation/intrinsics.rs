//! Recognizes intrinsics in LLVM's memory that have a meaning here.

use std::sync::OnceLock;

use inkwell::llvm_sys::core::LLVMLookupIntrinsicID;
pub(crate) use uruk_leaving::Meaning;
use uruk_leaving::meaning::INTRINSICS;

use crate::handles::{FunctionRef, InstructionRef, ValueRef};

/// The meaning of the intrinsic that an instruction calls.
pub(crate) fn meaning_of(instruction: InstructionRef<'_>) -> Meaning {
    static KNOWN: OnceLock<Vec<(u32, Meaning)>> = OnceLock::new();
    let callee = instruction.callee().and_then(ValueRef::as_function);
    let id = callee.map_or(0, FunctionRef::intrinsic);
    if id == 0 {
        return Meaning::Nothing;
    }
    let known = KNOWN.get_or_init(|| {
        let id = |name: &str| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
        };
        let known = INTRINSICS.map(|(name, meaning)| (id(name), meaning));
        known.into_iter().filter(|(id, _)| *id != 0).collect()
    });
    let found = known.iter().find(|(known, _)| *known == id);
    found.map_or(Meaning::Nothing, |&(_, meaning)| meaning)
}

/// True if an instruction calls an intrinsic whose meaning satisfies the predicate.
pub(crate) fn is_intrinsic(
    instruction: InstructionRef<'_>,
    is: impl FnOnce(Meaning) -> bool,
) -> bool {
    match meaning_of(instruction) {
        Meaning::Nothing => false,
        meaning => is(meaning),
    }
}
