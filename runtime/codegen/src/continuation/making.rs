//! A continuation in progress: its entry, which takes over the values that cross, and the places of
//! its values.

use inkwell::llvm_sys::core::{
    LLVMAddAttributeAtIndex, LLVMAddFunction, LLVMAppendBasicBlockInContext, LLVMBuildAlloca,
    LLVMBuildBr, LLVMBuildCall2, LLVMBuildLoad2, LLVMBuildMemCpy, LLVMBuildStore, LLVMConstInt,
    LLVMCreateEnumAttribute, LLVMGetAlignment, LLVMGetEnumAttributeKindForName,
    LLVMGetGlobalParent, LLVMGetInstructionParent, LLVMGetIntrinsicDeclaration,
    LLVMGetMDKindIDInContext, LLVMGetParam, LLVMGetPersonalityFn, LLVMGlobalGetValueType,
    LLVMHasPersonalityFn, LLVMInsertIntoBuilder, LLVMInstructionClone, LLVMInt64TypeInContext,
    LLVMLookupIntrinsicID, LLVMPointerTypeInContext, LLVMPositionBuilderAtEnd, LLVMSetLinkage,
    LLVMSetPersonalityFn, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMLinkage, LLVMOpcode};
use rustc_hash::{FxHashMap, FxHashSet};

use super::frame::{Frame, Kind};
use super::intrinsics::{Meaning, is_intrinsic};
use super::plain::OwnLabels;
use super::promises::copy_promises;
use super::regions::Regions;
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::handles::{BlockRef, FunctionRef, ValueRef, c_name};

/// A continuation in progress.
pub(super) struct Making<'a, 'm> {
    pub(super) context: &'a LlvmContext,
    pub(super) function: FunctionRef<'m>,
    pub(super) frame: &'a Frame<'m>,
    pub(super) regions: &'a Regions<'a, 'm>,
    /// The builders in the entry, and in the current copy.
    pub(super) at_entry: Builder,
    pub(super) builder: Builder,
    pub(super) numbers: FxHashMap<LLVMBasicBlockRef, u32>,
    pub(super) copies: FxHashMap<(u32, u32), LLVMBasicBlockRef>,
    /// `alloca`s that began before the continuation.
    pub(super) taken: FxHashSet<ValueRef<'m>>,
    /// Values that are the same everywhere in the continuation: arguments, `alloca`s.
    pub(super) fixed: FxHashMap<ValueRef<'m>, LLVMValueRef>,
    /// Memory for values that are used beyond their block.
    pub(super) slots: FxHashMap<ValueRef<'m>, LLVMValueRef>,
    /// Memory for the next values of phis, until their block begins.
    pub(super) phis: FxHashMap<ValueRef<'m>, LLVMValueRef>,
    /// Labels that are addresses of its blocks.
    pub(super) labels: Option<&'a OwnLabels<'m>>,
    /// Kinds of metadata that are dropped in all copies but the last.
    pub(super) dropped: Vec<u32>,
    /// The metadata that promises that iterations of a loop share no memory. It is dropped once a
    /// variable stays in the old frame. Front ends also promise it of the variables of a loop,
    /// which the first passes make registers in the body. A variable that stays is memory that
    /// iterations share, by every pointer to it.
    pub(super) unshared: Option<u32>,
}

/// The source of a parameter's value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    /// The way in which it is passed.
    pub(super) kind: Kind,
    /// The variable it becomes, by its place among the variables; `None` if it is unused.
    pub(super) into: Option<u32>,
    /// It is a pointer that nothing else leads to.
    pub(super) promised: bool,
}

/// The copies of the instructions of one block.
pub(super) type Local<'m> = FxHashMap<ValueRef<'m>, LLVMValueRef>;

pub(super) const NO_NAME: *const std::ffi::c_char = c"".as_ptr();

