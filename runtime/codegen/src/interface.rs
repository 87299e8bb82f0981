//! The interface of a module for code outside: signatures, layouts and constants as text that can
//! be compared between modules. It also finds the mentions of a symbol, and whether the module's
//! functions know each other's bodies already.
//!
//! Comparisons need readers that [name structs as their files do](crate::ReaderPool::faithful).
//! Text is compared because two modules live in two contexts. Named structs are written out, as
//! their names mean nothing between modules. Constants that a constant refers to are written out
//! too, if they are local.

use std::ffi::c_uint;

use inkwell::llvm_sys::core::{
    LLVMCountParamTypes, LLVMCountStructElementTypes, LLVMGetArrayLength2,
    LLVMGetAttributeCountAtIndex, LLVMGetAttributesAtIndex, LLVMGetElementType,
    LLVMGetEnumAttributeKind, LLVMGetEnumAttributeKindForName, LLVMGetEnumAttributeValue,
    LLVMGetFunctionCallConv, LLVMGetLinkage, LLVMGetParamTypes, LLVMGetReturnType,
    LLVMGetTypeAttributeValue, LLVMGetTypeKind, LLVMGetUnnamedAddress, LLVMIsFunctionVarArg,
    LLVMIsOpaqueStruct, LLVMIsPackedStruct, LLVMIsStringAttribute, LLVMIsTypeAttribute,
    LLVMPrintTypeToString, LLVMPrintValueToString, LLVMStructGetTypeAtIndex, LLVMTypeIsSized,
};
use inkwell::llvm_sys::prelude::LLVMAttributeRef;
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};
use inkwell::llvm_sys::{LLVMLinkage, LLVMTypeKind, LLVMUnnamedAddr, LLVMValueKind};
use rustc_hash::FxHashSet;

use crate::attributes::OF_CALLS;
use crate::context::{OwnedModule, take_message};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, TypeRef, ValueRef, VariableRef};
use crate::reader::{Reader, read_all};
use crate::summary::{Kind, SymbolId};

/// The type of a variable, and its size in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// The type as LLVM writes it, named structs written out.
    pub ty: String,
    /// Bytes.
    pub size: u64,
}

/// Nesting of types and constants that is written out; deeper ones are written by name.
pub(crate) const DEPTH: u32 = 32;

/// Constants that are written out for one; the following ones are written by name.
const CONSTANTS: u32 = 1 << 18;

/// The calling signature of a function: its type, and attributes that change how values are
/// passed.
pub(crate) fn signature(reader: &Reader, function: SymbolId) -> String {
    debug_assert!(reader.names_as_in_file());
    let value = reader.table().value(function);
    let (Some(function), Some(ty)) = (value.as_function(), value.content_type()) else {
        return String::new();
    };
    // SAFETY: a live function and its own type; parameters fit the vector, and types live
    // as the context does.
    let (parameters, result, open, convention) = unsafe {
        let ty = ty.raw();
        let mut parameters = vec![std::ptr::null_mut(); LLVMCountParamTypes(ty) as usize];
        LLVMGetParamTypes(ty, parameters.as_mut_ptr());
        let parameters: Vec<_> = parameters.into_iter().map(|ty| TypeRef::of(ty)).collect();
        (
            parameters,
            TypeRef::of(LLVMGetReturnType(ty)),
            LLVMIsFunctionVarArg(ty) != 0,
            LLVMGetFunctionCallConv(function.raw()),
        )
    };
    let mut words: Vec<String> = (1..)
        .zip(parameters)
        .map(|(index, ty)| type_text(ty, 0) + &passing(reader, function, index))
        .collect();
    words.extend(open.then(|| String::from("...")));
    let convention = match convention {
        0 => String::new(),
        number => format!(" cc{number}"),
    };
    let result = type_text(result, 0) + &passing(reader, function, 0);
    format!("{result} ({}){convention}", words.join(", "))
}

