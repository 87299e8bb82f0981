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
use std::sync::OnceLock;

use inkwell::llvm_sys::core::{
    LLVMBasicBlockAsValue, LLVMCountParamTypes, LLVMCountStructElementTypes, LLVMGetCalledValue,
    LLVMGetElementType, LLVMGetFirstBasicBlock, LLVMGetFirstInstruction, LLVMGetFirstUse,
    LLVMGetInitializer, LLVMGetInstructionOpcode, LLVMGetIntTypeWidth, LLVMGetIntrinsicID,
    LLVMGetNextBasicBlock, LLVMGetNextInstruction, LLVMGetNextUse, LLVMGetNumArgOperands,
    LLVMGetNumOperands, LLVMGetOperand, LLVMGetParamTypes, LLVMGetReturnType, LLVMGetTypeKind,
    LLVMGetUnnamedAddress, LLVMGetUser, LLVMGetValueKind, LLVMGetVectorSize,
    LLVMGlobalGetValueType, LLVMIsAAllocaInst, LLVMIsAFunction, LLVMIsAInlineAsm,
    LLVMIsGlobalConstant, LLVMLookupIntrinsicID, LLVMSetUnnamedAddress, LLVMStructGetTypeAtIndex,
    LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMLinkage, LLVMOpcode, LLVMTypeKind, LLVMValueKind};
use rustc_hash::FxHashSet;

use crate::body::is_call;
use crate::compile::{DependenceKind, Tier};
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
    /// [`Scan::cost`] of one candidate.
    each: u32,
    /// Instructions of one candidate after simplification.
    kept: u32,
    /// Instructions of all that one unit wants simplified, in multiples of the root's.
    factor: u32,
    /// Of all together, whatever the root's size.
    least: u32,
    most: u32,
}

impl Bounds {
    fn budget(&self, instructions: u32) -> u32 {
        instructions
            .saturating_mul(self.factor)
            .clamp(self.least, self.most)
    }
}

/// LLVM inlines a callee of cost 225, or more where arguments are constants.
const OPTIMIZED: Bounds = Bounds {
    each: 450,
    kept: 100,
    factor: 4,
    least: 1_000,
    most: 15_000,
};

/// A call that is known to be hot lets larger callees in.
const GUIDED: Bounds = Bounds {
    each: 1_000,
    kept: 300,
    factor: 4,
    least: 2_000,
    most: 40_000,
};

/// [`Scan::cost`] of candidates that no budget counts.
const TINY: u32 = 60;

/// Calls between the root and a candidate.
const DEPTH: u32 = 24;
/// Parts of a constant up to which it is searched for functions.
const TABLE_PARTS: u32 = 12;
/// Types inside types looked at to find a vector; deeper ones count as one.
const TYPE_DEPTH: u32 = 8;

/// What a walk over one body tells.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) instructions: u32,
    /// What LLVM's inliner is likely to count for it once it is simplified.
    cost: u32,
    /// Functions called directly, each once, in the order of their first call.
    callees: Vec<LLVMValueRef>,
    /// Functions whose addresses are used, or are in a small constant that is: tables
    /// of methods. What is inlined may call them directly.
    mentioned: Vec<LLVMValueRef>,
    /// True if the code passes or returns vectors in registers whose choice depends on
    /// the CPU's features.
    pub(crate) wide: bool,
    /// True if its labels' addresses are taken.
    labels: bool,
    /// True if it asks for addresses in its own frame.
    frame: bool,
}

/// A callee that is to be simplified.
pub(crate) struct Found {
    pub(crate) function: LLVMValueRef,
    pub(crate) wide: bool,
    /// The candidates it calls.
    pub(crate) callees: Vec<LLVMValueRef>,
}

impl Scan {
    /// What code could call directly once callees are inlined.
    fn in_sight(&self) -> impl Iterator<Item = LLVMValueRef> {
        self.callees.iter().chain(&self.mentioned).copied()
    }
}

