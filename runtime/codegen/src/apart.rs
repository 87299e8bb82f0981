//! Constants that passes make, and that must outlive the version they were made for.
//!
//! While a unit is optimized LLVM makes constants that no module has: the string of
//! `printf("..\n")` that became `puts("..")`, tables of switches. Their addresses may escape from
//! the function (as an argument of a tail call, in memory, as the result). Code elsewhere may then
//! read them long after the version is freed, and no stack shows it. So every such constant gets a
//! section of its own, with a name ([`APART`]) by which the linker of the unit finds it and places
//! it with the module's data. Constants that are only loaded from are set apart too, as instruction
//! selection decides how a load is done.
//!
//! These stay beside the code:
//! - Data that code generation makes later: pools of literals, jump tables, exception tables. Only
//!   instructions of the version itself read pools and jump tables, for a value they need next. A
//!   thread in them is found there. Operands of inline assembly are valid for that assembly only.
//!   The unwinder reads exception tables of functions that are on the stack.
//! - Constants that lead to code of the unit: tables of labels, and of the parts of a coroutine.
//!   `labels` decides about these addresses. Either they are used within a call only, and so are
//!   the tables, or the function keeps its version.

use inkwell::llvm_sys::core::{
    LLVMGetLinkage, LLVMGetNumOperands, LLVMGetOperand, LLVMGetSection, LLVMGetUnnamedAddress,
    LLVMIsDeclaration, LLVMIsThreadLocal, LLVMSetSection,
};
use inkwell::llvm_sys::{LLVMLinkage, LLVMUnnamedAddr, LLVMValueKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::context::OwnedModule;
use crate::emit::Emitter;
use crate::gate::Gate;
use crate::handles::{ValueRef, VariableRef, c_name};
use crate::unit::Unit;

/// Prefix of the names of sections that hold one constant each, which must outlive the code of the
/// unit. Data in a section of another name lives as long as the code.
pub const APART: &str = ".data.rel.ro.uruk.";

/// Follows the prefix if the constant must not be merged with others of equal contents. Only the
/// same constant in another version of the function may share its place.
const OWN: &str = "own.";

/// Whether the constant in a section of that name may share its place with one of equal
/// contents.
#[must_use]
pub fn is_shared(section: &str) -> bool {
    section
        .strip_prefix(APART)
        .is_some_and(|rest| !rest.starts_with(OWN))
}

/// Whether constants in a section of that name, which code generation makes, may live as long as
/// the code beside them. `table` says that the section holds only addresses in the code and
/// distances to it.
#[must_use]
pub fn stays_with_code(section: &str, table: bool) -> bool {
    table
        // Literals, by size, and pointers in vectors.
        || section.starts_with(".rodata.cst")
        || section == ".rodata"
        || section.starts_with(".data.rel.ro")
        || section.starts_with(".gcc_except_table")
        // Offsets in the code of that version, which nothing in the unit refers to.
        || section == ".llvm_stackmaps"
}

/// Emits a unit, the constants of a version apart.
pub(crate) fn emit(gate: &Gate, emitter: &mut Emitter, unit: &mut Unit) -> Vec<u8> {
    let module = &mut unit.module;
    if !unit.contents.is_version {
        return emitter.emit(gate, module);
    }
    set_apart(module);
    let object = emitter.emit(gate, module);
    debug_assert!(
        left_beside_code(module).is_empty(),
        "not apart: {:?}",
        left_beside_code(module)
    );
    object
}

/// Gives the constants of a unit that is about to be emitted sections of their own.
fn set_apart(module: &OwnedModule) {
    for (number, global) in outliving(module).into_iter().enumerate() {
        // SAFETY: a live variable.
        let address = unsafe { LLVMGetUnnamedAddress(global.raw()) };
        let name = match address == LLVMUnnamedAddr::LLVMGlobalUnnamedAddr {
            true => format!("{APART}{number}"),
            false => format!("{APART}{OWN}{}", global.name()),
        };
        let name = c_name(&name);
        // SAFETY: as above, and a C string, which is copied.
        unsafe { LLVMSetSection(global.raw(), name.as_ptr()) };
    }
}

/// Names of globals that should have been set apart and were not, variables included: those that
/// code generation made after `set_apart`. Today it makes none.
fn left_beside_code(module: &OwnedModule) -> Vec<String> {
    let mut left = outliving(module);
    left.extend(defined(module).filter(|global| !global.is_constant()));
    left.into_iter().map(|global| global.name()).collect()
}

/// Variables that must outlive the unit's code and have no section of their own.
fn outliving(module: &OwnedModule) -> Vec<VariableRef<'_>> {
    let mut defined: Vec<_> = defined(module).collect();
    let leading = leading_to_code(&defined);
    defined.retain(|global| !leading.contains(&**global));
    defined
}

