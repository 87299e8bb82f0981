//! The bodies of a copy: blocks, instructions, operands.
//!
//! Blocks are created first, then every instruction is cloned in place with its old
//! operands, and a second walk replaces operands. Phis are rebuilt, because LLVM-C
//! cannot change a phi's incoming blocks.
//! Calls of some intrinsics become other code, see `rewrite`.

use inkwell::llvm_sys::core::{
    LLVMAddIncoming, LLVMAppendBasicBlockInContext, LLVMBasicBlockAsValue, LLVMBuildBinOp,
    LLVMBuildPhi, LLVMCanValueUseFastMathFlags, LLVMCountIncoming, LLVMGetFastMathFlags,
    LLVMGetFirstBasicBlock, LLVMGetFirstParam, LLVMGetIncomingBlock, LLVMGetIncomingValue,
    LLVMGetNextParam, LLVMGetNumSuccessors, LLVMGetOperand, LLVMGetPersonalityFn,
    LLVMGetPrefixData, LLVMGetPrologueData, LLVMGetSuccessor, LLVMHasPersonalityFn,
    LLVMHasPrefixData, LLVMHasPrologueData, LLVMInsertIntoBuilder, LLVMInstructionClone,
    LLVMIsAInlineAsm, LLVMPositionBuilderAtEnd, LLVMSetFastMathFlags, LLVMSetOperand,
    LLVMSetPersonalityFn, LLVMSetPrefixData, LLVMSetPrologueData, LLVMTypeOf,
    LLVMValueAsBasicBlock,
};
use inkwell::llvm_sys::{LLVMFastMathAllowContract, LLVMLinkage, LLVMOpcode};

use crate::copying::Copying;
use crate::error::CodegenError;
use crate::handles::{BlockRef, FunctionRef, InstructionRef, ValueRef};
use crate::instrument;
use crate::jumps;
use crate::properties::mark_dso_local;
use crate::rewrite;

/// Phis of a body, or jumps, old and new.
type Phis<'r> = Vec<(InstructionRef<'r>, InstructionRef<'r>)>;

/// Copies the bodies of all functions that were defined and wait for theirs.
pub(crate) fn copy_pending(copying: &mut Copying<'_>) -> Result<(), CodegenError> {
    while let Some((old, new)) = copying.pending.pop_front() {
        // Between two bodies: a half-copied body has operands in two modules.
        copying.source.reader.proceed(copying.unit_name())?;
        let body = BodyCopy {
            copying: &mut *copying,
            old,
            new,
            copies: Vec::new(),
            phis: Vec::new(),
            jumps: Vec::new(),
        };
        body.fill()?;
    }
    Ok(())
}

/// Gives `new` an empty block for each block of `old`.
pub(crate) fn create_blocks<'r>(
    copying: &mut Copying<'r>,
    old: FunctionRef<'r>,
    new: FunctionRef<'r>,
) {
    let context = copying.source.reader.context().raw();
    for block in old.blocks() {
        // SAFETY: live context, function of ours, an empty C string.
        let copy = unsafe {
            let copy = LLVMAppendBasicBlockInContext(context, new.raw(), c"".as_ptr());
            BlockRef::of(copy)
        };
        copying.values.insert(block.value(), copy.value());
    }
}

/// The copy of one body in progress.
struct BodyCopy<'c, 'r> {
    copying: &'c mut Copying<'r>,
    old: FunctionRef<'r>,
    new: FunctionRef<'r>,
    /// Instructions whose operands are still those of the old body.
    copies: Vec<InstructionRef<'r>>,
    phis: Phis<'r>,
    jumps: Phis<'r>,
}

