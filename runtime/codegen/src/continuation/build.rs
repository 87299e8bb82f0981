//! The version of a function that starts at the head of a loop.
//!
//! The body is a complete copy in a module of ours. The continuation is another function of that
//! module: an entry that takes over what crosses, then copies of the blocks that are reached.
//! What is used beyond its block goes through an `alloca` each, which the first pass makes
//! registers again: so that an entry in the middle of what dominates what is no concern here.
//!
//! # The nest stays whole
//! Entering an inner loop would put a second way into the loops around it, and no pass touches
//! a loop with two. So the rest of the iterations that are under way is peeled: with the loops
//! `s0` (the head that is entered) to `sm` (the outermost) there are `m + 1` copies. Copy `k`
//! starts at the head of `sk` and holds the rest of one iteration of the loop around it, up to
//! its head, which belongs to copy `k + 1`. The last copy is the nest as it was, entered at its
//! head. Which copy a block is taken from, by the loops it is in:
//!
//! ```text
//! least i > 0 with block in si       -> copy i - 1, or the one that is under way if that is later
//! the head of si, i > k under way    -> copy i
//! in none                            -> copy m
//! ```

use std::collections::VecDeque;

use inkwell::llvm_sys::core::{
    LLVMAddAttributeAtIndex, LLVMAddFunction, LLVMAppendBasicBlockInContext, LLVMBasicBlockAsValue,
    LLVMBuildAlloca, LLVMBuildBr, LLVMBuildCall2, LLVMBuildLoad2, LLVMBuildMemCpy, LLVMBuildStore,
    LLVMConstInt, LLVMCreateEnumAttribute, LLVMDeleteFunction, LLVMGetAlignment,
    LLVMGetAttributeCountAtIndex, LLVMGetAttributesAtIndex,
    LLVMGetEnumAttributeKind, LLVMGetEnumAttributeKindForName, LLVMGetFirstUse, LLVMGetGlobalParent,
    LLVMGetInstructionOpcode, LLVMGetInstructionParent, LLVMGetIntrinsicDeclaration,
    LLVMGetNormalDest, LLVMGetNumSuccessors, LLVMGetParam, LLVMGetPersonalityFn, LLVMGetPoison,
    LLVMGetStringAttributeKind, LLVMGetSuccessor, LLVMGlobalGetValueType,
    LLVMHasPersonalityFn, LLVMInsertIntoBuilder, LLVMInstructionClone, LLVMInt64TypeInContext,
    LLVMIsAArgument, LLVMIsStringAttribute, LLVMLookupIntrinsicID, LLVMPointerTypeInContext,
    LLVMPositionBuilderAtEnd, LLVMReplaceAllUsesWith, LLVMSetLinkage,
    LLVMSetNormalDest, LLVMSetOperand, LLVMSetPersonalityFn, LLVMSetValueName2, LLVMTypeOf,
    LLVMValueAsBasicBlock, LLVMValueIsBasicBlock,
};
use inkwell::llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyFunction};
use inkwell::llvm_sys::debuginfo::{LLVMGetSubprogram, LLVMSetSubprogram};
use inkwell::llvm_sys::prelude::{
    LLVMAttributeRef, LLVMBasicBlockRef, LLVMTypeRef, LLVMValueRef,
};
use inkwell::llvm_sys::{LLVMAttributeFunctionIndex, LLVMLinkage, LLVMOpcode};
use rustc_hash::{FxHashMap, FxHashSet};

use super::frame::{Crossing, Frame, Kind, incoming, is_static};
use super::offer::continuation_type;
use super::reasons::{Forbidden, Reason, is_intrinsic};
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::flow::{Flow, Loop, around};
use crate::handles::{BlockRef, FunctionRef, InstructionRef, ValueRef, c_name};
use crate::shape::Shape;
use crate::source::AttributeKinds;

/// Where a continuation starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Start {
    /// The number of the head's block.
    pub block: u32,
    /// What was found where it is offered.
    pub fingerprint: u64,
}

/// Instructions that peeling may add; beyond that the loops around are entered in the middle.
const MOST_PEELED: usize = 30_000;

/// What a function says of itself that does not hold of a continuation: it reads memory of the
/// frame it goes on in, and its arguments are others.
const DROPPED: [&str; 5] = [
    "memory",
    "speculatable",
    "allocsize",
    "allockind",
    "alwaysinline",
];

