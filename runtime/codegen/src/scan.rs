//! Reads a module's symbol table into a [`ModuleSummary`], without its bodies.
//!
//! The only constants looked into are initializers of the `llvm.*` tables.
//!
//! # Why
//! Parts that cannot be split go with the data: functions with prefix data are compiled when the image
//! starts.

use std::ffi::CStr;

use inkwell::llvm_sys::comdat::{
    LLVMComdatSelectionKind, LLVMGetComdat, LLVMGetComdatSelectionKind,
};
use inkwell::llvm_sys::core::{
    LLVMConstIntGetZExtValue, LLVMGetAggregateElement, LLVMGetAlignment, LLVMGetGC,
    LLVMGetGlobalIFuncResolver, LLVMGetGlobalParent, LLVMGetInitializer, LLVMGetLinkage,
    LLVMGetNumOperands, LLVMGetSection, LLVMGetThreadLocalMode, LLVMGetVisibility,
    LLVMGlobalGetValueType, LLVMHasPrefixData, LLVMIsDeclaration, LLVMIsNull, LLVMIsThreadLocal,
};
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};
use inkwell::llvm_sys::{LLVMLinkage, LLVMThreadLocalMode, LLVMValueKind, LLVMVisibility};
use rustc_hash::FxHashMap;

use crate::attributes::AttributeKinds;
use crate::handles::{FunctionRef, ValueRef, VariableRef};
use crate::summary::{
    Kind, LARGE, Linkage, ModuleSummary, PAGE, Placement, SAFE_STACK, Structor, SymbolId,
    SymbolInfo,
};
use crate::table::SymbolTable;

/// Reads the summary of the module behind `table`.
pub(crate) fn summarize(table: &SymbolTable, kinds: &AttributeKinds) -> ModuleSummary {
    let mut summary = ModuleSummary::default();
    let mut safe_stack = false;
    let mut groups = FxHashMap::default();
    for value in table.values() {
        let mut info = describe(table, value, kinds.always_inline);
        let function = value.as_function();
        safe_stack |= function.is_some_and(|function| function.has(kinds.safe_stack));
        info.comdat = comdat_group(value, &info, &mut groups, &mut summary.comdats);
        summary.symbols.push(info);
    }
    summary.implied.extend(safe_stack.then_some(SAFE_STACK));
    read_llvm_tables(table, &mut summary);
    summary
}

/// True if code generation lists the function's return addresses in tables of its module, or
/// keeps its frames in a list that starts in the module, for a garbage collector.
fn is_in_tables(function: FunctionRef<'_>) -> bool {
    // SAFETY: a live function; the collector's name is null or a C string.
    unsafe {
        let collector = LLVMGetGC(function.raw());
        !collector.is_null()
            && [c"erlang", c"ocaml", c"shadow-stack"].contains(&CStr::from_ptr(collector))
    }
}

/// The properties of one symbol that need no other symbols, without its group.
fn describe(table: &SymbolTable, value: ValueRef<'_>, always_inline: u32) -> SymbolInfo {
    let name = value.name();
    let function = value.as_function();
    let (kind, placement) = kind_and_place(table, value);
    // SAFETY: a live global, here and below.
    let declared = unsafe { LLVMIsDeclaration(value.raw()) } != 0;
    let mut linkage = linkage_of(value);
    if declared && linkage.is_definition() {
        linkage = Linkage::Declared;
    }
    let reserved = name.starts_with("llvm.");
    if reserved && !matches!(linkage, Linkage::Local | Linkage::Appending) {
        linkage = Linkage::Declared;
    }
    linkage = linkage.of_one_named(&name);
    // SAFETY: see above.
    let visibility = unsafe { LLVMGetVisibility(value.raw()) };
    SymbolInfo {
        name,
        kind,
        linkage,
        placement: match linkage.is_definition() {
            true => placement,
            false => Placement::None,
        },
        hidden: linkage == Linkage::Local || visibility == LLVMVisibility::LLVMHiddenVisibility,
        odr: is_odr(value),
        comdat: None,
        used: false,
        constant: value.as_variable().is_some_and(VariableRef::is_constant),
        always_inline: function.is_some_and(|function| function.has(always_inline)),
        zeros: zeros(value).unwrap_or_default(),
    }
}

