//! Programs that run code on their stacks: trampolines of functions with an environment (nested
//! functions of GNU C, internal procedures of Fortran), which a function writes into its own frame.
//!
//! Natively the linker marks the executable (`PT_GNU_STACK`), if an object requests it by the flags
//! of its section `.note.GNU-stack`, or lacks the section, as objects from assembly do. LLVM sets
//! the flag where a module has `llvm.init.trampoline`. The C library then makes the stacks of all
//! threads executable. Here the runtime makes a library that requests it.
//!
//! # Why
//! Only the C library knows the stacks that it caches for future threads. From glibc 2.41 on it
//! makes none executable for a library, unless the tunable `glibc.rtld.execstack` is 2.

use object::{Object, ObjectSection, SectionFlags, elf};
use tracing::warn;

use crate::error::Error;
use crate::host::stand_in;
use crate::load::image::Image;

/// The section by which an object says whether code runs on its stack.
const NOTE: &str = ".note.GNU-stack";

/// The kinds of request for executable stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StackRequest {
    /// A file with trampolines, or with the flag.
    Needs(String),
    /// A file without the section.
    Silent(String),
}

/// Makes stacks executable if a file of `image` needs it.
///
/// # Errors
/// They cannot be made executable.
pub(crate) fn prepare(image: &Image) -> Result<(), Error> {
    let (file, needed) = match asked_by(image) {
        None => return Ok(()),
        Some(StackRequest::Needs(file)) => (file, true),
        Some(StackRequest::Silent(file)) => (file, false),
    };
    match make_executable(&file) {
        Err(cause) if !needed => warn!(%cause, "no file says that code runs on the stack"),
        done => return done,
    }
    Ok(())
}

/// Makes the stacks of all threads executable, for `file`.
///
/// # Errors
/// A policy of the system, or the C library, refuses.
pub(crate) fn make_executable(file: &str) -> Result<(), Error> {
    stand_in::open_for_stacks().map_err(|why| Error::ExecutableStacks {
        file: file.to_owned(),
        why,
    })
}

fn asked_by(image: &Image) -> Option<StackRequest> {
    let trampolines = |name: &str| name.starts_with("llvm.init.trampoline");
    let module = image.modules.iter().find(|(_, module)| {
        let symbols = &module.readers.summary().symbols;
        symbols.iter().any(|symbol| trampolines(&symbol.name))
    });
    if let Some((_, module)) = module {
        return Some(StackRequest::Needs(
            module.readers.bitcode().name().to_owned(),
        ));
    }
    let mut silent = None;
    for (name, bytes) in &image.objects {
        match of_object(bytes) {
            Some(true) => return Some(StackRequest::Needs(name.clone())),
            Some(false) => {}
            None => silent = silent.or_else(|| Some(StackRequest::Silent(name.clone()))),
        }
    }
    silent
}

/// Whether an object needs an executable stack; `None` without the section.
fn of_object(bytes: &[u8]) -> Option<bool> {
    // It was linked, so it can be read.
    let object = object::File::parse(bytes).ok()?;
    let note = object.section_by_name(NOTE)?;
    match note.flags() {
        SectionFlags::Elf { sh_flags, .. } => {
            Some(sh_flags & elf::SHF_EXECINSTR == elf::SHF_EXECINSTR)
        }
        _ => None,
    }
}
