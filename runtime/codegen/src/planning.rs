//! Plans the content of a unit by reading, before anything is copied.
//!
//! All bodies are read before the first copy: instructions that were cloned but not yet remapped
//! make their old operands look used across modules. `candidates` describes which callees are
//! copied along.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use uruk_base::Tier;

use crate::compile::Compile;
use crate::error::CodegenError;
use crate::handles::{FunctionRef, InstructionRef};
use crate::library::Entry;
use crate::profile::{Profile, Refused};
use crate::reader::Verify;
use crate::source::Source;
use crate::summary::SymbolId;

/// A unit for one function.
pub(crate) struct CopyPlan<'r> {
    pub(crate) id: SymbolId,
    pub(crate) root: FunctionRef<'r>,
    /// True if it passes vectors in registers whose choice depends on the CPU's features.
    pub(crate) wide: bool,
    pub(crate) members: Vec<Member<'r>>,
    /// Callees that could be members.
    pub(crate) callees: u32,
    /// Functions of the module with profiles that fit.
    pub(crate) guided: Vec<(FunctionRef<'r>, Arc<Profile>)>,
    pub(crate) refused: Vec<Refused>,
}

/// A function that is defined along, for the optimizer.
#[derive(Clone, Copy)]
pub(crate) enum Member<'r> {
    /// A callee with a profile of its own, from its own body.
    Profiled(Profiled<'r>),
    /// A callee from its simplified body.
    Kept(SymbolId, &'r Entry),
    /// A body of another module, by its place among those offered.
    Offered(usize, FunctionRef<'r>),
}

/// A callee as the module has it.
#[derive(Clone, Copy)]
pub(crate) struct Profiled<'r> {
    pub(crate) id: SymbolId,
    pub(crate) function: FunctionRef<'r>,
    pub(crate) wide: bool,
    pub(crate) instructions: u32,
}

/// One decision in progress. It reads bodies, and makes nothing.
pub(crate) struct Planning<'r> {
    pub(crate) source: Source<'r>,
    pub(crate) how: &'r Compile,
    bodies_read: FxHashSet<FunctionRef<'r>>,
    /// Callees of the root that could be inlined, in the order of the first calls.
    pub(crate) direct: Vec<FunctionRef<'r>>,
    pub(crate) guided: Vec<(FunctionRef<'r>, Arc<Profile>)>,
    pub(crate) refused: Vec<Refused>,
}

impl<'r> Planning<'r> {
    pub(crate) fn new(source: Source<'r>, how: &'r Compile) -> Planning<'r> {
        Planning {
            source,
            how,
            bodies_read: FxHashSet::default(),
            direct: Vec::new(),
            guided: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Plans the unit of function `id`.
    pub(crate) fn function(mut self, id: SymbolId) -> Result<CopyPlan<'r>, CodegenError> {
        let root = self.source.reader.function(id)?;
        self.read_bodies(root)?;
        let (mut wide, mut members) = (false, Vec::new());
        if self.how.tier > Tier::Baseline {
            let scan = self.scan_root(root);
            wide = scan.wide;
            members = self.members(root, &scan)?;
        }
        Ok(CopyPlan {
            id,
            root,
            wide,
            members,
            callees: self.direct.len() as u32,
            guided: self.guided,
            refused: self.refused,
        })
    }

    /// Reads and verifies the body of `function` and of the `alwaysinline` functions to be copied
    /// with it.
    pub(crate) fn read_bodies(&mut self, function: FunctionRef<'r>) -> Result<(), CodegenError> {
        let reader = self.source.reader;
        let mut found = vec![function];
        while let Some(function) = found.pop() {
            if !self.bodies_read.insert(function) {
                continue;
            }
            reader.materialize(function, Verify::Yes)?;
            if reader.table().has_always_inline() {
                let callees = function.instructions().filter_map(InstructionRef::callee);
                let inline = callees.filter(|callee| self.source.is_inline_body(*callee));
                found.extend(inline.filter_map(|callee| callee.as_function()));
            }
        }
        Ok(())
    }
}
