//! Describes the heads of a body for comparison with another body's: the values that live across
//! each, by names and types.
//!
//! The description is used when a function is replaced while it loops. The looping body and the new
//! one are two modules of two contexts, so all of it is text. Names are those of the IR. A value
//! without one, as compilers drop them, has the name of its variable in debug information.

use std::fmt::Write as _;

use inkwell::llvm_sys::LLVMDbgRecordKind;
use inkwell::llvm_sys::LLVMTypeKind;
use inkwell::llvm_sys::core::{
    LLVMConstIntGetZExtValue, LLVMCountStructElementTypes, LLVMDbgRecordGetKind,
    LLVMDbgVariableRecordGetValue, LLVMDbgVariableRecordGetVariable, LLVMDisposeMessage,
    LLVMGetAlignment, LLVMGetArrayLength2, LLVMGetBasicBlockName, LLVMGetElementType,
    LLVMGetFirstDbgRecord, LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMDString,
    LLVMGetNextDbgRecord, LLVMGetOperand, LLVMGetReturnType, LLVMGetTypeKind, LLVMGetValueName2,
    LLVMGetVectorSize, LLVMGlobalGetValueType, LLVMIsPackedStruct, LLVMMetadataAsValue,
    LLVMPrintDbgRecordToString, LLVMPrintTypeToString, LLVMStructGetTypeAtIndex,
};
use inkwell::llvm_sys::prelude::{LLVMDbgRecordRef, LLVMTypeRef};
use inkwell::llvm_sys::target::LLVMGetModuleDataLayout;
use rustc_hash::FxHashMap;
use uruk_leaving::{Described, Forbidden, Kind, Living, Loop, around};

use super::anatomy::{DescribedBody, LlvmBody, simple};
use super::frame::{Frame, Variable};
use super::parts::parameters;
use crate::context::LlvmContext;
use crate::error::CodegenError;
use crate::flow::Flow;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::plan::ModulePlan;
use crate::reader::{Reader, Verify};
use crate::shape;
use crate::source::Source;
use crate::summary::SymbolId;
use crate::table::Rewritten;

/// The name among the operands of a debugger's variable.
const VARIABLE_NAME: usize = 1;

/// The heads of a function's loops where a continuation could start, and the values that live
/// across each.
pub(crate) fn heads_of(
    reader: &Reader,
    plan: &ModulePlan,
    function: SymbolId,
) -> Result<Vec<Described>, CodegenError> {
    let root = reader.function(function)?;
    reader.materialize(root, Verify::Yes)?;
    let shape = shape::measure(root);
    let Some(loops) = &shape.loops else {
        return Ok(Vec::new());
    };
    let source = Source { reader, plan };
    let sized = source.fresh("heads");
    let is_fused = |it: InstructionRef<'_>| {
        let callee = it.callee();
        callee.and_then(|it| reader.table().rewritten(it)) == Some(Rewritten::MulAdd)
    };
    // SAFETY: the module owns the layout, and lives to the end.
    let body = unsafe { LlvmBody::in_place(root, LLVMGetModuleDataLayout(sized.raw()), &is_fused) };
    let told = DescribedBody::of(body, reader.kinds(), &shape.flow);
    let Ok(forbidden) = Forbidden::of(&told.anatomy) else {
        return Ok(Vec::new());
    };
    let may = |it: &Loop| {
        let reason = forbidden.at(&told.anatomy, &shape.flow.graph, it);
        reason.is_none()
    };
    let may: Vec<bool> = loops.iter().map(may).collect();
    let Ok(frame) = Frame::of(told, &shape.flow.graph) else {
        return Ok(Vec::new());
    };
    let names = ValueNames::of(reader.context(), root, &shape.flow);
    let heads = loops.iter().enumerate().filter(|(at, _)| may[*at]);
    let heads = heads.filter_map(|(at, it)| {
        let crossing = frame.crossing(it.head).ok()?;
        let block = shape.flow.blocks[it.head as usize];
        // SAFETY: a live block, whose name is a C string.
        let name = unsafe { std::ffi::CStr::from_ptr(LLVMGetBasicBlockName(block.raw())) };
        let name = name.to_string_lossy();
        let living = crossing.variables.iter();
        Some(Described {
            block: it.head,
            name: (!name.is_empty()).then(|| name.as_ref().into()),
            depth: around(loops, at).len() as u32,
            fingerprint: crossing.fingerprint,
            result: result_of(root),
            living: living.map(|&at| names.living(&frame, at)).collect(),
        })
    });
    Ok(heads.collect())
}

/// The names of a body's values.
struct ValueNames<'m> {
    parameters: FxHashMap<ValueRef<'m>, u32>,
    /// Names from debug information.
    told: FxHashMap<ValueRef<'m>, Box<str>>,
}

impl<'m> ValueNames<'m> {
    fn of(context: &LlvmContext, body: FunctionRef<'m>, flow: &Flow<'m>) -> ValueNames<'m> {
        let mut names = ValueNames {
            parameters: parameters(body).into_iter().zip(0..).collect(),
            told: FxHashMap::default(),
        };
        for instruction in flow.blocks.iter().flat_map(|it| it.instructions()) {
            // SAFETY: a live instruction, and its records, one after the other.
            unsafe {
                let mut record = LLVMGetFirstDbgRecord(instruction.raw());
                while !record.is_null() {
                    if let Some((value, name)) = named(context, record) {
                        names.told.entry(value).or_insert(name);
                    }
                    record = LLVMGetNextDbgRecord(record);
                }
            }
        }
        names
    }

    fn living(&self, frame: &Frame<'m>, place: u32) -> Living {
        let variable = frame.variables[place as usize];
        Living {
            place,
            name: own_name(variable.value).or_else(|| self.told.get(&variable.value).cloned()),
            parameter: self.parameters.get(&variable.value).copied(),
            kind: variable.kind,
            ty: type_of(variable),
            simple: match variable.kind {
                Kind::Value | Kind::Scalar => simple(variable.ty.raw()),
                _ => None,
            },
        }
    }
}