/// The same, of those that are texts. The hooks of entry and exit are called in the old frame.
const DROPPED_TEXTS: [&str; 8] = [
    "uruk.entry",
    "uruk.entry.of",
    "uruk.exit",
    "uruk.exit.of",
    "fentry-call",
    "mnop-mcount",
    "mrecord-mcount",
    "alloc-family",
];

/// Puts a continuation in the place of `body`, a complete copy in `module` of a function named
/// `own`: with its name, which is emitted instead.
///
/// # Errors
/// Why there is none; the module is as it was.
pub(crate) fn replace(
    context: &LlvmContext,
    module: &OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'_>,
    shape: &Shape<'_>,
    start: Start,
    own: &str,
) -> Result<(), Reason> {
    let loops = shape.loops.as_deref().ok_or(Reason::TooLarge)?;
    let flow = &shape.flow;
    let index = loops.iter().position(|it| it.head == start.block);
    let index = index.ok_or(Reason::Changed)?;
    let forbidden = Forbidden::of(kinds, body, flow)?;
    if let Some(reason) = forbidden.at(flow, &loops[index]) {
        return Err(reason);
    }
    let frame = Frame::of(module, body, flow)?;
    let what = frame.crossing(start.block);
    if what.fingerprint != start.fingerprint {
        return Err(Reason::Changed);
    }
    let mut nest = vec![index];
    nest.extend(around(loops, index));
    let mut regions = Regions::new(flow, loops, nest);
    if regions.peeled() > MOST_PEELED {
        regions = Regions::new(flow, loops, vec![index]);
    }
    // SAFETY: all of one module of the context; the body is complete and was verified.
    unsafe {
        let mut made = Making::begin(context, module, body, &frame, &what, &regions);
        made.fill(&what);
        let made = made.function;
        let subprogram = LLVMGetSubprogram(body.raw());
        if !subprogram.is_null() {
            LLVMSetSubprogram(made.raw(), subprogram);
        }
        if !is_valid(made) {
            // Nothing that LLVM says of it is of use to anybody but us.
            debug_assert!(false, "a continuation that is no valid IR");
            LLVMDeleteFunction(made.raw());
            return Err(Reason::Other);
        }
        rename(context, module, kinds, body, made, own);
    }
    Ok(())
}

/// What LLVM's verifier says of a function that was made here.
pub(crate) fn is_valid(made: FunctionRef<'_>) -> bool {
    let action = match cfg!(debug_assertions) {
        true => LLVMVerifierFailureAction::LLVMPrintMessageAction,
        false => LLVMVerifierFailureAction::LLVMReturnStatusAction,
    };
    // SAFETY: a live function.
    unsafe { LLVMVerifyFunction(made.raw(), action) == 0 }
}

/// Takes the body out, and gives its name to what was made of it.
///
/// # Safety
/// Both are functions of the module, and nothing refers to a block of the body.
unsafe fn rename(
    context: &LlvmContext,
    module: &OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'_>,
    made: FunctionRef<'_>,
    own: &str,
) {
    let name = body.name();
    // SAFETY: by the caller's promise; what still mentions the body means the function, from
    // its beginning.
    unsafe {
        if !LLVMGetFirstUse(body.raw()).is_null() {
            let whole = crate::instrument::declared(context, module, own, kinds.nonlazybind);
            LLVMReplaceAllUsesWith(body.raw(), whole.raw());
        }
        LLVMDeleteFunction(body.raw());
        LLVMSetValueName2(made.raw(), name.as_ptr().cast(), name.len());
    }
}

/// Which blocks are copied how often.
struct Regions<'a, 'm> {
    flow: &'a Flow<'m>,
    /// For each block, one less than the least loop around the start that it is in.
    levels: Vec<u32>,
    /// Of the loops around the start: head by number, from the start itself.
    heads: Vec<u32>,
    /// What is copied: number of the copy and block, those of one copy together.
    pieces: Vec<(u32, u32)>,
}