/// The metadata that says which accesses are apart, if a scope of it begins in the body. In a loop
/// it holds for one iteration, and the next iteration has other scopes. So peeled copies may not
/// have those of the nest.
fn scopes(context: &LlvmContext, blocks: &[BlockRef<'_>]) -> Vec<u32> {
    let mut all = blocks.iter().flat_map(|block| block.instructions());
    let names: &[&str] = match all.any(|it| is_intrinsic(it, |it| it == Meaning::Scope)) {
        true => &["noalias", "alias.scope"],
        false => &[],
    };
    names.iter().map(|name| kind(context, name)).collect()
}

fn kind(context: &LlvmContext, name: &str) -> u32 {
    // SAFETY: a live context; pointer and length describe the name.
    unsafe { LLVMGetMDKindIDInContext(context.raw(), name.as_ptr().cast(), name.len() as u32) }
}

impl<'a, 'm> Making<'a, 'm> {
    /// Makes the function, with empty blocks.
    ///
    /// # Safety
    /// All of one module of the context, and of one body; the type of a function that returns what
    /// the body does.
    pub(super) unsafe fn begin(
        context: &'a LlvmContext,
        module: &OwnedModule,
        body: FunctionRef<'m>,
        frame: &'a Frame<'m>,
        ty: LLVMTypeRef,
        regions: &'a Regions<'a, 'm>,
    ) -> Making<'a, 'm> {
        let name = c_name("uruk.continuation");
        // SAFETY: by the caller's promise.
        unsafe {
            let raw = LLVMAddFunction(module.raw(), name.as_ptr(), ty);
            let function: FunctionRef<'m> = FunctionRef::of(raw);
            LLVMSetLinkage(raw, LLVMLinkage::LLVMExternalLinkage);
            crate::properties::mark_dso_local(*function);
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
                labels: None,
                dropped: scopes(context, blocks),
                unshared: None,
            }
        }
    }

    /// Fills the function.
    ///
    /// # Safety
    /// As for [`Making::begin`]; the entries of `given` have the types of the parameters, and the
    /// variables they become have the types they had.
    pub(super) unsafe fn fill(&mut self, given: &[Given]) {
        // SAFETY: by the caller's promise.
        unsafe {
            for (&given, index) in given.iter().zip(0u32..) {
                if let Some(variable) = given.into {
                    self.take_over(variable, given, index);
                }
            }
            for &(copy, block) in &self.regions.pieces.clone() {
                self.copy_block(copy, block);
            }
            let first = self.copies[&(0, self.regions.heads[0])];
            LLVMBuildBr(self.at_entry.0, first);
        }
    }

    /// Takes a crossing variable from parameter `index`, in the way of `given`.
    ///
    /// # Safety
    /// A variable of the frame, and its parameter.
    unsafe fn take_over(&mut self, variable: u32, given: Given, index: u32) {
        let variable = self.frame.variables[variable as usize];
        let (value, builder) = (variable.value, self.at_entry.0);
        if !matches!(variable.kind, Kind::Value | Kind::Stored) {
            self.taken.insert(value);
        }
        // SAFETY: by the caller's promise; memory is read with the type it was passed with.
        unsafe {
            let passed = LLVMGetParam(self.function.raw(), index);
            if given.promised {
                self.promise(index, "noalias", 0);
            }
            match given.kind {
                Kind::Value => {
                    let passed = self.own_label(value, passed);
                    self.begin_with(value, passed);
                }
                Kind::Stored => {
                    let loaded = LLVMBuildLoad2(builder, variable.ty.raw(), passed, NO_NAME);
                    self.promise_memory(index, None, true, 0);
                    self.begin_with(value, loaded);
                }
                Kind::Scalar => {
                    let own = self.own_alloca(value);
                    LLVMBuildStore(builder, passed, own);
                }
                Kind::Bytes(bytes) => {
                    let own = self.own_alloca(value);
                    let alignment = LLVMGetAlignment(value.raw());
                    let word = LLVMInt64TypeInContext(self.context.raw());
                    let bytes = LLVMConstInt(word, bytes, 0);
                    LLVMBuildMemCpy(builder, own, alignment, passed, alignment, bytes);
                    self.promise_memory(index, None, true, alignment);
                }
                Kind::Kept { bytes, alone } => {
                    let alignment = LLVMGetAlignment(value.raw());
                    self.promise_memory(index, Some(bytes), alone, alignment);
                    self.fixed.insert(value, passed);
                    self.unshared = Some(kind(self.context, "llvm.access.group"));
                }
            }
        }
    }

    /// Adds to a pointer parameter the size of its memory, whether nothing else leads there, and
    /// its alignment.
    ///
    /// # Safety
    /// All of it holds.
    unsafe fn promise_memory(&self, index: u32, bytes: Option<u64>, alone: bool, alignment: u32) {
        // SAFETY: by the caller's promise.
        unsafe {
            self.promise(index, "nonnull", 0);
            if alone {
                self.promise(index, "noalias", 0);
            }
            if let Some(bytes) = bytes.filter(|it| *it != 0) {
                self.promise(index, "dereferenceable", bytes);
            }
            if alignment != 0 {
                self.promise(index, "align", u64::from(alignment));
            }
        }
    }

    /// Gives a parameter an attribute.
    ///
    /// # Safety
    /// The attribute holds.
    unsafe fn promise(&self, index: u32, name: &str, value: u64) {
        // SAFETY: a live function; pointer and length describe the name.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
            let attribute = LLVMCreateEnumAttribute(self.context.raw(), kind, value);
            LLVMAddAttributeAtIndex(self.function.raw(), index + 1, attribute);
        }
    }

    /// Makes a value start as `given` at the entry.
    ///
    /// # Safety
    /// Both have the value's type.
    pub(super) unsafe fn begin_with(&mut self, value: ValueRef<'m>, given: LLVMValueRef) {
        let made = value.as_instruction();
        // SAFETY: by the caller's promise.
        unsafe {
            let Some(made) = made else {
                self.fixed.insert(value, given);
                return;
            };
            let given = match is_intrinsic(made, |it| it == Meaning::StackSave) {
                // Objects on the old stack stay there.
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

    pub(super) fn is_copied(&self, block: u32) -> bool {
        let copies = 0..self.regions.heads.len() as u32;
        copies
            .into_iter()
            .any(|copy| self.copies.contains_key(&(copy, block)))
    }

    /// The stack pointer at the entry.
    ///
    /// # Safety
    /// The entry is being filled.
    pub(super) unsafe fn save_stack(&self) -> LLVMValueRef {
        let name = "llvm.stacksave";
        // SAFETY: an intrinsic that takes nothing, of one type of pointer.
        unsafe {
            let id = LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            let module = LLVMGetGlobalParent(self.function.raw());
            let mut pointer = LLVMPointerTypeInContext(self.context.raw(), 0);
            let callee = LLVMGetIntrinsicDeclaration(module, id, &mut pointer, 1);
            let ty = LLVMGlobalGetValueType(callee);
            LLVMBuildCall2(
                self.at_entry.0,
                ty,
                callee,
                std::ptr::null_mut(),
                0,
                NO_NAME,
            )
        }
    }

    /// An `alloca` of the continuation's own for one of the body.
    ///
    /// # Safety
    /// A static `alloca`.
    pub(super) unsafe fn own_alloca(&mut self, old: ValueRef<'m>) -> LLVMValueRef {
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
    pub(super) unsafe fn room(&self, ty: LLVMTypeRef) -> LLVMValueRef {
        // SAFETY: by the caller's promise.
        unsafe { LLVMBuildAlloca(self.at_entry.0, ty, NO_NAME) }
    }

    /// # Safety
    /// A value that can be stored.
    pub(super) unsafe fn slot(&mut self, value: ValueRef<'m>) -> LLVMValueRef {
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
    pub(super) unsafe fn phi_slot(&mut self, phi: ValueRef<'m>) -> LLVMValueRef {
        if let Some(&known) = self.phis.get(&phi) {
            return known;
        }
        // SAFETY: by the caller's promise.
        let slot = unsafe { self.room(LLVMTypeOf(phi.raw())) };
        self.phis.insert(phi, slot);
        slot
    }

    /// True if a value is used beyond its block.
    pub(super) fn goes_beyond(&self, value: ValueRef<'m>) -> bool {
        self.frame
            .place(value)
            .is_some_and(|it| self.frame.is_value(it))
    }
}
