//! Native callers whose code depends on the body that a function had when they were compiled.
//!
//! LLVM looks at the bodies of functions of the same file when it compiles their callers. A caller
//! omits an argument that the body ignores, uses a constant for a result that is always that
//! constant, and leaves out a comparison that the result decides. It keeps variables in registers
//! over a call that does not touch them, ends behind a call that does not return, and has no
//! cleanup for one that does not throw. Such a caller, with a thread still in it, must not reach a
//! new body that behaves differently.
//!
//! Functions that native code calls are not inlined here, as they were not in that place, and the
//! file is optimized in several ways:
//!
//! | | the called functions are |
//! |---|---|
//! | as it was | exact: the effects of their bodies are known |
//! | without knowledge | weak: only their types are known |
//! | as the new file has it | exact, with their new bodies |
//!
//! A caller whose code is the same in the first way and in one of the others is right for the new
//! bodies. The last comparison is repeated with output functions of the C library ([`WRITERS`])
//! known to leave the file's variables alone, as a line for a log is the most frequent addition. To
//! LLVM such a function does nothing. So a caller that omitted a call, and makes it for the new
//! body, is not accepted by this comparison.
//!
//! # Why
//! The inferences of LLVM are not compared themselves: their list is open, and callers use only few
//! of them.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use inkwell::llvm_sys::core::{
    LLVMCountParams, LLVMGetEnumAttributeAtIndex, LLVMGetEnumAttributeKindForName,
    LLVMGetEnumAttributeValue, LLVMGetLinkage, LLVMGetNumOperands, LLVMGetTailCallKind,
    LLVMRemoveCallSiteEnumAttribute, LLVMSetLinkage, LLVMSetTailCallKind,
};
use inkwell::llvm_sys::{
    LLVMAttributeFunctionIndex, LLVMAttributeReturnIndex, LLVMLinkage, LLVMOpcode, LLVMTailCallKind,
};
use uruk_base::Tier;

use super::bodies::{Body, code_of, stem};
use super::optimized::{OptimizedFile, calls, keep_different, mentions};
use crate::context::{LlvmContext, OwnedModule};
use crate::error::CodegenError;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::warm;

/// A file before and after an exchange.
#[derive(Debug, Clone, Copy)]
pub struct Versions<'b> {
    /// The bitcode that the native code was made of.
    pub native: &'b [u8],
    /// The bitcode of the new file.
    pub new: &'b [u8],
    /// Functions, by names without unique suffixes, whose native entries lead to new code, and
    /// which native code of the file calls.
    pub called: &'b HashSet<String>,
}

/// Callers whose native code is not right for new bodies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outdated {
    /// These, by their names in the native bitcode.
    Callers(Vec<String>),
    /// The new file has more instructions than are optimized for this.
    TooLarge,
}

/// Instructions of a file that is optimized: a second for as many, on one core.
const LARGEST: usize = 20_000;

/// The passes that clang runs, including all that may infer something from a body.
const PASSES: &str = "default<O3>";

/// Attributes of calls and arguments that do not change code.
const HINTS: [&str; 30] = [
    "noundef",
    "nonnull",
    "range",
    "returned",
    "captures",
    "noalias",
    "readonly",
    "writeonly",
    "readnone",
    "memory",
    "nounwind",
    "willreturn",
    "nofree",
    "nosync",
    "norecurse",
    "nocallback",
    "noreturn",
    "mustprogress",
    "dereferenceable",
    "dereferenceable_or_null",
    "align",
    "initializes",
    "dead_on_unwind",
    "dead_on_return",
    "writable",
    "nofpclass",
    "cold",
    "hot",
    "speculatable",
    "nodivergencesource",
];

/// Attributes that front ends give functions, results and arguments.
const TOLD: [&str; 10] = [
    "nounwind",
    "noreturn",
    "memory",
    "willreturn",
    "returns_twice",
    "nonnull",
    "noalias",
    "dereferenceable",
    "returned",
    "captures",
];

/// Functions of the C library that write their arguments, or query the system.
const WRITERS: [&str; 24] = [
    "printf",
    "fprintf",
    "vprintf",
    "vfprintf",
    "dprintf",
    "puts",
    "fputs",
    "putchar",
    "putc",
    "fputc",
    "fwrite",
    "fflush",
    "write",
    "perror",
    "syslog",
    "snprintf",
    "sprintf",
    "vsnprintf",
    "time",
    "clock",
    "clock_gettime",
    "gettimeofday",
    "getpid",
    "usleep",
];

/// A way in which a file is optimized.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Exact,
    Weak,
    /// Exact, and writers of the C library are known.
    Writing,
}

