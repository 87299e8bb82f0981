//! Recursion without end is an error of the program, not the end of the process.
//!
//! Every function compares its frame's address with a word of ours. One that finds
//! itself below makes the word the highest address, so that it and all calls after it
//! return at once; the host sees that by the word.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use uruk::inkwell::values::{IntValue, PointerValue};
use uruk::inkwell::{AddressSpace, IntPredicate, intrinsics::Intrinsic};
use uruk::inkwell::{builder::Builder, module::Module};

/// The word, as compiled code knows it.
pub const SYMBOL: &str = "stack.limit";
/// The word. Relaxed: it is only used on the thread of [`with_stack`].
pub static LIMIT: AtomicU64 = AtomicU64::new(0);

/// Stack of the thread that programs run on, in bytes, and how much of it they may use.
const SIZE: usize = 64 << 20;
const USABLE: u64 = 32 << 20;

/// Runs everything that calls compiled code.
pub fn with_stack<R: Send>(run: impl FnOnce() -> R + Send) -> Result<R> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .stack_size(SIZE)
            .spawn_scoped(scope, run)?;
        thread
            .join()
            .ok()
            .context("a bug: the thread of the program panicked")
    })
}

/// Calls compiled code that returns a value.
pub fn guarded(function: impl FnOnce() -> f64) -> Result<f64> {
    let here = 0_u8;
    LIMIT.store(
        (&raw const here as u64).saturating_sub(USABLE),
        Ordering::Relaxed,
    );
    let value = function();
    ensure!(
        LIMIT.load(Ordering::Relaxed) != u64::MAX,
        "the recursion is too deep"
    );
    Ok(value)
}

/// Writes the comparison: true if the function's frame is too low.
pub fn check<'ctx>(module: &Module<'ctx>, builder: &Builder<'ctx>) -> Result<IntValue<'ctx>> {
    let context = module.get_context();
    let (word, pointer) = (
        context.i64_type(),
        context.ptr_type(AddressSpace::default()),
    );
    let address = Intrinsic::find("llvm.frameaddress");
    let address = address.and_then(|found| found.get_declaration(module, &[pointer.into()]));
    let level = context.i32_type().const_zero();
    let frame = builder.build_call(address.context("no such intrinsic")?, &[level.into()], "")?;
    let frame = frame
        .try_as_basic_value()
        .unwrap_basic()
        .into_pointer_value();
    let frame = builder.build_ptr_to_int(frame, word, "")?;
    let lowest = builder
        .build_load(word, limit(module), "")?
        .into_int_value();
    Ok(builder.build_int_compare(IntPredicate::ULT, frame, lowest, "")?)
}

/// Writes what a function does whose frame is too low.
pub fn exhaust<'ctx>(module: &Module<'ctx>, builder: &Builder<'ctx>) -> Result<()> {
    let highest = module.get_context().i64_type().const_all_ones();
    builder.build_store(limit(module), highest)?;
    Ok(())
}

fn limit<'ctx>(module: &Module<'ctx>) -> PointerValue<'ctx> {
    let word = module.get_context().i64_type();
    let known = module.get_global(SYMBOL);
    let global = known.unwrap_or_else(|| module.add_global(word, None, SYMBOL));
    global.as_pointer_value()
}
