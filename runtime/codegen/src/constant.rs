//! Maps the values an instruction or initializer mentions into the copy.
//!
//! Constants without globals in them belong to the context and stay as they are;
//! the others are rebuilt with the copy's globals, once each.

use inkwell::llvm_sys::core::{
    LLVMBasicBlockAsValue, LLVMBlockAddress, LLVMConstAdd, LLVMConstAddrSpaceCast, LLVMConstArray2,
    LLVMConstBitCast, LLVMConstExtractElement, LLVMConstGEP2, LLVMConstGEPWithNoWrapFlags,
    LLVMConstInsertElement, LLVMConstInt, LLVMConstIntToPtr, LLVMConstNamedStruct,
    LLVMConstPtrToInt, LLVMConstShuffleVector, LLVMConstStructInContext, LLVMConstSub,
    LLVMConstTrunc, LLVMConstVector, LLVMConstXor, LLVMGEPGetNoWrapFlags,
    LLVMGetBlockAddressBasicBlock, LLVMGetBlockAddressFunction, LLVMGetConstOpcode,
    LLVMGetElementType, LLVMGetGEPSourceElementType, LLVMGetStructName, LLVMInt8TypeInContext,
    LLVMInt64TypeInContext, LLVMIsConstant, LLVMIsPackedStruct, LLVMTypeOf, LLVMValueAsBasicBlock,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::{LLVMOpcode, LLVMValueKind};

use crate::copying::Copying;
use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef};
use crate::labels::space_name;
use crate::reader::Verify;