/// See [`SymbolInfo::zeros`].
fn zeros(value: ValueRef<'_>) -> Option<u64> {
    use LLVMLinkage::{LLVMAppendingLinkage, LLVMCommonLinkage};
    let raw = value.as_variable()?.raw();
    // SAFETY: a live variable, the module it is in, and its initializer where there is one.
    unsafe {
        let initializer = LLVMGetInitializer(raw);
        if initializer.is_null() || LLVMIsNull(initializer) == 0 {
            return None;
        }
        let section = LLVMGetSection(raw);
        let is_plain = (section.is_null() || *section == 0)
            && LLVMGetThreadLocalMode(raw) == LLVMThreadLocalMode::LLVMNotThreadLocal
            && !matches!(
                LLVMGetLinkage(raw),
                LLVMCommonLinkage | LLVMAppendingLinkage
            );
        if !is_plain {
            return None;
        }
        let layout = LLVMGetModuleDataLayout(LLVMGetGlobalParent(raw));
        let size = LLVMABISizeOfType(layout, LLVMGlobalGetValueType(raw));
        let align = LLVMGetAlignment(raw);
        (size >= LARGE && u64::from(align) <= PAGE).then_some(size)
    }
}

/// The kind of a global, and where it is compiled if it is defined.
fn kind_and_place(table: &SymbolTable, value: ValueRef<'_>) -> (Kind, Placement) {
    if let Some(function) = value.as_function() {
        // SAFETY: a live function.
        let prefixed = unsafe { LLVMHasPrefixData(function.raw()) } != 0;
        let place = match prefixed || is_in_tables(function) {
            true => Placement::DataUnit,
            false => Placement::Own,
        };
        return (Kind::Function, place);
    }
    if let Some(aliasee) = value.aliasee() {
        let base = base_symbol(table, Some(aliasee));
        let exact = base.is_some_and(|base| table.value(base) == aliasee);
        return (Kind::Alias { base, exact }, Placement::DataUnit);
    }
    if value.kind() == LLVMValueKind::LLVMGlobalIFuncValueKind {
        // SAFETY: a live ifunc, whose resolver lives as it does.
        let resolver = unsafe { ValueRef::from_raw(LLVMGetGlobalIFuncResolver(value.raw())) };
        let resolver = base_symbol(table, resolver);
        return (Kind::Ifunc { resolver }, Placement::None);
    }
    // SAFETY: a live variable, the only remaining kind.
    let kind = match unsafe { LLVMIsThreadLocal(value.raw()) } {
        0 => Kind::Data,
        _ => Kind::ThreadLocal,
    };
    (kind, Placement::DataUnit)
}

fn linkage_of(value: ValueRef<'_>) -> Linkage {
    // SAFETY: a live global.
    match unsafe { LLVMGetLinkage(value.raw()) } {
        LLVMLinkage::LLVMExternalLinkage
        | LLVMLinkage::LLVMDLLImportLinkage
        | LLVMLinkage::LLVMDLLExportLinkage
        | LLVMLinkage::LLVMGhostLinkage => Linkage::Strong,
        LLVMLinkage::LLVMAvailableExternallyLinkage => Linkage::Available,
        LLVMLinkage::LLVMLinkOnceAnyLinkage
        | LLVMLinkage::LLVMLinkOnceODRLinkage
        | LLVMLinkage::LLVMLinkOnceODRAutoHideLinkage
        | LLVMLinkage::LLVMLinkerPrivateWeakLinkage
        | LLVMLinkage::LLVMWeakAnyLinkage
        | LLVMLinkage::LLVMWeakODRLinkage => Linkage::Weak,
        LLVMLinkage::LLVMAppendingLinkage => Linkage::Appending,
        LLVMLinkage::LLVMInternalLinkage
        | LLVMLinkage::LLVMPrivateLinkage
        | LLVMLinkage::LLVMLinkerPrivateLinkage => Linkage::Local,
        LLVMLinkage::LLVMExternalWeakLinkage => Linkage::DeclaredWeak,
        LLVMLinkage::LLVMCommonLinkage => Linkage::Common,
    }
}