impl Extraction<'_> {
    /// Reads the root and its candidates, and defines the latter: as they are in the
    /// library, or, with a profile of their own, as they are.
    pub(crate) fn add_candidates(&mut self, root: LLVMValueRef) -> Result<Scan, CodegenError> {
        let mut scan = scan(root);
        self.prefer(&mut scan, root);
        if self.how.alone || has_function_attribute(root, self.reader.kinds().presplit_coroutine) {
            return Ok(scan);
        }
        let bounds = self.bounds();
        let mut budget = bounds.budget(scan.instructions);
        let mut seen = FxHashSet::default();
        seen.insert(root);
        let mut found: VecDeque<LLVMValueRef> = self.callees(&scan).into();
        while let Some(old) = found.pop_front() {
            if !seen.insert(old) {
                continue;
            }
            if !self.has_profile(old) {
                self.define_kept(old)?;
                continue;
            }
            let Some(mut scan) = self.look_at(old, &bounds, &mut budget) else {
                continue;
            };
            self.prefer(&mut scan, old);
            found.extend(self.callees(&scan));
            self.candidate_instructions += scan.instructions;
            let name = self.define_candidate(old, scan.wide)?;
            self.candidates
                .push((self.reader.table().index[&old], name));
        }
        Ok(scan)
    }

    /// The candidates of `root`, and theirs, that the library does not know.
    pub(crate) fn missing_candidates(
        &mut self,
        root: LLVMValueRef,
    ) -> Result<Vec<Found>, CodegenError> {
        self.read_bodies(root)?;
        let mut scan = scan(root);
        self.prefer(&mut scan, root);
        if has_function_attribute(root, self.reader.kinds().presplit_coroutine) {
            return Ok(Vec::new());
        }
        let bounds = self.bounds();
        let mut budget = bounds.budget(scan.instructions);
        let mut seen = FxHashSet::default();
        seen.insert(root);
        let mut missing = Vec::new();
        let callees = self.callees(&scan);
        let mut found: VecDeque<(LLVMValueRef, u32)> =
            callees.into_iter().map(|old| (old, 1)).collect();
        while let Some((old, depth)) = found.pop_front() {
            let symbol = self.reader.table().index[&old];
            if !seen.insert(old) || self.reader.library().knows(symbol) {
                continue;
            }
            let Some(mut scan) = self.look_at(old, &bounds, &mut budget) else {
                continue;
            };
            let profiled = self.has_profile(old);
            if profiled {
                self.prefer(&mut scan, old);
            }
            let callees = self.callees(&scan);
            if depth < DEPTH {
                found.extend(callees.iter().map(|&callee| (callee, depth + 1)));
            }
            if !profiled {
                missing.push(Found {
                    function: old,
                    wide: scan.wide,
                    callees,
                });
            }
        }
        Ok(missing)
    }

    fn bounds(&self) -> Bounds {
        match self.how.tier {
            Tier::Baseline | Tier::Optimized => OPTIMIZED,
            Tier::Guided => GUIDED,
        }
    }

    fn has_profile(&self, old: LLVMValueRef) -> bool {
        let symbol = self.reader.table().index.get(&old);
        symbol.is_some_and(|symbol| self.how.profiles.contains_key(symbol))
    }

    /// Reads a candidate's body; `None` if it cannot be one, or is beyond the bounds.
    fn look_at(&mut self, old: LLVMValueRef, bounds: &Bounds, budget: &mut u32) -> Option<Scan> {
        // A body that cannot be read is an error where it is compiled itself.
        self.read_bodies(old).ok()?;
        let scan = scan(old);
        if scan.labels || scan.cost > bounds.each || (scan.frame && self.is_unoptimized(old)) {
            return None;
        }
        if scan.cost > TINY {
            *budget = budget.checked_sub(scan.instructions)?;
        }
        Some(scan)
    }

    /// True for what clang compiled at -O0, where it marks every function `noinline`: the
    /// source may have said so too.
    fn is_unoptimized(&self, old: LLVMValueRef) -> bool {
        has_function_attribute(old, self.reader.kinds().optnone)
    }

    /// The candidates a body calls, also from `alwaysinline` functions it calls, in the
    /// order of their first call.
    fn callees(&mut self, scan_of_caller: &Scan) -> Vec<LLVMValueRef> {
        let mut seen = FxHashSet::default();
        let mut callees = Vec::new();
        let mut left: VecDeque<LLVMValueRef> = scan_of_caller.in_sight().collect();
        while let Some(callee) = left.pop_front() {
            if !seen.insert(callee) {
                continue;
            }
            if self.is_inline_body(callee) {
                if self.read_bodies(callee).is_ok() {
                    left.extend(scan(callee).in_sight());
                }
            } else if let Some(old) = self.candidate(callee) {
                callees.push(old);
            }
        }
        callees
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
            && (!has(kinds.optnone) || !has(kinds.protect_all))
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

    /// Defines a candidate from its body in the reader's module; its link name.
    pub(crate) fn define_candidate(
        &mut self,
        old: LLVMValueRef,
        wide: bool,
    ) -> Result<String, CodegenError> {
        let id = self.reader.table().index[&old];
        let name = self.plan.import(id).name.to_string();
        let new = self.define_function(old, &name, LLVMLinkage::LLVMExternalLinkage)?;
        add_function_attribute(new, self.reader.kinds().nonlazybind);
        self.prepare_for_optimizing(old, new, wide);
        self.values.insert(old, new);
        self.with_labels.insert(old, new);
        self.pending.push_back((old, new));
        Ok(name)
    }

    /// Defines a candidate from its simplified body, unless there is none or it is too
    /// large to be inlined.
    pub(crate) fn define_kept(&mut self, old: LLVMValueRef) -> Result<(), CodegenError> {
        let reader = self.reader;
        let id = reader.table().index[&old];
        let Some(entry) = reader.library().entry(self.plan, id) else {
            return Ok(());
        };
        if self.with_labels.contains_key(&old) || entry.instructions > self.bounds().kept {
            return Ok(());
        }
        let name = self.plan.import(id).name.to_string();
        self.bodies_read.insert(entry.function);
        let linkage = match entry.constant {
            true => LLVMLinkage::LLVMExternalLinkage,
            false => LLVMLinkage::LLVMAvailableExternallyLinkage,
        };
        let new = self.define_function(entry.function, &name, linkage)?;
        // Passes that saw the shelf only know no use of its address.
        // SAFETY: live functions of one type.
        unsafe { LLVMSetUnnamedAddress(new, LLVMGetUnnamedAddress(old)) };
        self.values.insert(old, new);
        self.with_labels.insert(old, new);
        self.pending.push_back((entry.function, new));
        self.kept.push(new);
        if entry.constant {
            self.candidates.push((id, name));
        }
        self.candidate_instructions += entry.instructions;
        for used in &entry.uses {
            match used.kind {
                DependenceKind::Body => self.inlined.push(used.symbol),
                DependenceKind::Fact => {
                    self.facts.insert(used.symbol);
                }
            }
        }
        Ok(())
    }
}

