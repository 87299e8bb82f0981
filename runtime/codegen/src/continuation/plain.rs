//! Continuations whose labels have the addresses of their own blocks.
//!
//! Labels that stay inside a function need no places in its label space, nor do they in a
//! continuation. Tables of labels are private copies, as in a whole version (`labels`). The old
//! frame uses places, so a label that crosses is looked up at the entry. Only the label that the
//! head itself jumps to may cross. If others do, the continuation has places in the label space.
//!
//! # Why
//! Code generation duplicates a short jump by a label into the blocks that lead to it. The look-up
//! in a table of the version's own (`jumps`) made it too long for that.

use inkwell::llvm_sys::core::{
    LLVMBlockAddress, LLVMBuildICmp, LLVMBuildInBoundsGEP2, LLVMBuildLoad2, LLVMBuildPtrToInt,
    LLVMBuildSelect, LLVMBuildSub, LLVMConstAdd, LLVMConstInt, LLVMConstNull, LLVMConstPtrToInt,
    LLVMGetGlobalParent, LLVMGetNumSuccessors, LLVMGetSuccessor, LLVMInt64TypeInContext,
    LLVMPointerTypeInContext, LLVMReplaceAllUsesWith, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::{LLVMIntPredicate, LLVMOpcode, LLVMValueKind};
use rustc_hash::FxHashSet;
use uruk_leaving::Reason;

use super::frame::{Crossing, Frame, Kind};
use super::making::{Making, NO_NAME};
use crate::handles::{BlockRef, FunctionRef, InstructionRef, ValueRef};
use crate::jumps;
use crate::labels;

/// The labels of a continuation's own.
pub(crate) struct OwnLabels<'m> {
    /// The label space of the function.
    space: ValueRef<'m>,
    /// The jump that ends the head.
    jump: Option<InstructionRef<'m>>,
    /// The variable that crosses and is a label: a phi of the head.
    crossing: FxHashSet<ValueRef<'m>>,
}

impl<'m> OwnLabels<'m> {
    /// For a body with plain addresses of labels, entered at `head`.
    ///
    /// # Errors
    /// Labels cross in another way.
    pub(super) fn find(
        space: ValueRef<'m>,
        body: FunctionRef<'m>,
        frame: &Frame<'m>,
        what: &Crossing,
        head: BlockRef<'m>,
    ) -> Result<OwnLabels<'m>, Reason> {
        let carriers = labels::carriers(body).ok_or(Reason::Labels)?;
        let jump = head.terminator();
        let jump = jump.filter(|it| it.opcode() == LLVMOpcode::LLVMIndirectBr);
        let phis: FxHashSet<ValueRef<'m>> = head
            .instructions()
            .take_while(|it| it.opcode() == LLVMOpcode::LLVMPHI)
            .map(|it| *it)
            .collect();
        let variables = what.variables.iter();
        let variables = variables.map(|&it| &frame.variables[it as usize]);
        let mut crossing = FxHashSet::default();
        for it in variables.filter(|it| carriers.contains(&it.value)) {
            let mut users = it.value.users();
            let only_here = users.all(|user| jump.is_some_and(|jump| *jump == user));
            if it.kind != Kind::Value || !phis.contains(&it.value) || !only_here {
                return Err(Reason::Labels);
            }
            crossing.insert(it.value);
        }
        Ok(OwnLabels {
            space,
            jump,
            crossing,
        })
    }
}

impl<'m> Making<'_, 'm> {
    /// The continuation's form of a crossing value: the address of a block, if it is a label that
    /// has one.
    ///
    /// # Safety
    /// The entry is being filled; of the value's type.
    pub(super) unsafe fn own_label(
        &self,
        value: ValueRef<'m>,
        passed: LLVMValueRef,
    ) -> LLVMValueRef {
        let Some(own) = self.labels.filter(|it| it.crossing.contains(&value)) else {
            return passed;
        };
        let Some(jump) = own.jump else {
            return passed;
        };
        let (context, builder) = (self.context, self.at_entry.0);
        // SAFETY: a live jump, whose blocks are copied as they are reached from the head; all of
        // one context; the entry read is one of the table's.
        unsafe {
            let mut seen = FxHashSet::default();
            let to = (0..LLVMGetNumSuccessors(jump.raw()))
                .map(|at| self.numbers[&LLVMGetSuccessor(jump.raw(), at)])
                .filter(|it| seen.insert(*it));
            let to: Vec<u32> = to.collect();
            let Some(least) = to.iter().min().copied() else {
                return passed;
            };
            let greatest = to.iter().max().copied().unwrap_or(least);
            let blocks: Vec<_> = to.iter().map(|it| self.copies[&(0, *it)]).collect();
            let labels: Vec<u64> = to.iter().map(|it| u64::from(*it)).collect();
            let module = LLVMGetGlobalParent(self.function.raw());
            let (function, least) = (self.function, u64::from(least));
            let table = jumps::make_table(context, module, function, &blocks, &labels, least);
            let number = LLVMInt64TypeInContext(context.raw());
            let pointer = LLVMPointerTypeInContext(context.raw(), 0);
            let constant = |it| LLVMConstInt(number, it, 0);
            let start = LLVMConstPtrToInt(own.space.raw(), number);
            let start = LLVMConstAdd(start, constant(least));
            let place = LLVMBuildPtrToInt(builder, passed, number, NO_NAME);
            let index = LLVMBuildSub(builder, place, start, NO_NAME);
            // A value that is no label is never jumped to.
            let size = constant(u64::from(greatest) - least + 1);
            let is_label =
                LLVMBuildICmp(builder, LLVMIntPredicate::LLVMIntULT, index, size, NO_NAME);
            let mut index = LLVMBuildSelect(builder, is_label, index, constant(0), NO_NAME);
            let entry = LLVMBuildInBoundsGEP2(builder, pointer, table, &mut index, 1, NO_NAME);
            LLVMBuildLoad2(builder, pointer, entry, NO_NAME)
        }
    }

    /// Replaces the body's blocks with the continuation's in tables and code.
    ///
    /// # Safety
    /// The continuation is filled; each block is copied once.
    pub(super) unsafe fn take_labels(&self) {
        for (block, at) in self.regions.flow.blocks.iter().zip(0u32..) {
            let users = block.value().users();
            let mut labels =
                users.filter(|it| it.kind() == LLVMValueKind::LLVMBlockAddressValueKind);
            let Some(label) = labels.next() else {
                continue;
            };
            // SAFETY: by the caller's promise; unreachable blocks are not jumped to.
            unsafe {
                let own = match self.copies.get(&(0, at)) {
                    Some(&copy) => LLVMBlockAddress(self.function.raw(), copy),
                    None => LLVMConstNull(LLVMTypeOf(label.raw())),
                };
                LLVMReplaceAllUsesWith(label.raw(), own);
            }
        }
    }
}
