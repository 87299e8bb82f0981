//! Rebinds modules of a program that was compiled and linked already to the program's own symbols.
//!
//! A native program that carries its bitcode has one instance of each of its variables, and its
//! functions have addresses, which it may have stored. A module that is compiled again must mean
//! the same objects. So it is *rebound*. A first walk lists the module's definitions and uses
//! ([`Survey`]). The caller, which knows the program's symbols, chooses the meaning of each name
//! ([`Choices`]). A second walk changes the module ([`edit`]).
//!
//! | of the module | becomes |
//! |---|---|
//! | a variable that the program has | a declaration of it; a constant keeps its value for the optimizer |
//! | a variable that the program has in parts | a declaration of each |
//! | a variable whose owner cannot be determined | the module's own |
//! | a thread-local of the executable | a distance from the thread pointer |
//! | a function that stays | a definition for the session, under the chosen name |
//! | a function whose body in another module is the bound one | a copy for the optimizer |
//! | a function that may not be compiled | a declaration |
//! | a function's address, where it is not called | the address that the program knows |
//! | an alias | its target |
//! | an ifunc | a declaration: the program has resolved it |
//! | constructors, lists of used globals, assembly | nothing: they had their effect |
//!
//! # Why
//! Plans of the reader, which bind names when a body is copied, are not enough. The *address* of a
//! function depends on the use, and linkage and visibility limit the changes that clang's bitcode
//! allows. A module is read, changed and written once, before any of it is compiled: 0.2 s for
//! sqlite's 3 MB, on a thread of its own.

mod added;
mod bodies;
mod callers;
mod digests;
mod edit;
mod layouts;
mod mentions;
mod optimized;
mod ordinals;
mod plain;
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
use crate::verifying::verify_module;
use uruk_bitcode::stream::Malformed;

pub use added::{Additions, only_added};
use layouts::Layouts;

pub use bodies::{Alias, Body, Contents, Method, Shape, contents};
pub use callers::{NativeCallers, Outdated, Versions, native_callers, outdated};
pub use layouts::TypeLayout;
pub use ordinals::{is_numbered, without_ordinals};
pub use plain::{PlainResult, PlainType};
pub use survey::{FunctionInfo, Survey, VariableInfo};
pub use uses::{Uses, VariableAccess};

/// The treatment of a function's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The session compiles it.
    Body,
    /// Optimizers may look at it.
    Copy,
    /// It is dropped.
    Nothing,
}

/// The chosen meaning of a function of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionChoice {
    /// The name by which it is called.
    pub name: String,
    /// The treatment of its body; without meaning for a declaration.
    pub keep: Keep,
    /// The name of the address that the program knows, for uses that are no calls.
    pub address: Option<String>,
}

/// The chosen meaning of a variable of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableChoice {
    /// The module's own, unknown outside.
    Own,
    /// The module's own, found by other modules under that name.
    Shared(String),
    /// The module's own, and a constant.
    Constant,
    /// The variable found under that name.
    Named(String),
    /// Like `Named`, but the optimizer does not see its value.
    Hidden(String),
    /// A thread-local at a distance from the thread pointer, in bytes.
    ThreadLocal(i64),
    /// Variables that the program has in its place: one for each access that the survey lists.
    Parts(Vec<Part>),
}

/// A variable that stands for some bytes of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The bytes' place in the other one.
    pub offset: u64,
    /// The number of bytes.
    pub size: u64,
    /// Alignment of its address: a power of two.
    pub align: u32,
    /// The name by which it is found.
    pub name: String,
}

/// The chosen meanings of all symbols of a module, in the order of its [`Survey`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choices {
    /// The choices for its functions.
    pub functions: Vec<FunctionChoice>,
    /// The choices for its variables.
    pub variables: Vec<VariableChoice>,
}

/// Rebinds a module; returns its new bitcode. Under a [`guard`](crate::fatal::guard).
///
/// # Errors
/// Bitcode that LLVM does not read; numbers of choices that do not match the survey.
pub fn rebind(
    name: &str,
    bytes: &[u8],
    choose: impl FnMut(&Survey) -> Choices,
) -> Result<Vec<u8>, CodegenError> {
    let context = LlvmContext::new()?;
    let module = read(&context, name, bytes)?;
    rebound(&context, &module, name, choose)
}

/// Like [`rebind`], of a module that is first compared, by hashes of that `method`: `compare`
/// returns whether to go on. `choose` may be called several times, the last time with the survey of
/// all bodies that are kept. The survey may lack the mentions of other bodies.
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
        // Types of variables of functions are read with the bodies.
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
        for info in &mut survey.functions {
            info.aliased = aliases.weakly.contains(&info.name);
            info.renamed = aliases.renamed.get(&info.name).cloned();
        }
        survey.aliases = aliases.names.clone();
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

/// Reads unread bodies that are kept; returns whether there were any.
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

/// The ifuncs of a module by name, with their resolvers.
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

/// Makes users of an ifunc mention its resolver: the optimizer may have resolved the ifunc, and
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

/// Whether a variable that is split has one part for each access.
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

/// The source file name that a module records. Under a [`guard`](crate::fatal::guard).
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

/// Reads and verifies a whole module, and reads what exchanges read of it besides: its debug
/// information. For a process of its own.
///
/// # Errors
/// Bitcode that is damaged, or that LLVM does not read; invalid IR.
pub fn inspect(name: &str, bytes: &[u8]) -> Result<(), CodegenError> {
    let context = LlvmContext::new()?;
    let module = parse(&context, name, bytes)?;
    if let Some(message) = verify_module(&module) {
        return Err(unreadable(name, message));
    }
    layouts::of_debug_information(&context, &module);
    Ok(())
}

/// Reads a module without bodies. The bytes outlive it.
fn read_lazily(
    context: &LlvmContext,
    name: &str,
    bytes: &[u8],
) -> Result<OwnedModule, CodegenError> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the module takes over the buffer, which views bytes that outlive the module; `raw` is
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

/// Checks for damage on which LLVM's reader would end the process.
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

/// Reads all of a module, without its debug information. Lines of functions that are compiled again
/// are those of the program's own debug information, which is not linked here.
fn read(context: &LlvmContext, name: &str, bytes: &[u8]) -> Result<OwnedModule, CodegenError> {
    let module = parse(context, name, bytes)?;
    strip(&module);
    Ok(module)
}

/// Like [`read`], with the layouts from the module's debug information.
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

/// Removes debug information from a module. The search in all instructions takes 30 ms for sqlite,
/// and is skipped if the module has no compile unit in it.
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