fn own_name(value: ValueRef<'_>) -> Option<Box<str>> {
    let mut length = 0;
    // SAFETY: a live value.
    let name = unsafe { LLVMGetValueName2(value.raw(), &mut length) };
    if length == 0 {
        return None;
    }
    // SAFETY: the name of a live value, which has so many bytes.
    let name = unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length) };
    Some(String::from_utf8_lossy(name).into())
}

/// The value and the variable's name of a debug record that states that a variable of the source is
/// that value, or is kept there.
///
/// # Safety
/// A live record of the context.
unsafe fn named<'m>(
    context: &LlvmContext,
    record: LLVMDbgRecordRef,
) -> Option<(ValueRef<'m>, Box<str>)> {
    // SAFETY: by the caller's promise; only records of variables are asked for a variable, and only
    // records of one value, without an expression, for that value.
    unsafe {
        if LLVMDbgRecordGetKind(record) == LLVMDbgRecordKind::LLVMDbgRecordLabel {
            return None;
        }
        let text = taken(LLVMPrintDbgRecordToString(record));
        if text.contains("!DIArgList(") || !text.contains("!DIExpression()") {
            return None;
        }
        let value = LLVMDbgVariableRecordGetValue(record, 0);
        let variable = LLVMDbgVariableRecordGetVariable(record);
        if value.is_null() || variable.is_null() {
            return None;
        }
        let node = LLVMMetadataAsValue(context.raw(), variable);
        let count = LLVMGetMDNodeNumOperands(node) as usize;
        let mut operands = vec![std::ptr::null_mut(); count];
        LLVMGetMDNodeOperands(node, operands.as_mut_ptr());
        let name = *operands.get(VARIABLE_NAME)?;
        if name.is_null() {
            return None;
        }
        let mut length = 0;
        let name = LLVMGetMDString(name, &mut length);
        if name.is_null() || length == 0 {
            return None;
        }
        let name = std::slice::from_raw_parts(name.cast::<u8>(), length as usize);
        Some((ValueRef::of(value), String::from_utf8_lossy(name).into()))
    }
}

/// # Safety
/// A string that LLVM made for us.
unsafe fn taken(text: *mut std::ffi::c_char) -> String {
    // SAFETY: by the caller's promise; it is given back once.
    unsafe {
        let owned = std::ffi::CStr::from_ptr(text)
            .to_string_lossy()
            .into_owned();
        LLVMDisposeMessage(text);
        owned
    }
}

fn result_of(function: FunctionRef<'_>) -> Box<str> {
    let mut text = String::new();
    // SAFETY: a live function, and its type.
    unsafe {
        let ty = LLVMGlobalGetValueType(function.raw());
        write_type(LLVMGetReturnType(ty), &mut text);
    }
    text.into()
}

/// The type of a variable; for an `alloca`, its contents' type and its alignment.
fn type_of(variable: Variable<'_>) -> Box<str> {
    let mut text = String::new();
    if !matches!(variable.kind, Kind::Value | Kind::Stored) {
        let room = variable.value.raw();
        // SAFETY: a static alloca, whose count is a constant.
        let (count, alignment) = unsafe {
            let count = LLVMConstIntGetZExtValue(LLVMGetOperand(room, 0));
            (count, LLVMGetAlignment(room))
        };
        let _ = write!(text, "alloca align {alignment} {count} x ");
    }
    // SAFETY: a live type.
    unsafe { write_type(variable.ty.raw(), &mut text) };
    text.into()
}

/// Writes a type with all its element types: two contexts may have different types of one name.
///
/// # Safety
/// A live type.
unsafe fn write_type(ty: LLVMTypeRef, text: &mut String) {
    // SAFETY: by the caller's promise; types are asked only for properties of their kind, and
    // contain no type that contains them.
    unsafe {
        let (open, count, close) = match LLVMGetTypeKind(ty) {
            LLVMTypeKind::LLVMStructTypeKind => {
                let packed = LLVMIsPackedStruct(ty) != 0;
                text.push_str(if packed { "<{" } else { "{" });
                for index in 0..LLVMCountStructElementTypes(ty) {
                    text.push_str(if index == 0 { "" } else { ", " });
                    write_type(LLVMStructGetTypeAtIndex(ty, index), text);
                }
                return text.push_str(if packed { "}>" } else { "}" });
            }
            LLVMTypeKind::LLVMArrayTypeKind => ("[", LLVMGetArrayLength2(ty), "]"),
            LLVMTypeKind::LLVMVectorTypeKind => ("<", u64::from(LLVMGetVectorSize(ty)), ">"),
            _ => return text.push_str(&taken(LLVMPrintTypeToString(ty))),
        };
        let _ = write!(text, "{open}{count} x ");
        write_type(LLVMGetElementType(ty), text);
        text.push_str(close);
    }
}
