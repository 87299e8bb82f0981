//! Reads a module's symbol table into a [`ModuleSummary`], without its bodies.
//!
//! The only constants looked into are initializers: for label addresses, which
//! decide what can be split, and for the `llvm.*` tables.

use std::ffi::CStr;

use inkwell::llvm_sys::comdat::{
    LLVMComdatSelectionKind, LLVMGetComdat, LLVMGetComdatSelectionKind,
};
use inkwell::llvm_sys::core::{
    LLVMAliasGetAliasee, LLVMConstIntGetZExtValue, LLVMGetAggregateElement,
    LLVMGetBlockAddressFunction, LLVMGetGC, LLVMGetGlobalIFuncResolver, LLVMGetInitializer,
    LLVMGetLinkage, LLVMGetNumOperands, LLVMGetOperand, LLVMGetValueKind, LLVMGetVisibility,
    LLVMHasPrefixData, LLVMIsDeclaration, LLVMIsGlobalConstant, LLVMIsThreadLocal,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::{LLVMLinkage, LLVMValueKind, LLVMVisibility};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::extract::has_function_attribute;
use crate::reader::value_name;
use crate::summary::{Kind, Linkage, ModuleSummary, Placement, Structor, SymbolId, SymbolInfo};
use crate::table::SymbolTable;

/// Reads the summary of the module behind `table`.
pub(crate) fn summarize(table: &SymbolTable, always_inline: u32) -> ModuleSummary {
    let mut summary = ModuleSummary::default();
    let mut groups = FxHashMap::default();
    for &value in &table.values {
        let info = describe(
            table,
            value,
            always_inline,
            &mut groups,
            &mut summary.comdats,
        );
        summary.symbols.push(info);
    }
    place_label_tables(table, &mut summary);
    read_llvm_tables(table, &mut summary);
    summary
}

/// True if code generation lists the function's return addresses in tables of its module, or
/// keeps its frames in a list that starts in the module, for a garbage collector.
///
/// # Safety
/// A live function.
unsafe fn is_in_tables(function: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise; the collector's name is null or a C string.
    unsafe {
        let collector = LLVMGetGC(function);
        !collector.is_null()
            && [c"erlang", c"ocaml", c"shadow-stack"].contains(&CStr::from_ptr(collector))
    }
}

fn describe(
    table: &SymbolTable,
    value: LLVMValueRef,
    always_inline: u32,
    groups: &mut FxHashMap<usize, u32>,
    comdats: &mut Vec<String>,
) -> SymbolInfo {
    let name = value_name(value);
    // SAFETY: `value` is a live global of the reader's module, here and below.
    let kind_of = unsafe { LLVMGetValueKind(value) };
    let mut linkage = linkage_of(value);
    let mut inline = false;
    let mut constant = false;
    let (kind, mut placement) = match kind_of {
        LLVMValueKind::LLVMFunctionValueKind => {
            inline = has_function_attribute(value, always_inline);
            // SAFETY: a function.
            let split = unsafe { LLVMHasPrefixData(value) == 0 && !is_in_tables(value) };
            (
                Kind::Function,
                if split {
                    Placement::Own
                } else {
                    Placement::DataUnit
                },
            )
        }
        LLVMValueKind::LLVMGlobalAliasValueKind => {
            // SAFETY: an alias.
            let aliasee = unsafe { LLVMAliasGetAliasee(value) };
            let base = base_symbol(table, aliasee);
            let exact = base.is_some_and(|b| table.values[b.index()] == aliasee);
            (Kind::Alias { base, exact }, Placement::DataUnit)
        }
        LLVMValueKind::LLVMGlobalIFuncValueKind => {
            // SAFETY: an ifunc.
            let resolver = unsafe { LLVMGetGlobalIFuncResolver(value) };
            (
                Kind::Ifunc {
                    resolver: base_symbol(table, resolver),
                },
                Placement::None,
            )
        }
        _ => {
            // SAFETY: a global variable.
            constant = unsafe { LLVMIsGlobalConstant(value) } != 0;
            // SAFETY: a global variable.
            let thread_local = unsafe { LLVMIsThreadLocal(value) } != 0;
            let kind = if thread_local {
                Kind::ThreadLocal
            } else {
                Kind::Data
            };
            (kind, Placement::DataUnit)
        }
    };
    // SAFETY: a live global.
    let declared = unsafe { LLVMIsDeclaration(value) } != 0;
    if declared && linkage.is_definition() {
        linkage = Linkage::Declared;
    }
    if name.starts_with("llvm.") && linkage != Linkage::Local {
        linkage = if linkage == Linkage::Appending {
            linkage
        } else {
            Linkage::Declared
        };
    }
    if !linkage.is_definition() {
        placement = Placement::None;
    }
    let comdat = comdat_group(value, &name, linkage, groups, comdats);
    // SAFETY: a live global.
    let visibility = unsafe { LLVMGetVisibility(value) };
    let hidden = linkage == Linkage::Local || visibility == LLVMVisibility::LLVMHiddenVisibility;
    SymbolInfo {
        name,
        kind,
        linkage,
        placement,
        hidden,
        odr: is_odr(value),
        comdat,
        used: false,
        constant,
        always_inline: inline,
    }
}

fn linkage_of(value: LLVMValueRef) -> Linkage {
    // SAFETY: a live global.
    match unsafe { LLVMGetLinkage(value) } {
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

fn is_odr(value: LLVMValueRef) -> bool {
    // SAFETY: a live global.
    let linkage = unsafe { LLVMGetLinkage(value) };
    matches!(
        linkage,
        LLVMLinkage::LLVMLinkOnceODRLinkage
            | LLVMLinkage::LLVMLinkOnceODRAutoHideLinkage
            | LLVMLinkage::LLVMWeakODRLinkage
    )
}

/// Group index of a symbol's COMDAT. LLVM-C does not tell a group's name, and a
/// constructor group's name is no symbol; the least member name identifies a
/// group across modules equally well.
fn comdat_group(
    value: LLVMValueRef,
    name: &str,
    linkage: Linkage,
    groups: &mut FxHashMap<usize, u32>,
    comdats: &mut Vec<String>,
) -> Option<u32> {
    // SAFETY: a live global object; aliases and ifuncs answer null.
    let group = unsafe { LLVMGetComdat(value) };
    if group.is_null() || !linkage.is_definition() {
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
    if linkage != Linkage::Local && (key.is_empty() || name < key.as_str()) {
        *key = name.to_owned();
    }
    Some(index)
}

/// The global an address constant is based on, through casts, offsets and aliases.
fn base_symbol(table: &SymbolTable, mut value: LLVMValueRef) -> Option<SymbolId> {
    // Chains are short; the bound is against cyclic aliases in bad input.
    for _ in 0..64 {
        if value.is_null() {
            return None;
        }
        if let Some(&id) = table.index.get(&value) {
            return Some(id);
        }
        // SAFETY: a live constant.
        if unsafe { LLVMGetValueKind(value) } != LLVMValueKind::LLVMConstantExprValueKind {
            return None;
        }
        // SAFETY: constant expressions have at least one operand.
        value = unsafe { LLVMGetOperand(value, 0) };
    }
    None
}

/// Finds initializers that hold label addresses and says where they, and the
/// functions the labels are in, must be compiled.
fn place_label_tables(table: &SymbolTable, summary: &mut ModuleSummary) {
    for index in 0..table.values.len() {
        let info = &summary.symbols[index];
        if !matches!(info.kind, Kind::Data | Kind::ThreadLocal) || !info.linkage.is_definition() {
            continue;
        }
        // SAFETY: a defined global variable.
        let initializer = unsafe { LLVMGetInitializer(table.values[index]) };
        let mut functions = FxHashSet::default();
        label_functions(
            table,
            initializer,
            &mut functions,
            &mut FxHashSet::default(),
        );
        let Some(&first) = functions.iter().next() else {
            continue;
        };
        if functions.len() == 1 && info.constant && info.linkage == Linkage::Local {
            summary.symbols[index].placement = Placement::WithFunction(first);
        } else {
            for function in functions {
                summary.symbols[function.index()].placement = Placement::DataUnit;
            }
        }
    }
    // A function that moved to the data unit takes its tables along.
    for index in 0..summary.symbols.len() {
        if let Placement::WithFunction(function) = summary.symbols[index].placement
            && summary.symbols[function.index()].placement == Placement::DataUnit
        {
            summary.symbols[index].placement = Placement::DataUnit;
        }
    }
}

fn label_functions(
    table: &SymbolTable,
    constant: LLVMValueRef,
    found: &mut FxHashSet<SymbolId>,
    seen: &mut FxHashSet<LLVMValueRef>,
) {
    if constant.is_null() {
        return;
    }
    // SAFETY: a live constant, here and below.
    match unsafe { LLVMGetValueKind(constant) } {
        LLVMValueKind::LLVMBlockAddressValueKind => {
            // SAFETY: a block address.
            let function = unsafe { LLVMGetBlockAddressFunction(constant) };
            found.extend(table.index.get(&function));
        }
        LLVMValueKind::LLVMConstantExprValueKind
        | LLVMValueKind::LLVMConstantArrayValueKind
        | LLVMValueKind::LLVMConstantStructValueKind
        | LLVMValueKind::LLVMConstantVectorValueKind => {
            if !seen.insert(constant) {
                return;
            }
            // SAFETY: a constant with operands.
            let count = unsafe { LLVMGetNumOperands(constant) };
            for operand in 0..count.max(0) as u32 {
                // SAFETY: `operand` is below the count.
                label_functions(
                    table,
                    unsafe { LLVMGetOperand(constant, operand) },
                    found,
                    seen,
                );
            }
        }
        _ => {}
    }
}

fn read_llvm_tables(table: &SymbolTable, summary: &mut ModuleSummary) {
    for index in 0..table.values.len() {
        if summary.symbols[index].linkage != Linkage::Appending {
            continue;
        }
        // SAFETY: appending globals always have an initializer.
        let initializer = unsafe { LLVMGetInitializer(table.values[index]) };
        if initializer.is_null() {
            continue;
        }
        // SAFETY: a live constant.
        let count = unsafe { LLVMGetNumOperands(initializer) }.max(0) as u32;
        let name = summary.symbols[index].name.clone();
        for entry in 0..count {
            // SAFETY: `entry` is below the number of elements.
            let element = unsafe { LLVMGetAggregateElement(initializer, entry) };
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

fn structor(table: &SymbolTable, element: LLVMValueRef) -> Option<Structor> {
    if element.is_null() {
        return None;
    }
    // SAFETY: elements of the table are `{ i32, ptr, ptr }` structs; a missing
    // element answers null, and the verifier has checked the type.
    let [priority, function, key] =
        [0, 1, 2].map(|i| unsafe { LLVMGetAggregateElement(element, i) });
    if priority.is_null() {
        return None;
    }
    Some(Structor {
        // SAFETY: an i32 constant.
        priority: unsafe { LLVMConstIntGetZExtValue(priority) } as u32,
        function: base_symbol(table, function)?,
        key: base_symbol(table, key),
    })
}
