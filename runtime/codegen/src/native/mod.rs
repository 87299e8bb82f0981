//! Modules of a program that was compiled and linked already: bound to what it has.
//!
//! A native program that carries its bitcode has one instance of each of its variables, and its
//! functions have addresses, which it may have stored. A module of it that is to be compiled
//! again must mean the same things. So it is *rebound*: a first walk says what the module defines
//! and who uses what ([`Survey`]); whoever knows the program's symbols decides what each name is
//! to mean ([`Choices`]); a second walk changes the module ([`edit`]).
//!
//! | of the module | becomes |
//! |---|---|
//! | a variable that the program has | a declaration of it; a constant keeps its value for the optimizer |
//! | a variable that the program has in parts | a declaration of each |
//! | a variable of which nobody can tell whose it is | the module's own |
//! | a thread-local of the executable | a distance from the thread pointer |
//! | a function that stays | a definition for the session, under the name it is given |
//! | a function of which another module's body counts | a copy for the optimizer |
//! | a function that may not be compiled | a declaration |
//! | a function's address, where it is not called | the address that the program knows |
//! | an alias | what it is another name of |
//! | an ifunc | a declaration: the program has resolved it |
//! | constructors, lists of what is used, assembly | nothing: they had their effect |
//!
//! # Why
//! Not by plans of the reader, which bind names when a body is copied: which *address* of a
//! function is meant depends on the use, and linkage and visibility decide what clang's bitcode
//! may be asked for. A module is read, changed and written once, before any of it is compiled:
//! 0.2 s for sqlite's 3 MB, on a thread of its own.

mod added;
mod bodies;
mod callers;
mod digests;
mod edit;
mod layouts;
mod optimized;
mod ordinals;
mod survey;
mod uses;

use inkwell::llvm_sys::bit_reader::{LLVMGetBitcodeModuleInContext2, LLVMParseBitcodeInContext2};
use inkwell::llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use inkwell::llvm_sys::core::{
    LLVMGetFirstGlobalIFunc, LLVMGetNamedMetadata, LLVMGetNextGlobalIFunc, LLVMGetSourceFileName,
};
use inkwell::llvm_sys::debuginfo::LLVMStripModuleDebugInfo;

use crate::context::{Buffer, LlvmContext, OwnedModule};
use crate::error::CodegenError;
use crate::handles::{ValueRef, c_name};
use crate::reader::read_body;
use crate::structure::Structure;
use uruk_bitcode::stream::Malformed;

pub use added::{Additions, only_added};
use layouts::Layouts;

pub use bodies::{Alias, Body, Contents, Method, Shape, contents};
pub use callers::{NativeCallers, Outdated, Versions, native_callers, outdated};
pub use layouts::Layout;
pub use ordinals::{is_numbered, without_ordinals};
pub use survey::{FunctionInfo, Plain, Survey, VariableInfo};
pub use uses::{Access, Uses};

/// What becomes of a function's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The session compiles it.
    Body,
    /// Optimizers may look at it.
    Copy,
    /// Nobody sees it.
    Nothing,
}

/// What a function of a module is to mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionChoice {
    /// The name of which it is called.
    pub name: String,
    /// What becomes of its body; without meaning for a declaration.
    pub keep: Keep,
    /// The name of the address that the program knows it by, where it is not called.
    pub address: Option<String>,
}

/// What a variable of a module is to mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableChoice {
    /// The module's own, of which nobody else knows.
    Own,
    /// The module's own, and a constant.
    Constant,
    /// What is found under that name.
    Named(String),
    /// The same, and the optimizer does not look at its value.
    Hidden(String),
    /// A thread-local at a distance from the thread pointer, in bytes.
    ThreadLocal(i64),
    /// Variables that the program has in its place: one for each access that the survey lists.
    Parts(Vec<Part>),
}

/// A variable that has the place of some bytes of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The bytes' place in the other one.
    pub offset: u64,
    /// How many they are.
    pub size: u64,
    /// Of what its address is a multiple: a power of two.
    pub align: u32,
    /// The name by which it is found.
    pub name: String,
}

/// What all of a module is to mean, in the order of its [`Survey`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choices {
    /// Of its functions.
    pub functions: Vec<FunctionChoice>,
    /// Of its variables.
    pub variables: Vec<VariableChoice>,
}

/// Rebinds a module; its new bitcode. Under a [`guard`](crate::fatal::guard).
///
/// # Errors
/// Bitcode that LLVM does not read; choices that are not as many as the survey asks for.
pub fn rebind(
    name: &str,
    bytes: &[u8],
    choose: impl FnMut(&Survey) -> Choices,
) -> Result<Vec<u8>, CodegenError> {
    let context = LlvmContext::new()?;
    let module = read(&context, name, bytes)?;
    rebound(&context, &module, name, choose)
}

