//! Whether code can switch to another stack, judged by the IR it was made of.
//!
//! Code generation moves the stack pointer within one stack, for any IR: frames, arrays, alignment,
//! arguments. Code switches stacks only where the IR does so:
//!
//! | IR | becomes |
//! |---|---|
//! | assembly, in a naked function too | anything |
//! | `llvm.stackrestore` | the pointer that is its argument; of a `llvm.stacksave`, if clang wrote it |
//! | `llvm.write_register` | a write of the register it names |
//! | `llvm.eh.sjlj.longjmp` | the stack pointer of a buffer |
//! | `llvm.eh.return` | the caller's, moved by its argument |
//! | prologue data | any bytes, executed first |
//!
//! Passes add none of these except pairs of `llvm.stacksave` and `llvm.stackrestore`, around
//! inlined code. Calls are not analysed here: names of functions that switch stacks are checked
//! when code is linked.

use std::sync::OnceLock;

use inkwell::llvm_sys::core::{LLVMHasPrologueData, LLVMLookupIntrinsicID};

use crate::unit::Unit;

/// Intrinsics that switch stacks, by name without types.
const LEADING: [&str; 5] = [
    "llvm.stackrestore",
    "llvm.write_register",
    "llvm.eh.sjlj.longjmp",
    "llvm.eh.return.i32",
    "llvm.eh.return.i64",
];

fn leading() -> &'static [u32; 5] {
    static IDS: OnceLock<[u32; 5]> = OnceLock::new();
    IDS.get_or_init(|| {
        LEADING.map(|name| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
        })
    })
}

/// True if nothing in a complete unit, before its passes, can switch to another stack. A declared
/// intrinsic counts as called.
pub(crate) fn keeps_stack(unit: &Unit) -> bool {
    if unit.contents.has_asm {
        return false;
    }
    unit.module.functions().all(|function| {
        let intrinsic = function.intrinsic();
        // SAFETY: a live function.
        let prologue = unsafe { LLVMHasPrologueData(function.raw()) } != 0;
        !prologue && (intrinsic == 0 || !leading().contains(&intrinsic))
    })
}

#[cfg(test)]
mod tests {
    use super::leading;

    #[test]
    fn llvm_knows_each_name() {
        assert!(leading().iter().all(|&id| id != 0), "{:?}", leading());
    }
}
