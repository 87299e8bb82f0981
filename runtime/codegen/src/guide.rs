//! Profiles at work: a unit's root, and its candidates, get what their probes counted.
//!
//! Branches and switches get `branch_weights`, functions their entry count; LLVM's
//! inliner, block placement and spill placement do the rest. What the source expected
//! (`llvm.expect`) gives way to what was counted.
//!
//! An indirect call with one dominant target is *promoted*: `if (pointer == &target)
//! target(..) else pointer(..)`. The comparison is with the canonical address, which is
//! what pointers hold; the direct call reaches the candidate, so that it can be inlined.
//! A target that is not among the candidates is not worth the comparison, since both
//! arms would call through memory. The transformation is LLVM's own
//! (`llvm/Transforms/Utils/CallPromotionUtils.h`), which LLVM-C does not offer; here
//! types, calling convention and the attributes of the ABI must match exactly.

use std::ffi::c_char;

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMConstInt, LLVMCountParams, LLVMGetCallSiteEnumAttribute, LLVMGetCalledFunctionType,
    LLVMGetCalledValue, LLVMGetEnumAttributeAtIndex, LLVMGetFirstBasicBlock,
    LLVMGetFirstInstruction, LLVMGetFunctionCallConv, LLVMGetInstructionCallConv,
    LLVMGetInstructionOpcode, LLVMGetIntrinsicID, LLVMGetMDKindIDInContext, LLVMGetNextBasicBlock,
    LLVMGetNextInstruction, LLVMGetNumOperands, LLVMGetNumSuccessors, LLVMGetOperand,
    LLVMGetSuccessor, LLVMGlobalGetValueType, LLVMGlobalSetMetadata,
    LLVMInstructionEraseFromParent, LLVMInt32TypeInContext, LLVMInt64TypeInContext,
    LLVMIsAFunction, LLVMLookupIntrinsicID, LLVMMDNodeInContext2, LLVMMDStringInContext2,
    LLVMMetadataAsValue, LLVMReplaceAllUsesWith, LLVMSetMetadata, LLVMSetOperand,
    LLVMValueAsMetadata,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef, LLVMValueRef};

use crate::error::CodegenError;
use crate::extract::Extraction;
use crate::probe;
use crate::profile::{Count, Refused, Site, Target, weights};

unsafe extern "C" {
    /// `llvm::isLegalToPromote(const CallBase &, Function *, const char **)`.
    #[link_name = "_ZN4llvm16isLegalToPromoteERKNS_8CallBaseEPNS_8FunctionEPPKc"]
    fn is_legal_to_promote(
        call: LLVMValueRef,
        callee: LLVMValueRef,
        reason: *mut *const c_char,
    ) -> bool;

    /// `llvm::promoteCallWithIfThenElse(CallBase &, Function *, MDNode *)`; the direct
    /// call.
    #[link_name = "_ZN4llvm25promoteCallWithIfThenElseERNS_8CallBaseEPNS_8FunctionEPNS_6MDNodeE"]
    fn promote_call(
        call: LLVMValueRef,
        callee: LLVMValueRef,
        weights: LLVMMetadataRef,
    ) -> LLVMValueRef;
}

