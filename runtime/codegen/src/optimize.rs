//! Transformations of a unit between extraction and emission, at tiers 2 and 3.
//!
//! Attributes: `optnone` is removed, with the `noinline` that came with it, and the host's features
//! are added to a function's own. A function that passes wide vectors in registers gets none, as
//! its registers would change. The target machine itself stays at the ABI's baseline; a function's
//! subtarget comes from its attributes.
//!
//! Passes (`passes` has their texts): tier 2 has a pipeline of its own. Tier 3, and a unit with
//! profiled candidates, has LLVM's in two halves. The first ends after inlining and simplification;
//! candidates are `weak_odr` definitions in it. Between the halves they become
//! `available_externally`. The second half, which vectorizes and lowers, begins by dropping their
//! bodies: no time is spent on them, and calls that are left go through slots. LLVM's text for the
//! first half is `thinlto-pre-link`, which is made to stop at this place; the second is spelled out
//! as `opt -print-pipeline-passes` prints it.
//!
//! Cold paths stay in their functions, where block placement puts them last. LLVM's `hotcoldsplit`
//! was tried after the second half at tier 3, with cold paths from attributes and from calls that
//! do not return. It made Lua's `fib` 3 to 7 % slower (9.4 to 9.7 and 10.0 ms an iteration). It
//! made `binary-trees` 5 % faster (53.5 to 50.7, 57.6 to 54.6 ms), on a machine whose rounds
//! differed by up to 8 %. With counted weights, at tier 3 under `auto`, three runs of each in
//! turns, it changes nothing: `fib` 16.6 and with it 16.6 ms, `binary-trees` 35.6 and 36.4, `nbody`
//! 32.8 and 32.2. Its functions would lie in the same allocation as the version. The machine
//! function splitter is an option of the process, with no attribute that stands for it.
//!
//! # Why
//! Cold paths are not split off: with counted weights `hotcoldsplit` has no measurable effect
//! (`codegen::optimize`); LLVM's machine function splitter is an option of the process.

use inkwell::llvm_sys::LLVMLinkage;
use inkwell::llvm_sys::core::LLVMSetLinkage;

use uruk_base::{Inlining, Tier};

use crate::context::{LlvmContext, OwnedModule};
use crate::emit::Emitter;
use crate::error::Stop;
use crate::handles::ValueRef;
use crate::hints;
use crate::passes;
use crate::recursion;
use crate::unit::{Unit, UnitContents};

/// Runs the passes of `tier` on a unit.
pub(crate) fn run(
    context: &LlvmContext,
    emitter: &Emitter,
    unit: &mut Unit,
    tier: Tier,
    optnone: u32,
) -> Result<(), Stop> {
    shield(unit, optnone);
    let Unit { module, contents } = unit;
    if contents.has_matrices {
        emitter.run_passes(module, "function(lower-matrix-intrinsics)")?;
    }
    let optimize =
        |module: &mut OwnedModule, passes: &str| warily(context, emitter, module, passes);
    if tier > Tier::Baseline {
        hints::allow_unrolling(context, module);
    }
    let variant = contents.variant;
    let own = tier == Tier::Optimized && !variant.thorough;
    let level = match tier {
        Tier::Native | Tier::Baseline => return Ok(emitter.run_passes(module, "default<O0>")?),
        _ if own => "O2",
        _ => "O3",
    };
    if contents.candidates.is_empty() && (own || contents.has_coroutines) {
        let passes = match contents.has_coroutines {
            true => passes::whole(level),
            false => passes::optimized(variant),
        };
        optimize(module, &passes)?;
    } else {
        optimize(module, &passes::first_half(level))?;
        if context.gate().look() {
            return Err(Stop::Cancelled);
        }
        for (_, name) in &contents.candidates {
            // Passes may have removed the function.
            show_only(module.function(name).as_deref());
        }
        if contents.guided_functions > 0 {
            hints::lengthen_loops(context, module);
        }
        if level == "O3" && variant.inlining != Inlining::None && recursion::unroll(context, module)
        {
            optimize(module, &passes::levels())?;
        }
        optimize(module, &passes::second_half(level, variant))?;
    }
    if variant.loops {
        hints::align_loops(context, module);
    }
    if variant.static_order {
        hints::forget_counts(context, module);
    }
    for name in &contents.constants {
        // Passes should see its initializer; it must not be emitted again.
        show_only(module.variable(name).as_deref());
    }
    Ok(())
}

/// Keeps a definition for passes to look into, and from being emitted.
fn show_only(definition: Option<&ValueRef<'_>>) {
    if let Some(definition) = definition {
        let linkage = LLVMLinkage::LLVMAvailableExternallyLinkage;
        // SAFETY: a live function or variable.
        unsafe { LLVMSetLinkage(definition.raw(), linkage) };
    }
}

/// Simplifies functions for inlining in other units.
pub(crate) fn simplify(
    context: &LlvmContext,
    emitter: &mut Emitter,
    unit: &mut Unit,
    optnone: u32,
) -> Result<(), Stop> {
    shield(unit, optnone);
    let Unit { module, contents } = unit;
    hints::allow_unrolling(context, module);
    if contents.has_matrices {
        emitter.run_passes(module, "function(lower-matrix-intrinsics)")?;
    }
    Ok(warily(context, emitter, module, &passes::callees())?)
}

/// Runs passes that do not believe all tags ([`tags`](crate::tags)).
fn warily(
    context: &LlvmContext,
    emitter: &Emitter,
    module: &mut OwnedModule,
    passes: &str,
) -> Result<(), String> {
    let raw = module.raw();
    let run = || emitter.run_passes(module, passes);
    // SAFETY: a live module, of the context.
    unsafe { context.gate().optimizing(raw, run) }
}

/// Keeps passes from bodies that are simplified already. The verifier wants `noinline`
/// beside `optnone`; nothing else does, and no pass verifies.
fn shield(unit: &Unit, optnone: u32) {
    let UnitContents { kept, .. } = &unit.contents;
    for function in kept.iter().filter_map(|name| unit.module.function(name)) {
        function.add(optnone);
    }
}
