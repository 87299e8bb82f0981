//! What a compiler wants at entries and returns of functions: calls of hooks
//! (`-finstrument-functions`, `-pg`), and room for patches.
//!
//! Hooks are asked for by string attributes of the function, whose values name them:
//!
//! | attribute | calls |
//! |---|---|
//! | `instrument-function-entry`, `instrument-function-exit` | come and go with the body wherever it is inlined |
//! | `instrument-function-entry-inlined`, `instrument-function-exit-inlined` | are those of a function that has code of its own |
//!
//! LLVM has a pass that replaces both by calls (`EntryExitInstrumenter`): the first as
//! passes begin, which at tier 1 they do not, the second within code generation. Hooks
//! named `__cyg_profile_func_*` get the address of the function, and the pass gives them
//! that of the function it finds the attribute at, which here is a version, or a copy to
//! be inlined. So the calls are put in here, with the address that the name means
//! everywhere; the pass finds no attribute any more.
//!
//! The first kind is put in while a body is copied, before anything is inferred from it:
//! a function with hooks has effects. Of the second kind a copy keeps a note in attributes
//! of our own, by link names, and [`put_late`] obeys the notes once passes are done.
//!
//! What the pass leaves alone is left alone: naked functions, and copies of definitions
//! that are elsewhere. `__fentry__` (`fentry-call`) is called by code generation itself and
//! gets no address.
//!
//! Room for patches (`-fxray-instrument`, `-fpatchable-function-entry`) is of use to who
//! finds it, in tables that a linker makes of all functions, and writes into it. Published
//! code never changes, and rows of such a table would come and go with versions: versions
//! have neither.

use inkwell::llvm_sys::core::{
    LLVMAddFunction, LLVMBuildCall2, LLVMConstInt, LLVMCreateBuilderInContext, LLVMFunctionType,
    LLVMGetBasicBlockTerminator, LLVMGetFirstBasicBlock, LLVMGetFirstFunction,
    LLVMGetFirstInstruction, LLVMGetInstructionOpcode, LLVMGetIntrinsicDeclaration, LLVMGetLinkage,
    LLVMGetNamedFunction, LLVMGetNextBasicBlock, LLVMGetNextFunction, LLVMGetPreviousInstruction,
    LLVMGetTailCallKind, LLVMGlobalGetValueType, LLVMInt32TypeInContext, LLVMIsDeclaration,
    LLVMLookupIntrinsicID, LLVMPointerTypeInContext, LLVMPositionBuilderBefore,
    LLVMRemoveStringAttributeAtIndex, LLVMVoidTypeInContext,
};
use inkwell::llvm_sys::prelude::{LLVMAttributeRef, LLVMContextRef, LLVMModuleRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMAttributeFunctionIndex, LLVMLinkage, LLVMOpcode, LLVMTailCallKind};

use crate::context::LlvmContext;
use crate::error::CodegenError;
use crate::extract::{Builder, Extraction, Unit, has_function_attribute};
use crate::globals::add_function_attribute;
use crate::optimize::{set_string_attribute, string_attribute};
use crate::reader::{c_name, value_name};

/// Hooks that get nothing. They look at their caller's frame.
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

/// Where calls are put.
#[derive(Clone, Copy)]
enum Place {
    Entry,
    Returns,
}

/// An attribute that asks for calls before inlining.
const EARLY: [(&str, Place); 2] = [
    ("instrument-function-entry", Place::Entry),
    ("instrument-function-exit", Place::Returns),
];

/// An attribute that asks for calls after inlining; then those that note the hook and, if it
/// gets one, whose address.
const LATE: [(&str, [&str; 2], Place); 2] = [
    (
        "instrument-function-entry-inlined",
        ["uruk.entry", "uruk.entry.of"],
        Place::Entry,
    ),
    (
        "instrument-function-exit-inlined",
        ["uruk.exit", "uruk.exit.of"],
        Place::Returns,
    ),
];

/// Whether the hook of that name gets addresses; `None` if there is none.
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