impl Extraction<'_> {
    /// Takes up the profile given for `old`, whose body was read, if it fits; the
    /// dominant targets of its indirect calls.
    pub(crate) fn take_profile(&mut self, old: LLVMValueRef) -> Vec<LLVMValueRef> {
        let Some(&function) = self.reader.table().index.get(&old) else {
            return Vec::new();
        };
        let Some(profile) = self.how.profiles.get(&function).cloned() else {
            return Vec::new();
        };
        // SAFETY: a live function whose body was read and verified.
        let found = unsafe { probe::sites(old) };
        let sites: Vec<Site> = found.into_iter().map(|(site, _)| site).collect();
        if let Err(error) = profile.fits(&sites) {
            self.refused.push(Refused { function, error });
            return Vec::new();
        }
        if profile.is_empty() {
            return Vec::new();
        }
        let targets = profile.observed_targets();
        self.guided.push((old, profile));
        targets
            .into_iter()
            .filter_map(|address| self.target(address))
            .collect()
    }

    /// The function at an address seen at run time, in the reader's module or a parcel.
    fn target(&self, address: u64) -> Option<LLVMValueRef> {
        let Some(symbol) = self.how.targets.get(&address) else {
            return self.offered(address);
        };
        self.reader.table().values.get(symbol.index()).copied()
    }

    /// Applies the profiles taken up; after the bodies were copied.
    pub(crate) fn apply_profiles(&mut self) -> Result<(), CodegenError> {
        for (old, profile) in self.guided.clone() {
            let Some(&new) = self.with_labels.get(&old) else {
                continue;
            };
            let notes = Notes::new(self.reader.context().raw());
            // SAFETY: a complete copy of ours. Its sites are those of the original: the
            // copy keeps blocks and instructions in order, and probes add no sites.
            unsafe {
                notes.set_entries(new, profile.entries());
                let found = probe::sites(new);
                drop_expectations(new);
                let mut calls = Vec::new();
                for ((_, instruction), count) in found.into_iter().zip(profile.counts()) {
                    match count {
                        Count::Branch { executed, taken } => {
                            notes.set_weights(instruction, &[taken, executed - taken]);
                        }
                        Count::Switch(counts) if counts.len() <= MOST_WAYS => {
                            notes.set_weights(instruction, &per_edge(instruction, counts));
                        }
                        Count::Switch(_) => {}
                        Count::Call(target) => calls.push((instruction, target)),
                    }
                }
                for (call, target) in calls {
                    self.promote(&notes, call, target)?;
                }
            }
            self.guided_functions += 1;
        }
        Ok(())
    }

    /// # Safety
    /// A live indirect call of a copy.
    unsafe fn promote(
        &mut self,
        notes: &Notes,
        call: LLVMValueRef,
        target: Target,
    ) -> Result<(), CodegenError> {
        let Some(known) = self.target(target.address) else {
            return Ok(());
        };
        // Parcels are no symbols of the module.
        let old = match self.resolve(known) {
            Some(id) => self.reader.table().values[id.index()],
            None => known,
        };
        let Some(&body) = self.with_labels.get(&old) else {
            return Ok(());
        };
        if !target.is_dominant() {
            return Ok(());
        }
        // Of the root, the body has another name than its canonical address.
        let named = self.map_global(old)?;
        // SAFETY: by the caller's promise; both are functions of this module, and the
        // callee is a call's last operand.
        unsafe {
            if LLVMIsAFunction(named).is_null()
                || !self.calls_alike(call, body)
                || !is_legal_to_promote(call, named, std::ptr::null_mut())
            {
                return Ok(());
            }
            let rest = target.calls - target.same;
            let Some(weights) = notes.weights(&[target.same, rest]) else {
                return Ok(());
            };
            let direct = promote_call(call, named, weights);
            LLVMSetOperand(direct, LLVMGetNumOperands(direct) as u32 - 1, body);
        }
        self.promoted += 1;
        Ok(())
    }

    /// True if `call` passes and returns values exactly as `callee` takes and gives
    /// them.
    ///
    /// # Safety
    /// A live call and a live function.
    unsafe fn calls_alike(&self, call: LLVMValueRef, callee: LLVMValueRef) -> bool {
        // SAFETY: by the caller's promise; with equal types both have the same
        // parameters. Types and attributes are unique in their context.
        unsafe {
            if LLVMGetCalledFunctionType(call) != LLVMGlobalGetValueType(callee)
                || LLVMGetInstructionCallConv(call) != LLVMGetFunctionCallConv(callee)
            {
                return false;
            }
            let kinds = &self.reader.kinds().of_calls;
            (0..=LLVMCountParams(callee)).all(|index| {
                kinds.iter().all(|&kind| {
                    LLVMGetCallSiteEnumAttribute(call, index, kind)
                        == LLVMGetEnumAttributeAtIndex(callee, index, kind)
                })
            })
        }
    }
}

