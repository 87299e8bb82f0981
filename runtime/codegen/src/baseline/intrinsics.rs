//! LLVM's intrinsics by their numbers: what each becomes says the table of `uruk_lower`.
//!
//! One that is not in the table is not covered, and its name is the reason.

use std::sync::OnceLock;

use inkwell::llvm_sys::core::{LLVMIntrinsicGetName, LLVMLookupIntrinsicID};
use rustc_hash::FxHashMap;
use uruk_lower::intrinsics::TABLE;

pub(super) use uruk_lower::intrinsics::Becomes;

use Becomes as B;

/// What the intrinsic of that number becomes.
///
/// # Errors
/// Its name.
pub(super) fn becomes(intrinsic: u32) -> Result<Becomes, &'static str> {
    static KNOWN: OnceLock<FxHashMap<u32, Becomes>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let id = |name: &str| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
        };
        let known = TABLE.iter().map(|&(name, becomes)| (id(name), becomes));
        known.filter(|(id, _)| *id != 0).collect()
    });
    known
        .get(&intrinsic)
        .copied()
        .ok_or_else(|| name(intrinsic))
}

/// Whether an intrinsic, as far as it is known, asks for the frame it is in.
pub(super) fn minds_frame(intrinsic: u32) -> bool {
    match becomes(intrinsic) {
        Ok(B::FrameAddress | B::ReturnAddress | B::AddressOfReturnAddress) => true,
        Ok(_) => false,
        Err(name) => [
            "llvm.sponentry",
            "llvm.eh.",
            "llvm.local",
            "llvm.get.dynamic",
        ]
        .iter()
        .any(|begin| name.starts_with(begin)),
    }
}

/// The name of an intrinsic.
fn name(intrinsic: u32) -> &'static str {
    let mut length = 0;
    // SAFETY: the number of an intrinsic, whose name is in a table of LLVM's that stays.
    let name = unsafe {
        let start = LLVMIntrinsicGetName(intrinsic, &mut length);
        std::slice::from_raw_parts(start.cast::<u8>(), length)
    };
    std::str::from_utf8(name).unwrap_or("an intrinsic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvm_knows_each_name() {
        for (name, _) in TABLE {
            // SAFETY: pointer and length describe the name.
            let id = unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) };
            assert_ne!(id, 0, "{name}");
        }
    }
}