impl Extraction<'_> {
    /// Puts hooks into `new`, a copy of `old`, or notes that they are wanted once passes
    /// are done.
    ///
    /// # Errors
    /// A hook that LLVM does not know.
    pub(crate) fn instrument(
        &mut self,
        old: LLVMValueRef,
        new: LLVMValueRef,
    ) -> Result<(), CodegenError> {
        // SAFETY: a live function.
        let elsewhere = unsafe { LLVMGetLinkage(old) }
            == LLVMLinkage::LLVMAvailableExternallyLinkage
            || has_function_attribute(old, self.reader.kinds().naked);
        for (attribute, place) in EARLY {
            if let Some(hook) = take_string_attribute(new, attribute)
                && !elsewhere
            {
                let call = self.hook(&hook, old)?;
                // SAFETY: a live function whose body was copied; hook and function are
                // globals of its module.
                unsafe {
                    put(
                        self.reader.context().raw(),
                        self.module.raw(),
                        new,
                        call,
                        place,
                    )
                };
            }
        }
        for (attribute, [note, note_of], _) in LATE {
            if let Some(hook) = take_string_attribute(new, attribute)
                && !elsewhere
            {
                let Hook { hook, function } = self.hook(&hook, old)?;
                let context = self.reader.context();
                set_string_attribute(context, new, note, &value_name(hook));
                if let Some(function) = function {
                    set_string_attribute(context, new, note_of, &value_name(function));
                }
                self.has_late_hooks = true;
            }
        }
        Ok(())
    }

    /// The hook that the reader's module, or else the surroundings, have by that name, to be
    /// called for `old`.
    fn hook(&mut self, name: &str, old: LLVMValueRef) -> Result<Hook, CodegenError> {
        let Some(addressed) = is_addressed(name) else {
            return Err(self.unsupported(&format!("calls of `{name}` at entries or returns")));
        };
        let c = c_name(name);
        // SAFETY: a live module and a C string.
        let known = unsafe { LLVMGetNamedFunction(self.reader.module(), c.as_ptr()) };
        let hook = match known.is_null() {
            false => self.map_global(known)?,
            true => {
                let name = name.trim_start_matches('\u{1}');
                let lazily = self.reader.kinds().nonlazybind;
                // SAFETY: live context and module.
                unsafe { declared(self.reader.context().raw(), self.module.raw(), name, lazily) }
            }
        };
        let function = match addressed {
            true => Some(self.map_global(old)?),
            false => None,
        };
        Ok(Hook { hook, function })
    }
}

/// What is called, and the function whose address it gets.
#[derive(Clone, Copy)]
struct Hook {
    hook: LLVMValueRef,
    function: Option<LLVMValueRef>,
}

/// Puts hooks into the functions of a unit that have notes of them. Passes are done: what is
/// still defined gets code of its own.
pub(crate) fn put_late(context: &LlvmContext, unit: &Unit, nonlazybind: LLVMAttributeRef) {
    if !unit.has_late_hooks {
        return;
    }
    let (context, module) = (context.raw(), unit.module.raw());
    // SAFETY: walks the functions of a live module to the null end; what is declared
    // meanwhile comes last, and has no body.
    unsafe {
        let mut function = LLVMGetFirstFunction(module);
        while !function.is_null() {
            let emitted = LLVMIsDeclaration(function) == 0
                && LLVMGetLinkage(function) != LLVMLinkage::LLVMAvailableExternallyLinkage;
            for (_, [note, note_of], place) in LATE {
                if emitted && let Some(hook) = take_string_attribute(function, note) {
                    let of = take_string_attribute(function, note_of);
                    let declare = |name: &str| declared(context, module, name, nonlazybind);
                    let hook = Hook {
                        hook: declare(&hook),
                        function: of.map(|of| declare(&of)),
                    };
                    put(context, module, function, hook, place);
                }
            }
            function = LLVMGetNextFunction(function);
        }
    }
}

/// The function of that link name, declared if it is not there.
///
/// # Safety
/// A live module of that context.
unsafe fn declared(
    context: LLVMContextRef,
    module: LLVMModuleRef,
    name: &str,
    nonlazybind: LLVMAttributeRef,
) -> LLVMValueRef {
    // For some calling conventions names begin with LLVM's escape byte.
    for name in [c_name(name), c_name(&format!("\u{1}{name}"))] {
        // SAFETY: by the caller's promise, and a C string.
        let known = unsafe { LLVMGetNamedFunction(module, name.as_ptr()) };
        if !known.is_null() {
            return known;
        }
    }
    let name = c_name(name);
    // SAFETY: as above; a function type of the context.
    let new = unsafe {
        let nothing = LLVMFunctionType(
            LLVMVoidTypeInContext(context),
            std::ptr::null_mut(),
            0,
            i32::from(false),
        );
        LLVMAddFunction(module, name.as_ptr(), nothing)
    };
    add_function_attribute(new, nonlazybind);
    new
}