impl<'a, 'm> Regions<'a, 'm> {
    fn new(flow: &'a Flow<'m>, loops: &[Loop], nest: Vec<usize>) -> Regions<'a, 'm> {
        let last = nest.len() as u32 - 1;
        let level = |block: usize| {
            let mut outer = nest.iter().skip(1);
            outer
                .position(|&it| loops[it].inside[block])
                .map_or(last, |at| at as u32)
        };
        let mut regions = Regions {
            flow,
            levels: (0..flow.blocks.len()).map(level).collect(),
            heads: nest.iter().map(|&it| loops[it].head).collect(),
            pieces: Vec::new(),
        };
        regions.pieces = regions.reach();
        regions
    }

    /// The copy in which an edge from copy `from` to `block` ends.
    fn copy_of(&self, from: u32, block: u32) -> u32 {
        let as_head = self.heads.iter().rposition(|&head| head == block);
        match as_head.map(|at| at as u32) {
            Some(at) if at > from => at,
            _ => from.max(self.levels[block as usize]),
        }
    }

    fn reach(&self) -> Vec<(u32, u32)> {
        let blocks = self.flow.blocks.len();
        let mut seen = vec![false; blocks * self.heads.len()];
        let mut work = VecDeque::from([(0u32, self.heads[0])]);
        let mut found = Vec::new();
        while let Some((copy, block)) = work.pop_front() {
            if std::mem::replace(&mut seen[copy as usize * blocks + block as usize], true) {
                continue;
            }
            found.push((copy, block));
            for &next in self.flow.graph.successors(block) {
                work.push_back((self.copy_of(copy, next), next));
            }
        }
        found.sort_unstable();
        found
    }

    /// Instructions of copies but the last.
    fn peeled(&self) -> usize {
        let last = self.heads.len() as u32 - 1;
        let peeled = self.pieces.iter().filter(|(copy, _)| *copy != last);
        peeled
            .map(|&(_, block)| self.flow.blocks[block as usize].instructions().count())
            .sum()
    }
}

/// A continuation in progress.
struct Making<'a, 'm> {
    context: &'a LlvmContext,
    function: FunctionRef<'m>,
    frame: &'a Frame<'m>,
    regions: &'a Regions<'a, 'm>,
    /// In the entry, and where a copy is.
    at_entry: Builder,
    builder: Builder,
    numbers: FxHashMap<LLVMBasicBlockRef, u32>,
    copies: FxHashMap<(u32, u32), LLVMBasicBlockRef>,
    /// `alloca`s that began before the continuation.
    taken: FxHashSet<ValueRef<'m>>,
    /// What is the same everywhere in the continuation: arguments, `alloca`s.
    fixed: FxHashMap<ValueRef<'m>, LLVMValueRef>,
    /// Where what is used beyond its block is kept.
    slots: FxHashMap<ValueRef<'m>, LLVMValueRef>,
    /// Where what a phi will be is kept, until its block begins.
    phis: FxHashMap<ValueRef<'m>, LLVMValueRef>,
}

/// What instructions of one copied block became.
type Local<'m> = FxHashMap<ValueRef<'m>, LLVMValueRef>;

const NO_NAME: *const std::ffi::c_char = c"".as_ptr();

impl<'a, 'm> Making<'a, 'm> {
    /// Makes the function, with empty blocks.
    ///
    /// # Safety
    /// All of one module of the context, and of one body.
    unsafe fn begin(
        context: &'a LlvmContext,
        module: &OwnedModule,
        body: FunctionRef<'m>,
        frame: &'a Frame<'m>,
        what: &Crossing,
        regions: &'a Regions<'a, 'm>,
    ) -> Making<'a, 'm> {
        let name = c_name("uruk.continuation");
        // SAFETY: by the caller's promise.
        unsafe {
            let ty = continuation_type(context, body, frame, what);
            let raw = LLVMAddFunction(module.raw(), name.as_ptr(), ty);
            let function: FunctionRef<'m> = FunctionRef::of(raw);
            LLVMSetLinkage(raw, LLVMLinkage::LLVMExternalLinkage);
            crate::globals::mark_dso_local(*function);
            copy_promises(body.raw(), raw);
            if LLVMHasPersonalityFn(body.raw()) != 0 {
                LLVMSetPersonalityFn(raw, LLVMGetPersonalityFn(body.raw()));
            }
            let append = || LLVMAppendBasicBlockInContext(context.raw(), raw, NO_NAME);
            let entry = append();
            let at_entry = Builder::new(context);
            LLVMPositionBuilderAtEnd(at_entry.0, entry);
            let blocks = &regions.flow.blocks;
            let numbers = blocks.iter().zip(0u32..);
            Making {
                context,
                function,
                frame,
                regions,
                at_entry,
                builder: Builder::new(context),
                numbers: numbers.map(|(block, at)| (block.raw(), at)).collect(),
                copies: regions.pieces.iter().map(|&it| (it, append())).collect(),
                taken: FxHashSet::default(),
                fixed: FxHashMap::default(),
                slots: FxHashMap::default(),
                phis: FxHashMap::default(),
            }
        }
    }

