//! Which callees an optimized unit copies along, so that they can be inlined and so
//! that facts about them can be inferred from their bodies.
//!
//! Candidates are direct callees, and theirs, whose definition is the one calls really
//! reach. They are found breadth-first from the root, nearest first, until a bound is
//! met: instructions per candidate, instructions of all together (a multiple of the
//! root's), and depth. All bodies are read before anything is copied, see
//! [`Extraction::read_bodies`].
//!
//! A candidate is defined under its link name for as long as IR passes run, with
//! external linkage: only of an *exact* definition do passes infer attributes and
//! constant results, and only of a local one do they change the signature. Before code
//! is generated it becomes a declaration, so that what was not inlined is called
//! through its slot (see `optimize`).

use std::collections::VecDeque;

use inkwell::llvm_sys::core::{
    LLVMBasicBlockAsValue, LLVMCountParamTypes, LLVMCountStructElementTypes, LLVMGetCalledValue,
    LLVMGetElementType, LLVMGetFirstBasicBlock, LLVMGetFirstInstruction, LLVMGetFirstUse,
    LLVMGetInstructionOpcode, LLVMGetIntTypeWidth, LLVMGetIntrinsicID, LLVMGetNextBasicBlock,
    LLVMGetNextInstruction, LLVMGetNextUse, LLVMGetNumArgOperands, LLVMGetOperand,
    LLVMGetParamTypes, LLVMGetReturnType, LLVMGetTypeKind, LLVMGetUser, LLVMGetValueKind,
    LLVMGetVectorSize, LLVMGlobalGetValueType, LLVMIsAFunction, LLVMIsAInlineAsm,
    LLVMStructGetTypeAtIndex, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMLinkage, LLVMOpcode, LLVMTypeKind, LLVMValueKind};
use rustc_hash::FxHashSet;

use crate::body::is_call;
use crate::compile::Tier;
use crate::error::CodegenError;
use crate::extract::{Extraction, has_function_attribute};
use crate::globals::add_function_attribute;
use crate::summary::{Kind, Linkage, Placement, SymbolId};

/// How much is copied along, in instructions before optimization. Each costs 30 to 40 us
/// of passes, and most of tier 2 is spent on them. Measured, all functions at tier 2
/// against the same without candidates (per function, unoptimized input of -O3, rounded):
///
/// | | instructions | with candidates | CPU time alone | with candidates | ratio |
/// |---|---|---|---|---|---|
/// | sqlite | 115 | 351 | 5 ms | 15 ms | 3 |
/// | Lua | 67 | 359 | 3.5 ms | 12 ms | 3.5 |
///
/// In small functions it is `least` that counts. Whether smaller bounds would keep the
/// speed of the code has not been measured.
struct Bounds {
    /// Of one candidate. LLVM inlines a callee of cost 225, which is 45 instructions
    /// after simplification; unoptimized code has three to four times as many.
    each: u32,
    /// Of all together, in multiples of the root's.
    factor: u32,
    /// Of all together, whatever the root's size.
    least: u32,
    most: u32,
}

const OPTIMIZED: Bounds = Bounds {
    each: 150,
    factor: 2,
    least: 400,
    most: 15_000,
};

/// Constant arguments, and calls in loops, let larger callees in.
const GUIDED: Bounds = Bounds {
    each: 300,
    factor: 4,
    least: 1_500,
    most: 40_000,
};

/// Calls between the root and a candidate.
const DEPTH: u32 = 10;
/// Types inside types looked at to find a vector; deeper ones count as one.
const TYPE_DEPTH: u32 = 8;

/// What a walk over one body tells.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) instructions: u32,
    /// Functions called directly, each once, in the order of their first call.
    callees: Vec<LLVMValueRef>,
    /// True if the code passes or returns vectors in registers whose choice depends on
    /// the CPU's features.
    pub(crate) wide: bool,
    /// True if its labels' addresses are taken.
    labels: bool,
}