/// The attributes at `index` that change how the value is passed.
fn passing(reader: &Reader, function: FunctionRef<'_>, index: c_uint) -> String {
    let kinds = &reader.kinds().of_calls;
    let mut text = String::new();
    // SAFETY: a live function; the buffer has room for the count; values are asked
    // for of attributes that have them.
    unsafe {
        let count = LLVMGetAttributeCountAtIndex(function.raw(), index) as usize;
        let mut attributes: Vec<LLVMAttributeRef> = vec![std::ptr::null_mut(); count];
        if count != 0 {
            LLVMGetAttributesAtIndex(function.raw(), index, attributes.as_mut_ptr());
        }
        for attribute in attributes {
            if LLVMIsStringAttribute(attribute) != 0 {
                continue;
            }
            let kind = LLVMGetEnumAttributeKind(attribute);
            let Some(at) = kinds.iter().position(|&known| known == kind) else {
                continue;
            };
            text += &format!(" {}", OF_CALLS[at]);
            if LLVMIsTypeAttribute(attribute) != 0 {
                let ty = TypeRef::of(LLVMGetTypeAttributeValue(attribute));
                text += &format!("({})", type_text(ty, 0));
            } else if LLVMGetEnumAttributeValue(attribute) != 0 {
                text += &format!("({})", LLVMGetEnumAttributeValue(attribute));
            }
        }
    }
    text
}

/// Type and size of a variable.
pub(crate) fn layout(reader: &Reader, variable: SymbolId) -> Layout {
    debug_assert!(reader.names_as_in_file());
    let Some(ty) = reader.table().value(variable).content_type() else {
        return Layout::default();
    };
    // The target's layout, as the module a unit is compiled in has it: the reader's may
    // have none.
    let unit = OwnedModule::empty(reader.context(), "layout");
    reader.prepare(&unit);
    // SAFETY: a live module with a layout, and a live type; only one with a size is asked.
    let size = unsafe {
        match LLVMTypeIsSized(ty.raw()) {
            0 => 0,
            _ => LLVMABISizeOfType(LLVMGetModuleDataLayout(unit.raw()), ty.raw()),
        }
    };
    Layout {
        ty: type_text(ty, 0),
        size,
    }
}

/// The value of a variable's initializer, local constants written out; `None` for a
/// declaration.
pub(crate) fn initializer(reader: &Reader, variable: SymbolId) -> Option<String> {
    debug_assert!(reader.names_as_in_file());
    let variable = reader.table().value(variable).as_variable()?;
    let initializer = variable.initializer()?;
    Some(constant_text(initializer, 0, &mut CONSTANTS.clone()))
}

/// Functions and variables that mention `symbol`, each once, aliases of it included.
/// Reads every body.
pub(crate) fn mentions(reader: &Reader, symbol: SymbolId) -> Result<Vec<SymbolId>, CodegenError> {
    read_all(reader)?;
    let mut found = FxHashSet::default();
    collect(reader, reader.table().value(symbol), &mut found, 0);
    let mut found: Vec<SymbolId> = found.into_iter().collect();
    found.sort_unstable();
    Ok(found)
}

fn collect(reader: &Reader, value: ValueRef<'_>, found: &mut FxHashSet<SymbolId>, depth: u32) {
    if depth > DEPTH {
        return;
    }
    for user in value.users() {
        let owner = match user.as_instruction() {
            Some(instruction) => instruction.function().map(|function| *function),
            None => Some(user),
        };
        match owner.map(|owner| (owner, reader.table().id(owner))) {
            Some((_, Some(id))) => {
                found.insert(id);
            }
            Some((constant, None)) => collect(reader, constant, found, depth + 1),
            None => {}
        }
    }
}

/// A sign that passes which look at several functions at once have seen this module. Some
/// function may then hold the body of another, or rely on it, without a record of it. `None`
/// for the output of a front end at `-O0`, or at `-O1` and up with `-Xclang
/// -disable-llvm-passes`.
///
/// The evidence is attributes that only such passes write: `local_unnamed_addr` (GlobalOpt),
/// and `nofree`, `nosync` or `norecurse` on a definition (FunctionAttrs; a front end itself
/// writes `norecurse` at `main` and at `optnone` functions).
pub(crate) fn interprocedural(reader: &Reader) -> Option<String> {
    let kind = |name: &str| {
        // SAFETY: pointer and length describe `name`.
        unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
    };
    let inferred = ["nofree", "nosync", "norecurse"].map(|name| (name, kind(name)));
    for (index, info) in reader.summary().symbols.iter().enumerate() {
        if !info.linkage.is_definition() || !matches!(info.kind, Kind::Function | Kind::Data) {
            continue;
        }
        let value = reader.table().value(SymbolId(index as u32));
        // SAFETY: a live function or variable.
        let address = unsafe { LLVMGetUnnamedAddress(value.raw()) };
        if address == LLVMUnnamedAddr::LLVMLocalUnnamedAddr {
            return Some(format!("`{}` is local_unnamed_addr", info.name));
        }
        let Some(function) = value.as_function() else {
            continue;
        };
        let has = |kind| function.has(kind);
        if has(reader.kinds().optnone) {
            continue;
        }
        let found = inferred
            .iter()
            .find(|(name, kind)| has(*kind) && !(*name == "norecurse" && info.name == "main"));
        if let Some((name, _)) = found {
            return Some(format!("`{}` is {name}", info.name));
        }
    }
    None
}

