//! Maps the values an instruction or initializer mentions into the copy.
//!
//! Constants without globals in them belong to the context and stay as they are;
//! the others are rebuilt with the copy's globals, once each.

use inkwell::llvm_sys::core::{
    LLVMBasicBlockAsValue, LLVMBlockAddress, LLVMConstAdd, LLVMConstAddrSpaceCast, LLVMConstArray2,
    LLVMConstBitCast, LLVMConstExtractElement, LLVMConstGEPWithNoWrapFlags, LLVMConstInsertElement,
    LLVMConstIntToPtr, LLVMConstNamedStruct, LLVMConstPtrToInt, LLVMConstShuffleVector,
    LLVMConstStructInContext, LLVMConstSub, LLVMConstTrunc, LLVMConstVector, LLVMConstXor,
    LLVMGEPGetNoWrapFlags, LLVMGetBlockAddressBasicBlock, LLVMGetBlockAddressFunction,
    LLVMGetConstOpcode, LLVMGetElementType, LLVMGetGEPSourceElementType, LLVMGetNumOperands,
    LLVMGetOperand, LLVMGetStructName, LLVMGetValueKind, LLVMIsConstant, LLVMIsPackedStruct,
    LLVMTypeOf, LLVMValueAsBasicBlock,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::{LLVMOpcode, LLVMValueKind};

use crate::error::CodegenError;
use crate::extract::Extraction;

impl Extraction<'_> {
    /// Maps any operand: locals, globals, constants.
    pub(crate) fn map_value(&mut self, old: LLVMValueRef) -> Result<LLVMValueRef, CodegenError> {
        // SAFETY: a live value, here and below.
        match unsafe { LLVMGetValueKind(old) } {
            LLVMValueKind::LLVMInstructionValueKind
            | LLVMValueKind::LLVMArgumentValueKind
            | LLVMValueKind::LLVMBasicBlockValueKind => match self.values.get(&old) {
                Some(&new) => Ok(new),
                // LLVM-C shows the constant kinds it has no name for as instructions.
                // SAFETY: see above.
                None if unsafe { LLVMIsConstant(old) } != 0 => {
                    Err(self.unsupported("a dso_local_equivalent or no_cfi constant"))
                }
                None => Err(self.unsupported("a value of another function")),
            },
            LLVMValueKind::LLVMMetadataAsValueValueKind | LLVMValueKind::LLVMInlineAsmValueKind => {
                Ok(old)
            }
            _ => self.map_constant(old),
        }
    }

    /// Maps a constant.
    pub(crate) fn map_constant(&mut self, old: LLVMValueRef) -> Result<LLVMValueRef, CodegenError> {
        // SAFETY: a live constant.
        match unsafe { LLVMGetValueKind(old) } {
            LLVMValueKind::LLVMFunctionValueKind
            | LLVMValueKind::LLVMGlobalVariableValueKind
            | LLVMValueKind::LLVMGlobalAliasValueKind
            | LLVMValueKind::LLVMGlobalIFuncValueKind => self.map_global(old),
            LLVMValueKind::LLVMBlockAddressValueKind => self.map_label(old),
            LLVMValueKind::LLVMConstantExprValueKind
            | LLVMValueKind::LLVMConstantArrayValueKind
            | LLVMValueKind::LLVMConstantStructValueKind
            | LLVMValueKind::LLVMConstantVectorValueKind => self.map_composite(old),
            LLVMValueKind::LLVMConstantPtrAuthValueKind => {
                Err(self.unsupported("a ptrauth constant"))
            }
            LLVMValueKind::LLVMInstructionValueKind => {
                Err(self.unsupported("a dso_local_equivalent or no_cfi constant"))
            }
            _ => Ok(old),
        }
    }

    fn map_label(&mut self, old: LLVMValueRef) -> Result<LLVMValueRef, CodegenError> {
        // SAFETY: a block address; its function and block are live.
        let (function, block) = unsafe {
            (
                LLVMGetBlockAddressFunction(old),
                LLVMBasicBlockAsValue(LLVMGetBlockAddressBasicBlock(old)),
            )
        };
        let copy = self.function_with_labels(function)?;
        let Some(&target) = self.values.get(&block) else {
            return Err(self.unsupported("the address of a removed label"));
        };
        // SAFETY: a function and one of its blocks, both ours.
        Ok(unsafe { LLVMBlockAddress(copy, LLVMValueAsBasicBlock(target)) })
    }

    fn map_composite(&mut self, old: LLVMValueRef) -> Result<LLVMValueRef, CodegenError> {
        if let Some(&new) = self.values.get(&old) {
            return Ok(new);
        }
        // SAFETY: a constant with operands.
        let count = unsafe { LLVMGetNumOperands(old) }.max(0) as u32;
        let mut operands = Vec::with_capacity(count as usize);
        let mut changed = false;
        for index in 0..count {
            // SAFETY: `index` is below the count.
            let operand = unsafe { LLVMGetOperand(old, index) };
            let mapped = self.map_constant(operand)?;
            changed |= mapped != operand;
            operands.push(mapped);
        }
        let new = if changed {
            self.rebuild(old, &mut operands)?
        } else {
            old
        };
        self.values.insert(old, new);
        Ok(new)
    }

    fn rebuild(
        &mut self,
        old: LLVMValueRef,
        operands: &mut [LLVMValueRef],
    ) -> Result<LLVMValueRef, CodegenError> {
        let count = operands.len();
        let data = operands.as_mut_ptr();
        // SAFETY: live constant and its type; `operands` holds as many constants of
        // the same types as `old` has operands.
        unsafe {
            let ty = LLVMTypeOf(old);
            match LLVMGetValueKind(old) {
                LLVMValueKind::LLVMConstantArrayValueKind => {
                    Ok(LLVMConstArray2(LLVMGetElementType(ty), data, count as u64))
                }
                LLVMValueKind::LLVMConstantVectorValueKind => {
                    Ok(LLVMConstVector(data, count as u32))
                }
                LLVMValueKind::LLVMConstantStructValueKind => {
                    if LLVMGetStructName(ty).is_null() {
                        let context = self.reader.context().raw();
                        let packed = LLVMIsPackedStruct(ty);
                        Ok(LLVMConstStructInContext(
                            context,
                            data,
                            count as u32,
                            packed,
                        ))
                    } else {
                        Ok(LLVMConstNamedStruct(ty, data, count as u32))
                    }
                }
                _ => self.rebuild_expression(old, operands),
            }
        }
    }

    fn rebuild_expression(
        &mut self,
        old: LLVMValueRef,
        operands: &mut [LLVMValueRef],
    ) -> Result<LLVMValueRef, CodegenError> {
        let arity = |wanted| operands.len() >= wanted;
        // SAFETY: live constant expression with the operand count its opcode has,
        // which `arity` checks before each use; types are those of the original.
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

/// True if a constant has no more than `left` operands that would have to be rebuilt;
/// strings and tables of numbers have none.
///
/// # Safety
/// A live constant.
pub(crate) unsafe fn is_small(constant: LLVMValueRef, left: &mut u32) -> bool {
    // SAFETY: by the caller's promise; operands of constants are constants.
    unsafe {
        match LLVMGetValueKind(constant) {
            LLVMValueKind::LLVMConstantExprValueKind
            | LLVMValueKind::LLVMConstantArrayValueKind
            | LLVMValueKind::LLVMConstantStructValueKind
            | LLVMValueKind::LLVMConstantVectorValueKind => {
                let count = LLVMGetNumOperands(constant).max(0) as u32;
                if count > *left {
                    return false;
                }
                *left -= count;
                (0..count).all(|i| is_small(LLVMGetOperand(constant, i), left))
            }
            LLVMValueKind::LLVMBlockAddressValueKind => false,
            _ => true,
        }
    }
}