fn is_odr(value: ValueRef<'_>) -> bool {
    // SAFETY: a live global.
    let linkage = unsafe { LLVMGetLinkage(value.raw()) };
    matches!(
        linkage,
        LLVMLinkage::LLVMLinkOnceODRLinkage
            | LLVMLinkage::LLVMLinkOnceODRAutoHideLinkage
            | LLVMLinkage::LLVMWeakODRLinkage
    )
}

/// Group index of a symbol's COMDAT. LLVM-C does not give a group's name, and a constructor group's
/// name is no symbol; the least member name identifies a group across modules equally well.
fn comdat_group(
    value: ValueRef<'_>,
    info: &SymbolInfo,
    groups: &mut FxHashMap<usize, u32>,
    comdats: &mut Vec<String>,
) -> Option<u32> {
    // LLVM-C would misread other kinds of globals.
    if value.as_function().is_none() && value.as_variable().is_none() {
        return None;
    }
    // SAFETY: a live function or variable.
    let group = unsafe { LLVMGetComdat(value.raw()) };
    if group.is_null() || !info.linkage.is_definition() {
        return None;
    }
    // SAFETY: a live group. One of this kind only keeps its sections together.
    let kind = unsafe { LLVMGetComdatSelectionKind(group) };
    if kind == LLVMComdatSelectionKind::LLVMNoDuplicatesComdatSelectionKind {
        return None;
    }
    let index = *groups.entry(group as usize).or_insert_with(|| {
        comdats.push(String::new());
        (comdats.len() - 1) as u32
    });
    let key = &mut comdats[index as usize];
    if info.linkage != Linkage::Local && (key.is_empty() || info.name < *key) {
        key.clone_from(&info.name);
    }
    Some(index)
}

/// The global an address constant is based on, through casts, offsets and aliases.
fn base_symbol(table: &SymbolTable, value: Option<ValueRef<'_>>) -> Option<SymbolId> {
    let mut value = value?;
    // Chains are short; the bound is against cyclic aliases in bad input.
    for _ in 0..64 {
        if let Some(id) = table.id(value) {
            return Some(id);
        }
        if value.kind() != LLVMValueKind::LLVMConstantExprValueKind {
            return None;
        }
        value = value.parts().next()?;
    }
    None
}

fn read_llvm_tables(table: &SymbolTable, summary: &mut ModuleSummary) {
    for (index, value) in table.values().enumerate() {
        if summary.symbols[index].linkage != Linkage::Appending {
            continue;
        }
        let Some(initializer) = value.as_variable().and_then(VariableRef::initializer) else {
            continue;
        };
        // SAFETY: a live constant.
        let count = unsafe { LLVMGetNumOperands(initializer.raw()) }.max(0) as u32;
        let name = summary.symbols[index].name.clone();
        for entry in 0..count {
            let element = element(initializer, entry);
            match name.as_str() {
                "llvm.used" | "llvm.compiler.used" => {
                    if let Some(id) = base_symbol(table, element) {
                        summary.symbols[id.index()].used = true;
                    }
                }
                "llvm.global_ctors" => summary.constructors.extend(structor(table, element)),
                "llvm.global_dtors" => summary.destructors.extend(structor(table, element)),
                _ => {}
            }
        }
    }
}

/// An element of a constant, if it has that many.
fn element<'m>(constant: ValueRef<'m>, index: u32) -> Option<ValueRef<'m>> {
    // SAFETY: a live constant, whose elements live as it does; null beyond them.
    unsafe { ValueRef::from_raw(LLVMGetAggregateElement(constant.raw(), index)) }
}

/// Elements of the tables are `{ i32, ptr, ptr }` structs, which the verifier has checked.
fn structor(table: &SymbolTable, entry: Option<ValueRef<'_>>) -> Option<Structor> {
    let [priority, function, key] = [0, 1, 2].map(|index| element(entry?, index));
    Some(Structor {
        // SAFETY: an i32 constant.
        priority: unsafe { LLVMConstIntGetZExtValue(priority?.raw()) } as u32,
        function: base_symbol(table, function)?,
        key: base_symbol(table, key),
    })
}