/// Ways of a switch up to which its counts are used. For more LLVM makes a jump table,
/// which weights only take apart: a bytecode interpreter's loop of seven ways took 114 us
/// an iteration with weights and 70 without (the demo `tiers`).
const MOST_WAYS: usize = 4;

/// Weights of a switch's edges: where several go to one block, each gets its share.
///
/// # Safety
/// A live switch or computed goto; `counts` has an entry per distinct successor.
unsafe fn per_edge(terminator: LLVMValueRef, counts: &[u64]) -> Vec<u64> {
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
/// A live function with a well-formed body.
unsafe fn drop_expectations(function: LLVMValueRef) {
    let kinds = ["llvm.expect", "llvm.expect.with.probability"].map(|name| {
        // SAFETY: pointer and length describe the name.
        unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
    });
    // SAFETY: by the caller's promise; the next instruction is asked for before one is
    // erased, and both intrinsics return their first argument.
    unsafe {
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            let mut next = LLVMGetFirstInstruction(block);
            while !next.is_null() {
                let instruction = next;
                next = LLVMGetNextInstruction(instruction);
                if LLVMGetInstructionOpcode(instruction) != LLVMOpcode::LLVMCall {
                    continue;
                }
                let callee = LLVMGetCalledValue(instruction);
                if !LLVMIsAFunction(callee).is_null() && kinds.contains(&LLVMGetIntrinsicID(callee))
                {
                    LLVMReplaceAllUsesWith(instruction, LLVMGetOperand(instruction, 0));
                    LLVMInstructionEraseFromParent(instruction);
                }
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
}

/// Writes `!prof` metadata of one context.
struct Notes {
    context: LLVMContextRef,
    kind: u32,
}

impl Notes {
    fn new(context: LLVMContextRef) -> Notes {
        let name = "prof";
        // SAFETY: a live context; pointer and length describe the name.
        let kind =
            unsafe { LLVMGetMDKindIDInContext(context, name.as_ptr().cast(), name.len() as u32) };
        Notes { context, kind }
    }

    fn node(&self, name: &str, numbers: &[LLVMValueRef]) -> LLVMMetadataRef {
        // SAFETY: a live context and constants of it; pointers and lengths fit.
        unsafe {
            let name = LLVMMDStringInContext2(self.context, name.as_ptr().cast(), name.len());
            let numbers = numbers.iter().map(|&number| LLVMValueAsMetadata(number));
            let mut all: Vec<LLVMMetadataRef> = std::iter::once(name).chain(numbers).collect();
            LLVMMDNodeInContext2(self.context, all.as_mut_ptr(), all.len())
        }
    }

    /// `None` if nothing was counted.
    fn weights(&self, counts: &[u64]) -> Option<LLVMMetadataRef> {
        // SAFETY: a live context.
        let ty = unsafe { LLVMInt32TypeInContext(self.context) };
        let weights = weights(counts)?.into_iter();
        // SAFETY: a live type.
        let weights = weights.map(|weight| unsafe { LLVMConstInt(ty, u64::from(weight), 0) });
        Some(self.node("branch_weights", &weights.collect::<Vec<_>>()))
    }

    /// # Safety
    /// A live terminator with as many successors as counts.
    unsafe fn set_weights(&self, terminator: LLVMValueRef, counts: &[u64]) {
        if let Some(weights) = self.weights(counts) {
            // SAFETY: by the caller's promise.
            unsafe {
                let value = LLVMMetadataAsValue(self.context, weights);
                LLVMSetMetadata(terminator, self.kind, value);
            }
        }
    }

    /// # Safety
    /// A live function.
    unsafe fn set_entries(&self, function: LLVMValueRef, entries: u64) {
        // SAFETY: by the caller's promise. A function that runs was entered, even if
        // that was before it counted.
        unsafe {
            let count = LLVMConstInt(LLVMInt64TypeInContext(self.context), entries.max(1), 0);
            let node = self.node("function_entry_count", &[count]);
            LLVMGlobalSetMetadata(function, self.kind, node);
        }
    }
}

#[cfg(test)]
mod tests;
