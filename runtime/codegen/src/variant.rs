//! Applies the attributes of a variant. `passes` has its other part; callees are left out by not
//! being copied along ([`Compile::varied`](crate::Compile::varied)).
//!
//! Attributes go to the function itself only: inlined code is compiled unchanged. Callees to be
//! inlined more eagerly get a threshold of their own. It does not affect callees that cannot be
//! inlined, or must not be.

use inkwell::llvm_sys::core::{
    LLVMArrayType2, LLVMConstNull, LLVMGetGlobalParent, LLVMGetModuleContext, LLVMHasPrefixData,
    LLVMInt8TypeInContext, LLVMSetAlignment, LLVMSetPrefixData,
};

use uruk_base::{Inlining, Tier, Vectors};

use crate::compile::Compile;
use crate::context::OwnedModule;
use crate::handles::FunctionRef;
use crate::survey::scan;
use crate::unit::UnitContents;

/// The cost up to which callees are inlined eagerly; LLVM's own is 225.
const EAGER: &str = "1000";

/// Factor on the cost of callees without counts, in guided code among code without counters. A call
/// that counts as hot admits a cost of 3,000, including inner calls. Without counts each part of
/// that seems equally hot: Lua's loop became 53 KB, of 17 at tier 2, and took 1.45 times as long.
/// So a hot call admits a cost of 230, as at tier 2. A callee without inlinable calls is as hot as
/// its call: its cost is unchanged, and C n-body's `attract` is inlined into its loop.
const UNCOUNTED: &str = "13";

/// Alignment of functions with loops: a cache line, and two of the CPU's fetches. The many without
/// loops lie close together, which is worth more to them.
const ALIGNMENT: u32 = 64;

/// Makes a function begin so many bytes after a multiple of [`ALIGNMENT`]: bytes before its entry
/// are aligned instead. A function that has such bytes of its own is left unchanged.
fn start(body: FunctionRef<'_>, offset: u32) {
    // SAFETY: a live function with a body, and so one of a module.
    unsafe {
        if LLVMHasPrefixData(body.raw()) != 0 {
            return;
        }
        LLVMSetAlignment(body.raw(), ALIGNMENT);
        if offset != 0 {
            let context = LLVMGetModuleContext(LLVMGetGlobalParent(body.raw()));
            let bytes = LLVMArrayType2(LLVMInt8TypeInContext(context), offset.into());
            LLVMSetPrefixData(body.raw(), LLVMConstNull(bytes));
        }
    }
}

/// Whether a body calls a function that can be inlined, too.
fn brings_more(callee: FunctionRef<'_>) -> bool {
    let called = scan(callee).callees;
    let mut functions = called.iter().filter_map(|called| called.as_function());
    functions.any(|function| !function.is_declaration())
}

/// Applies `variant` to `body`, the root of `module`, and to the callees beside it; `loops` are its
/// own loops.
pub(crate) fn apply(
    how: &Compile,
    body: FunctionRef<'_>,
    loops: u32,
    module: &OwnedModule,
    contents: &UnitContents,
) {
    let variant = how.variant;
    let width = match variant.vectors {
        Vectors::None | Vectors::Plain => None,
        Vectors::Narrow => Some("128"),
        Vectors::Middle => Some("256"),
        Vectors::Wide => Some("512"),
    };
    if let Some(width) = width {
        body.set_text("prefer-vector-width", width);
    }
    if !variant.tables {
        body.set_text("no-jump-tables", "true");
    }
    if let Some(offset) = variant.start.offset().filter(|_| loops > 0) {
        start(body, offset);
    }
    let guided = how.tier == Tier::Guided && how.uncounted;
    if guided && variant.inlining != Inlining::Eager {
        for callee in &contents.kept {
            let callee = module.function(callee);
            if let Some(callee) = callee.filter(|&it| brings_more(it)) {
                callee.set_text("function-inline-cost-multiplier", UNCOUNTED);
            }
        }
    }
    if variant.inlining == Inlining::Eager {
        let candidates = contents.candidates.iter().map(|(_, name)| name);
        for callee in candidates.chain(&contents.kept) {
            if let Some(callee) = module.function(callee) {
                callee.set_text("function-inline-threshold", EAGER);
            }
        }
    }
}