impl Extraction<'_> {
    /// Reads the root and its candidates, and defines the latter.
    pub(crate) fn add_candidates(&mut self, root: LLVMValueRef) -> Result<Scan, CodegenError> {
        let mut scan = scan(root);
        self.prefer(&mut scan, root);
        if self.how.alone || has_function_attribute(root, self.reader.kinds().presplit_coroutine) {
            return Ok(scan);
        }
        for (old, found) in self.choose_candidates(root, &scan) {
            self.define_candidate(old, &found)?;
        }
        Ok(scan)
    }

    fn choose_candidates(
        &mut self,
        root: LLVMValueRef,
        scan_of_root: &Scan,
    ) -> Vec<(LLVMValueRef, Scan)> {
        let bounds = match self.how.tier {
            Tier::Baseline | Tier::Optimized => OPTIMIZED,
            Tier::Guided => GUIDED,
        };
        let budget = scan_of_root
            .instructions
            .saturating_mul(bounds.factor)
            .clamp(bounds.least, bounds.most);
        let mut used = 0;
        let mut seen = FxHashSet::default();
        seen.insert(root);
        let mut chosen = Vec::new();
        let mut found: VecDeque<(LLVMValueRef, u32)> =
            scan_of_root.callees.iter().map(|&f| (f, 1)).collect();
        while let Some((callee, depth)) = found.pop_front() {
            let Some(old) = self.candidate(callee) else {
                continue;
            };
            // A body that cannot be read is an error where it is compiled itself.
            if !seen.insert(old) || self.read_bodies(old).is_err() {
                continue;
            }
            let mut scan = scan(old);
            if scan.labels || scan.instructions > bounds.each || used + scan.instructions > budget {
                continue;
            }
            used += scan.instructions;
            self.prefer(&mut scan, old);
            if depth < DEPTH {
                found.extend(scan.callees.iter().map(|&f| (f, depth + 1)));
            }
            chosen.push((old, scan));
        }
        self.candidate_instructions = used;
        chosen
    }

    /// Puts the functions that `old` is known to call indirectly before the others.
    fn prefer(&mut self, scan: &mut Scan, old: LLVMValueRef) {
        let targets = self.take_profile(old);
        scan.callees.splice(0..0, targets);
    }

    /// The function a direct call of `callee` reaches, if its body may be copied.
    fn candidate(&self, callee: LLVMValueRef) -> Option<LLVMValueRef> {
        let summary = self.reader.summary();
        let id = self.resolve(callee)?;
        let info = &summary.symbols[id.index()];
        let copyable = info.kind == Kind::Function
            && info.placement == Placement::Own
            && !info.always_inline
            && !self.plan.import(id).replaced
            && (self.plan.import(id).defined || info.linkage == Linkage::Available);
        let old = self.reader.table().values[id.index()];
        let kinds = self.reader.kinds();
        let has = |kind| has_function_attribute(old, kind);
        let inlinable = copyable
            && (!has(kinds.noinline) || has(kinds.optnone))
            && !has(kinds.naked)
            && !has(kinds.returns_twice)
            && !has(kinds.presplit_coroutine);
        inlinable.then_some(old)
    }

    /// The symbol a direct callee names, looking through aliases whose definition is
    /// the bound one.
    pub(crate) fn resolve(&self, callee: LLVMValueRef) -> Option<SymbolId> {
        let mut id = *self.reader.table().index.get(&callee)?;
        for _ in 0..64 {
            match self.reader.summary().symbols[id.index()].kind {
                Kind::Alias {
                    base: Some(base),
                    exact: true,
                } if self.plan.import(id).defined => id = base,
                _ => return Some(id),
            }
        }
        None
    }

    fn define_candidate(&mut self, old: LLVMValueRef, scan: &Scan) -> Result<(), CodegenError> {
        let id = self.reader.table().index[&old];
        let name = self.plan.import(id).name.to_string();
        let new = self.define_function(old, &name, LLVMLinkage::LLVMExternalLinkage)?;
        add_function_attribute(new, self.reader.kinds().nonlazybind);
        self.prepare_for_optimizing(old, new, scan.wide);
        self.values.insert(old, new);
        self.with_labels.insert(old, new);
        self.candidates.push((id, name));
        self.pending.push_back((old, new));
        Ok(())
    }
}