/// Walks a body that was read.
pub(crate) fn scan(function: LLVMValueRef) -> Scan {
    let mut scan = Scan::default();
    let mut seen = FxHashSet::default();
    let mut mentioned = FxHashSet::default();
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
                scan.cost = scan.cost.saturating_add(cost(instruction, opcode));
                if is_call(opcode) {
                    scan_call(instruction, &mut scan, &mut seen);
                }
                scan_operands(instruction, &mut scan.mentioned, &mut mentioned);
                scan.labels |=
                    matches!(opcode, LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMCallBr);
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    scan
}

/// An estimate of what an instruction costs when a function is inlined, after
/// simplification: 5, but nothing for what becomes a register or is folded into another
/// instruction, and 10 for a call, which may be inlined itself.
///
/// # Safety
/// A live instruction with that opcode.
unsafe fn cost(instruction: LLVMValueRef, opcode: LLVMOpcode) -> u32 {
    // SAFETY: by the caller's promise; loads have one operand, stores two.
    unsafe {
        let is_local = |index| !LLVMIsAAllocaInst(LLVMGetOperand(instruction, index)).is_null();
        match opcode {
            LLVMOpcode::LLVMAlloca
            | LLVMOpcode::LLVMPHI
            | LLVMOpcode::LLVMBitCast
            | LLVMOpcode::LLVMPtrToInt
            | LLVMOpcode::LLVMIntToPtr
            | LLVMOpcode::LLVMFreeze
            | LLVMOpcode::LLVMUnreachable
            | LLVMOpcode::LLVMRet => 0,
            LLVMOpcode::LLVMLoad if is_local(0) => 0,
            LLVMOpcode::LLVMStore if is_local(1) => 0,
            LLVMOpcode::LLVMBr if LLVMGetNumOperands(instruction) == 1 => 0,
            LLVMOpcode::LLVMTrunc
            | LLVMOpcode::LLVMZExt
            | LLVMOpcode::LLVMSExt
            | LLVMOpcode::LLVMGetElementPtr => 2,
            _ if is_call(opcode) => {
                let callee = LLVMGetCalledValue(instruction);
                let is_intrinsic =
                    !LLVMIsAFunction(callee).is_null() && LLVMGetIntrinsicID(callee) != 0;
                match (is_intrinsic, LLVMGetTypeKind(LLVMTypeOf(instruction))) {
                    // Marks of lifetimes and the like; or copies of memory.
                    (true, LLVMTypeKind::LLVMVoidTypeKind) => 2,
                    (true, _) => 5,
                    (false, _) => 10,
                }
            }
            _ => 5,
        }
    }
}

