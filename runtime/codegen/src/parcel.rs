//! Bodies for other modules: functions that one module offers to the inliner of another.
//!
//! Contexts share no data, so a body travels as bitcode: a module with one function, the simplified
//! body that the `library` has of it. All globals that the body mentions are declarations under
//! their *link names*, which are unique in a session. So a static variable, a string or a
//! thread-local of the original module stays that module's own, wherever the body is inlined.
//! `pack` makes parcels, `foreign` unpacks them.
//!
//! Invariants:
//! - A parcel is made from the bound definition, and holds as long as [`Parcel::uses`] does: each
//!   version that uses it depends on all of that.
//! - It mentions nothing but names a linker knows: no labels, no private copies, no
//!   metadata that leads to other globals.
//! - Constants it mentions come with their values if they are small.

pub(crate) mod pack;

use std::collections::HashSet;
use std::sync::Arc;

use crate::dependence::Dependence;
use crate::summary::SymbolId;

/// The simplified body of one function; see the module.
#[derive(Debug)]
pub struct Parcel {
    /// Identifies the parcel in its process.
    number: u64,
    name: Box<str>,
    bitcode: Box<[u8]>,
    /// Instructions after simplification.
    instructions: u32,
    mentions: Vec<Box<str>>,
    near: HashSet<Box<str>>,
    callees: Vec<Box<str>>,
    uses: Vec<Dependence>,
    has_assembly: bool,
}

impl Parcel {
    /// The function's link name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identifies the parcel in its process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// A module with the body.
    pub(crate) fn bitcode(&self) -> &[u8] {
        &self.bitcode
    }

    /// Instructions after simplification.
    #[must_use]
    pub fn instructions(&self) -> u32 {
        self.instructions
    }

    /// Link names of the functions it calls directly.
    pub fn callees(&self) -> impl Iterator<Item = &str> {
        self.callees.iter().map(|name| &**name)
    }

    /// Link names of all globals it mentions, which mean the same as in its own module.
    pub fn mentions(&self) -> impl Iterator<Item = &str> {
        self.mentions.iter().map(|name| &**name)
    }

    /// The symbols of its module that it was made of, the function itself included.
    #[must_use]
    pub fn uses(&self) -> &[Dependence] {
        &self.uses
    }

    /// True if it contains assembly, whose text may name symbols that are not in `mentions`.
    #[must_use]
    pub fn has_assembly(&self) -> bool {
        self.has_assembly
    }

    /// True for data that can be addressed directly.
    pub(crate) fn is_near(&self, name: &str) -> bool {
        self.near.contains(name)
    }
}

/// A body of another module, for one compile.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The body.
    pub parcel: Arc<Parcel>,
    /// Symbols of the module that is compiled which are bound to it.
    pub symbols: Vec<SymbolId>,
}
