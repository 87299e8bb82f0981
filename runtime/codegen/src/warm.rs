//! A first compile at tier 2 ahead of need.
//!
//! The first compile of a process takes twice as long as later ones. Pages of LLVM's code are
//! mapped by faults, and a target machine makes its tables for the host's CPU (1 MB) when a
//! function first needs them. [`warm_up`] compiles a small built-in function and keeps the target
//! machine for the next reader that needs one of tier 2. A machine finds its tables by a function's
//! CPU and features, and by the width of vectors that clang notes. `optimize` writes the features
//! in one way for all functions that need no more than the host has; the built-in function is like
//! clang's.
//!
//! One machine of each tier is kept, also from dropped readers: a session, or a module that
//! replaces another, begins with the machines of an earlier one. A pipeline is dropped with its
//! context; a machine has none.
//!
//! No thread waits for the lock: a child of `fork` may find it locked permanently, and then makes
//! machines of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use uruk_base::Tier;

use crate::bitcode;
use crate::context::{LlvmContext, OwnedModule};
use crate::emit::{Emitter, Machine};
use crate::error::CodegenError;
use crate::host;
use crate::passes;

/// IR of the function that is compiled.
const TEXT: &str = include_str!("warm.ll");
const NAME: &str = "warm";

/// Some reader has compiled at tier 2, or [`warm_up`] was called. Relaxed: a hint, and a thread
/// that sees an old value compiles once in vain.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Machines that belong to no reader, by tier.
static SPARE: Mutex<[Option<Machine>; 3]> = Mutex::new([None, None, None]);

/// True until something is compiled at tier 2 in this process.
pub fn is_cold() -> bool {
    !BEGUN.load(Ordering::Relaxed)
}

/// True while a machine of tier 2 is kept for the next reader.
pub fn is_ready() -> bool {
    spare().is_some_and(|spare| spare[Tier::Optimized as usize - 1].is_some())
}

/// Compiles a small function at tier 2 and keeps the parts that the next compile can use. It stops
/// early if `wanted` reports other work. It does nothing if something was compiled already. A step
/// takes 0.5 to 2 ms.
///
/// # Errors
/// An error reported by LLVM.
pub fn warm_up(wanted: impl Fn() -> bool) -> Result<(), CodegenError> {
    if BEGUN.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let context = LlvmContext::new()?;
    let mut emitter = Emitter::new(Machine::new(Tier::Optimized)?)?;
    if !wanted() {
        let done = compile(&context, &mut emitter, wanted)?;
        if let Some(message) = context.take_errors().or(done.err()) {
            return Err(CodegenError::Emit {
                module: NAME.to_owned(),
                unit: NAME.to_owned(),
                message,
            });
        }
    }
    keep([(Tier::Optimized, emitter)]);
    Ok(())
}

/// Passes and emission; LLVM's message if either fails.
fn compile(
    context: &LlvmContext,
    emitter: &mut Emitter,
    wanted: impl Fn() -> bool,
) -> Result<Result<(), String>, CodegenError> {
    let mut module: OwnedModule = bitcode::parse(context, NAME, TEXT)?;
    emitter.prepare(&module);
    if let Some(function) = module.function(NAME) {
        host::for_host(function);
    }
    if let Err(message) = emitter.run_passes(
        &mut module,
        &passes::optimized(uruk_base::Variant::default()),
    ) {
        return Ok(Err(message));
    }
    if !wanted() {
        emitter.emit(context.gate(), &mut module);
    }
    Ok(Ok(()))
}

/// The emitter for a reader that has none of this tier.
pub(crate) fn emitter(tier: Tier) -> Result<Emitter, CodegenError> {
    if tier == Tier::Optimized {
        BEGUN.store(true, Ordering::Relaxed);
    }
    let kept = spare().and_then(|mut spare| spare[tier as usize - 1].take());
    Emitter::new(kept.map_or_else(|| Machine::new(tier), Ok)?)
}

/// Keeps the machines of emitters that are not needed any more, whose context is still alive.
pub(crate) fn keep(emitters: impl IntoIterator<Item = (Tier, Emitter)>) {
    for (tier, emitter) in emitters {
        let machine = emitter.into_machine();
        let Some(mut spare) = spare() else { return };
        let place = &mut spare[tier as usize - 1];
        if place.is_none() {
            *place = Some(machine);
        }
    }
}

fn spare() -> Option<MutexGuard<'static, [Option<Machine>; 3]>> {
    match SPARE.try_lock() {
        Ok(spare) => Some(spare),
        Err(TryLockError::Poisoned(spare)) => Some(spare.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