/// Knowledge of a file's native code, for a set of called functions: it is the same for all new
/// versions.
#[derive(Debug)]
pub struct NativeCallers {
    before: OptimizedFile,
    /// Functions whose code relies on the bodies of called functions.
    relying: Vec<String>,
    /// The code where writers of the C library are known; none if it was not optimized.
    writing: OnceLock<HashMap<String, Body>>,
    told: HashMap<String, FrontEndFacts>,
}

/// Analyses native code of a file; `None` if the file is too large. Under a
/// [`guard`](crate::fatal::guard).
///
/// # Errors
/// Bitcode that LLVM does not read, and no target.
pub fn native_callers(
    name: &str,
    native: &[u8],
    called: &HashSet<String>,
) -> Result<Option<NativeCallers>, CodegenError> {
    let optimized = |way| optimized(name, native, called, way);
    let Some(before) = optimized(Way::Exact)? else {
        return Ok(None);
    };
    let Some(unknown) = optimized(Way::Weak)? else {
        return Ok(None);
    };
    let mut relying: Vec<String> = before.code.keys().cloned().collect();
    keep_different(&mut relying, &before.code, &unknown.code);
    let context = LlvmContext::new()?;
    let module = super::read(&context, name, native)?;
    Ok(Some(NativeCallers {
        before,
        relying,
        writing: OnceLock::new(),
        told: told(&module, called).collect(),
    }))
}

/// Callers of `called` functions whose native code is not right for their new bodies. Under a
/// [`guard`](crate::fatal::guard).
///
/// # Errors
/// Bitcode that LLVM does not read, and no target.
pub fn outdated(
    name: &str,
    callers: &NativeCallers,
    versions: Versions<'_>,
) -> Result<Outdated, CodegenError> {
    let Versions {
        native,
        new,
        called,
    } = versions;
    let optimized = |bytes, way| optimized(name, bytes, called, way);
    let mut unfit = callers.relying.clone();
    let mut missing = Vec::new();
    if !unfit.is_empty() {
        let Some(after) = optimized(new, Way::Exact)? else {
            return Ok(Outdated::TooLarge);
        };
        keep_different(&mut unfit, &callers.before.code, &after.code);
        // A function with a new body of its own differs for any callee.
        unfit.retain(|name| callers.before.reaches_changed(&after, name, called));
        missing.clone_from(&unfit);
        missing.retain(|name| callers.before.misses(&after, name));
        unfit.retain(|name| !missing.contains(name));
    }
    if !unfit.is_empty() {
        if callers.writing.get().is_none()
            && let Some(before) = optimized(native, Way::Writing)?
        {
            // Another thread may have found the same.
            let _ = callers.writing.set(before.code);
        }
        if let (Some(before), Some(after)) = (callers.writing.get(), optimized(new, Way::Writing)?)
        {
            keep_different(&mut unfit, before, &after.code);
        }
    }
    unfit.append(&mut missing);
    unfit.extend(told_otherwise(name, &callers.told, versions)?);
    unfit.sort();
    unfit.dedup();
    Ok(Outdated::Callers(unfit))
}

/// Direct callers of functions that have lost a fact from the compiler's front end. The front end
/// uses such facts itself: clang calls a function that it has seen not to throw without a cleanup,
/// which no later pass could add.
fn told_otherwise(
    name: &str,
    native: &HashMap<String, FrontEndFacts>,
    versions: Versions<'_>,
) -> Result<Vec<String>, CodegenError> {
    if native.values().all(|before| before.facts.is_empty()) {
        return Ok(Vec::new());
    }
    let context = LlvmContext::new()?;
    let new = super::read(&context, name, versions.new)?;
    let after: HashMap<String, _> = told(&new, versions.called).collect();
    let mut callers = Vec::new();
    for (name, before) in native {
        let kept = after.get(name).is_some_and(|after| {
            let mut facts = before.facts.iter();
            facts.all(|fact| after.facts.contains(fact))
        });
        if !kept {
            callers.extend(before.callers.iter().cloned());
        }
    }
    Ok(callers)
}

/// Facts that a front end states about a function, and its callers.
#[derive(Debug)]
struct FrontEndFacts {
    /// Facts about the function, its result and its arguments: the place, the attribute, its value.
    facts: Vec<(u32, u32, u64)>,
    callers: Vec<String>,
}