/// Like [`rebind`], of a module that is first compared, by hashes of that `method`: `compare` tells
/// whether it is to go on. `choose` may be asked several times, the last time about the survey of all
/// bodies that are kept: of others, the survey may not say what they mention.
///
/// # Errors
/// As [`rebind`].
pub fn renew(
    name: &str,
    bytes: &[u8],
    method: Method,
    compare: impl FnOnce(Contents) -> bool,
    choose: impl FnMut(&Survey) -> Choices,
) -> Result<Vec<u8>, CodegenError> {
    let context = LlvmContext::new()?;
    let compared = bodies::compared(bytes, method);
    if compared.is_some() {
        check(name, bytes)?;
        let module = read_lazily(&context, name, bytes)?;
        // Types of variables of functions are told with the bodies.
        if !has_debug_information(&module) {
            let layouts = Layouts::default();
            let contents = bodies::contents_of(&module, layouts, compared, bodies::Bodies::Unread);
            return match compare(contents) {
                true => rebound(&context, &module, name, choose),
                false => Ok(Vec::new()),
            };
        }
    }
    let context = LlvmContext::new()?;
    let (module, layouts) = read_with_layouts(&context, name, bytes)?;
    let contents = bodies::contents_of(&module, layouts, compared, bodies::Bodies::Read);
    match compare(contents) {
        true => rebound(&context, &module, name, choose),
        false => Ok(Vec::new()),
    }
}

/// The names of functions that a module defines. Under a [`guard`](crate::fatal::guard).
///
/// # Errors
/// Bitcode that is damaged, or that LLVM does not read.
pub fn defined(name: &str, bytes: &[u8]) -> Result<Vec<String>, CodegenError> {
    check(name, bytes)?;
    let context = LlvmContext::new()?;
    let module = read_lazily(&context, name, bytes)?;
    let defined = module.functions().filter(|it| !it.is_declaration());
    Ok(defined.map(|it| it.name()).collect())
}

fn rebound(
    context: &LlvmContext,
    module: &OwnedModule,
    name: &str,
    mut choose: impl FnMut(&Survey) -> Choices,
) -> Result<Vec<u8>, CodegenError> {
    let resolvers = resolvers(module);
    let aliases = edit::replace_aliases(context, module.raw());
    let (survey, choices) = loop {
        let mut survey = survey::survey(module);
        survey.aliases = aliases.clone();
        mention_resolvers(&mut survey, &resolvers);
        let choices = choose(&survey);
        if !read_kept(module, &choices, name)? {
            break (survey, choices);
        }
    };
    let fits = choices.functions.len() == survey.functions.len()
        && choices.variables.len() == survey.variables.len()
        && choices
            .variables
            .iter()
            .zip(&survey.variables)
            .all(have_parts);
    if !fits {
        return Err(unreadable(name, "choices for another module".to_owned()));
    }
    edit::edit(context, module, &choices);
    // SAFETY: a live module; the buffer is ours.
    let written = unsafe { Buffer::from_raw(LLVMWriteBitcodeToMemoryBuffer(module.raw())) };
    match context.take_errors() {
        Some(message) => Err(unreadable(name, message)),
        None => Ok(written.bytes().to_vec()),
    }
}

/// Reads bodies that are kept and were not read; whether there were any.
fn read_kept(module: &OwnedModule, choices: &Choices, name: &str) -> Result<bool, CodegenError> {
    let kept = survey::functions(module).zip(&choices.functions);
    let mut unread = kept
        .filter(|(function, choice)| choice.keep != Keep::Nothing && function.is_unread())
        .map(|(function, _)| function)
        .peekable();
    let any = unread.peek().is_some();
    for function in unread {
        read_body(function).map_err(|message| unreadable(name, message))?;
    }
    Ok(any)
}

/// The ifuncs of a module by name, with the functions that choose for them.
fn resolvers(module: &OwnedModule) -> Vec<(String, String)> {
    let mut found = Vec::new();
    // SAFETY: walks the list of a live module to its null end.
    let mut next = unsafe { LLVMGetFirstGlobalIFunc(module.raw()) };
    while !next.is_null() {
        // SAFETY: a live ifunc of the module.
        let ifunc = unsafe { ValueRef::of(next) };
        let resolver = ifunc.resolver().map(|resolver| resolver.name());
        found.extend(resolver.map(|resolver| (ifunc.name(), resolver)));
        // SAFETY: as above.
        next = unsafe { LLVMGetNextGlobalIFunc(next) };
    }
    found
}

/// Has users of an ifunc mention the function that chooses for it: the optimizer may have chosen, and
/// inlined the choice.
fn mention_resolvers(survey: &mut Survey, resolvers: &[(String, String)]) {
    for (ifunc, resolver) in resolvers {
        let functions = survey.functions.iter();
        let names: Vec<&str> = functions.map(|info| info.name.as_str()).collect();
        let number = |name: &str| names.iter().position(|it| *it == name).map(|it| it as u32);
        let (Some(ifunc), Some(resolver)) = (number(ifunc), number(resolver)) else {
            continue;
        };
        let users = survey.functions.iter_mut();
        for info in users.filter(|info| info.functions.contains(&ifunc)) {
            info.functions.push(resolver);
            info.functions.sort_unstable();
            info.functions.dedup();
        }
    }
}

