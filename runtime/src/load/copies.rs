//! Copy relocations: variables of shared libraries that objects reach without the GOT.
//!
//! Compilers address variables of other files by distances or addresses of 32 bits unless they are
//! told that these may lie in a shared library (`-fPIC`). So a static linker gives the program a
//! copy of the variable, and the dynamic loader binds every library to the copy. Functions whose
//! address is taken that way are treated alike: the program's entry in its PLT is the address of
//! the function in the whole process.
//!
//! | place of the session | variables of libraries | action |
//! |---|---|---|
//! | near the libraries ([`Place::Near`](uruk_heap::Place)) | in reach of distances | none: program and libraries use the library's |
//! | elsewhere; below 2 GiB for `R_X86_64_32` | out of reach | a copy, to which libraries are redirected ([`preempt`](crate::guest::preempt)) |
//!
//! A copy has all names that the library has for the variable. It is made when the program starts,
//! from the library's current value: constructors of libraries have run. Pointers to the variable
//! in data of libraries are redirected to the copy, too; those in allocated memory are not.

use std::collections::HashSet;
use std::ffi::CString;

use uruk_link::{
    Access, Assembly, Content as Bytes, LinkError, Need, Object, Shortness, Variables,
    short_references,
};
use uruk_session::Dylib;

use crate::load::edges::define_headers;
use crate::load::image::Image;
use crate::load::loader::Loader;
use crate::load::own;
use crate::load::started::Content;
use crate::load::started::CopiedDefinition;

/// The name of the object with the copies, for errors.
const OBJECT: &str = "definitions of the linker";

/// Maximal alignment of a copy that is derived from the address of the variable.
const MOST_ALIGN: u64 = 64;

/// Code of an entry: `jmp *0(%rip)`, then the target address.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const ENTRY_SIZE: usize = 16;

/// The end of the range of 32-bit addresses.
const LOW: u64 = 1 << 31;

/// An entry of the program that leads to a function of a library.
struct PltEntry {
    name: CString,
    code: [u8; ENTRY_SIZE],
    /// Whether it is the function to which libraries bind the name.
    shared: bool,
}

/// The definitions that an image copies from libraries.
#[derive(Default)]
pub(crate) struct Copies {
    variables: Vec<CopiedDefinition>,
    entries: Vec<PltEntry>,
    /// Tables that linkers create.
    headers: Vec<(&'static str, Vec<u8>)>,
}

/// Definitions of copies, ready for the linker.
pub(crate) struct Defined<'c>(Variables<'c>, Vec<Assembly<'c>>);

impl Loader {
    /// The copies for symbols that the program's objects can reach only in their own image, and the
    /// definitions that a linker provides for an image of `objects`.
    pub(crate) fn copies(&self, dylib: &Dylib, image: &Image, objects: &[Object<'_>]) -> Copies {
        let mut copies = Copies {
            headers: self.headers(dylib, image, objects),
            ..Copies::default()
        };
        if !self.is_program() {
            return copies;
        }
        let mut done: HashSet<u64> = HashSet::new();
        for (name, short) in short_references(objects) {
            if own::is_one(name) || self.is_linkers(dylib, name) || self.names.is_own(dylib, name) {
                continue;
            }
            let Some(found) = self.resolve(dylib, name, Need::default()) else {
                continue;
            };
            let reached = self.reaches(found.address, short);
            if found.slot.is_some() || reached || self.heap.contains(found.address) {
                continue;
            }
            let process = self.process();
            let variable = process.variable(name);
            let libraries = process.find(name) == Some(found.address);
            drop(process);
            match variable.filter(|variable| variable.address == found.address) {
                Some(variable) => {
                    let (from, size) = (variable.address, variable.size);
                    if done.insert(from) && size != 0 {
                        let aliases = variable.names;
                        let content = Content::Variable {
                            from,
                            size,
                            aliases,
                        };
                        copies
                            .variables
                            .extend(CopiedDefinition::new(name, content));
                    }
                }
                None => copies
                    .entries
                    .extend(PltEntry::new(name, found.address, libraries)),
            }
        }
        copies
    }

    /// Whether fields of a shortness reach an address from all of the session's memory.
    fn reaches(&self, address: u64, short: Shortness) -> bool {
        let (start, end) = (self.heap.base(), self.heap.base() + self.heap.size() as u64);
        let farthest = address.abs_diff(start).max(address.abs_diff(end));
        (!short.absolute || address < LOW) && (!short.relative || farthest < LOW - (1 << 20))
    }
}

impl CopiedDefinition {
    fn new(name: &str, content: Content) -> Option<CopiedDefinition> {
        let name = CString::new(name).ok()?;
        Some(CopiedDefinition { name, content })
    }
}

impl PltEntry {
    fn new(name: &str, address: u64, shared: bool) -> Option<PltEntry> {
        let name = CString::new(name).ok()?;
        let mut code = [0xcc; ENTRY_SIZE];
        code[..JUMP.len()].copy_from_slice(&JUMP);
        code[JUMP.len()..JUMP.len() + 8].copy_from_slice(&address.to_le_bytes());
        Some(PltEntry { name, code, shared })
    }
}

impl Copies {
    /// The definitions, for the link of the image.
    pub(crate) fn define(&self) -> Result<Defined<'_>, LinkError> {
        let mut variables = Variables::new(OBJECT);
        let all = self.variables.iter().filter_map(|copied| match copied {
            CopiedDefinition {
                name,
                content:
                    Content::Variable {
                        from,
                        size,
                        aliases,
                    },
            } => Some((name, aliases, *from, *size)),
            _ => None,
        });
        for (index, (name, aliases, from, size)) in (0..).zip(all) {
            // The same estimate as static linkers make.
            let align = (1 << from.trailing_zeros().min(63)).min(MOST_ALIGN);
            variables.section(".bss", Bytes::Zeros(size), align, Access::Write)?;
            // The program may define one of the other names itself.
            let others = aliases.iter().filter(|alias| *alias != name);
            for name in others.chain([name]).filter_map(|name| name.to_str().ok()) {
                variables.define(name, index, 0, size, true)?;
            }
        }
        let count = self.variables.len() as u32;
        define_headers(&self.headers, &mut variables, count)?;
        let entries = self.entries.iter().map(|one| {
            let name = one.name.to_str().unwrap_or_default();
            Assembly::new(
                OBJECT,
                name,
                &one.code,
                ENTRY_SIZE as u64,
                ENTRY_SIZE as u64,
            )
        });
        let entries = entries.collect::<Result<_, _>>()?;
        Ok(Defined(variables, entries))
    }

    /// The definitions to which libraries are redirected.
    pub(crate) fn copied(self) -> Vec<CopiedDefinition> {
        let shared = self.entries.into_iter().filter(|entry| entry.shared);
        let functions = shared.map(|PltEntry { name, .. }| CopiedDefinition {
            name,
            content: Content::Function,
        });
        self.variables.into_iter().chain(functions).collect()
    }
}

impl Defined<'_> {
    /// Objects to be linked with those of the image; none if nothing was copied.
    pub(crate) fn objects(&self) -> Vec<Object<'_>> {
        let Defined(variables, entries) = self;
        let variables = (!variables.is_empty()).then(|| variables.object());
        let entries = entries.iter().map(Assembly::object);
        variables.into_iter().chain(entries).collect()
    }
}