/// Walks a body that was read.
pub(crate) fn scan(function: LLVMValueRef) -> Scan {
    let mut scan = Scan::default();
    let mut seen = FxHashSet::default();
    // SAFETY: walks types, blocks and instructions of a live function; call operands
    // are asked for of calls only.
    unsafe {
        let ty = LLVMGlobalGetValueType(function);
        let mut parameters = vec![std::ptr::null_mut(); LLVMCountParamTypes(ty) as usize];
        LLVMGetParamTypes(ty, parameters.as_mut_ptr());
        parameters.push(LLVMGetReturnType(ty));
        scan.wide = parameters.iter().any(|&ty| is_wide(ty, 0));
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            scan.labels |= is_label(block);
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                scan.instructions = scan.instructions.saturating_add(1);
                let opcode = LLVMGetInstructionOpcode(instruction);
                if is_call(opcode) {
                    scan_call(instruction, &mut scan, &mut seen);
                }
                scan.labels |=
                    matches!(opcode, LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMCallBr);
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    scan
}

/// # Safety
/// `call` is a live call.
unsafe fn scan_call(call: LLVMValueRef, scan: &mut Scan, seen: &mut FxHashSet<LLVMValueRef>) {
    // SAFETY: by the caller's promise; arguments are the first operands.
    unsafe {
        let callee = LLVMGetCalledValue(call);
        let is_function = !LLVMIsAFunction(callee).is_null();
        if (is_function && LLVMGetIntrinsicID(callee) != 0) || !LLVMIsAInlineAsm(callee).is_null() {
            return;
        }
        scan.wide = scan.wide
            || is_wide(LLVMTypeOf(call), 0)
            || (0..LLVMGetNumArgOperands(call))
                .any(|i| is_wide(LLVMTypeOf(LLVMGetOperand(call, i)), 0));
        let direct =
            is_function || LLVMGetValueKind(callee) == LLVMValueKind::LLVMGlobalAliasValueKind;
        if direct && seen.insert(callee) {
            scan.callees.push(callee);
        }
    }
}

/// True if the address of `block` is a constant somewhere.
///
/// # Safety
/// `block` is live.
unsafe fn is_label(block: LLVMBasicBlockRef) -> bool {
    // SAFETY: walks the use list of a live value.
    unsafe {
        let mut item = LLVMGetFirstUse(LLVMBasicBlockAsValue(block));
        while !item.is_null() {
            if LLVMGetValueKind(LLVMGetUser(item)) == LLVMValueKind::LLVMBlockAddressValueKind {
                return true;
            }
            item = LLVMGetNextUse(item);
        }
    }
    false
}

/// True if values of `ty` may travel in other registers when features are added: all
/// vectors but those of at most 128 bits whose elements are ordinary numbers.
///
/// # Safety
/// `ty` is a live type.
unsafe fn is_wide(ty: LLVMTypeRef, depth: u32) -> bool {
    // SAFETY: by the caller's promise; each question fits the kind of type.
    unsafe {
        match LLVMGetTypeKind(ty) {
            LLVMTypeKind::LLVMVectorTypeKind => {
                let element = LLVMGetElementType(ty);
                let bits = match LLVMGetTypeKind(element) {
                    LLVMTypeKind::LLVMIntegerTypeKind => LLVMGetIntTypeWidth(element),
                    LLVMTypeKind::LLVMFloatTypeKind => 32,
                    LLVMTypeKind::LLVMDoubleTypeKind | LLVMTypeKind::LLVMPointerTypeKind => 64,
                    _ => return true,
                };
                let count = LLVMGetVectorSize(ty);
                !matches!(bits, 8 | 16 | 32 | 64)
                    || !count.is_power_of_two()
                    || count.saturating_mul(bits) > 128
            }
            LLVMTypeKind::LLVMScalableVectorTypeKind => true,
            LLVMTypeKind::LLVMArrayTypeKind => {
                depth >= TYPE_DEPTH || is_wide(LLVMGetElementType(ty), depth + 1)
            }
            LLVMTypeKind::LLVMStructTypeKind => {
                depth >= TYPE_DEPTH
                    || (0..LLVMCountStructElementTypes(ty))
                        .any(|i| is_wide(LLVMStructGetTypeAtIndex(ty, i), depth + 1))
            }
            _ => false,
        }
    }
}