    /// Fills it.
    ///
    /// # Safety
    /// As for [`Making::begin`], with the same crossing.
    unsafe fn fill(&mut self, what: &Crossing) {
        // SAFETY: by the caller's promise.
        unsafe {
            for (&variable, index) in what.variables.iter().zip(0u32..) {
                self.take_over(variable, index);
            }
            for &(copy, block) in &self.regions.pieces.clone() {
                self.copy_block(copy, block);
            }
            let first = self.copies[&(0, self.regions.heads[0])];
            LLVMBuildBr(self.at_entry.0, first);
        }
    }

    /// Takes what crosses from parameter `index`.
    ///
    /// # Safety
    /// A variable of the frame, and its parameter.
    unsafe fn take_over(&mut self, variable: u32, index: u32) {
        let variable = self.frame.variables[variable as usize];
        let (value, builder) = (variable.value, self.at_entry.0);
        if !matches!(variable.kind, Kind::Value | Kind::Stored) {
            self.taken.insert(value);
        }
        // SAFETY: by the caller's promise; what is read is what was passed.
        unsafe {
            let given = LLVMGetParam(self.function.raw(), index);
            match variable.kind {
                Kind::Value => self.begin_with(value, given),
                Kind::Stored => {
                    let loaded = LLVMBuildLoad2(builder, variable.ty.raw(), given, NO_NAME);
                    self.promise(index, None, true, 0);
                    self.begin_with(value, loaded);
                }
                Kind::Scalar => {
                    let own = self.own_alloca(value);
                    LLVMBuildStore(builder, given, own);
                }
                Kind::Bytes(bytes) => {
                    let own = self.own_alloca(value);
                    let alignment = LLVMGetAlignment(value.raw());
                    let word = LLVMInt64TypeInContext(self.context.raw());
                    let bytes = LLVMConstInt(word, bytes, 0);
                    LLVMBuildMemCpy(builder, own, alignment, given, alignment, bytes);
                    self.promise(index, None, true, alignment);
                }
                Kind::Kept { bytes, alone } => {
                    let alignment = LLVMGetAlignment(value.raw());
                    self.promise(index, Some(bytes), alone, alignment);
                    self.fixed.insert(value, given);
                }
            }
        }
    }

    /// Says of a pointer among the parameters how much is there, that nothing else leads there,
    /// and its alignment.
    ///
    /// # Safety
    /// It holds.
    unsafe fn promise(&self, index: u32, bytes: Option<u64>, alone: bool, alignment: u32) {
        let add = |name: &str, value: u64| {
            // SAFETY: a live function; pointer and length describe the name.
            unsafe {
                let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
                let attribute = LLVMCreateEnumAttribute(self.context.raw(), kind, value);
                LLVMAddAttributeAtIndex(self.function.raw(), index + 1, attribute);
            }
        };
        add("nonnull", 0);
        if alone {
            add("noalias", 0);
        }
        if let Some(bytes) = bytes.filter(|it| *it != 0) {
            add("dereferenceable", bytes);
        }
        if alignment != 0 {
            add("align", u64::from(alignment));
        }
    }

