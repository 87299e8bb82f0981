//! The second walk: changes a module to the choices made for it.
//!
//! # Invariants
//! - A value with a name of its own keeps its type: only linkage, names, bodies and uses change.
//! - A call of a function stays a call of it; all other uses mean the address that the program
//!   knows. A function whose labels have addresses is never replaced by another value there, as
//!   labels are constants of the function.

use std::collections::{HashMap, HashSet};

use inkwell::llvm_sys::comdat::LLVMSetComdat;
use inkwell::llvm_sys::core::{
    LLVMAddFunction, LLVMAddGlobal, LLVMAliasSetAliasee, LLVMArrayType2, LLVMBuildCall2,
    LLVMBuildGEP2, LLVMConstInt, LLVMConstNull, LLVMDeleteFunction, LLVMDeleteGlobal,
    LLVMEraseGlobalIFunc, LLVMGetAlignment, LLVMGetFirstGlobalAlias, LLVMGetFirstGlobalIFunc,
    LLVMGetFunctionCallConv, LLVMGetIntrinsicDeclaration, LLVMGetLinkage, LLVMGetNextGlobalAlias,
    LLVMGetNextGlobalIFunc, LLVMGetNumOperands, LLVMGetOperand, LLVMGetTypeKind,
    LLVMGlobalGetValueType, LLVMInstructionEraseFromParent, LLVMInt8TypeInContext,
    LLVMInt64TypeInContext, LLVMIntrinsicGetType, LLVMIsDeclaration, LLVMLookupIntrinsicID,
    LLVMPointerTypeInContext, LLVMPositionBuilderBefore, LLVMReplaceAllUsesWith, LLVMSetAlignment,
    LLVMSetFunctionCallConv, LLVMSetGlobalConstant, LLVMSetInitializer, LLVMSetLinkage,
    LLVMSetModuleInlineAsm2, LLVMSetOperand, LLVMSetSection, LLVMSetUnnamedAddress,
    LLVMSetValueName2, LLVMSetVisibility,
};
use inkwell::llvm_sys::prelude::{LLVMModuleRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::target::LLVMGetModuleDataLayout;
use inkwell::llvm_sys::{
    LLVMLinkage, LLVMTypeKind, LLVMUnnamedAddr, LLVMValueKind, LLVMVisibility,
};

use super::survey::{self, ADDRESS_OF};
use super::uses;
use super::{Choices, FunctionChoice, Keep, Part, VariableChoice};
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::handles::{FunctionRef, ValueRef, c_name};

/// Target of unused aliases, which cannot be deleted.
const NOTHING: &str = "uruk.nothing";

/// Changes `module` by the choices for it.
pub(super) fn edit(context: &LlvmContext, module: &OwnedModule, choices: &Choices) {
    let functions: Vec<LLVMValueRef> = survey::functions(module).map(|f| f.raw()).collect();
    let variables: Vec<LLVMValueRef> = module.variables().map(|v| v.raw()).collect();
    // SAFETY: a live module, as all below; the string is empty.
    unsafe { LLVMSetModuleInlineAsm2(module.raw(), std::ptr::null(), 0) };
    let mut gone = Vec::new();
    for (&variable, choice) in variables.iter().zip(&choices.variables) {
        // SAFETY: a variable of the module, which nothing was deleted of yet.
        let handle = unsafe { ValueRef::of(variable) };
        if handle.name().starts_with("llvm.") {
            gone.push(variable);
            continue;
        }
        if handle.name() == NOTHING {
            continue;
        }
        match choice {
            VariableChoice::Own => own(variable),
            VariableChoice::Shared(name) => share(variable, name),
            VariableChoice::Named(name) => bind_variable(variable, name, true),
            VariableChoice::Hidden(name) => bind_variable(variable, name, false),
            VariableChoice::Constant => {
                own(variable);
                // SAFETY: a live variable that nothing writes to.
                unsafe { LLVMSetGlobalConstant(variable, 1) };
            }
            VariableChoice::Parts(parts) => {
                split(context, module, handle, parts);
                own(variable);
            }
            VariableChoice::ThreadLocal(distance) => {
                replace_thread_local(context, module, handle, *distance);
            }
        }
    }
    for (&function, choice) in functions.iter().zip(&choices.functions) {
        if let Some(address) = &choice.address {
            // SAFETY: a function of the module.
            let function = unsafe { FunctionRef::of(function) };
            name_address(module.raw(), function, address);
        }
    }
    // Lists of used globals first: they mention the others.
    gone.sort_by_key(|&variable| {
        // SAFETY: none of them was deleted yet.
        !unsafe { ValueRef::of(variable) }.name().contains("used")
    });
    for variable in gone {
        // SAFETY: nothing mentions it any more: lists were deleted before the globals they list.
        unsafe { LLVMDeleteGlobal(variable) };
    }
    for (function, choice) in functions.into_iter().zip(&choices.functions) {
        bind_function(module.raw(), function, choice);
    }
}

/// A name for LLVM, of any bytes.
fn set_name(value: LLVMValueRef, name: &str) {
    // SAFETY: a live value; pointer and length describe the name.
    unsafe { LLVMSetValueName2(value, name.as_ptr().cast(), name.len()) };
}

/// Makes a variable private to the module.
fn own(variable: LLVMValueRef) {
    // SAFETY: a live variable.
    unsafe {
        if LLVMIsDeclaration(variable) == 0 {
            LLVMSetVisibility(variable, LLVMVisibility::LLVMDefaultVisibility);
            LLVMSetLinkage(variable, LLVMLinkage::LLVMInternalLinkage);
            LLVMSetComdat(variable, std::ptr::null_mut());
        }
    }
}

/// Makes a variable one that other modules find by `name`.
fn share(variable: LLVMValueRef, name: &str) {
    own(variable);
    set_name(variable, name);
    // SAFETY: a live variable.
    unsafe { LLVMSetLinkage(variable, LLVMLinkage::LLVMExternalLinkage) };
}

/// Makes a variable one that is found by `name`. A constant that is `looked_at` keeps its value for
/// the optimizer, unless it is weak: then another definition may be in its place.
fn bind_variable(variable: LLVMValueRef, name: &str, looked_at: bool) {
    set_name(variable, name);
    // SAFETY: a live variable; a null initializer makes it a declaration.
    unsafe {
        let handle = ValueRef::of(variable).as_variable();
        let linkage = LLVMGetLinkage(variable);
        let optional = linkage == LLVMLinkage::LLVMExternalWeakLinkage;
        let looked_at = looked_at && !is_replaceable(linkage);
        let shown = handle.is_some_and(|v| v.is_constant() && v.initializer().is_some());
        let shown = shown && looked_at;
        LLVMSetComdat(variable, std::ptr::null_mut());
        LLVMSetVisibility(variable, LLVMVisibility::LLVMDefaultVisibility);
        LLVMSetUnnamedAddress(variable, LLVMUnnamedAddr::LLVMNoUnnamedAddr);
        if shown {
            LLVMSetLinkage(variable, LLVMLinkage::LLVMAvailableExternallyLinkage);
            LLVMSetSection(variable, c"".as_ptr());
        } else if !optional {
            LLVMSetInitializer(variable, std::ptr::null_mut());
            LLVMSetLinkage(variable, LLVMLinkage::LLVMExternalLinkage);
        }
    }
}

/// Redirects loads and stores of a variable's bytes to the parts that the program has of it.
fn split(context: &LlvmContext, module: &OwnedModule, variable: ValueRef<'_>, parts: &[Part]) {
    // SAFETY: the layout is the live module's.
    let layout = unsafe { LLVMGetModuleDataLayout(module.raw()) };
    let followed = variable
        .as_variable()
        .and_then(|it| uses::follow(it, layout));
    let Some(followed) = followed else {
        return;
    };
    let declared: HashMap<i64, (&Part, LLVMValueRef)> = parts
        .iter()
        .map(|part| {
            // SAFETY: the variable is new, of a type of the module's context.
            let declared = unsafe {
                let kind = LLVMArrayType2(LLVMInt8TypeInContext(context.raw()), part.size);
                let declared = LLVMAddGlobal(module.raw(), kind, c"".as_ptr());
                LLVMSetAlignment(declared, part.align);
                declared
            };
            set_name(declared, &part.name);
            (part.offset as i64, (part, declared))
        })
        .collect();
    for it in &followed.uses {
        let found = it.offset.and_then(|offset| declared.get(&offset));
        let Some(&(part, declared)) = found else {
            continue;
        };
        // SAFETY: a live load or store, of which that operand is the address.
        unsafe {
            let access = it.instruction.raw();
            LLVMSetOperand(access, it.operand, declared);
            LLVMSetAlignment(access, LLVMGetAlignment(access).min(part.align));
        }
    }
    for step in followed.steps.into_iter().rev() {
        if step.users().next().is_none() {
            // SAFETY: nothing uses it; the step it is computed from is erased after it.
            unsafe { LLVMInstructionEraseFromParent(step.raw()) };
        }
    }
}

/// Replaces calls that get a thread's address of a variable by its computation.
fn replace_thread_local(
    context: &LlvmContext,
    module: &OwnedModule,
    variable: ValueRef<'_>,
    distance: i64,
) {
    let asked: Vec<LLVMValueRef> = variable
        .users()
        .filter(|user| {
            let instruction = user.as_instruction();
            let callee = instruction.and_then(|instruction| instruction.callee());
            callee.is_some_and(|callee| callee.name().starts_with(ADDRESS_OF))
        })
        .map(|user| user.raw())
        .collect();
    let builder = Builder::new(context);
    let pointer = thread_pointer(context, module.raw());
    for call in asked {
        // SAFETY: a call that is live until it is erased, as the last thing; the builder stands
        // before it, in the same function.
        unsafe {
            LLVMPositionBuilderBefore(builder.0, call);
            let (kind, function) = pointer;
            let none: *mut LLVMValueRef = std::ptr::null_mut();
            let start = LLVMBuildCall2(builder.0, kind, function, none, 0, c"".as_ptr());
            let mut index = [LLVMConstInt(
                LLVMInt64TypeInContext(context.raw()),
                distance as u64,
                1,
            )];
            let byte = LLVMInt8TypeInContext(context.raw());
            let found = LLVMBuildGEP2(builder.0, byte, start, index.as_mut_ptr(), 1, c"".as_ptr());
            LLVMReplaceAllUsesWith(call, found);
            LLVMInstructionEraseFromParent(call);
        }
    }
}

/// The function that returns the thread pointer, and its type.
fn thread_pointer(context: &LlvmContext, module: LLVMModuleRef) -> (LLVMTypeRef, LLVMValueRef) {
    const NAME: &str = "llvm.thread.pointer";
    // SAFETY: an intrinsic that this LLVM has, of one type that it is made for.
    unsafe {
        let number = LLVMLookupIntrinsicID(NAME.as_ptr().cast(), NAME.len());
        let mut over = [LLVMPointerTypeInContext(context.raw(), 0)];
        (
            LLVMIntrinsicGetType(context.raw(), number, over.as_mut_ptr(), 1),
            LLVMGetIntrinsicDeclaration(module, number, over.as_mut_ptr(), 1),
        )
    }
}

/// Replaces every use of a function that is no call of it by the symbol `address`.
fn name_address(module: LLVMModuleRef, function: FunctionRef<'_>, address: &str) {
    let users: Vec<ValueRef<'_>> = function.users().collect();
    let only_calls = users.iter().all(|user| {
        user.as_instruction()
            .is_some_and(|instruction| calls_only(instruction.raw(), function.raw()))
    });
    let has_labels = users
        .iter()
        .any(|user| user.kind() == LLVMValueKind::LLVMBlockAddressValueKind);
    if only_calls || has_labels {
        return;
    }
    // SAFETY: live values of one module; all are pointers.
    unsafe {
        let known = c_name(address);
        let kind = LLVMGlobalGetValueType(function.raw());
        let known = LLVMAddFunction(module, known.as_ptr(), kind);
        LLVMSetFunctionCallConv(known, LLVMGetFunctionCallConv(function.raw()));
        LLVMReplaceAllUsesWith(function.raw(), known);
        let users: Vec<ValueRef<'_>> = ValueRef::of(known).users().collect();
        for user in users {
            let instruction = user.as_instruction();
            let callee = instruction.and_then(|instruction| instruction.callee());
            if callee.is_some_and(|callee| callee.raw() == known) {
                let last = LLVMGetNumOperands(user.raw()) - 1;
                LLVMSetOperand(user.raw(), last as u32, function.raw());
            }
        }
    }
}

/// Whether an instruction that uses a function calls it and does nothing else with it.
fn calls_only(instruction: LLVMValueRef, function: LLVMValueRef) -> bool {
    // SAFETY: a live instruction; indices are below the count.
    unsafe {
        let handle = ValueRef::of(instruction).as_instruction();
        let callee = handle.and_then(|instruction| instruction.callee());
        let count = LLVMGetNumOperands(instruction) as u32;
        callee.is_some_and(|callee| callee.raw() == function)
            && (0..count.saturating_sub(1)).all(|at| LLVMGetOperand(instruction, at) != function)
    }
}

/// Changes a function to its choice.
fn bind_function(module: LLVMModuleRef, function: LLVMValueRef, choice: &FunctionChoice) {
    // SAFETY: a live function, and it is deleted only when nothing uses it.
    unsafe {
        let defined = LLVMIsDeclaration(function) == 0;
        if !defined {
            set_name(function, &choice.name);
            return;
        }
        LLVMSetComdat(function, std::ptr::null_mut());
        LLVMSetSection(function, c"".as_ptr());
        LLVMSetVisibility(function, LLVMVisibility::LLVMDefaultVisibility);
        let linkage = match choice.keep {
            Keep::Body => LLVMLinkage::LLVMExternalLinkage,
            Keep::Copy => LLVMLinkage::LLVMAvailableExternallyLinkage,
            Keep::Nothing => {
                let kind = LLVMGlobalGetValueType(function);
                let declared = LLVMAddFunction(module, c"".as_ptr(), kind);
                LLVMSetFunctionCallConv(declared, LLVMGetFunctionCallConv(function));
                LLVMReplaceAllUsesWith(function, declared);
                LLVMDeleteFunction(function);
                set_name(declared, &choice.name);
                return;
            }
        };
        LLVMSetLinkage(function, linkage);
        set_name(function, &choice.name);
    }
}

/// The target of an alias, if it is a function or a variable as a whole. LLVM would assume that two
/// names of one address differ.
fn plain_aliasee(alias: ValueRef<'_>) -> Option<LLVMValueRef> {
    let aliasee = alias.aliasee()?;
    let is_plain = aliasee.as_function().is_some() || aliasee.as_variable().is_some();
    is_plain.then(|| aliasee.raw())
}

/// Whether other files do not see a global.
fn is_local(global: LLVMValueRef) -> bool {
    // SAFETY: a live global.
    let linkage = unsafe { LLVMGetLinkage(global) };
    matches!(
        linkage,
        LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage
    )
}

/// Whether the linker may have taken another definition with other contents.
fn is_replaceable(linkage: LLVMLinkage) -> bool {
    matches!(
        linkage,
        LLVMLinkage::LLVMWeakAnyLinkage
            | LLVMLinkage::LLVMLinkOnceAnyLinkage
            | LLVMLinkage::LLVMCommonLinkage
    )
}

/// The aliases that a module had.
pub(super) struct Aliases {
    pub(super) names: Vec<String>,
    /// Targets of weak ones.
    pub(super) weakly: HashSet<String>,
    /// Names of local functions in the file, by the global alias whose name they have now.
    pub(super) renamed: HashMap<String, String>,
}

/// Replaces aliases by their targets, and turns other aliases, weak ones, and ifuncs into
/// declarations: the program knows their targets. Runs before the survey, which lists them as such;
/// returns the aliases.
pub(super) fn replace_aliases(context: &LlvmContext, module: LLVMModuleRef) -> Aliases {
    let mut aliases = Vec::new();
    let mut weakly = HashSet::new();
    let mut renamed = HashMap::new();
    let mut ifuncs = Vec::new();
    // SAFETY: walks lists of a live module to their null ends.
    unsafe {
        let mut next = LLVMGetFirstGlobalAlias(module);
        while !next.is_null() {
            aliases.push(next);
            next = LLVMGetNextGlobalAlias(next);
        }
        let mut next = LLVMGetFirstGlobalIFunc(module);
        while !next.is_null() {
            ifuncs.push(next);
            next = LLVMGetNextGlobalIFunc(next);
        }
    }
    // SAFETY: live aliases.
    let named = |alias: &LLVMValueRef| unsafe { ValueRef::of(*alias) }.name();
    let names = aliases.iter().map(named).collect();
    for alias in aliases.iter().chain(&ifuncs).copied() {
        // SAFETY: a live alias or ifunc, whose uses go to a declaration of the same name.
        unsafe {
            let meant = plain_aliasee(ValueRef::of(alias));
            // The linker may have taken another definition instead of a weak one, but its alias stays.
            let is_plain = |global| !is_replaceable(LLVMGetLinkage(global));
            if let Some(meant) = meant.filter(|&meant| is_plain(alias) && is_plain(meant)) {
                LLVMReplaceAllUsesWith(alias, meant);
                if is_local(meant) && !is_local(alias) {
                    // The symbol table may have only the alias's name, as files see that one.
                    let name = ValueRef::of(alias).name();
                    renamed.insert(name.clone(), ValueRef::of(meant).name());
                    set_name(alias, "");
                    set_name(meant, &name);
                    LLVMSetLinkage(meant, LLVMLinkage::LLVMExternalLinkage);
                }
                continue;
            }
            weakly.extend(meant.map(|meant| ValueRef::of(meant).name()));
            let name = ValueRef::of(alias).name();
            set_name(alias, "");
            let kind = LLVMGlobalGetValueType(alias);
            let c_name = c_name(&name);
            let declared = match LLVMGetTypeKind(kind) {
                LLVMTypeKind::LLVMFunctionTypeKind => {
                    LLVMAddFunction(module, c_name.as_ptr(), kind)
                }
                _ => LLVMAddGlobal(module, kind, c_name.as_ptr()),
            };
            LLVMReplaceAllUsesWith(alias, declared);
        }
    }
    for ifunc in ifuncs {
        // SAFETY: nothing uses it any more.
        unsafe { LLVMEraseGlobalIFunc(ifunc) };
    }
    bury(context, module, aliases);
    Aliases {
        names,
        weakly,
        renamed,
    }
}

/// Makes aliases that nothing uses local names of a constant, as they cannot be deleted.
fn bury(context: &LlvmContext, module: LLVMModuleRef, aliases: Vec<LLVMValueRef>) {
    if aliases.is_empty() {
        return;
    }
    // SAFETY: a fresh constant in a live module; live aliases of it.
    unsafe {
        let byte = LLVMInt8TypeInContext(context.raw());
        let nothing = LLVMAddGlobal(module, byte, c_name(NOTHING).as_ptr());
        LLVMSetInitializer(nothing, LLVMConstNull(byte));
        LLVMSetLinkage(nothing, LLVMLinkage::LLVMInternalLinkage);
        LLVMSetGlobalConstant(nothing, 1);
        for alias in aliases {
            LLVMAliasSetAliasee(alias, nothing);
            LLVMSetVisibility(alias, LLVMVisibility::LLVMDefaultVisibility);
            LLVMSetLinkage(alias, LLVMLinkage::LLVMInternalLinkage);
            set_name(alias, "uruk.alias");
        }
    }
}
