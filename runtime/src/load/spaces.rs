//! Label spaces: ranges of addresses, each of which represents a label of one function.
//!
//! Code and data that mention the address of a label have a place in the label space of its
//! function, so that it is the same in all versions and both compilers (`uruk_codegen`'s `labels`).
//! Nothing is stored there. A space is as long as its function has blocks, is made when it is first
//! linked against, and lives as long as the module.

use std::collections::HashMap;

use uruk_base::locks::Mutex;
use uruk_codegen::{SymbolId, labelled};
use uruk_heap::{Pool, Sealed};
use uruk_link::Resolved;

use crate::core::{Core, Module};

/// The label spaces of a module's functions.
#[derive(Default)]
pub(crate) struct LabelSpaces(Mutex<HashMap<SymbolId, Space>>);

struct Space(Option<Sealed>);

impl Space {
    fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, Sealed::address)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            // SAFETY: it is never read or written.
            unsafe { memory.release() };
        }
    }
}

impl Core {
    /// The label space of a symbol, if it is that of a function which one of `modules` defines: the
    /// chosen definition, if several do.
    pub(crate) fn label_space<'m>(
        &self,
        modules: impl Iterator<Item = &'m Module>,
        symbol: &str,
    ) -> Option<Resolved> {
        let link_name = labelled(symbol)?;
        let mut found = None;
        for module in modules {
            if let Some(function) = module.definition(link_name) {
                let counts = module.plan().import(function).defined;
                found = found.filter(|_| !counts).or(Some((module, function)));
                if counts {
                    break;
                }
            }
        }
        let (module, function) = found?;
        let spaces = || module.spaces.0.lock();
        if let Some(known) = spaces().get(&function) {
            return Some(Resolved::at(known.address()));
        }
        let size = module.readers.blocks(function)?;
        let draft = self.heap.allocate(Pool::ReadWrite, size, 1).ok()?;
        let space = Space(Some(draft.seal().ok()?));
        let mut spaces = spaces();
        // Another thread may have been first.
        let space = spaces.entry(function).or_insert(space);
        Some(Resolved::at(space.address()))
    }
}