/// Puts calls of a hook into `body`.
///
/// # Safety
/// A live function with a body in a live module of that context, which has the hook too.
unsafe fn put(
    context: LLVMContextRef,
    module: LLVMModuleRef,
    body: LLVMValueRef,
    hook: Hook,
    place: Place,
) {
    // SAFETY: by the caller's promise. The builder is ours: what it is told of places in the
    // source does not reach other functions. It is positioned at instructions of the body;
    // static allocas behind the first call are still in the entry block, which is all that
    // makes them static.
    unsafe {
        let builder = Builder(LLVMCreateBuilderInContext(context));
        let mut block = LLVMGetFirstBasicBlock(body);
        if let Place::Entry = place {
            let first = LLVMGetFirstInstruction(block);
            if !first.is_null() {
                LLVMPositionBuilderBefore(builder.0, first);
                call(context, module, &builder, hook);
            }
            return;
        }
        while !block.is_null() {
            // A body that is named by its labels only was not verified.
            let end = LLVMGetBasicBlockTerminator(block);
            if !end.is_null() && LLVMGetInstructionOpcode(end) == LLVMOpcode::LLVMRet {
                LLVMPositionBuilderBefore(builder.0, musttail_before(end).unwrap_or(end));
                call(context, module, &builder, hook);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
}

/// The `musttail` call whose result, possibly cast, is returned: nothing may come between.
///
/// # Safety
/// A live return.
unsafe fn musttail_before(end: LLVMValueRef) -> Option<LLVMValueRef> {
    // SAFETY: by the caller's promise; calls are asked as such.
    unsafe {
        let mut before = LLVMGetPreviousInstruction(end);
        if !before.is_null() && LLVMGetInstructionOpcode(before) == LLVMOpcode::LLVMBitCast {
            before = LLVMGetPreviousInstruction(before);
        }
        let must = !before.is_null()
            && LLVMGetInstructionOpcode(before) == LLVMOpcode::LLVMCall
            && LLVMGetTailCallKind(before) == LLVMTailCallKind::LLVMTailCallKindMustTail;
        must.then_some(before)
    }
}

/// Builds a call of a hook.
///
/// # Safety
/// The builder is in a body of the module, which is of that context and has the hook.
unsafe fn call(context: LLVMContextRef, module: LLVMModuleRef, builder: &Builder, hook: Hook) {
    const RETURN_ADDRESS: &str = "llvm.returnaddress";
    // SAFETY: by the caller's promise; arrays have as many entries as is said of them.
    unsafe {
        let mut arguments = Vec::new();
        if let Some(function) = hook.function {
            let id = LLVMLookupIntrinsicID(RETURN_ADDRESS.as_ptr().cast(), RETURN_ADDRESS.len());
            let intrinsic = LLVMGetIntrinsicDeclaration(module, id, std::ptr::null_mut(), 0);
            let ty = LLVMGlobalGetValueType(intrinsic);
            let mut here = LLVMConstInt(LLVMInt32TypeInContext(context), 0, 0);
            let from = LLVMBuildCall2(builder.0, ty, intrinsic, &mut here, 1, c"".as_ptr());
            arguments.extend([function, from]);
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
        LLVMBuildCall2(builder.0, ty, hook.hook, arguments, count, c"".as_ptr());
    }
}

/// Attributes by which code generation leaves room to patch a function, and lists where that
/// is in tables of the file: XRay's sleds, and `-fpatchable-function-entry`.
const PATCHABLE: [&str; 4] = [
    "function-instrument",
    "patchable-function-entry",
    "patchable-function-prefix",
    "xray-instruction-threshold",
];

/// Has a version leave no room to be patched.
pub(crate) fn remove_patchable(function: LLVMValueRef) {
    for key in PATCHABLE {
        remove_string_attribute(function, key);
    }
}

/// The value of a string attribute, which goes; `None` if there is none, or an empty one.
fn take_string_attribute(function: LLVMValueRef, key: &str) -> Option<String> {
    let value = string_attribute(function, key);
    if value.is_empty() {
        return None;
    }
    remove_string_attribute(function, key);
    Some(value)
}

fn remove_string_attribute(function: LLVMValueRef, key: &str) {
    // SAFETY: a live function; pointer and length describe the key. One that is not there is
    // no matter.
    unsafe {
        LLVMRemoveStringAttributeAtIndex(
            function,
            LLVMAttributeFunctionIndex,
            key.as_ptr().cast(),
            key.len() as u32,
        );
    }
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