/// Whether a variable that becomes parts has one for each access.
fn have_parts((choice, info): (&VariableChoice, &VariableInfo)) -> bool {
    match (choice, &info.uses) {
        (VariableChoice::Parts(parts), Uses::Accessed(accesses)) => accesses.iter().all(|access| {
            let mut parts = parts.iter();
            parts.any(|part| (part.offset, part.size) == (access.offset, access.size))
        }),
        (VariableChoice::Parts(_), _) => false,
        _ => true,
    }
}

/// The source that a module says it was made of. Under a [`guard`](crate::fatal::guard).
///
/// # Errors
/// Bitcode that LLVM does not read.
pub fn source(name: &str, bytes: &[u8]) -> Result<String, CodegenError> {
    let context = LlvmContext::new()?;
    let module = read_lazily(&context, name, bytes)?;
    // SAFETY: the text is the live module's, of that length.
    unsafe {
        let mut length = 0;
        let start = LLVMGetSourceFileName(module.raw(), &mut length);
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), length);
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Reads a module without bodies. The bytes outlive it.
fn read_lazily(
    context: &LlvmContext,
    name: &str,
    bytes: &[u8],
) -> Result<OwnedModule, CodegenError> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the buffer, whom the module takes over, views bytes that outlive the module; `raw` is
    // written on success.
    let failed = unsafe {
        let buffer = Buffer::view(bytes, &c_name(name)).into_raw();
        LLVMGetBitcodeModuleInContext2(context.raw(), buffer, &mut raw)
    };
    if failed != 0 || raw.is_null() {
        let message = context.take_errors();
        return Err(unreadable(name, message.unwrap_or_default()));
    }
    // SAFETY: a live module, which is ours.
    Ok(unsafe { OwnedModule::new(raw) })
}

/// LLVM's reader ends the process on damage that can be found before.
fn check(name: &str, bytes: &[u8]) -> Result<(), CodegenError> {
    let checked = || {
        let structure = Structure::check(bytes)?;
        (0..structure.bodies.len()).try_for_each(|body| structure.check_body(bytes, body))
    };
    checked().map_err(|cause: Malformed| CodegenError::Malformed {
        module: name.to_owned(),
        bit: cause.bit,
        block: cause.block,
        message: cause.what.to_string(),
    })
}

fn unreadable(name: &str, message: String) -> CodegenError {
    CodegenError::Load {
        module: name.to_owned(),
        message,
    }
}

/// Reads all of a module, without what it says for debuggers: lines of functions that are compiled
/// again are those of the program's own debug information, which is not linked here.
fn read(context: &LlvmContext, name: &str, bytes: &[u8]) -> Result<OwnedModule, CodegenError> {
    let module = parse(context, name, bytes)?;
    strip(&module);
    Ok(module)
}

/// Like [`read`], with the layouts that the module tells debuggers.
fn read_with_layouts(
    context: &LlvmContext,
    name: &str,
    bytes: &[u8],
) -> Result<(OwnedModule, Layouts), CodegenError> {
    let module = parse(context, name, bytes)?;
    let layouts = layouts::of_debug_information(context, &module);
    strip(&module);
    Ok((module, layouts))
}

/// Takes from a module what it says for debuggers. To look for that in all instructions takes 30 ms for
/// sqlite, which a module without a unit of it need not.
fn strip(module: &OwnedModule) {
    if has_debug_information(module) {
        // SAFETY: a live module, which is ours.
        unsafe { LLVMStripModuleDebugInfo(module.raw()) };
    }
}

fn has_debug_information(module: &OwnedModule) -> bool {
    let units = c"llvm.dbg.cu";
    let length = units.to_bytes().len();
    // SAFETY: a live module; pointer and length describe the name.
    unsafe { !LLVMGetNamedMetadata(module.raw(), units.as_ptr(), length).is_null() }
}

fn parse(context: &LlvmContext, name: &str, bytes: &[u8]) -> Result<OwnedModule, CodegenError> {
    check(name, bytes)?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: the buffer lives until the module was read whole; `raw` is written on success.
    let failed = unsafe {
        let buffer = Buffer::view(bytes, &c_name(name));
        LLVMParseBitcodeInContext2(context.raw(), buffer.raw(), &mut raw)
    };
    if failed != 0 || raw.is_null() {
        let message = context.take_errors();
        let message = message.unwrap_or_else(|| "no message".to_owned());
        return Err(unreadable(name, message));
    }
    // SAFETY: a live module, which is ours.
    Ok(unsafe { OwnedModule::new(raw) })
}
