//! Names that linkers define for a program: the starts and ends of its parts.
//!
//! | name | address |
//! |---|---|
//! | `__executable_start` | the first slot: functions have their addresses behind it |
//! | `etext`, `_etext`, `__etext` | the end of the memory for code |
//! | `__data_start`, `data_start` | the first variable of the image that has contents |
//! | `edata`, `_edata`, `__bss_start` | the end of those |
//! | `end`, `_end` | the end of all variables of the image |
//! | `__init_array_start` and the like, `__rela_iplt_start`, .. | both ends alike: the runtime has called what there was |
//! | `_GLOBAL_OFFSET_TABLE_` | the GOT of the image's data |
//! | `__ehdr_start` | an ELF header without segments |
//! | `_DYNAMIC` | a dynamic section with `DT_DEBUG`, as the executable has it |
//!
//! A program that defines such a name itself keeps its own, and a name of these comes before one
//! that a shared library exports, as with a linker.

use std::collections::HashSet;

use uruk_codegen::Linkage;
use uruk_heap::Pool;
use uruk_link::{Access, Content, LinkError, Object, Placed, Variables, undefined_names};
use uruk_session::Dylib;

use crate::code::names::{Definition, NewName};
use crate::host::loaded::loader_debug;
use crate::load::image::Image;
use crate::load::loader::Loader;

/// The ends of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edges {
    start: u64,
    text_end: u64,
    data: u64,
    zeros: u64,
    end: u64,
    got: u64,
}

/// Whether linkers define the name.
fn is_linkers(name: &str) -> bool {
    const NOWHERE: Edges = Edges {
        start: 0,
        text_end: 0,
        data: 0,
        zeros: 0,
        end: 0,
        got: 0,
    };
    NOWHERE.find(name).is_some() || HEADERS.contains(&name)
}

/// Names of tables that are made for a program that references them.
const HEADERS: [&str; 2] = ["__ehdr_start", "_DYNAMIC"];

impl Edges {
    /// The address of `name`, if it is one of these.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        Some(match name {
            "__executable_start" => self.start,
            "etext" | "_etext" | "__etext" => self.text_end,
            "__data_start" | "data_start" => self.data,
            "edata" | "_edata" | "__bss_start" => self.zeros,
            "end" | "_end" => self.end,
            "_GLOBAL_OFFSET_TABLE_" => self.got,
            "__preinit_array_start"
            | "__preinit_array_end"
            | "__init_array_start"
            | "__init_array_end"
            | "__fini_array_start"
            | "__fini_array_end"
            | "__rela_iplt_start"
            | "__rela_iplt_end" => self.data,
            _ => return None,
        })
    }
}

impl Loader {
    /// The ends of an image that was placed.
    pub(crate) fn edges(&self, placed: &Placed<'_>) -> Edges {
        let own = placed.edges();
        let none = self.heap.pool_range(Pool::ReadWrite).start;
        let (data, zeros, end) = match own.end > own.data.start {
            true => (own.data.start, own.data.end, own.end),
            false => (none, none, none),
        };
        Edges {
            start: self.heap.stub_region().slots_base(),
            text_end: self.heap.pool_range(Pool::Code).end,
            data,
            zeros,
            end,
            got: own.got,
        }
    }

    /// Whether a linker defines `name`, if referenced, for a program with this main dylib.
    pub(super) fn is_linkers(&self, dylib: &Dylib, name: &str) -> bool {
        // The process's answer is not a definition of the program.
        self.is_program()
            && is_linkers(name)
            && self.names.find(dylib, name) == self.names.find_own(self.names.host(), name)
    }

    /// Whether `name` is an address in a native program, defined by its linker.
    pub(crate) fn is_native(&self, dylib: &Dylib, name: &str) -> bool {
        let own = self.names.find_own(dylib, name);
        matches!(own, Some(Definition::Address(at)) if !self.heap.contains(at))
    }

    /// Names of linkers that modules of an image reference, and that have no definition.
    pub(super) fn edge_names(&self, dylib: &Dylib, image: &Image, edges: &Edges) -> Vec<NewName> {
        let mentioned = mentioned(image);
        let found = mentioned.into_iter().filter_map(|name| {
            let address = edges.find(name)?;
            let free = self.is_linkers(dylib, name);
            free.then(|| NewName::strong(name, Definition::Address(address)).hidden(true))
        });
        found.collect()
    }

    /// The linker-defined tables that an image references.
    pub(crate) fn headers(
        &self,
        dylib: &Dylib,
        image: &Image,
        objects: &[Object<'_>],
    ) -> Vec<(&'static str, Vec<u8>)> {
        let modules = mentioned(image);
        let (undefined, defined) = undefined_names(objects);
        let wanted = |name: &str| {
            let mentioned = modules.contains(name) || undefined.contains(name);
            mentioned && !defined.contains(name) && self.is_linkers(dylib, name)
        };
        let names = HEADERS.into_iter().filter(|name| wanted(name));
        let bytes = |name| match name {
            "_DYNAMIC" => dynamic_section(),
            _ => elf_header(),
        };
        names.map(|name| (name, bytes(name))).collect()
    }
}

/// Names that modules of an image declare and no module defines.
fn mentioned(image: &Image) -> HashSet<&str> {
    let mut found = HashSet::new();
    for (_, module) in &image.modules {
        let plan = module.plan();
        let symbols = module.readers.summary().symbols.iter();
        let declared = symbols.zip(&plan.imports).filter(|(info, import)| {
            matches!(info.linkage, Linkage::Declared | Linkage::DeclaredWeak)
                && !import.bound
                && is_linkers(&info.name)
        });
        found.extend(declared.map(|(info, _)| info.name.as_str()));
    }
    found
}

/// Puts such tables into an object of variables, whose next section is `first`.
pub(super) fn define_headers<'d>(
    headers: &'d [(&'static str, Vec<u8>)],
    variables: &mut Variables<'d>,
    first: u32,
) -> Result<(), LinkError> {
    for (section, (name, bytes)) in (first..).zip(headers) {
        variables.section(".data", Content::Bytes(bytes), 16, Access::Write)?;
        variables.define(name, section, 0, bytes.len() as u64, true)?;
    }
    Ok(())
}

/// `DT_DEBUG`, by which debuggers and programs find the list of libraries, and the end.
fn dynamic_section() -> Vec<u8> {
    const DT_DEBUG: u64 = 21;
    let entries = [DT_DEBUG, loader_debug(), 0, 0];
    entries.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The header of an executable of 64 bits for x86-64.
fn elf_header() -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    header[16..18].copy_from_slice(&3_u16.to_le_bytes());
    header[18..20].copy_from_slice(&62_u16.to_le_bytes());
    header[20..24].copy_from_slice(&1_u32.to_le_bytes());
    header[52..54].copy_from_slice(&64_u16.to_le_bytes());
    header[54..56].copy_from_slice(&56_u16.to_le_bytes());
    header
}
