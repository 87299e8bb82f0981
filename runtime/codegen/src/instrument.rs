//! Instrumentation of entries and returns of functions: calls of hooks (`-finstrument-functions`,
//! `-pg`), and room for patches.
//!
//! String attributes of a function request hooks; their values name them:
//!
//! | attribute | calls |
//! |---|---|
//! | `instrument-function-entry`, `instrument-function-exit` | come and go with the body wherever it is inlined |
//! | `instrument-function-entry-inlined`, `instrument-function-exit-inlined` | are those of a function that has code of its own |
//!
//! LLVM has a pass that replaces both by calls (`EntryExitInstrumenter`): the first as passes
//! begin, which do not run at tier 1, the second within code generation. Hooks named
//! `__cyg_profile_func_*` get the address of the function. The pass gives them the function it
//! finds the attribute at, which here is a version, or a copy to be inlined. So the calls are
//! inserted here, with the address that the name means everywhere; the pass finds no attribute any
//! more.
//!
//! The first kind is inserted while a body is copied, before anything is inferred from it: a
//! function with hooks has effects. For the second kind a copy keeps a note in attributes of our
//! own, by link names. [`put_late`] inserts the calls once passes are done.
//!
//! As in the pass, naked functions and copies of definitions that are elsewhere get no hooks.
//! `__fentry__` (`fentry-call`) is called by code generation itself and gets no address.
//!
//! Room for patches (`-fxray-instrument`, `-fpatchable-function-entry`) is used by tools that write
//! into it. They find it in tables that a linker makes of all functions. Published code never
//! changes, and rows of such a table would come and go with versions: versions have neither.

use inkwell::llvm_sys::core::{
    LLVMAddFunction, LLVMBuildCall2, LLVMConstInt, LLVMFunctionType, LLVMGetIntrinsicDeclaration,
    LLVMGetLinkage, LLVMGetPreviousInstruction, LLVMGetTailCallKind, LLVMGlobalGetValueType,
    LLVMInt32TypeInContext, LLVMLookupIntrinsicID, LLVMPointerTypeInContext,
    LLVMPositionBuilderBefore, LLVMVoidTypeInContext,
};
use inkwell::llvm_sys::{LLVMLinkage, LLVMOpcode, LLVMTailCallKind};

use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::copying::Copying;
use crate::error::CodegenError;
use crate::handles::{FunctionRef, InstructionRef, ValueRef, c_name};
use crate::unit::Unit;

/// Hooks without arguments. They look at their caller's frame.
const BARE: [&str; 8] = [
    "mcount",
    ".mcount",
    "llvm.arm.gnu.eabi.mcount",
    "\u{1}_mcount",
    "\u{1}mcount",
    "__mcount",
    "_mcount",
    "__cyg_profile_func_enter_bare",
];

/// Hooks that get the function's address and the one it was called from.
const ADDRESSED: [&str; 2] = ["__cyg_profile_func_enter", "__cyg_profile_func_exit"];

/// The place of inserted calls.
#[derive(Clone, Copy)]
enum HookPlace {
    Entry,
    Returns,
}

/// Attributes that request calls before inlining.
const EARLY: [(&str, HookPlace); 2] = [
    ("instrument-function-entry", HookPlace::Entry),
    ("instrument-function-exit", HookPlace::Returns),
];

/// Attributes that request calls after inlining. Each is followed by the attributes that note the
/// hook and, if it gets one, the function whose address it gets.
const LATE: [(&str, [&str; 2], HookPlace); 2] = [
    (
        "instrument-function-entry-inlined",
        ["uruk.entry", "uruk.entry.of"],
        HookPlace::Entry,
    ),
    (
        "instrument-function-exit-inlined",
        ["uruk.exit", "uruk.exit.of"],
        HookPlace::Returns,
    ),
];

/// Whether the hook of that name gets addresses; `None` if no such hook exists.
fn is_addressed(hook: &str) -> Option<bool> {
    match ADDRESSED.contains(&hook) {
        true => Some(true),
        false => BARE.contains(&hook).then_some(false),
    }
}

/// True if a declaration is that of a hook, which the reader's module need not have.
pub(crate) fn is_hook(name: &str) -> bool {
    is_addressed(name).is_some()
}

