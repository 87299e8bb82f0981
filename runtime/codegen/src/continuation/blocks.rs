//! The blocks of a continuation: copies of the body's blocks, with values used beyond a block in
//! memory.

use std::ptr::null_mut;

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMAppendBasicBlockInContext, LLVMBasicBlockAsValue, LLVMBuildBr, LLVMBuildLoad2,
    LLVMBuildStore, LLVMGetInstructionOpcode, LLVMGetInstructionParent, LLVMGetNormalDest,
    LLVMGetNumSuccessors, LLVMGetPoison, LLVMGetSuccessor, LLVMInsertIntoBuilder,
    LLVMInstructionClone, LLVMIsAArgument, LLVMPositionBuilderAtEnd, LLVMSetMetadata,
    LLVMSetNormalDest, LLVMSetOperand, LLVMTypeOf, LLVMValueAsBasicBlock, LLVMValueIsBasicBlock,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use rustc_hash::FxHashSet;

use super::intrinsics::{Meaning, is_intrinsic};
use super::making::{Local, Making, NO_NAME};
use super::parts::{incoming, is_static};
use crate::handles::{BlockRef, InstructionRef, ValueRef};

impl<'m> Making<'_, 'm> {
    /// # Safety
    /// A block of the body that has an empty copy.
    pub(super) unsafe fn copy_block(&mut self, copy: u32, block: u32) {
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
        if is_intrinsic(old, Meaning::is_marker) {
            let of = old
                .operands()
                .flatten()
                .find(|it| it.as_instruction().is_some());
            // An object alive when the continuation began is alive until it ends.
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
                mapped.push(operand.map(|operand| self.operand(copy, operand, local)));
            }
            let new = LLVMInstructionClone(old.raw());
            LLVMInsertIntoBuilder(self.builder.0, new);
            for (operand, index) in mapped.into_iter().zip(0u32..) {
                if let Some(operand) = operand {
                    LLVMSetOperand(new, index, operand);
                }
            }
            if !self.regions.is_nest(copy) {
                for &kind in &self.dropped {
                    LLVMSetMetadata(new, kind, null_mut());
                }
            }
            if let Some(kind) = self.unshared {
                LLVMSetMetadata(new, kind, null_mut());
            }
            new
        }
    }

    /// The copy's value for an operand, where the builder is.
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

    /// Copies the last instruction of a block, and stores the values of its successors' phis.
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
                        // The result of an `invoke` exists on one of its edges only.
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
                || (!self.goes_beyond(*end) && behind.is_empty())
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
