//! The bodies of a copy: blocks, instructions, operands.
//!
//! Blocks are created first, then every instruction is cloned in place with its old
//! operands, and a second walk replaces operands. Phis are rebuilt, because LLVM-C
//! cannot change a phi's incoming blocks.
//!
//! # Why
//! `fmuladd` is split while copying, so floating-point bits do not depend on tier or CPU.

use inkwell::llvm_sys::core::{
    LLVMAddIncoming, LLVMAppendBasicBlockInContext, LLVMBasicBlockAsValue, LLVMBuildBinOp,
    LLVMBuildFAdd, LLVMBuildFMul, LLVMBuildPhi, LLVMCanValueUseFastMathFlags, LLVMCountIncoming,
    LLVMGetCalledValue, LLVMGetFastMathFlags, LLVMGetFirstBasicBlock, LLVMGetFirstInstruction,
    LLVMGetFirstParam, LLVMGetIncomingBlock, LLVMGetIncomingValue, LLVMGetInstructionOpcode,
    LLVMGetNextBasicBlock, LLVMGetNextInstruction, LLVMGetNextParam, LLVMGetNumOperands,
    LLVMGetOperand, LLVMGetPersonalityFn, LLVMGetPrefixData, LLVMGetPrologueData,
    LLVMHasPersonalityFn, LLVMHasPrefixData, LLVMHasPrologueData, LLVMInsertIntoBuilder,
    LLVMInstructionClone, LLVMIsAFunction, LLVMIsAInlineAsm, LLVMIsAInstruction, LLVMIsDeclaration,
    LLVMPositionBuilderAtEnd, LLVMSetFastMathFlags, LLVMSetOperand, LLVMSetPersonalityFn,
    LLVMSetPrefixData, LLVMSetPrologueData, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMFastMathAllowContract, LLVMLinkage, LLVMOpcode};

use crate::error::CodegenError;
use crate::extract::Extraction;
use crate::globals::mark_dso_local;
use crate::reader::{Verify, value_name};
use crate::summary::SymbolId;