    /// At the entry a value is what was given.
    ///
    /// # Safety
    /// Both have the value's type.
    unsafe fn begin_with(&mut self, value: ValueRef<'m>, given: LLVMValueRef) {
        let made = value.as_instruction();
        // SAFETY: by the caller's promise.
        unsafe {
            let Some(made) = made else {
                self.fixed.insert(value, given);
                return;
            };
            let given = match is_intrinsic(made, |it| it.stack_save) {
                // What lies on the old stack stays there.
                true => self.save_stack(),
                false => given,
            };
            let block = self.numbers[&LLVMGetInstructionParent(made.raw())];
            let slot = match made.opcode() == LLVMOpcode::LLVMPHI {
                true if block == self.regions.heads[0] => self.phi_slot(value),
                _ if self.is_copied(block) => self.slot(value),
                _ => {
                    self.fixed.insert(value, given);
                    return;
                }
            };
            LLVMBuildStore(self.at_entry.0, given, slot);
        }
    }

    fn is_copied(&self, block: u32) -> bool {
        let copies = 0..self.regions.heads.len() as u32;
        copies.into_iter().any(|copy| self.copies.contains_key(&(copy, block)))
    }

    /// The stack pointer at the entry.
    ///
    /// # Safety
    /// The entry is being filled.
    unsafe fn save_stack(&self) -> LLVMValueRef {
        let name = "llvm.stacksave";
        // SAFETY: an intrinsic that takes nothing, of one type of pointer.
        unsafe {
            let id = LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            let module = LLVMGetGlobalParent(self.function.raw());
            let mut pointer = LLVMPointerTypeInContext(self.context.raw(), 0);
            let callee = LLVMGetIntrinsicDeclaration(module, id, &mut pointer, 1);
            let ty = LLVMGlobalGetValueType(callee);
            LLVMBuildCall2(self.at_entry.0, ty, callee, std::ptr::null_mut(), 0, NO_NAME)
        }
    }

    /// An `alloca` of the continuation's own for one of the body.
    ///
    /// # Safety
    /// A static `alloca`.
    unsafe fn own_alloca(&mut self, old: ValueRef<'m>) -> LLVMValueRef {
        if let Some(&known) = self.fixed.get(&old) {
            return known;
        }
        // SAFETY: by the caller's promise; its count is a constant.
        unsafe {
            let own = LLVMInstructionClone(old.raw());
            LLVMInsertIntoBuilder(self.at_entry.0, own);
            if self.frame.is_stack(old) {
                let saved = self.save_stack();
                LLVMBuildStore(self.at_entry.0, saved, own);
            }
            self.fixed.insert(old, own);
            own
        }
    }

    /// # Safety
    /// A sized type.
    unsafe fn room(&self, ty: LLVMTypeRef) -> LLVMValueRef {
        // SAFETY: by the caller's promise.
        unsafe { LLVMBuildAlloca(self.at_entry.0, ty, NO_NAME) }
    }

    /// # Safety
    /// A value that can be stored.
    unsafe fn slot(&mut self, value: ValueRef<'m>) -> LLVMValueRef {
        if let Some(&known) = self.slots.get(&value) {
            return known;
        }
        // SAFETY: by the caller's promise.
        let slot = unsafe { self.room(LLVMTypeOf(value.raw())) };
        self.slots.insert(value, slot);
        slot
    }

    /// # Safety
    /// A phi.
    unsafe fn phi_slot(&mut self, phi: ValueRef<'m>) -> LLVMValueRef {
        if let Some(&known) = self.phis.get(&phi) {
            return known;
        }
        // SAFETY: by the caller's promise.
        let slot = unsafe { self.room(LLVMTypeOf(phi.raw())) };
        self.phis.insert(phi, slot);
        slot
    }

    /// True if a value is used beyond its block.
    fn goes_beyond(&self, value: ValueRef<'m>) -> bool {
        self.frame.place(value).is_some_and(|it| self.frame.is_value(it))
    }

