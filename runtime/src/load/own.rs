//! Definitions that every image has of its own: the part of the C library that a static linker puts
//! into each executable and library, and the handle that identifies the image.
//!
//! | name | what it is | bytes |
//! |---|---|---|
//! | `__dso_handle` | a word that holds its own address, as that of a shared library does | 8 |
//! | `atexit`, `at_quick_exit` | `mov rsi, handle; mov rax, function; jmp rax` | 22 |
//! | `pthread_atfork` | `mov rcx, handle; mov rax, function; jmp rax` | 22 |
//!
//! It is made when an image is linked that references one of them, and is freed with the image and
//! the last code that was linked against it. Modules reference the names with a suffix
//! ([`SUFFIX`]), as they do local ones, so that a body that is inlined elsewhere still registers
//! for its own image. Object files reference them by the names themselves. If a dylib defines one
//! of these names itself, that definition is used, as by a linker.

use std::sync::Arc;

use uruk_codegen::{Linkage, ModulePlan, ModuleSummary};
use uruk_heap::Pool;
use uruk_link::Graph;
use uruk_session::{Dylib, Tracker};

use crate::code::handles::Handle;
use crate::code::names::{Definition, NewName};
use crate::error::Error;
use crate::exits;
use crate::load::holding::HeldParts;
use crate::load::image::Image;
use crate::load::loader::Loader;

/// The names, in the order of [`OwnDefinitions`].
const NAMES: [&str; 4] = ["__dso_handle", "atexit", "at_quick_exit", "pthread_atfork"];

/// The end of link names; the number of the image is before it.
const SUFFIX: &str = ".own";

/// Distance of one function from the next.
const STRIDE: usize = 32;

/// The addresses of an image's own definitions.
pub(crate) struct OwnDefinitions([u64; NAMES.len()]);

fn link_name(name: &str, image: u64) -> String {
    format!(
        "{name}{}{image}{SUFFIX}",
        crate::code::static_names::LOCAL_MARKER
    )
}

/// Whether a link name refers to some image's own definition.
pub(super) fn is_link_name(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// Whether each image has its own definition of a name.
pub(super) fn is_one(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Whether a plan references its image's own definitions.
fn mentions(plan: &ModulePlan) -> bool {
    plan.imports.iter().any(|import| is_link_name(&import.name))
}

/// A function that passes its arguments on, with a handle in the register that `load` (a `movabs`)
/// loads.
fn function(load: [u8; 2], handle: u64, target: u64) -> [u8; STRIDE] {
    // Filled with traps.
    let mut code = [0xcc; STRIDE];
    code[..2].copy_from_slice(&load);
    code[2..10].copy_from_slice(&handle.to_le_bytes());
    // mov rax, imm64; jmp rax
    code[10..12].copy_from_slice(&[0x48, 0xb8]);
    code[12..20].copy_from_slice(&target.to_le_bytes());
    code[20..22].copy_from_slice(&[0xff, 0xe0]);
    code
}

impl OwnDefinitions {
    /// The address of `name`, if it is one of these.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        let at = NAMES.iter().position(|own| *own == name)?;
        Some(self.0[at])
    }
}

impl Loader {
    /// Makes a module of image `image` reference that image's own definitions, and names in the
    /// versions that its assembly gives.
    pub(crate) fn plan_own(
        &self,
        dylib: &Dylib,
        summary: &ModuleSummary,
        plan: &mut ModulePlan,
        image: u64,
    ) {
        for (info, import) in summary.symbols.iter().zip(&mut plan.imports) {
            let undefined = info.linkage == Linkage::Declared && !import.bound;
            if undefined && self.is_own(dylib, &info.name) {
                import.name = link_name(&info.name, image).into();
            }
            let mut versions = summary.versions.iter();
            if undefined && let Some((_, name)) = versions.find(|(name, _)| **name == *info.name) {
                import.name.clone_from(name);
            }
        }
    }

    /// Whether an image in `dylib` has its own definition of `name`, if it references the name.
    pub(crate) fn is_own(&self, dylib: &Dylib, name: &str) -> bool {
        // The process's answer is not a definition of the program.
        NAMES.contains(&name)
            && self.names.find(dylib, name) == self.names.find_own(self.names.host(), name)
    }

    /// Makes an image's own definitions, if it or one of the object files in `graph` references
    /// them.
    pub(super) fn provide_own(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        graph: &Graph<'_>,
    ) -> Result<Option<OwnDefinitions>, Error> {
        let by_modules = image
            .modules
            .iter()
            .any(|(_, module)| mentions(&module.plan()));
        let dylib = &tracker.dylib();
        let by_objects = || {
            let mut undefined = graph.undefined();
            undefined.any(|undefined| self.is_own(dylib, undefined.name))
        };
        if !by_modules && (image.objects.is_empty() || !by_objects()) {
            return Ok(None);
        }
        let mut word = self.heap.allocate(Pool::ReadOnly, 8, 8)?;
        let handle = word.address();
        word.write(0, &handle.to_le_bytes())?;
        let functions = [
            ([0x48, 0xbe], exits::atexit_of as *const () as u64),
            ([0x48, 0xbe], exits::at_quick_exit_of as *const () as u64),
            ([0x48, 0xb9], exits::pthread_atfork_of as *const () as u64),
        ];
        let size = functions.len() * STRIDE;
        let mut code = self.heap.allocate(Pool::Code, size, STRIDE)?;
        for (index, (load, target)) in functions.into_iter().enumerate() {
            code.write(index * STRIDE, &function(load, handle, target))?;
        }
        let start = code.address();
        let at = |index: usize| start + (index * STRIDE) as u64;
        let own = OwnDefinitions([handle, at(0), at(1), at(2)]);
        let parts = HeldParts {
            memory: vec![code.seal()?, word.seal()?],
            handle: Some(Handle::new(handle, image.life.root())),
            ..HeldParts::default()
        };
        self.hold(tracker, image, parts, true)?;
        let names = NAMES.iter().zip(own.0).map(|(name, address)| {
            let name = link_name(name, image.suffix());
            NewName::strong(name, Definition::Address(address)).hidden(true)
        });
        self.define_names(tracker, image.remaining.as_deref(), names.collect())?;
        Ok(Some(own))
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, STRIDE, function, link_name};

    #[test]
    fn a_function_passes_on_its_handle() {
        let code = function([0x48, 0xbe], 0x1122_3344_5566_7788, 0x99);
        let wanted = "48be8877665544332211 48b89900000000000000 ffe0";
        let hex: String = code[..22]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, wanted.replace(' ', ""));
        assert!(code[22..].iter().all(|&byte| byte == 0xcc));
        assert_eq!(code.len(), STRIDE);
    }

    #[test]
    fn people_know_the_names_without_their_suffix() {
        for name in NAMES {
            assert_eq!(
                crate::code::static_names::display_name(&link_name(name, 7)),
                name
            );
        }
    }
}