fn told(
    module: &OwnedModule,
    called: &HashSet<String>,
) -> impl Iterator<Item = (String, FrontEndFacts)> {
    let kinds = TOLD.map(kind);
    let functions = module.functions().filter(|it| !it.is_declaration());
    let functions = functions.map(|it| (stem(&it.name()).to_owned(), it));
    let functions = functions.filter(|(name, _)| called.contains(name));
    functions.map(move |(name, function)| {
        // SAFETY: a live function; indices are those of its result, its arguments and itself.
        let facts = unsafe {
            let places = (LLVMAttributeReturnIndex..=LLVMCountParams(function.raw()))
                .chain([LLVMAttributeFunctionIndex]);
            let pairs = places.flat_map(|place| kinds.iter().map(move |&kind| (place, kind)));
            let found = pairs.filter_map(|(place, kind)| {
                let fact = LLVMGetEnumAttributeAtIndex(function.raw(), place, kind);
                (!fact.is_null()).then(|| (place, kind, LLVMGetEnumAttributeValue(fact)))
            });
            found.collect()
        };
        let users = function.users().filter_map(ValueRef::as_instruction);
        let callers = users.filter_map(InstructionRef::function);
        let callers = callers.map(|it| stem(&it.name()).to_owned()).collect();
        (name, FrontEndFacts { facts, callers })
    })
}

/// The code of a file's functions once it was optimized; `None` if the file is too large.
fn optimized(
    name: &str,
    bytes: &[u8],
    called: &HashSet<String>,
    way: Way,
) -> Result<Option<OptimizedFile>, CodegenError> {
    let context = LlvmContext::new()?;
    let mut module = super::read(&context, name, bytes)?;
    let instructions = module.functions().flat_map(FunctionRef::instructions);
    if instructions.take(LARGEST + 1).count() > LARGEST {
        return Ok(None);
    }
    let (mentioned, in_data) = mentions(&module);
    prepare(&module, called, way);
    let emitter = warm::emitter(Tier::Optimized)?;
    let run = emitter.run_passes(&mut module, PASSES);
    run.map_err(|message| super::unreadable(name, message))?;
    warm::keep([(Tier::Optimized, emitter)]);
    strip(&module);
    Ok(Some(OptimizedFile {
        calls: calls(&module, called),
        mentioned,
        in_data,
        code: code_of(&module.text()),
    }))
}

fn kind(name: &str) -> u32 {
    // SAFETY: pointer and length describe the name.
    unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
}

/// Keeps called functions from being inlined, and makes their bodies known or not.
fn prepare(module: &OwnedModule, called: &HashSet<String>, way: Way) {
    let (never, always) = (kind("noinline"), kind("alwaysinline"));
    for function in module.functions() {
        let name = function.name();
        if function.is_declaration() {
            if way == Way::Writing && WRITERS.contains(&name.as_str()) {
                leaves_variables_alone(function);
            }
            continue;
        }
        if way == Way::Writing {
            // LLVM would turn calls of some into calls of others, which have no such attributes.
            let names = WRITERS.map(|name| format!("no-builtin-{name}"));
            names.iter().for_each(|name| function.set_text(name, ""));
        }
        if !called.contains(stem(&name)) {
            continue;
        }
        function.remove(always);
        function.add(never);
        // SAFETY: a live function with a body.
        unsafe {
            let linkage = LLVMGetLinkage(function.raw());
            let is_exact = matches!(
                linkage,
                LLVMLinkage::LLVMExternalLinkage | LLVMLinkage::LLVMInternalLinkage
            );
            if is_exact && way == Way::Weak {
                LLVMSetLinkage(function.raw(), LLVMLinkage::LLVMWeakODRLinkage);
            }
        }
    }
}

/// Marks a function as reaching no memory known to a file except its arguments.
fn leaves_variables_alone(function: FunctionRef<'_>) {
    /// Two bits a kind of memory, set if it is read and written; the first kind is that of
    /// arguments. If it also had memory of its own, LLVM would treat it as a reader of all
    /// variables.
    const ARGUMENTS: u64 = 0b11;
    function.add_number(kind("memory"), ARGUMENTS);
    for name in ["nocallback", "nosync", "nofree", "nounwind", "willreturn"] {
        function.add(kind(name));
    }
}

/// Removes hints from calls, as only code is compared.
fn strip(module: &OwnedModule) {
    let kinds = HINTS.map(kind);
    let calls = module.functions().flat_map(FunctionRef::instructions);
    for call in calls.filter(|it| it.callee().is_some()) {
        strip_call(call, &kinds);
    }
}

fn strip_call(call: InstructionRef<'_>, kinds: &[u32]) {
    // SAFETY: a live call; more places than it has arguments are asked for.
    unsafe {
        let operands = LLVMGetNumOperands(call.raw()) as u32;
        let places = (LLVMAttributeReturnIndex..=operands).chain([LLVMAttributeFunctionIndex]);
        for place in places {
            for &kind in kinds.iter().filter(|kind| **kind != 0) {
                LLVMRemoveCallSiteEnumAttribute(call.raw(), place, kind);
            }
        }
        let is_tail = call.opcode() == LLVMOpcode::LLVMCall
            && LLVMGetTailCallKind(call.raw()) == LLVMTailCallKind::LLVMTailCallKindTail;
        if is_tail {
            LLVMSetTailCallKind(call.raw(), LLVMTailCallKind::LLVMTailCallKindNone);
        }
    }
}