impl<'r> BodyCopy<'_, 'r> {
    fn fill(mut self) -> Result<(), CodegenError> {
        let (old, new) = (self.old, self.new);
        // SAFETY: a live function of ours.
        if unsafe { LLVMGetFirstBasicBlock(new.raw()) }.is_null() {
            create_blocks(self.copying, old, new);
        }
        // SAFETY: both functions have the same type, so the same parameters.
        unsafe {
            let (mut from, mut to) = (LLVMGetFirstParam(old.raw()), LLVMGetFirstParam(new.raw()));
            while !from.is_null() && !to.is_null() {
                let (old, new) = (ValueRef::of(from), ValueRef::of(to));
                self.copying.values.insert(old, new);
                (from, to) = (LLVMGetNextParam(from), LLVMGetNextParam(to));
            }
        }
        self.clone_instructions();
        for copy in std::mem::take(&mut self.copies) {
            self.remap_operands(copy)?;
        }
        for (old_phi, new_phi) in std::mem::take(&mut self.phis) {
            self.fill_phi(old_phi, new_phi)?;
        }
        for (old_jump, new_jump) in std::mem::take(&mut self.jumps) {
            self.note_jump(old_jump, new_jump)?;
        }
        self.copy_function_constants()?;
        instrument::insert(self.copying, old, new)
    }

    /// Notes where a jump by the address of a label of `function` leads, unless it jumps to the
    /// plain address.
    fn note_jump(
        &mut self,
        old: InstructionRef<'r>,
        new: InstructionRef<'r>,
    ) -> Result<(), CodegenError> {
        let function = self.old;
        if self.copying.plain_labels.covers(function) {
            return Ok(());
        }
        let space = self.copying.label_space(function)?;
        // SAFETY: a live terminator and its successors.
        let to: Vec<ValueRef<'r>> = unsafe {
            let count = LLVMGetNumSuccessors(old.raw());
            let to = (0..count).map(|at| LLVMGetSuccessor(old.raw(), at));
            to.map(|it| ValueRef::of(LLVMBasicBlockAsValue(it)))
                .collect()
        };
        let mut labels = Vec::with_capacity(to.len());
        for block in to {
            labels.push(self.copying.label(function, block)?);
        }
        jumps::note(
            self.copying.source.reader.context(),
            new,
            space,
            labels.into_iter(),
        );
        Ok(())
    }

    /// Clones all instructions, with their old operands.
    fn clone_instructions(&mut self) {
        for block in self.old.blocks() {
            let target = self.copying.values[&block.value()];
            // SAFETY: the copy of the block, which `create_blocks` recorded.
            unsafe {
                let target = LLVMValueAsBasicBlock(target.raw());
                LLVMPositionBuilderAtEnd(self.copying.builder.0, target);
            }
            for instruction in block.instructions() {
                let copy = if instruction.opcode() == LLVMOpcode::LLVMPHI {
                    let phi = self.empty_phi(instruction);
                    self.phis.push((instruction, phi));
                    *phi
                } else if let Some(rewritten) = rewrite::rewritten(self.copying, instruction) {
                    // SAFETY: a call of the intrinsic, and the builder is in the copy.
                    unsafe {
                        rewrite::rewrite(self.copying, rewritten, instruction, &mut self.copies)
                    }
                } else {
                    // SAFETY: the builder is at the end of the copy of the block.
                    let copy = unsafe { self.clone_instruction(instruction) };
                    if instruction.opcode() == LLVMOpcode::LLVMIndirectBr {
                        self.jumps
                            .extend(copy.as_instruction().map(|it| (instruction, it)));
                    }
                    // Building without the flag may have folded a constant.
                    self.copies.extend(copy.as_instruction());
                    copy
                };
                self.copying.values.insert(*instruction, copy);
            }
        }
    }

    /// A phi like `old`, a phi, where the builder is.
    fn empty_phi(&self, old: InstructionRef<'r>) -> InstructionRef<'r> {
        // SAFETY: a live phi and its type; the builder is in the copy of its block.
        unsafe {
            let phi = LLVMBuildPhi(self.copying.builder.0, LLVMTypeOf(old.raw()), c"".as_ptr());
            if LLVMCanValueUseFastMathFlags(old.raw()) != 0 {
                LLVMSetFastMathFlags(phi, LLVMGetFastMathFlags(old.raw()));
            }
            InstructionRef::of(phi)
        }
    }

    /// Clones an instruction to the builder's place. A flag on floating-point operations allows
    /// code generation to fuse them. It is set as `clang -ffp-contract=fast` would, or left out,
    /// unless other flags give exact results up anyway.
    ///
    /// # Safety
    /// The builder is at the end of a block.
    unsafe fn clone_instruction(&self, instruction: InstructionRef<'r>) -> ValueRef<'r> {
        let opcode = instruction.opcode();
        let fusible = matches!(
            opcode,
            LLVMOpcode::LLVMFAdd | LLVMOpcode::LLVMFSub | LLVMOpcode::LLVMFMul
        );
        let instruction = instruction.raw();
        // SAFETY: by the caller's promise; only arithmetic is asked for flags, and has
        // two operands.
        unsafe {
            if fusible
                && !self.copying.how.contract
                && LLVMGetFastMathFlags(instruction) == LLVMFastMathAllowContract
            {
                // LLVM-C can add flags, not take them away.
                let [a, b] = [0, 1].map(|i| LLVMGetOperand(instruction, i));
                let plain = LLVMBuildBinOp(self.copying.builder.0, opcode, a, b, c"".as_ptr());
                return ValueRef::of(plain);
            }
            let copy = LLVMInstructionClone(instruction);
            LLVMInsertIntoBuilder(self.copying.builder.0, copy);
            if fusible && self.copying.how.contract {
                LLVMSetFastMathFlags(copy, LLVMFastMathAllowContract);
            }
            ValueRef::of(copy)
        }
    }

    fn remap_operands(&mut self, copy: InstructionRef<'r>) -> Result<(), CodegenError> {
        let callee = copy.callee();
        // SAFETY: a live value.
        let is_asm = callee.is_some_and(|it| unsafe { !LLVMIsAInlineAsm(it.raw()).is_null() });
        self.copying.contents.has_asm |= is_asm;
        let last = copy.operands().len().wrapping_sub(1);
        for (index, operand) in copy.operands().enumerate() {
            let Some(operand) = operand else {
                continue;
            };
            // The callee is a call's last operand.
            let mapped = match index == last && callee == Some(operand) {
                true => self.map_callee(operand)?,
                false => self.copying.map_value(operand)?,
            };
            if is_asm && mapped.as_function().is_some() {
                // An immediate of assembly must be a plain address, not a GOT load.
                mark_dso_local(mapped);
            }
            if mapped != operand {
                // SAFETY: same type, and of this module.
                unsafe { LLVMSetOperand(copy.raw(), index as u32, mapped.raw()) };
            }
        }
        Ok(())
    }

    fn fill_phi(
        &mut self,
        old: InstructionRef<'r>,
        new: InstructionRef<'r>,
    ) -> Result<(), CodegenError> {
        // SAFETY: a live phi, here and below.
        let count = unsafe { LLVMCountIncoming(old.raw()) };
        let mut incoming = Vec::with_capacity(count as usize);
        let mut blocks = Vec::with_capacity(count as usize);
        for index in 0..count {
            // SAFETY: `index` is below the count.
            let (value, block) = unsafe {
                let block = LLVMGetIncomingBlock(old.raw(), index);
                (
                    ValueRef::of(LLVMGetIncomingValue(old.raw(), index)),
                    ValueRef::of(LLVMBasicBlockAsValue(block)),
                )
            };
            incoming.push(self.copying.map_value(value)?.raw());
            // SAFETY: the copy of a block is one.
            blocks.push(unsafe { LLVMValueAsBasicBlock(self.copying.values[&block].raw()) });
        }
        // SAFETY: both arrays have `count` entries of this function.
        unsafe { LLVMAddIncoming(new.raw(), incoming.as_mut_ptr(), blocks.as_mut_ptr(), count) };
        Ok(())
    }

    fn copy_function_constants(&mut self) -> Result<(), CodegenError> {
        let (old, new) = (self.old.raw(), self.new.raw());
        // SAFETY: live functions; each getter is guarded by its predicate.
        unsafe {
            if LLVMHasPersonalityFn(old) != 0 {
                let personality = self
                    .copying
                    .map_constant(ValueRef::of(LLVMGetPersonalityFn(old)))?;
                LLVMSetPersonalityFn(new, personality.raw());
            }
            if LLVMHasPrefixData(old) != 0 {
                let data = self
                    .copying
                    .map_constant(ValueRef::of(LLVMGetPrefixData(old)))?;
                LLVMSetPrefixData(new, data.raw());
            }
            if LLVMHasPrologueData(old) != 0 {
                let data = self
                    .copying
                    .map_constant(ValueRef::of(LLVMGetPrologueData(old)))?;
                LLVMSetPrologueData(new, data.raw());
            }
        }
        Ok(())
    }

    /// A direct callee: `alwaysinline` functions with a body here are copied along.
    fn map_callee(&mut self, old: ValueRef<'r>) -> Result<ValueRef<'r>, CodegenError> {
        let old = self.copying.source.reader.home(old).unwrap_or(old);
        if self.copying.optimizes()
            && let Some(id) = self.copying.source.resolve(old)
        {
            let target = self.copying.source.value(id);
            if let Some((root, new)) = self.copying.root
                && target == *root
            {
                return Ok(*new);
            }
            // Through an alias, if the function it names is a candidate.
            if let Some(&candidate) = self.copying.with_labels.get(&target) {
                return Ok(*candidate);
            }
        }
        let Some(inline) = old
            .as_function()
            .filter(|_| self.copying.source.is_inline_body(old))
        else {
            return self.copying.map_value(old);
        };
        let known = self
            .copying
            .inline_copies
            .get(&old)
            .or(self.copying.with_labels.get(&old));
        if let Some(&new) = known {
            return Ok(*new);
        }
        let name = format!("uruk.inline.{}", old.name());
        let new = self
            .copying
            .define_function(inline, &name, LLVMLinkage::LLVMInternalLinkage)?;
        mark_dso_local(*new);
        self.copying.inline_copies.insert(old, new);
        self.copying
            .contents
            .inlined
            .extend(self.copying.source.id(old));
        self.copying.pending.push_back((inline, new));
        self.copying.contents.needs_passes = true;
        Ok(*new)
    }
}