/// Inserts hooks into `new`, a copy of `old`, or notes those to insert once passes are done.
///
/// # Errors
/// A hook that LLVM does not know.
pub(crate) fn insert<'r>(
    copying: &mut Copying<'r>,
    old: FunctionRef<'r>,
    new: FunctionRef<'r>,
) -> Result<(), CodegenError> {
    let elsewhere = is_elsewhere(old) || old.has(copying.source.reader.kinds().naked);
    for (attribute, place) in EARLY {
        if let Some(hook) = take_text(new, attribute)
            && !elsewhere
        {
            let call = hook_of(copying, &hook, old)?;
            put(
                copying.source.reader.context(),
                copying.module,
                new,
                call,
                place,
            );
        }
    }
    for (attribute, [note, note_of], _) in LATE {
        if let Some(hook) = take_text(new, attribute)
            && !elsewhere
        {
            let Hook { hook, function } = hook_of(copying, &hook, old)?;
            new.set_text(note, &hook.name());
            if let Some(function) = function {
                new.set_text(note_of, &function.name());
            }
            copying.contents.has_late_hooks = true;
        }
    }
    Ok(())
}

/// The function of that name in the reader's module, or else outside, as a hook to be called
/// for `old`.
fn hook_of<'r>(
    copying: &mut Copying<'r>,
    name: &str,
    old: FunctionRef<'r>,
) -> Result<Hook<'r>, CodegenError> {
    let Some(addressed) = is_addressed(name) else {
        return Err(copying.unsupported(&format!("calls of `{name}` at entries or returns")));
    };
    let reader = copying.source.reader;
    let hook = match reader.module().function(name) {
        Some(known) => copying.map_global(*known)?,
        None => {
            let name = name.trim_start_matches('\u{1}');
            *declared(
                reader.context(),
                copying.module,
                name,
                reader.kinds().nonlazybind,
            )
        }
    };
    let function = match addressed {
        true => Some(copying.map_global(*old)?),
        false => None,
    };
    Ok(Hook { hook, function })
}

/// True for a copy of a definition that is in another module.
pub(crate) fn is_elsewhere(function: FunctionRef<'_>) -> bool {
    // SAFETY: a live function.
    let linkage = unsafe { LLVMGetLinkage(function.raw()) };
    linkage == LLVMLinkage::LLVMAvailableExternallyLinkage
}

/// The called hook, and the function whose address it gets.
#[derive(Clone, Copy)]
struct Hook<'m> {
    hook: ValueRef<'m>,
    function: Option<ValueRef<'m>>,
}

/// Inserts hooks into the functions of a unit that have notes of them. Passes are done: functions
/// that are still defined get code of their own.
pub(crate) fn put_late(context: &LlvmContext, unit: &Unit, nonlazybind: u32) {
    if !unit.contents.has_late_hooks {
        return;
    }
    let module = &unit.module;
    // Functions declared meanwhile come last, and have no body.
    let defined = module
        .functions()
        .filter(|it| !it.is_declaration() && !is_elsewhere(*it));
    for function in defined {
        for (_, [note, note_of], place) in LATE {
            if let Some(hook) = take_text(function, note) {
                let of = take_text(function, note_of);
                let declare = |name: &str| *declared(context, module, name, nonlazybind);
                let hook = Hook {
                    hook: declare(&hook),
                    function: of.map(|of| declare(&of)),
                };
                put(context, module, function, hook, place);
            }
        }
    }
}

/// The function of that link name, declared if it is not there.
pub(crate) fn declared<'m>(
    context: &LlvmContext,
    module: &'m OwnedModule,
    name: &str,
    nonlazybind: u32,
) -> FunctionRef<'m> {
    if let Some(known) = module.function(name) {
        return known;
    }
    let name = c_name(name);
    // SAFETY: a live module and a function type of its context.
    let new = unsafe {
        let nothing = LLVMVoidTypeInContext(context.raw());
        let ty = LLVMFunctionType(nothing, std::ptr::null_mut(), 0, i32::from(false));
        FunctionRef::of(LLVMAddFunction(module.raw(), name.as_ptr(), ty))
    };
    new.add(nonlazybind);
    new
}

