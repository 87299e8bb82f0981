//! Applies profiles: a unit's root, and its candidates, get the counts of their probes.
//!
//! Branches and switches get `branch_weights`, functions their entry count; LLVM's inliner, block
//! placement and spill placement do the rest. Counts replace the expectations of the source
//! (`llvm.expect`).
//!
//! An indirect call with one dominant target is *promoted*: `if (pointer == &target) target(..)
//! else pointer(..)`. The comparison is with the canonical address, which pointers hold; the direct
//! call reaches the candidate, so that it can be inlined. A target that is not among the candidates
//! is not worth the comparison, since both arms would call through memory. The transformation is
//! LLVM's own (`llvm/Transforms/Utils/CallPromotionUtils.h`), which LLVM-C does not offer; here
//! types, calling convention and the attributes of the ABI must match exactly.

mod hot;

use std::sync::Arc;

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMCountParams, LLVMGetCallSiteEnumAttribute, LLVMGetCalledFunctionType,
    LLVMGetEnumAttributeAtIndex, LLVMGetFunctionCallConv, LLVMGetInstructionCallConv,
    LLVMGetNumOperands, LLVMGetNumSuccessors, LLVMGetOperand, LLVMGetSuccessor,
    LLVMGlobalGetValueType, LLVMInstructionEraseFromParent, LLVMLookupIntrinsicID,
    LLVMReplaceAllUsesWith, LLVMSetOperand,
};

use crate::attributes::AttributeKinds;
use crate::compile::Compile;
use crate::copying::Copying;
use crate::cplusplus::{is_legal_to_promote, promote_call};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::planning::Planning;
use crate::probe;
use crate::profile::{Count, Profile, Refused, Site, Target};
use crate::source::Source;
use crate::weights::ProfileNotes;

impl<'r> Planning<'r> {
    /// Takes up the profile given for `old`, whose body was read, if it fits; returns the dominant
    /// targets of its indirect calls.
    pub(crate) fn take_profile(&mut self, old: FunctionRef<'r>) -> Vec<ValueRef<'r>> {
        let Some(function) = self.source.id(*old) else {
            return Vec::new();
        };
        let Some(profile) = self.how.profiles.get(&function).cloned() else {
            return Vec::new();
        };
        let sites: Vec<Site> = probe::sites(old)
            .into_iter()
            .map(|(site, _)| site)
            .collect();
        if let Err(error) = profile.fits(&sites) {
            self.refused.push(Refused { function, error });
            return Vec::new();
        }
        if profile.is_empty() {
            return Vec::new();
        }
        let targets = profile.observed_targets().into_iter();
        self.guided.push((old, profile));
        targets
            .filter_map(|address| target(self.source, self.how, address))
            .collect()
    }
}

/// The offered function at an address seen at run time.
fn offered<'r>(source: Source<'r>, how: &Compile, address: u64) -> Option<FunctionRef<'r>> {
    let &index = how.offered_targets.get(&address)?;
    source
        .reader
        .foreign()
        .function(&how.offers.get(index)?.parcel)
}

/// The function at an address seen at run time, in the reader's module or a parcel.
fn target<'r>(source: Source<'r>, how: &Compile, address: u64) -> Option<ValueRef<'r>> {
    match how.targets.get(&address) {
        Some(&symbol) => Some(*source.reader.table().function(symbol)?),
        None => Some(*offered(source, how, address)?),
    }
}

/// Applies the profiles taken up, by functions of the reader's module; after the bodies were copied.
pub(crate) fn apply<'r>(
    copying: &mut Copying<'r>,
    guided: Vec<(FunctionRef<'r>, Arc<Profile>)>,
) -> Result<(), CodegenError> {
    for (old, profile) in guided {
        let Some(&new) = copying.with_labels.get(&*old) else {
            continue;
        };
        let notes = ProfileNotes::new(copying.source.reader.context());
        notes.set_entries(new, profile.entries());
        // The copy keeps blocks and instructions in order, and probes add no sites: these
        // are those of the original.
        let found = probe::sites(new).into_iter();
        let found = found.map(|(_, instruction)| instruction);
        let counted: Vec<_> = found.zip(profile.counts()).collect();
        // SAFETY: a complete copy. The erased calls are no sites, and later look-ups of the
        // copy's values are for globals and constants only.
        unsafe {
            drop_expectations(new);
            hot::mark(
                copying.source.reader.context().raw(),
                new,
                &profile,
                &counted,
            );
        }
        let mut calls = Vec::new();
        for (instruction, count) in counted {
            match count {
                Count::Branch { executed, taken } => {
                    let counts = [taken, executed - taken];
                    // SAFETY: a terminator with two successors.
                    unsafe { notes.set_weights(instruction, &counts) };
                }
                Count::Switch(counts) if counts.len() <= MOST_WAYS => {
                    // SAFETY: a terminator whose distinct successors were counted.
                    unsafe {
                        let counts = per_edge(instruction, counts);
                        notes.set_weights(instruction, &counts);
                    }
                }
                Count::Switch(_) => {}
                Count::Call(target) => calls.push((instruction, target)),
            }
        }
        for (call, target) in calls {
            // SAFETY: an indirect call of the copy, one site each.
            unsafe { promote(copying, &notes, call, target)? };
        }
        copying.contents.guided_functions += 1;
    }
    Ok(())
}

