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

    /// The function at an address seen at run time, in the reader's module.
    fn target(&self, address: u64) -> Option<LLVMValueRef> {
        let symbol = self.how.targets.get(&address)?;
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
                        Count::Switch(counts) => {
                            notes.set_weights(instruction, &per_edge(instruction, counts));
                        }
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
        let known = self.target(target.address);
        let Some(old) = known.and_then(|named| self.resolve(named)) else {
            return Ok(());
        };
        let old = self.reader.table().values[old.index()];
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
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use inkwell::llvm_sys::core::LLVMPrintModuleToString;

    use crate::compile::{Compile, Counters, Tier};
    use crate::context::take_message;
    use crate::extract::Extraction;
    use crate::fuzz::plan_alone;
    use crate::probe;
    use crate::profile::{Probes, Profile, ProfileError, Site};
    use crate::reader::{Bitcode, Reader};
    use crate::summary::SymbolId;

    const IR: &str = "
        declare i64 @llvm.expect.i64(i64, i64)
        declare void @far()
        define i32 @callee(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
        define i32 @wide(i64 %x) { ret i32 1 }
        define i32 @f(ptr %p, i32 %x) memory(read) {
        entry:
          %big = icmp sgt i32 %x, 9
          %wide = zext i1 %big to i64
          %likely = call i64 @llvm.expect.i64(i64 %wide, i64 1)
          %c = icmp ne i64 %likely, 0
          br i1 %c, label %many, label %call
        many:
          switch i32 %x, label %out [ i32 10, label %call i32 11, label %call i32 12, label %rare ]
        rare:
          br label %out
        call:
          %r = call i32 %p(i32 %x)
          br label %out
        out:
          %s = phi i32 [ 0, %many ], [ 1, %rare ], [ %r, %call ]
          ret i32 %s
        }";

    const SITES: [Site; 3] = [Site::Branch, Site::Switch { ways: 3 }, Site::Call];
    /// Where the pointer of the profile points to.
    const SEEN: u64 = 0x5000;

    fn id(reader: &Reader, name: &str) -> SymbolId {
        let symbols = &reader.summary().symbols;
        let index = symbols.iter().position(|s| s.name == name);
        SymbolId(index.expect("defined") as u32)
    }

    /// The unit of `function` before passes, its probes, and what became of profiles.
    fn unit(reader: &Reader, how: &Compile, function: &str) -> (String, Option<Probes>, String) {
        let plan = plan_alone(reader.summary());
        let mut extraction = Extraction::new(reader, &plan, "unit", how).expect("prepared");
        let body = extraction
            .add_function(id(reader, function))
            .expect("copied");
        let (context, module) = (reader.context().raw(), extraction.module.raw());
        let probes = match how.counters {
            // SAFETY: a live copy of an ordinary function.
            Counters::Full => unsafe { probe::insert(context, module, body) },
            _ => None,
        };
        extraction.apply_profiles().expect("applied");
        let unit = extraction.finish().expect("finished");
        // SAFETY: a live module; the text is ours.
        let text = unsafe { take_message(LLVMPrintModuleToString(unit.module.raw())) };
        let outcome = format!(
            "{} guided, {} promoted, {} refused",
            unit.guided_functions,
            unit.promoted,
            unit.refused.len()
        );
        (text, probes, outcome)
    }

    fn reader(ir: &str) -> Reader {
        let bitcode = Bitcode::from_ir_text("test.ll", ir).expect("valid IR");
        Reader::new(&bitcode).expect("readable")
    }

    /// Guided by a profile of `f` whose pointer led to `target`.
    fn guided(reader: &Reader, target: &str) -> Compile {
        let probes = Probes::of(SITES.to_vec()).expect("few words");
        let words = [50, 1000, 100, 0, 99, 1, SEEN, 980, 1000];
        let profile = Profile::new(&probes, &words).expect("as long");
        assert_eq!(profile.observed_targets(), [SEEN]);
        let profiles = HashMap::from([(id(reader, "f"), Arc::new(profile))]);
        let targets = HashMap::from([(SEEN, id(reader, target))]);
        Compile::at(Tier::Guided).guided(profiles, targets)
    }

    #[test]
    fn every_site_is_probed_without_new_branches() {
        let reader = reader(IR);
        let how = Compile::at(Tier::Optimized).counting(Counters::Full);
        let (text, probes, _) = unit(&reader, &how, "f");
        let probes = probes.expect("probed");
        assert_eq!((probes.sites(), probes.words()), (&SITES[..], 9));
        assert!(text.contains("@uruk.probes = external hidden global [9 x i64], align 8"));
        // Entry, two of the branch, three ways, and the call: last, same, all.
        let stores = text
            .lines()
            .filter(|l| l.contains("store i64") && l.contains("@uruk.probes"));
        assert_eq!(stores.count(), 9, "{text}");
        assert_eq!(text.matches("br i1").count(), 1, "{text}");
        // The ways to `out` and `call` are shared with other edges.
        assert_eq!(text.matches("phi i64").count(), 2, "{text}");
        assert!(
            text.contains("phi i64 [ 0, %2 ], [ 1, %14 ], [ 1, %14 ]"),
            "{text}"
        );
        // It writes now.
        assert!(!text.contains("memory(read)"), "{text}");
    }

    #[test]
    fn counts_become_weights() {
        let reader = reader(IR);
        let (text, _, outcome) = unit(&reader, &guided(&reader, "callee"), "f");
        assert_eq!(outcome, "1 guided, 1 promoted, 0 refused");
        for expected in [
            "!{!\"function_entry_count\", i64 50}",
            "!{!\"branch_weights\", i32 100, i32 900}",
            // By edge: out, then `call` twice, of 99.
            "!{!\"branch_weights\", i32 0, i32 50, i32 50, i32 1}",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains("call i64 @llvm.expect"), "{text}");
    }

    #[test]
    fn a_dominant_target_is_called_directly_behind_a_comparison() {
        let reader = reader(IR);
        let (text, ..) = unit(&reader, &guided(&reader, "callee"), "f");
        assert!(text.contains("icmp eq ptr %0, @callee"), "{text}");
        assert!(text.contains("call i32 @callee(i32 %1)"), "{text}");
        assert!(text.contains("call i32 %0(i32 %1)"), "{text}");
        assert!(
            text.contains("!{!\"branch_weights\", i32 980, i32 20}"),
            "{text}"
        );
        assert!(text.contains("define i32 @callee"), "{text}");
    }

    #[test]
    fn the_function_itself_is_compared_by_its_canonical_address() {
        let ir = "define i32 @f(ptr %p, i32 %x) {
            %r = call i32 %p(ptr %p, i32 %x)
            ret i32 %r
        }";
        let reader = reader(ir);
        let probes = Probes::of(vec![Site::Call]).expect("few words");
        let profile = Profile::new(&probes, &[1, SEEN, 99, 99]).expect("as long");
        let f = id(&reader, "f");
        let how = Compile::at(Tier::Guided).guided(
            HashMap::from([(f, Arc::new(profile))]),
            HashMap::from([(SEEN, f)]),
        );
        let (text, ..) = unit(&reader, &how, "f");
        assert!(text.contains("icmp eq ptr %0, @f\n"), "{text}");
        assert!(
            text.contains("call i32 @uruk.body.f(ptr %0, i32 %1)"),
            "{text}"
        );
    }

    #[test]
    fn targets_of_other_types_or_out_of_sight_are_not_promoted() {
        let reader = reader(IR);
        for target in ["wide", "far"] {
            let (text, _, outcome) = unit(&reader, &guided(&reader, target), "f");
            assert_eq!(outcome, "1 guided, 0 promoted, 0 refused");
            assert!(!text.contains("icmp eq ptr"), "{text}");
        }
    }

    #[test]
    fn a_profile_of_another_body_changes_nothing() {
        let mut reader = reader(&IR.replace("i32 12, label %rare", ""));
        let how = guided(&reader, "callee");
        let (text, _, outcome) = unit(&reader, &how, "f");
        assert_eq!(outcome, "0 guided, 0 promoted, 1 refused");
        assert!(!text.contains("branch_weights"), "{text}");
        let (plan, f) = (plan_alone(reader.summary()), id(&reader, "f"));
        let with = reader.compile(&plan, f, &how).expect("compiles");
        let error = &with.refused[0].error;
        assert!(
            matches!(error, ProfileError::Misfit { first: 1, .. }),
            "{error}"
        );
        let without = reader.compile(&plan, f, &Compile::at(Tier::Guided));
        assert_eq!(with.object, without.expect("compiles").object);
    }
}