impl Extraction<'_> {
    /// Reads and verifies the body of `function` and of what will be copied with it.
    /// All of it before the first copy: instructions that were cloned but not yet
    /// remapped make their old operands look used across modules.
    pub(crate) fn read_bodies(&mut self, function: LLVMValueRef) -> Result<(), CodegenError> {
        let mut found = vec![function];
        while let Some(function) = found.pop() {
            if !self.bodies_read.insert(function) {
                continue;
            }
            self.reader.materialize(function, Verify::Yes)?;
            if self.reader.table().has_always_inline {
                self.inline_callees(function, &mut found);
            }
        }
        Ok(())
    }

    fn inline_callees(&self, function: LLVMValueRef, found: &mut Vec<LLVMValueRef>) {
        // SAFETY: walks blocks and instructions of a live function; the callee is
        // asked for of calls only.
        unsafe {
            let mut block = LLVMGetFirstBasicBlock(function);
            while !block.is_null() {
                let mut instruction = LLVMGetFirstInstruction(block);
                while !instruction.is_null() {
                    if is_call(LLVMGetInstructionOpcode(instruction)) {
                        let callee = LLVMGetCalledValue(instruction);
                        found.extend(self.is_inline_body(callee).then_some(callee));
                    }
                    instruction = LLVMGetNextInstruction(instruction);
                }
                block = LLVMGetNextBasicBlock(block);
            }
        }
    }

    /// True for an `alwaysinline` function whose body this module has.
    pub(crate) fn is_inline_body(&self, function: LLVMValueRef) -> bool {
        let symbol = self.reader.table().index.get(&function);
        let copied = |id: &SymbolId| {
            self.reader.summary().symbols[id.index()].always_inline
                && !self.plan.import(*id).replaced
        };
        symbol.is_some_and(copied)
            // SAFETY: a live function: only functions are marked.
            && unsafe { LLVMIsDeclaration(function) } == 0
    }

    pub(crate) fn copy_pending(&mut self) -> Result<(), CodegenError> {
        while let Some((old, new)) = self.pending.pop_front() {
            // Between two bodies: what is half copied has operands in two modules.
            self.reader.proceed(self.unit_name())?;
            self.copy_body(old, new)?;
        }
        Ok(())
    }

    pub(crate) fn create_blocks(&mut self, old: LLVMValueRef, new: LLVMValueRef) {
        // SAFETY: walks the blocks of a live function to the null end.
        let mut block = unsafe { LLVMGetFirstBasicBlock(old) };
        while !block.is_null() {
            // SAFETY: live context, function of ours, an empty C string.
            let copy = unsafe {
                LLVMAppendBasicBlockInContext(self.reader.context().raw(), new, c"".as_ptr())
            };
            // SAFETY: both blocks are live.
            let (from, to) = unsafe { (LLVMBasicBlockAsValue(block), LLVMBasicBlockAsValue(copy)) };
            self.values.insert(from, to);
            // SAFETY: as above.
            block = unsafe { LLVMGetNextBasicBlock(block) };
        }
    }

    fn copy_body(&mut self, old: LLVMValueRef, new: LLVMValueRef) -> Result<(), CodegenError> {
        // SAFETY: a live function of ours.
        if unsafe { LLVMGetFirstBasicBlock(new) }.is_null() {
            self.create_blocks(old, new);
        }
        // SAFETY: both functions have the same type, so the same parameters.
        let (mut from, mut to) = unsafe { (LLVMGetFirstParam(old), LLVMGetFirstParam(new)) };
        while !from.is_null() && !to.is_null() {
            self.values.insert(from, to);
            // SAFETY: as above.
            (from, to) = unsafe { (LLVMGetNextParam(from), LLVMGetNextParam(to)) };
        }
        let (copies, phis) = self.clone_instructions(old);
        for copy in copies {
            self.remap_operands(copy)?;
        }
        for (old_phi, new_phi) in phis {
            self.fill_phi(old_phi, new_phi)?;
        }
        self.copy_function_constants(old, new)?;
        self.instrument(old, new)
    }

    #[allow(clippy::type_complexity)]
    fn clone_instructions(
        &mut self,
        old: LLVMValueRef,
    ) -> (Vec<LLVMValueRef>, Vec<(LLVMValueRef, LLVMValueRef)>) {
        let (mut copies, mut phis) = (Vec::new(), Vec::new());
        // SAFETY: walks blocks and instructions of a live function; the builder is
        // positioned in the copy of the block, which `create_blocks` recorded.
        unsafe {
            let mut block = LLVMGetFirstBasicBlock(old);
            while !block.is_null() {
                let target = self.values[&LLVMBasicBlockAsValue(block)];
                LLVMPositionBuilderAtEnd(self.builder.0, target as LLVMBasicBlockRef);
                let mut instruction = LLVMGetFirstInstruction(block);
                while !instruction.is_null() {
                    let copy = if LLVMGetInstructionOpcode(instruction) == LLVMOpcode::LLVMPHI {
                        let phi =
                            LLVMBuildPhi(self.builder.0, LLVMTypeOf(instruction), c"".as_ptr());
                        if LLVMCanValueUseFastMathFlags(instruction) != 0 {
                            LLVMSetFastMathFlags(phi, LLVMGetFastMathFlags(instruction));
                        }
                        phis.push((instruction, phi));
                        phi
                    } else if self.is_fmuladd(instruction) {
                        self.split_fmuladd(instruction, &mut copies)
                    } else {
                        let copy = self.clone_instruction(instruction);
                        // Building without the flag may have folded a constant.
                        if !LLVMIsAInstruction(copy).is_null() {
                            copies.push(copy);
                        }
                        copy
                    };
                    self.values.insert(instruction, copy);
                    instruction = LLVMGetNextInstruction(instruction);
                }
                block = LLVMGetNextBasicBlock(block);
            }
        }
        (copies, phis)
    }

    fn is_fmuladd(&self, instruction: LLVMValueRef) -> bool {
        let functions = &self.reader.table().fmuladd;
        // SAFETY: a live instruction; the callee is asked for of calls only.
        !self.how.contract
            && !functions.is_empty()
            && unsafe { LLVMGetInstructionOpcode(instruction) } == LLVMOpcode::LLVMCall
            && functions.contains(&unsafe { LLVMGetCalledValue(instruction) })
    }

    /// Clones an instruction to the builder's place. A flag on floating-point operations
    /// lets code generation fuse them: it is set as `clang -ffp-contract=fast` would,
    /// or left out, but where other flags give exact results up anyway.
    ///
    /// # Safety
    /// A live instruction; the builder is at the end of a block.
    unsafe fn clone_instruction(&self, instruction: LLVMValueRef) -> LLVMValueRef {
        // SAFETY: by the caller's promise; only arithmetic is asked for flags, and has
        // two operands.
        unsafe {
            let opcode = LLVMGetInstructionOpcode(instruction);
            let fusible = matches!(
                opcode,
                LLVMOpcode::LLVMFAdd | LLVMOpcode::LLVMFSub | LLVMOpcode::LLVMFMul
            );
            if fusible
                && !self.how.contract
                && LLVMGetFastMathFlags(instruction) == LLVMFastMathAllowContract
            {
                // LLVM-C can add flags, not take them away.
                let [a, b] = [0, 1].map(|i| LLVMGetOperand(instruction, i));
                return LLVMBuildBinOp(self.builder.0, opcode, a, b, c"".as_ptr());
            }
            let copy = LLVMInstructionClone(instruction);
            LLVMInsertIntoBuilder(self.builder.0, copy);
            if fusible && self.how.contract {
                LLVMSetFastMathFlags(copy, LLVMFastMathAllowContract);
            }
            copy
        }
    }

    /// `llvm.fmuladd` may fuse, as soon as the CPU can: floating-point bits would
    /// then depend on the tier. Every tier multiplies, rounds, and adds.
    fn split_fmuladd(
        &mut self,
        call: LLVMValueRef,
        copies: &mut Vec<LLVMValueRef>,
    ) -> LLVMValueRef {
        // SAFETY: a call with three floating-point operands; the builder is at the
        // end of the block being copied, and both instructions are remapped later.
        // The multiplication cannot fold to a constant: only its flags are read off
        // the call when it is an instruction.
        unsafe {
            let [a, b, c] = [0, 1, 2].map(|i| LLVMGetOperand(call, i));
            let flags = LLVMGetFastMathFlags(call);
            let product = LLVMBuildFMul(self.builder.0, a, b, c"".as_ptr());
            let sum = LLVMBuildFAdd(self.builder.0, product, c, c"".as_ptr());
            for value in [product, sum] {
                if !LLVMIsAInstruction(value).is_null() {
                    // Fusing is what is to be avoided.
                    LLVMSetFastMathFlags(value, exact_or(flags));
                    copies.push(value);
                    // The sum's operand is a value of the copy already.
                    self.values.insert(value, value);
                }
            }
            sum
        }
    }

    fn remap_operands(&mut self, copy: LLVMValueRef) -> Result<(), CodegenError> {
        // SAFETY: a live instruction of ours, here and below.
        let opcode = unsafe { LLVMGetInstructionOpcode(copy) };
        let is_call = is_call(opcode);
        // SAFETY: a call has a callee.
        let is_asm = is_call && unsafe { !LLVMIsAInlineAsm(LLVMGetCalledValue(copy)).is_null() };
        self.has_asm |= is_asm;
        // SAFETY: see above.
        let count = unsafe { LLVMGetNumOperands(copy) }.max(0) as u32;
        for index in 0..count {
            // SAFETY: `index` is below the count.
            let operand = unsafe { LLVMGetOperand(copy, index) };
            if operand.is_null() {
                continue;
            }
            // SAFETY: calls have a callee; it is the last operand.
            let is_callee =
                is_call && index + 1 == count && operand == unsafe { LLVMGetCalledValue(copy) };
            let mapped = if is_callee {
                self.map_callee(operand)?
            } else {
                self.map_value(operand)?
            };
            // SAFETY: a live value.
            if is_asm && unsafe { !LLVMIsAFunction(mapped).is_null() } {
                // An immediate of assembly must be a plain address, not a GOT load.
                mark_dso_local(mapped);
            }
            if mapped != operand {
                // SAFETY: same type, and of this module.
                unsafe { LLVMSetOperand(copy, index, mapped) };
            }
        }
        Ok(())
    }

    fn fill_phi(&mut self, old: LLVMValueRef, new: LLVMValueRef) -> Result<(), CodegenError> {
        // SAFETY: a live phi, here and below.
        let count = unsafe { LLVMCountIncoming(old) };
        let mut incoming = Vec::with_capacity(count as usize);
        let mut blocks = Vec::with_capacity(count as usize);
        for index in 0..count {
            // SAFETY: `index` is below the count.
            let (value, block) = unsafe {
                (
                    LLVMGetIncomingValue(old, index),
                    LLVMBasicBlockAsValue(LLVMGetIncomingBlock(old, index)),
                )
            };
            incoming.push(self.map_value(value)?);
            blocks.push(self.values[&block] as LLVMBasicBlockRef);
        }
        // SAFETY: both arrays have `count` entries of this function.
        unsafe { LLVMAddIncoming(new, incoming.as_mut_ptr(), blocks.as_mut_ptr(), count) };
        Ok(())
    }

    fn copy_function_constants(
        &mut self,
        old: LLVMValueRef,
        new: LLVMValueRef,
    ) -> Result<(), CodegenError> {
        // SAFETY: live functions; each getter is guarded by its predicate.
        unsafe {
            if LLVMHasPersonalityFn(old) != 0 {
                LLVMSetPersonalityFn(new, self.map_constant(LLVMGetPersonalityFn(old))?);
            }
            if LLVMHasPrefixData(old) != 0 {
                LLVMSetPrefixData(new, self.map_constant(LLVMGetPrefixData(old))?);
            }
            if LLVMHasPrologueData(old) != 0 {
                LLVMSetPrologueData(new, self.map_constant(LLVMGetPrologueData(old))?);
            }
        }
        Ok(())
    }

    /// A direct callee: `alwaysinline` functions with a body here are copied along.
    fn map_callee(&mut self, old: LLVMValueRef) -> Result<LLVMValueRef, CodegenError> {
        let old = self.reader.library().home(old).unwrap_or(old);
        if self.optimizes()
            && let Some(id) = self.resolve(old)
        {
            let target = self.reader.table().values[id.index()];
            if let Some((root, new)) = self.root
                && target == root
            {
                return Ok(new);
            }
            // Through an alias, if the function it names is a candidate.
            if let Some(&candidate) = self.with_labels.get(&target) {
                return Ok(candidate);
            }
        }
        if !self.is_inline_body(old) {
            return self.map_value(old);
        }
        if let Some(&new) = self.inline_copies.get(&old) {
            return Ok(new);
        }
        if let Some(&new) = self.with_labels.get(&old) {
            return Ok(new);
        }
        let name = format!("uruk.inline.{}", value_name(old));
        let new = self.define_function(old, &name, LLVMLinkage::LLVMInternalLinkage)?;
        mark_dso_local(new);
        self.inline_copies.insert(old, new);
        self.inlined.extend(self.reader.table().index.get(&old));
        self.pending.push_back((old, new));
        self.needs_passes = true;
        Ok(new)
    }
}

/// The flags of a split `fmuladd`, without contraction if that is all they say.
fn exact_or(flags: u32) -> u32 {
    if flags == LLVMFastMathAllowContract {
        0
    } else {
        flags
    }
}

pub(crate) fn is_call(opcode: LLVMOpcode) -> bool {
    matches!(
        opcode,
        LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr
    )
}