/// # Safety
/// An indirect call of a copy, which is not used afterwards.
unsafe fn promote<'r>(
    copying: &mut Copying<'r>,
    notes: &ProfileNotes,
    call: InstructionRef<'r>,
    seen: Target,
) -> Result<(), CodegenError> {
    let Some(known) = target(copying.source, copying.how, seen.address) else {
        return Ok(());
    };
    // Functions of parcels are no symbols of the module.
    let old = match copying.source.resolve(known) {
        Some(id) => copying.source.value(id),
        None => known,
    };
    let Some(&body) = copying.with_labels.get(&old) else {
        return Ok(());
    };
    if !seen.is_dominant() {
        return Ok(());
    }
    // The root's body has another name than its canonical address.
    let Some(named) = copying.map_global(old)?.as_function() else {
        return Ok(());
    };
    // SAFETY: by the caller's promise; both are functions of this module, and the
    // callee is a call's last operand.
    unsafe {
        if !calls_alike(copying.source.reader.kinds(), call, body)
            || !is_legal_to_promote(call.raw(), named.raw(), std::ptr::null_mut())
        {
            return Ok(());
        }
        let rest = seen.calls - seen.same;
        let Some(weights) = notes.weights(&[seen.same, rest]) else {
            return Ok(());
        };
        let direct = promote_call(call.raw(), named.raw(), weights);
        LLVMSetOperand(direct, LLVMGetNumOperands(direct) as u32 - 1, body.raw());
    }
    copying.contents.promoted += 1;
    Ok(())
}

/// True if `call` passes and returns values exactly as `callee` does.
///
/// # Safety
/// A call.
unsafe fn calls_alike(
    kinds: &AttributeKinds,
    call: InstructionRef<'_>,
    callee: FunctionRef<'_>,
) -> bool {
    let (call, callee) = (call.raw(), callee.raw());
    // SAFETY: by the caller's promise; with equal types both have the same
    // parameters. Types and attributes are unique in their context.
    unsafe {
        if LLVMGetCalledFunctionType(call) != LLVMGlobalGetValueType(callee)
            || LLVMGetInstructionCallConv(call) != LLVMGetFunctionCallConv(callee)
        {
            return false;
        }
        let kinds = &kinds.of_calls;
        (0..=LLVMCountParams(callee)).all(|index| {
            kinds.iter().all(|&kind| {
                LLVMGetCallSiteEnumAttribute(call, index, kind)
                    == LLVMGetEnumAttributeAtIndex(callee, index, kind)
            })
        })
    }
}

/// Ways of a switch up to which its counts are used. For more LLVM makes a jump table, which
/// weights would split. A bytecode interpreter's loop of seven ways took 114 us an iteration with
/// weights and 70 without (the demo `tiers`).
const MOST_WAYS: usize = 4;

/// Weights of a switch's edges: where several go to one block, each gets its share.
///
/// # Safety
/// A switch or computed goto; `counts` has an entry per distinct successor.
unsafe fn per_edge(terminator: InstructionRef<'_>, counts: &[u64]) -> Vec<u64> {
    let terminator = terminator.raw();
    // SAFETY: by the caller's promise; indices are below the count.
    unsafe {
        let ways = probe::ways(terminator);
        let share: rustc_hash::FxHashMap<_, u64> = ways
            .iter()
            .zip(counts)
            .map(|(&(block, edges), &count)| (block, count.div_ceil(u64::from(edges))))
            .collect();
        (0..LLVMGetNumSuccessors(terminator))
            .map(|index| share[&LLVMGetSuccessor(terminator, index)])
            .collect()
    }
}

/// Removes `llvm.expect` and `llvm.expect.with.probability`, whose lowering would
/// replace counted weights.
///
/// # Safety
/// The caller uses no handles of these calls afterwards.
unsafe fn drop_expectations(function: FunctionRef<'_>) {
    let kinds = ["llvm.expect", "llvm.expect.with.probability"].map(|name| {
        // SAFETY: pointer and length describe the name.
        unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
    });
    let is_expectation = |instruction: &InstructionRef<'_>| {
        let callee = instruction.callee().and_then(ValueRef::as_function);
        instruction.opcode() == LLVMOpcode::LLVMCall
            && callee.is_some_and(|callee| kinds.contains(&callee.intrinsic()))
    };
    let found: Vec<_> = function.instructions().filter(is_expectation).collect();
    for call in found {
        // SAFETY: by the caller's promise; both intrinsics return their first argument.
        unsafe {
            LLVMReplaceAllUsesWith(call.raw(), LLVMGetOperand(call.raw(), 0));
            LLVMInstructionEraseFromParent(call.raw());
        }
    }
}

#[cfg(test)]
mod tests;
