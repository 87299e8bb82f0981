//! Programs that run code on their stacks: trampolines of functions with an environment (nested ones
//! of GNU C, internal procedures of Fortran), which a function writes into its own frame.
//!
//! Natively the linker says so in the executable (`PT_GNU_STACK`), if an object asks for it by the
//! flags of its section `.note.GNU-stack`, or has no such section, as of sources in assembly. LLVM sets
//! the flag where a module has `llvm.init.trampoline`. The C library then has the stacks of all threads
//! be executable. Here a library that is made for it asks for them.
//!
//! # Why
//! Only the C library knows the stacks that it keeps for threads to come. From glibc 2.41 on it makes
//! none executable for a library, unless the tunable `glibc.rtld.execstack` is 2.

use object::{Object, ObjectSection, SectionFlags, elf};
use tracing::warn;

use super::preempt::stand_in;
use crate::api::error::Error;
use crate::load::image::Image;

/// The section by which an object says whether code runs on its stack.
const NOTE: &str = ".note.GNU-stack";

/// How a program asks for executable stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asks {
    /// A file with trampolines, or that says so.
    Needs(String),
    /// A file that does not say.
    Silent(String),
}

/// Has stacks be executable if a file of `image` needs it.
///
/// # Errors
/// They cannot be.
pub(crate) fn prepare(image: &Image) -> Result<(), Error> {
    let (file, needed) = match asked_by(image) {
        None => return Ok(()),
        Some(Asks::Needs(file)) => (file, true),
        Some(Asks::Silent(file)) => (file, false),
    };
    match make_executable(&file) {
        Err(cause) if !needed => warn!(%cause, "no file says that code runs on the stack"),
        done => return done,
    }
    Ok(())
}

/// Has the stacks of all threads be executable, for `file`.
///
/// # Errors
/// A policy of the system, or the C library, refuses.
pub(crate) fn make_executable(file: &str) -> Result<(), Error> {
    stand_in::open_for_stacks().map_err(|why| Error::ExecutableStacks {
        file: file.to_owned(),
        why,
    })
}

fn asked_by(image: &Image) -> Option<Asks> {
    let trampolines = |name: &str| name.starts_with("llvm.init.trampoline");
    let module = image.modules.iter().find(|(_, module)| {
        let symbols = &module.readers.summary().symbols;
        symbols.iter().any(|symbol| trampolines(&symbol.name))
    });
    if let Some((_, module)) = module {
        return Some(Asks::Needs(module.readers.bitcode().name().to_owned()));
    }
    let mut silent = None;
    for (name, bytes) in &image.objects {
        match of_object(bytes) {
            Some(true) => return Some(Asks::Needs(name.clone())),
            Some(false) => {}
            None => silent = silent.or_else(|| Some(Asks::Silent(name.clone()))),
        }
    }
    silent
}

/// Whether an object says that code runs on the stack, if it says anything.
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