    /// # Safety
    /// A block of the body that is to be copied.
    unsafe fn copy_block(&mut self, copy: u32, block: u32) {
        let old: BlockRef<'m> = self.regions.flow.blocks[block as usize];
        let new = self.copies[&(copy, block)];
        let mut local = Local::default();
        // SAFETY: by the caller's promise.
        unsafe {
            LLVMPositionBuilderAtEnd(self.builder.0, new);
            // A landing pad comes before all but phis.
            let mut begun = Vec::new();
            let instructions: Vec<InstructionRef<'m>> = old.instructions().collect();
            let (phis, rest) = instructions.split_at(
                instructions
                    .iter()
                    .position(|it| it.opcode() != LLVMOpcode::LLVMPHI)
                    .unwrap_or(instructions.len()),
            );
            let pad = rest
                .first()
                .filter(|it| it.opcode() == LLVMOpcode::LLVMLandingPad);
            if let Some(&pad) = pad {
                self.copy_instruction(copy, pad, &mut local);
            }
            for &phi in phis {
                let slot = self.phi_slot(*phi);
                let ty = LLVMTypeOf(phi.raw());
                let value = LLVMBuildLoad2(self.builder.0, ty, slot, NO_NAME);
                local.insert(*phi, value);
                begun.push((*phi, value));
            }
            for (phi, value) in begun {
                if self.goes_beyond(phi) {
                    let slot = self.slot(phi);
                    LLVMBuildStore(self.builder.0, value, slot);
                }
            }
            for &instruction in &rest[usize::from(pad.is_some())..] {
                match instruction == rest[rest.len() - 1] {
                    true => self.end_block(copy, old, instruction, &mut local),
                    false => self.copy_instruction(copy, instruction, &mut local),
                }
            }
        }
    }

    /// # Safety
    /// An instruction of the block that is being copied, but no phi and not its last.
    unsafe fn copy_instruction(
        &mut self,
        copy: u32,
        old: InstructionRef<'m>,
        local: &mut Local<'m>,
    ) {
        if is_intrinsic(old, |it| it.lifetime_start || it.lifetime_end) {
            let of = old.operands().flatten().find(|it| it.as_instruction().is_some());
            // What was alive when the continuation began is alive until it ends.
            if of.is_none_or(|of| self.taken.contains(&of) || self.frame.is_stack(of)) {
                return;
            }
        }
        // SAFETY: by the caller's promise.
        unsafe {
            let new = self.clone_instruction(copy, old, local);
            local.insert(*old, new);
            if self.goes_beyond(*old) {
                let slot = self.slot(*old);
                LLVMBuildStore(self.builder.0, new, slot);
            }
        }
    }

    /// Clones an instruction where the builder is, with operands of the continuation.
    ///
    /// # Safety
    /// As for [`Making::copy_instruction`].
    unsafe fn clone_instruction(
        &mut self,
        copy: u32,
        old: InstructionRef<'m>,
        local: &mut Local<'m>,
    ) -> LLVMValueRef {
        // SAFETY: by the caller's promise; operands have the types they had.
        unsafe {
            let operands: Vec<_> = old.operands().collect();
            let mut mapped = Vec::with_capacity(operands.len());
            for operand in operands {
                mapped.push(match operand {
                    Some(operand) => Some(self.operand(copy, operand, local)),
                    None => None,
                });
            }
            let new = LLVMInstructionClone(old.raw());
            LLVMInsertIntoBuilder(self.builder.0, new);
            for (operand, index) in mapped.into_iter().zip(0u32..) {
                if let Some(operand) = operand {
                    LLVMSetOperand(new, index, operand);
                }
            }
            new
        }
    }

    /// What an operand is in a copy, where the builder is.
    ///
    /// # Safety
    /// An operand of an instruction that is being copied.
    unsafe fn operand(
        &mut self,
        copy: u32,
        old: ValueRef<'m>,
        local: &mut Local<'m>,
    ) -> LLVMValueRef {
        // SAFETY: by the caller's promise.
        unsafe {
            if LLVMValueIsBasicBlock(old.raw()) != 0 {
                let block = LLVMValueAsBasicBlock(old.raw());
                let next = self.numbers[&block];
                let to = self.copies[&(self.regions.copy_of(copy, next), next)];
                return LLVMBasicBlockAsValue(to);
            }
            if let Some(&known) = local.get(&old).or_else(|| self.fixed.get(&old)) {
                return known;
            }
            if !LLVMIsAArgument(old.raw()).is_null() {
                // Nothing reads it: it would have crossed.
                return LLVMGetPoison(LLVMTypeOf(old.raw()));
            }
            let Some(made) = old.as_instruction() else {
                return old.raw();
            };
            if self.frame.is_derived(old) {
                let new = self.clone_instruction(copy, made, local);
                local.insert(old, new);
                return new;
            }
            if is_static(made) && self.numbers[&LLVMGetInstructionParent(made.raw())] == 0 {
                return self.own_alloca(old);
            }
            let ty = LLVMTypeOf(old.raw());
            let block = self.numbers[&LLVMGetInstructionParent(made.raw())];
            match self.is_copied(block) && self.goes_beyond(old) {
                true => {
                    let slot = self.slot(old);
                    LLVMBuildLoad2(self.builder.0, ty, slot, NO_NAME)
                }
                // As above.
                false => LLVMGetPoison(ty),
            }
        }
    }