/// The variables that will be emitted, except those that have a section already.
fn defined(module: &OwnedModule) -> impl Iterator<Item = VariableRef<'_>> {
    module.variables().filter(|variable| {
        let raw = variable.raw();
        // SAFETY: a live variable; a section's name is null or a C string.
        unsafe {
            let section = LLVMGetSection(raw);
            LLVMIsDeclaration(raw) == 0
                && !matches!(
                    LLVMGetLinkage(raw),
                    LLVMLinkage::LLVMAvailableExternallyLinkage | LLVMLinkage::LLVMAppendingLinkage
                )
                && LLVMIsThreadLocal(raw) == 0
                && (section.is_null() || *section == 0)
        }
    })
}

/// Variables from whose values code of the unit can be reached, directly or through another of
/// them, and variables that are not constant.
fn leading_to_code<'m>(defined: &[VariableRef<'m>]) -> FxHashSet<ValueRef<'m>> {
    let mut leading = FxHashSet::default();
    let mut users: FxHashMap<ValueRef<'m>, Vec<ValueRef<'m>>> = FxHashMap::default();
    let mut open: Vec<ValueRef<'m>> = Vec::new();
    for global in defined {
        match mentioned(*global) {
            Some(mentioned) if global.is_constant() => {
                for other in mentioned {
                    users.entry(other).or_default().push(**global);
                }
            }
            _ => open.push(**global),
        }
    }
    while let Some(global) = open.pop() {
        if leading.insert(global) {
            open.extend(users.remove(&global).unwrap_or_default());
        }
    }
    leading
}

/// The globals the value of a variable mentions; `None` if it mentions code of its unit.
fn mentioned(variable: VariableRef<'_>) -> Option<FxHashSet<ValueRef<'_>>> {
    let mut globals = FxHashSet::default();
    let mut seen = FxHashSet::default();
    let mut open: Vec<ValueRef<'_>> = variable.initializer().into_iter().collect();
    while let Some(value) = open.pop() {
        if !seen.insert(value) {
            continue;
        }
        if let Some(function) = value.as_function() {
            // SAFETY: a live function.
            let linkage = unsafe { LLVMGetLinkage(function.raw()) };
            let only_shown = linkage == LLVMLinkage::LLVMAvailableExternallyLinkage;
            if !function.is_declaration() && !only_shown {
                return None;
            }
            continue;
        }
        match value.kind() {
            LLVMValueKind::LLVMBlockAddressValueKind => return None,
            _ if value.is_global() => {
                globals.insert(value);
            }
            // These have no operands in LLVM-C: numbers, strings.
            LLVMValueKind::LLVMConstantDataArrayValueKind
            | LLVMValueKind::LLVMConstantDataVectorValueKind => {}
            // SAFETY: constants of other kinds have operands, perhaps none, which are live
            // constants.
            _ => unsafe {
                let count = LLVMGetNumOperands(value.raw()).max(0) as u32;
                let operands = (0..count).map(|i| LLVMGetOperand(value.raw(), i));
                open.extend(operands.filter_map(|it| ValueRef::from_raw(it)));
            },
        }
    }
    Some(globals)
}