/// A type as LLVM writes it, named structs written out.
fn type_text(ty: TypeRef<'_>, depth: u32) -> String {
    if depth > DEPTH {
        return printed_type(ty);
    }
    let inner = |part| {
        // SAFETY: a part of a live type, which lives as the context does.
        type_text(unsafe { TypeRef::of(part) }, depth + 1)
    };
    let raw = ty.raw();
    // SAFETY: a live type; each question fits its kind.
    unsafe {
        match LLVMGetTypeKind(raw) {
            LLVMTypeKind::LLVMStructTypeKind if LLVMIsOpaqueStruct(raw) == 0 => {
                let fields: Vec<String> = (0..LLVMCountStructElementTypes(raw))
                    .map(|i| inner(LLVMStructGetTypeAtIndex(raw, i)))
                    .collect();
                let fields = fields.join(", ");
                match LLVMIsPackedStruct(raw) {
                    0 => format!("{{ {fields} }}"),
                    _ => format!("<{{ {fields} }}>"),
                }
            }
            LLVMTypeKind::LLVMArrayTypeKind => {
                let element = inner(LLVMGetElementType(raw));
                format!("[{} x {element}]", LLVMGetArrayLength2(raw))
            }
            _ => printed_type(ty),
        }
    }
}

/// A type as LLVM writes it.
pub(crate) fn printed_type(ty: TypeRef<'_>) -> String {
    // SAFETY: a live type; the string is ours.
    unsafe { take_message(LLVMPrintTypeToString(ty.raw())) }
}

fn printed_value(value: ValueRef<'_>) -> String {
    // SAFETY: a live value; the string is ours.
    unsafe { take_message(LLVMPrintValueToString(value.raw())) }
}

fn constant_text(value: ValueRef<'_>, depth: u32, left: &mut u32) -> String {
    *left = left.saturating_sub(1);
    let deeper = depth < DEPTH && *left != 0;
    if let Some(variable) = value.as_variable()
        && let Some(initializer) = local_constant(variable)
        && deeper
    {
        return format!("&({})", constant_text(initializer, depth + 1, left));
    }
    if value.is_global() {
        return format!("@{}", value.name());
    }
    if !value.is_composite() || !deeper {
        return printed_value(value);
    }
    if value.kind() != LLVMValueKind::LLVMConstantExprValueKind {
        return parts_text(value, depth, left);
    }
    // The expression's own text shows operation and types; local names in it are numbered by
    // module, so they are left out.
    let text = printed_value(value);
    let kept: Vec<&str> = text
        .split([' ', ',', '(', ')'])
        .filter(|word| !word.starts_with('@') && !word.is_empty())
        .collect();
    format!("{} {}", kept.join(" "), parts_text(value, depth, left))
}

fn parts_text(value: ValueRef<'_>, depth: u32, left: &mut u32) -> String {
    let each = value
        .parts()
        .map(|part| constant_text(part, depth + 1, left));
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}

/// The value of a variable that is constant and local to the module.
fn local_constant(variable: VariableRef<'_>) -> Option<ValueRef<'_>> {
    // SAFETY: a live variable.
    let linkage = unsafe { LLVMGetLinkage(variable.raw()) };
    let local = matches!(
        linkage,
        LLVMLinkage::LLVMPrivateLinkage | LLVMLinkage::LLVMInternalLinkage
    );
    let initializer = variable.initializer()?;
    (local && variable.is_constant()).then_some(initializer)
}
