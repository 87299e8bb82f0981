//! Variables of a unit: records of arguments and locals, copied from a body to its copy.
//!
//! # Invariants
//! - A record names values of its function: a value that the copy no longer has is *optimized out*,
//!   as a debugger calls it.
//! - A variable and the place of its record are in one function, as LLVM requires: the same rule
//!   finds the function of both ([`LineWriter::home`]).

use inkwell::llvm_sys::core::{
    LLVMDbgRecordGetDebugLoc, LLVMDbgRecordGetKind, LLVMDbgVariableRecordGetExpression,
    LLVMDbgVariableRecordGetValue, LLVMDbgVariableRecordGetVariable, LLVMGetFirstDbgRecord,
    LLVMGetNextDbgRecord, LLVMGetPoison, LLVMInt32TypeInContext,
};
use inkwell::llvm_sys::debuginfo::{
    LLVMDIBuilderCreateAutoVariable, LLVMDIBuilderCreateExpression,
    LLVMDIBuilderCreateParameterVariable, LLVMDIBuilderInsertDbgValueRecordBefore,
    LLVMDIBuilderInsertDeclareRecordBefore, LLVMDIFlagArtificial, LLVMDIFlagObjectPointer,
    LLVMDIFlagZero, LLVMDIVariableGetFile, LLVMDIVariableGetLine, LLVMDIVariableGetScope,
};
use inkwell::llvm_sys::prelude::{LLVMDbgRecordRef, LLVMMetadataRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMDbgRecordKind, LLVMValueKind};
use rustc_hash::FxHashSet;

use super::nodes::{child, number, operand, printed, text};
use super::{DEPTH, LineWriter, Locations};
use crate::copying::Copying;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};

/// Operands of LLVM's node for a local variable: scope, name, file, type.
const NAME: usize = 1;
const TYPE: usize = 3;

/// The place of a variable, from an instruction on.
pub(super) struct Record<'r> {
    before: InstructionRef<'r>,
    /// The variable is kept there all the time.
    declares: bool,
    /// A value of the copy; `None` once the variable is nowhere.
    value: Option<ValueRef<'r>>,
    /// Metadata of the original module.
    variable: LLVMMetadataRef,
    expression: LLVMMetadataRef,
    place: LLVMMetadataRef,
}

/// The records of `old`, for its copy `new`.
pub(super) fn read<'r>(
    copying: &Copying<'r>,
    old: FunctionRef<'r>,
    new: FunctionRef<'r>,
) -> Vec<Record<'r>> {
    // An instruction may have been exchanged since it was copied.
    let live: FxHashSet<LLVMValueRef> = new.instructions().map(|it| it.raw()).collect();
    let copy_of = |old: ValueRef<'r>| {
        let copy = copying.values.get(&old)?;
        live.contains(&copy.raw()).then_some(*copy)
    };
    let mut records = Vec::new();
    for block in old.blocks() {
        let mut waiting = Vec::new();
        for instruction in block.instructions() {
            // SAFETY: a live instruction, and its records, one after the other.
            unsafe {
                let mut record = LLVMGetFirstDbgRecord(instruction.raw());
                while !record.is_null() {
                    waiting.push(record);
                    record = LLVMGetNextDbgRecord(record);
                }
            }
            if waiting.is_empty() {
                continue;
            }
            let Some(before) = copy_of(*instruction).and_then(ValueRef::as_instruction) else {
                continue;
            };
            let value_of = |value: ValueRef<'r>| match value.kind() {
                LLVMValueKind::LLVMInstructionValueKind => copy_of(value),
                LLVMValueKind::LLVMArgumentValueKind => copying.values.get(&value).copied(),
                LLVMValueKind::LLVMConstantIntValueKind
                | LLVMValueKind::LLVMConstantFPValueKind
                | LLVMValueKind::LLVMConstantPointerNullValueKind => Some(value),
                _ => None,
            };
            let context = copying.source.reader.context().raw();
            // SAFETY: records of a live instruction.
            let read = |record| unsafe { read_record(context, record, before, value_of) };
            records.extend(waiting.drain(..).filter_map(read));
        }
    }
    records
}