/// Collects the functions whose addresses an instruction uses.
///
/// # Safety
/// A live instruction.
unsafe fn scan_operands(
    instruction: LLVMValueRef,
    functions: &mut Vec<LLVMValueRef>,
    seen: &mut FxHashSet<LLVMValueRef>,
) {
    // SAFETY: by the caller's promise; a call's last operand is its callee.
    unsafe {
        let is_call = is_call(LLVMGetInstructionOpcode(instruction));
        let count = LLVMGetNumOperands(instruction).max(0) as u32;
        for index in 0..count - u32::from(is_call && count != 0) {
            let operand = LLVMGetOperand(instruction, index);
            if operand.is_null() {
                continue;
            }
            match LLVMGetValueKind(operand) {
                LLVMValueKind::LLVMFunctionValueKind => {
                    functions.extend(seen.insert(operand).then_some(operand));
                }
                LLVMValueKind::LLVMGlobalVariableValueKind
                    if LLVMIsGlobalConstant(operand) != 0 && seen.insert(operand) =>
                {
                    scan_table(operand, functions, seen);
                }
                _ => {}
            }
        }
    }
}

/// Collects the functions in a constant, if it has few parts.
///
/// # Safety
/// A live constant variable.
unsafe fn scan_table(
    table: LLVMValueRef,
    functions: &mut Vec<LLVMValueRef>,
    seen: &mut FxHashSet<LLVMValueRef>,
) {
    // SAFETY: by the caller's promise; only aggregates are asked for their parts.
    unsafe {
        let value = LLVMGetInitializer(table);
        if value.is_null()
            || !matches!(
                LLVMGetValueKind(value),
                LLVMValueKind::LLVMConstantStructValueKind
                    | LLVMValueKind::LLVMConstantArrayValueKind
            )
        {
            return;
        }
        let count = LLVMGetNumOperands(value).max(0) as u32;
        if count > TABLE_PARTS {
            return;
        }
        for part in (0..count).map(|index| LLVMGetOperand(value, index)) {
            if !LLVMIsAFunction(part).is_null() && seen.insert(part) {
                functions.push(part);
            }
        }
    }
}

/// # Safety
/// `call` is a live call.
unsafe fn scan_call(call: LLVMValueRef, scan: &mut Scan, seen: &mut FxHashSet<LLVMValueRef>) {
    // SAFETY: by the caller's promise; arguments are the first operands.
    unsafe {
        let callee = LLVMGetCalledValue(call);
        let is_function = !LLVMIsAFunction(callee).is_null();
        let intrinsic = match is_function {
            true => LLVMGetIntrinsicID(callee),
            false => 0,
        };
        if intrinsic != 0 || !LLVMIsAInlineAsm(callee).is_null() {
            scan.frame |= frame_intrinsics().contains(&intrinsic);
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

/// Intrinsics whose results tell whether a function was inlined.
fn frame_intrinsics() -> &'static [u32; 3] {
    static IDS: OnceLock<[u32; 3]> = OnceLock::new();
    IDS.get_or_init(|| {
        [
            "llvm.returnaddress",
            "llvm.frameaddress",
            "llvm.addressofreturnaddress",
        ]
        .map(|name| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
        })
    })
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