impl<'r> Copying<'r> {
    /// Maps any operand: locals, globals, constants.
    pub(crate) fn map_value(&mut self, old: ValueRef<'r>) -> Result<ValueRef<'r>, CodegenError> {
        match old.kind() {
            LLVMValueKind::LLVMInstructionValueKind
            | LLVMValueKind::LLVMArgumentValueKind
            | LLVMValueKind::LLVMBasicBlockValueKind => match self.values.get(&old) {
                Some(&new) => Ok(new),
                // SAFETY: a live value.
                None if unsafe { LLVMIsConstant(old.raw()) } != 0 => self.map_constant(old),
                None => Err(self.unsupported("a value of another function")),
            },
            LLVMValueKind::LLVMMetadataAsValueValueKind | LLVMValueKind::LLVMInlineAsmValueKind => {
                Ok(old)
            }
            _ => self.map_constant(old),
        }
    }

    /// Maps a constant.
    pub(crate) fn map_constant(&mut self, old: ValueRef<'r>) -> Result<ValueRef<'r>, CodegenError> {
        match old.kind() {
            _ if old.is_global() => self.map_global(old),
            _ if old.is_composite() => self.map_composite(old),
            LLVMValueKind::LLVMBlockAddressValueKind => self.map_label(old),
            LLVMValueKind::LLVMConstantPtrAuthValueKind => {
                Err(self.unsupported("a ptrauth constant"))
            }
            // A kind of constant that LLVM-C has no name for.
            LLVMValueKind::LLVMInstructionValueKind => match old.stands_for() {
                Some(function) => self.map_global(function),
                None => Err(self.unsupported("a constant of an unknown kind")),
            },
            _ => Ok(old),
        }
    }

    /// The distance of two labels in a label space, if a constant is one: object files have none of
    /// places that are elsewhere.
    fn label_distance(&mut self, old: ValueRef<'r>) -> Result<Option<ValueRef<'r>>, CodegenError> {
        let is_sub = old.kind() == LLVMValueKind::LLVMConstantExprValueKind
            // SAFETY: an expression.
            && unsafe { LLVMGetConstOpcode(old.raw()) } == LLVMOpcode::LLVMSub;
        if !is_sub {
            return Ok(None);
        }
        let label = |part: ValueRef<'r>| {
            let address = part.parts().next().filter(|_| part.is_composite())?;
            let is_label = address.kind() == LLVMValueKind::LLVMBlockAddressValueKind;
            is_label.then(|| label_of(address))
        };
        let [to, from] = [0, 1].map(|at| old.parts().nth(at).and_then(label));
        let (Some((function, to)), Some((other, from))) = (to, from) else {
            return Ok(None);
        };
        if function != other || self.plain_labels.covers(function) {
            return Ok(None);
        }
        let distance =
            i64::from(self.label(function, to)?) - i64::from(self.label(function, from)?);
        // SAFETY: the type of an integer.
        Ok(Some(unsafe {
            ValueRef::of(LLVMConstInt(LLVMTypeOf(old.raw()), distance as u64, 1))
        }))
    }

    fn map_label(&mut self, old: ValueRef<'r>) -> Result<ValueRef<'r>, CodegenError> {
        let (function, block) = label_of(old);
        let plain = self.plain_labels.covers(function);
        if let Some(copy) = self.with_labels.get(&*function).filter(|_| plain)
            && let Some(&target) = self.values.get(&block)
        {
            // SAFETY: a function and one of its blocks, both ours.
            return Ok(unsafe {
                ValueRef::of(LLVMBlockAddress(
                    copy.raw(),
                    LLVMValueAsBasicBlock(target.raw()),
                ))
            });
        }
        let space = self.label_space(function)?;
        let number = self.label(function, block)?;
        self.contents.foreign_labels |= !self.with_labels.contains_key(&*function);
        // SAFETY: a global of ours, in whose space a label has a place.
        Ok(unsafe {
            let context = self.source.reader.context().raw();
            let byte = LLVMInt8TypeInContext(context);
            let mut number = LLVMConstInt(LLVMInt64TypeInContext(context), number.into(), 0);
            ValueRef::of(LLVMConstGEP2(byte, space.raw(), &mut number, 1))
        })
    }

    /// The label space of a function of the reader's module.
    pub(crate) fn label_space(
        &mut self,
        function: FunctionRef<'r>,
    ) -> Result<ValueRef<'r>, CodegenError> {
        let Some(id) = self.source.id(*function) else {
            return Err(self.unsupported("a label of another module"));
        };
        let name = space_name(&self.source.plan.import(id).name);
        Ok(match self.module.global(&name) {
            Some(known) => known,
            None => *self.declare_byte(&name),
        })
    }

    /// The number of a label in the space of its function: that of its block.
    pub(crate) fn label(
        &mut self,
        function: FunctionRef<'r>,
        block: ValueRef<'r>,
    ) -> Result<u32, CodegenError> {
        if !self.labels.contains_key(&block) {
            self.source.reader.materialize(function, Verify::No)?;
            let blocks = function.blocks().map(|it| it.value());
            self.labels.extend(blocks.zip(0u32..));
        }
        let number = self.labels.get(&block).copied();
        number.ok_or_else(|| self.unsupported("the address of a removed label"))
    }

    fn map_composite(&mut self, old: ValueRef<'r>) -> Result<ValueRef<'r>, CodegenError> {
        if let Some(&new) = self.values.get(&old) {
            return Ok(new);
        }
        if let Some(distance) = self.label_distance(old)? {
            return Ok(distance);
        }
        let mut operands = Vec::with_capacity(old.parts().len());
        let mut changed = false;
        for part in old.parts() {
            let mapped = self.map_constant(part)?;
            changed |= mapped != part;
            operands.push(mapped.raw());
        }
        let new = match changed {
            // SAFETY: a constant made of others, and as many of the same types.
            true => unsafe { self.rebuild(old, &mut operands)? },
            false => old,
        };
        self.values.insert(old, new);
        Ok(new)
    }

    /// # Safety
    /// `old` is a live constant made of others, and `operands` are as many constants, of the
    /// same types.
    unsafe fn rebuild(
        &mut self,
        old: ValueRef<'r>,
        operands: &mut [LLVMValueRef],
    ) -> Result<ValueRef<'r>, CodegenError> {
        let count = operands.len();
        let data = operands.as_mut_ptr();
        // SAFETY: by the caller's promise; each constructor fits the kind.
        unsafe {
            let ty = LLVMTypeOf(old.raw());
            let new = match old.kind() {
                LLVMValueKind::LLVMConstantArrayValueKind => {
                    LLVMConstArray2(LLVMGetElementType(ty), data, count as u64)
                }
                LLVMValueKind::LLVMConstantVectorValueKind => LLVMConstVector(data, count as u32),
                LLVMValueKind::LLVMConstantStructValueKind if LLVMGetStructName(ty).is_null() => {
                    let context = self.source.reader.context().raw();
                    let packed = LLVMIsPackedStruct(ty);
                    LLVMConstStructInContext(context, data, count as u32, packed)
                }
                LLVMValueKind::LLVMConstantStructValueKind => {
                    LLVMConstNamedStruct(ty, data, count as u32)
                }
                _ => self.rebuild_expression(old.raw(), operands)?,
            };
            Ok(ValueRef::of(new))
        }
    }

    /// # Safety
    /// As [`Copying::rebuild`], of an expression.
    unsafe fn rebuild_expression(
        &mut self,
        old: LLVMValueRef,
        operands: &mut [LLVMValueRef],
    ) -> Result<LLVMValueRef, CodegenError> {
        let arity = |wanted| operands.len() >= wanted;
        // SAFETY: by the caller's promise, with the operand count its opcode has, which
        // `arity` checks before each use; types are those of the original.
        unsafe {
            let ty = LLVMTypeOf(old);
            match LLVMGetConstOpcode(old) {
                LLVMOpcode::LLVMGetElementPtr if arity(1) => Ok(LLVMConstGEPWithNoWrapFlags(
                    LLVMGetGEPSourceElementType(old),
                    operands[0],
                    operands[1..].as_mut_ptr(),
                    (operands.len() - 1) as u32,
                    LLVMGEPGetNoWrapFlags(old),
                )),
                LLVMOpcode::LLVMBitCast if arity(1) => Ok(LLVMConstBitCast(operands[0], ty)),
                LLVMOpcode::LLVMAddrSpaceCast if arity(1) => {
                    Ok(LLVMConstAddrSpaceCast(operands[0], ty))
                }
                // On x86-64 an address is its integer, so both forms are the same.
                LLVMOpcode::LLVMPtrToInt | LLVMOpcode::LLVMPtrToAddr if arity(1) => {
                    Ok(LLVMConstPtrToInt(operands[0], ty))
                }
                LLVMOpcode::LLVMIntToPtr if arity(1) => Ok(LLVMConstIntToPtr(operands[0], ty)),
                LLVMOpcode::LLVMTrunc if arity(1) => Ok(LLVMConstTrunc(operands[0], ty)),
                LLVMOpcode::LLVMAdd if arity(2) => Ok(LLVMConstAdd(operands[0], operands[1])),
                LLVMOpcode::LLVMSub if arity(2) => Ok(LLVMConstSub(operands[0], operands[1])),
                LLVMOpcode::LLVMXor if arity(2) => Ok(LLVMConstXor(operands[0], operands[1])),
                LLVMOpcode::LLVMExtractElement if arity(2) => {
                    Ok(LLVMConstExtractElement(operands[0], operands[1]))
                }
                LLVMOpcode::LLVMInsertElement if arity(3) => Ok(LLVMConstInsertElement(
                    operands[0],
                    operands[1],
                    operands[2],
                )),
                LLVMOpcode::LLVMShuffleVector if arity(3) => Ok(LLVMConstShuffleVector(
                    operands[0],
                    operands[1],
                    operands[2],
                )),
                other => Err(self.unsupported(&format!("a constant expression {other:?}"))),
            }
        }
    }
}

/// The function and the block of a block address.
fn label_of(address: ValueRef<'_>) -> (FunctionRef<'_>, ValueRef<'_>) {
    // SAFETY: a block address; its function and block are live.
    unsafe {
        let block = LLVMGetBlockAddressBasicBlock(address.raw());
        (
            FunctionRef::of(LLVMGetBlockAddressFunction(address.raw())),
            ValueRef::of(LLVMBasicBlockAsValue(block)),
        )
    }
}