/// # Safety
/// A live record of the context.
unsafe fn read_record<'r>(
    context: inkwell::llvm_sys::prelude::LLVMContextRef,
    record: LLVMDbgRecordRef,
    before: InstructionRef<'r>,
    value_of: impl Fn(ValueRef<'r>) -> Option<ValueRef<'r>>,
) -> Option<Record<'r>> {
    // SAFETY: by the caller's promise; only records of variables are asked for a variable, and
    // values and nodes live as the record does.
    unsafe {
        let kind = LLVMDbgRecordGetKind(record);
        if kind == LLVMDbgRecordKind::LLVMDbgRecordLabel {
            return None;
        }
        let declares = kind == LLVMDbgRecordKind::LLVMDbgRecordDeclare;
        let variable = LLVMDbgVariableRecordGetVariable(record);
        let expression = LLVMDbgVariableRecordGetExpression(record);
        let place = LLVMDbgRecordGetDebugLoc(record);
        if variable.is_null() || expression.is_null() || place.is_null() {
            return None;
        }
        // A variable computed of several values is not followed.
        let several = printed(context, expression).contains("DW_OP_LLVM_arg");
        let value = match several {
            true => None,
            false => ValueRef::from_raw(LLVMDbgVariableRecordGetValue(record, 0)),
        };
        let value = value.and_then(value_of);
        if declares && value.is_none() {
            return None;
        }
        Some(Record {
            before,
            declares,
            value,
            variable,
            expression,
            place,
        })
    }
}

impl LineWriter {
    /// Writes a record into the function that `locations` are of.
    ///
    /// # Safety
    /// As [`LineWriter::function`]; a record of that function.
    pub(super) unsafe fn record(&mut self, locations: &mut Locations, record: &Record<'_>) {
        // SAFETY: by the caller's promise; nodes that a record refers to live as its function does.
        unsafe {
            let (home, _) = self.home(locations, record.place, DEPTH);
            let Some(variable) = self.variable(record.variable, home) else {
                return;
            };
            let place = self.location(locations, record.place, DEPTH);
            let before = record.before.raw();
            match record.value {
                Some(value) if record.declares => LLVMDIBuilderInsertDeclareRecordBefore(
                    self.builder,
                    value.raw(),
                    variable,
                    record.expression,
                    place,
                    before,
                ),
                Some(value) => LLVMDIBuilderInsertDbgValueRecordBefore(
                    self.builder,
                    value.raw(),
                    variable,
                    record.expression,
                    place,
                    before,
                ),
                None => LLVMDIBuilderInsertDbgValueRecordBefore(
                    self.builder,
                    LLVMGetPoison(LLVMInt32TypeInContext(self.context)),
                    variable,
                    LLVMDIBuilderCreateExpression(self.builder, std::ptr::null_mut(), 0),
                    place,
                    before,
                ),
            };
        }
    }

    /// The new variable for an old one of a function, whose new subprogram is `home`.
    ///
    /// # Safety
    /// As [`LineWriter::function`]; a live variable.
    unsafe fn variable(
        &mut self,
        old: LLVMMetadataRef,
        home: LLVMMetadataRef,
    ) -> Option<LLVMMetadataRef> {
        if let Some(&known) = self.variables.get(&(old, home)) {
            return Some(known);
        }
        // SAFETY: by the caller's promise; pointer and length describe the name.
        unsafe {
            let name = text(operand(self.context, old, NAME)?)?;
            let (start, length) = (name.as_ptr().cast(), name.len());
            let (file, line) = (LLVMDIVariableGetFile(old), LLVMDIVariableGetLine(old));
            let scope = self.scope(LLVMDIVariableGetScope(old), home, DEPTH);
            let ty = self.types.copy(child(self.context, old, TYPE));
            let said = printed(self.context, old);
            let mut flags = LLVMDIFlagZero;
            if said.contains("DIFlagArtificial") {
                flags |= LLVMDIFlagArtificial;
            }
            if said.contains("DIFlagObjectPointer") {
                flags |= LLVMDIFlagObjectPointer;
            }
            let builder = self.builder;
            let new = match number(&said, ", arg:") {
                0 => LLVMDIBuilderCreateAutoVariable(
                    builder, scope, start, length, file, line, ty, 0, flags, 0,
                ),
                place => LLVMDIBuilderCreateParameterVariable(
                    builder, scope, start, length, place, file, line, ty, 0, flags,
                ),
            };
            self.variables.insert((old, home), new);
            Some(new)
        }
    }
}