/// Inserts calls of a hook into `body`, a function of a module of the context that has the hook
/// too.
fn put(
    context: &LlvmContext,
    module: &OwnedModule,
    body: FunctionRef<'_>,
    hook: Hook<'_>,
    place: HookPlace,
) {
    let places: Vec<InstructionRef<'_>> = match place {
        // Static allocas behind the call are still in the entry block, which is all that
        // makes them static.
        HookPlace::Entry => body
            .blocks()
            .take(1)
            .filter_map(|it| it.instructions().next())
            .collect(),
        HookPlace::Returns => {
            // A body that is named by its labels only was not verified.
            let ends = body.blocks().filter_map(|block| block.terminator());
            ends.filter(|end| end.opcode() == LLVMOpcode::LLVMRet)
                .map(|end| musttail_before(end).unwrap_or(end))
                .collect()
        }
    };
    // A new builder: source locations set in it do not reach other functions.
    let builder = Builder::new(context);
    for before in places {
        // SAFETY: an instruction of the body.
        unsafe {
            LLVMPositionBuilderBefore(builder.0, before.raw());
            call(context, module, &builder, hook);
        }
    }
}

/// The `musttail` call whose result, possibly cast, is returned: nothing may come between.
fn musttail_before(end: InstructionRef<'_>) -> Option<InstructionRef<'_>> {
    let previous = |instruction: InstructionRef<'_>| {
        // SAFETY: a live instruction, whose block lives as it does; null at its beginning.
        unsafe { ValueRef::from_raw(LLVMGetPreviousInstruction(instruction.raw())) }
    };
    let mut before = previous(end)?.as_instruction()?;
    if before.opcode() == LLVMOpcode::LLVMBitCast {
        before = previous(before)?.as_instruction()?;
    }
    let is_call = before.opcode() == LLVMOpcode::LLVMCall;
    // SAFETY: a call is asked as such.
    let must = is_call && unsafe { LLVMGetTailCallKind(before.raw()) } == MUST_TAIL;
    must.then_some(before)
}

const MUST_TAIL: LLVMTailCallKind = LLVMTailCallKind::LLVMTailCallKindMustTail;

/// Builds a call of a hook.
///
/// # Safety
/// The builder is in a body of the module, which is of that context and has the hook.
unsafe fn call(context: &LlvmContext, module: &OwnedModule, builder: &Builder, hook: Hook<'_>) {
    const RETURN_ADDRESS: &str = "llvm.returnaddress";
    let context = context.raw();
    // SAFETY: by the caller's promise; arrays have as many entries as the counts passed with them.
    unsafe {
        let mut arguments = Vec::new();
        if let Some(function) = hook.function {
            let id = LLVMLookupIntrinsicID(RETURN_ADDRESS.as_ptr().cast(), RETURN_ADDRESS.len());
            let intrinsic = LLVMGetIntrinsicDeclaration(module.raw(), id, std::ptr::null_mut(), 0);
            let ty = LLVMGlobalGetValueType(intrinsic);
            let mut here = LLVMConstInt(LLVMInt32TypeInContext(context), 0, 0);
            let from = LLVMBuildCall2(builder.0, ty, intrinsic, &mut here, 1, c"".as_ptr());
            arguments.extend([function.raw(), from]);
        }
        let mut types = vec![LLVMPointerTypeInContext(context, 0); arguments.len()];
        let count = arguments.len() as u32;
        let ty = LLVMFunctionType(
            LLVMVoidTypeInContext(context),
            types.as_mut_ptr(),
            count,
            i32::from(false),
        );
        let arguments = arguments.as_mut_ptr();
        LLVMBuildCall2(
            builder.0,
            ty,
            hook.hook.raw(),
            arguments,
            count,
            c"".as_ptr(),
        );
    }
}

/// Attributes by which code generation leaves room to patch a function, and lists the places in
/// tables of the file: XRay's sleds, and `-fpatchable-function-entry`.
const PATCHABLE: [&str; 4] = [
    "function-instrument",
    "patchable-function-entry",
    "patchable-function-prefix",
    "xray-instruction-threshold",
];

/// Keeps a version from having room for patches.
pub(crate) fn remove_patchable(function: FunctionRef<'_>) {
    for key in PATCHABLE {
        function.remove_text(key);
    }
}

/// Removes a string attribute and returns its value; `None` if it is absent or empty.
fn take_text(function: FunctionRef<'_>, key: &str) -> Option<String> {
    let value = function.text(key);
    if value.is_empty() {
        return None;
    }
    function.remove_text(key);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::is_addressed;

    #[test]
    fn hooks_are_those_that_llvm_knows() {
        assert_eq!(is_addressed("__cyg_profile_func_enter"), Some(true));
        assert_eq!(is_addressed("__cyg_profile_func_exit"), Some(true));
        assert_eq!(is_addressed("\u{1}mcount"), Some(false));
        assert_eq!(is_addressed("puts"), None);
    }
}
