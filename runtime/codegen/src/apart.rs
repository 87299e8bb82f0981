//! Constants that passes make, and that must outlive the version they were made for.
//!
//! While a unit is optimized LLVM makes constants that no module has: the string of
//! `printf("..\n")` that became `puts("..")`, tables of switches. Their addresses may leave
//! the function (as an argument of a tail call, in memory, as the result), and then whoever
//! has them may read them long after the version is freed: nothing on a stack shows it. So
//! every such constant gets a section of its own, by whose name ([`APART`]) whoever links
//! the unit finds it and puts it where the module's data lies. All of them do, also those
//! that are only loaded from: what instruction selection makes of a load is its affair.
//!
//! What stays beside the code:
//! - What code generation makes after this: pools of literals, jump tables, exception tables.
//!   Only instructions of the version itself read pools and jump tables, for a value they
//!   need next, and a thread in them is found there; operands of inline assembly are good for
//!   that assembly only. The unwinder reads exception tables of functions that are on the
//!   stack.
//! - Constants that lead to code of the unit: tables of labels, and of the parts of a
//!   coroutine. `labels` says what becomes of these addresses: either they are used within a
//!   call only, and so are the tables, or the function keeps its version.

use inkwell::llvm_sys::core::{
    LLVMGetFirstGlobal, LLVMGetInitializer, LLVMGetLinkage, LLVMGetNextGlobal, LLVMGetNumOperands,
    LLVMGetOperand, LLVMGetSection, LLVMGetUnnamedAddress, LLVMGetValueKind, LLVMIsDeclaration,
    LLVMIsGlobalConstant, LLVMIsThreadLocal, LLVMSetSection,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::{LLVMLinkage, LLVMUnnamedAddr, LLVMValueKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::context::OwnedModule;
use crate::emit::Emitter;
use crate::extract::Unit;
use crate::gate::Gate;
use crate::reader::{c_name, value_name};

/// How the names of the sections begin that hold one constant each, which must outlive the
/// code of the unit. What is more than code in a section of another name lives as long as
/// the code.
pub const APART: &str = ".data.rel.ro.uruk.";

/// What follows if the constant must not be one with another that has equal contents, but of
/// the same constant in another version of the same function.
const OWN: &str = "own.";

/// Whether the constant in a section of that name may share its place with one of equal
/// contents.
#[must_use]
pub fn is_shared(section: &str) -> bool {
    section
        .strip_prefix(APART)
        .is_some_and(|rest| !rest.starts_with(OWN))
}

/// Whether constants in a section of that name may live as long as the code beside them:
/// what code generation makes. `table` says that it holds addresses in the code and
/// distances to it, and nothing else.
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
pub(crate) fn emit(gate: &Gate, emitter: &mut Emitter, unit: &Unit) -> Vec<u8> {
    let module = &unit.module;
    if !unit.is_version {
        return emitter.emit(gate, module.raw());
    }
    set_apart(module);
    let object = emitter.emit(gate, module.raw());
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
        // SAFETY: a live variable of the module.
        let unnamed =
            unsafe { LLVMGetUnnamedAddress(global) == LLVMUnnamedAddr::LLVMGlobalUnnamedAddr };
        let name = match unnamed {
            true => format!("{APART}{number}"),
            false => format!("{APART}{OWN}{}", value_name(global)),
        };
        let name = c_name(&name);
        // SAFETY: as above, and a C string, which is copied.
        unsafe { LLVMSetSection(global, name.as_ptr()) };
    }
}

/// Names of what would have to be apart and is not, variables included: what code generation
/// has made of its own after the rest was set apart. It makes nothing of the kind here.
fn left_beside_code(module: &OwnedModule) -> Vec<String> {
    let mut left = outliving(module);
    // SAFETY: live variables of the module.
    let variable = |global: &LLVMValueRef| unsafe { LLVMIsGlobalConstant(*global) == 0 };
    left.extend(defined(module).into_iter().filter(variable));
    left.into_iter().map(value_name).collect()
}

/// What must outlive the unit's code and has no section of its own.
fn outliving(module: &OwnedModule) -> Vec<LLVMValueRef> {
    let mut defined = defined(module);
    let leading = leading_to_code(&defined);
    defined.retain(|global| !leading.contains(global));
    defined
}

/// The variables that will be emitted, but for what has a section already.
fn defined(module: &OwnedModule) -> Vec<LLVMValueRef> {
    let mut all = Vec::new();
    // SAFETY: walks the list of a live module to its null end; questions fit variables.
    unsafe {
        let mut global = LLVMGetFirstGlobal(module.raw());
        while !global.is_null() {
            let section = LLVMGetSection(global);
            let emitted = LLVMIsDeclaration(global) == 0
                && !matches!(
                    LLVMGetLinkage(global),
                    LLVMLinkage::LLVMAvailableExternallyLinkage | LLVMLinkage::LLVMAppendingLinkage
                )
                && LLVMIsThreadLocal(global) == 0;
            if emitted && (section.is_null() || *section == 0) {
                all.push(global);
            }
            global = LLVMGetNextGlobal(global);
        }
    }
    all
}

/// Those that are not constant, or from whose values code of the unit can be reached, or one
/// of them.
fn leading_to_code(defined: &[LLVMValueRef]) -> FxHashSet<LLVMValueRef> {
    let mut leading = FxHashSet::default();
    let mut users: FxHashMap<LLVMValueRef, Vec<LLVMValueRef>> = FxHashMap::default();
    let mut open = Vec::new();
    for &global in defined {
        // SAFETY: a live variable.
        let constant = unsafe { LLVMIsGlobalConstant(global) != 0 };
        // SAFETY: the initializer of a defined variable.
        let mentioned = unsafe { mentioned(LLVMGetInitializer(global)) };
        match mentioned {
            Some(mentioned) if constant => {
                for other in mentioned {
                    users.entry(other).or_default().push(global);
                }
            }
            _ => open.push(global),
        }
    }
    while let Some(global) = open.pop() {
        if leading.insert(global) {
            open.extend(users.remove(&global).unwrap_or_default());
        }
    }
    leading
}

/// The globals a constant mentions; `None` if it mentions code of its unit.
///
/// # Safety
/// A live constant, or null.
unsafe fn mentioned(constant: LLVMValueRef) -> Option<FxHashSet<LLVMValueRef>> {
    let mut globals = FxHashSet::default();
    let mut seen = FxHashSet::default();
    let mut open = vec![constant];
    while let Some(value) = open.pop() {
        if value.is_null() || !seen.insert(value) {
            continue;
        }
        // SAFETY: by the caller's promise; operands of constants are live constants.
        unsafe {
            match LLVMGetValueKind(value) {
                LLVMValueKind::LLVMBlockAddressValueKind => return None,
                LLVMValueKind::LLVMFunctionValueKind => {
                    let elsewhere = LLVMIsDeclaration(value) != 0
                        || LLVMGetLinkage(value) == LLVMLinkage::LLVMAvailableExternallyLinkage;
                    if !elsewhere {
                        return None;
                    }
                }
                LLVMValueKind::LLVMGlobalVariableValueKind
                | LLVMValueKind::LLVMGlobalAliasValueKind
                | LLVMValueKind::LLVMGlobalIFuncValueKind => {
                    globals.insert(value);
                }
                // What has no operands for C: numbers, strings.
                LLVMValueKind::LLVMConstantDataArrayValueKind
                | LLVMValueKind::LLVMConstantDataVectorValueKind => {}
                _ => {
                    let count = LLVMGetNumOperands(value).max(0) as u32;
                    open.extend((0..count).map(|i| LLVMGetOperand(value, i)));
                }
            }
        }
    }
    Some(globals)
}