    /// Copies the last instruction of a block, behind what its successors' phis will be.
    ///
    /// # Safety
    /// The last instruction of the block that is being copied.
    unsafe fn end_block(
        &mut self,
        copy: u32,
        block: BlockRef<'m>,
        end: InstructionRef<'m>,
        local: &mut Local<'m>,
    ) {
        let number = block.raw();
        // SAFETY: by the caller's promise.
        unsafe {
            let successors = (0..LLVMGetNumSuccessors(end.raw()))
                .map(|index| LLVMGetSuccessor(end.raw(), index));
            let mut seen = FxHashSet::default();
            let (mut now, mut behind) = (Vec::new(), Vec::new());
            for next in successors.filter(|it| seen.insert(*it)) {
                let next = BlockRef::of(next);
                let is_phi = |it: &InstructionRef<'_>| it.opcode() == LLVMOpcode::LLVMPHI;
                for phi in next.instructions().take_while(is_phi) {
                    let found = incoming(phi).find(|(_, from)| *from == number as usize);
                    match found {
                        // What an `invoke` returns is there on one of its edges only.
                        Some((value, _)) if value == *end => behind.push(phi),
                        Some((value, _)) => now.push((phi, self.operand(copy, value, local))),
                        None => {}
                    }
                }
            }
            for (phi, value) in now {
                let slot = self.phi_slot(*phi);
                LLVMBuildStore(self.builder.0, value, slot);
            }
            let new = self.clone_instruction(copy, end, local);
            if LLVMGetInstructionOpcode(new) != LLVMOpcode::LLVMInvoke
                || !(self.goes_beyond(*end) || !behind.is_empty())
            {
                return;
            }
            let raw = self.function.raw();
            let edge = LLVMAppendBasicBlockInContext(self.context.raw(), raw, NO_NAME);
            let to = LLVMGetNormalDest(new);
            LLVMSetNormalDest(new, edge);
            LLVMPositionBuilderAtEnd(self.builder.0, edge);
            if self.goes_beyond(*end) {
                let slot = self.slot(*end);
                LLVMBuildStore(self.builder.0, new, slot);
            }
            for phi in behind {
                let slot = self.phi_slot(*phi);
                LLVMBuildStore(self.builder.0, new, slot);
            }
            LLVMBuildBr(self.builder.0, to);
        }
    }
}

/// Copies what a function promises, but for what does not hold of a continuation.
///
/// # Safety
/// Functions of one context, with one return type.
unsafe fn copy_promises(old: LLVMValueRef, new: LLVMValueRef) {
    let dropped = DROPPED.map(|name| {
        // SAFETY: pointer and length describe the name.
        unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
    });
    let holds = |attribute: LLVMAttributeRef| {
        // SAFETY: a live attribute, asked for what it has.
        unsafe {
            if LLVMIsStringAttribute(attribute) == 0 {
                return !dropped.contains(&LLVMGetEnumAttributeKind(attribute));
            }
            let mut length = 0;
            let key = LLVMGetStringAttributeKind(attribute, &mut length);
            let key = std::slice::from_raw_parts(key.cast::<u8>(), length as usize);
            !DROPPED_TEXTS.iter().any(|it| it.as_bytes() == key)
        }
    };
    // The function itself, and what it returns.
    for index in [LLVMAttributeFunctionIndex, 0] {
        // SAFETY: by the caller's promise; the buffer has room for the count.
        unsafe {
            let count = LLVMGetAttributeCountAtIndex(old, index) as usize;
            let mut found: Vec<LLVMAttributeRef> = vec![std::ptr::null_mut(); count];
            if count != 0 {
                LLVMGetAttributesAtIndex(old, index, found.as_mut_ptr());
            }
            for attribute in found.into_iter().filter(|it| holds(*it)) {
                LLVMAddAttributeAtIndex(new, index, attribute);
            }
        }
    }
}
