//! Weak definitions, and the definitions they yield to. The duration of that bond is defined in
//! [`bonds`](crate::code::bonds).
//!
//! When an image is bound, its weak definitions yield to the result of a search from its dylib:
//!
//! | definition | yields to |
//! |---|---|
//! | hidden, or tentative (`common`) | definitions of its own dylib |
//! | a weak function | definitions of its own dylib, and of the link order |
//! | weak data, weak thread-locals | these, and the process |
//! | weak data of a whole program | the process only if all definitions are equal (ODR) |
//! | weak data of an object that code reaches without the GOT | not the process: it is too far |
//!
//! A strong definition in a COMDAT group counts as weak: others may have a copy. Weak functions do
//! not yield to functions of the process: calls could then not be counted, replaced, or inlined. A
//! program comes before its libraries in a native search, but libraries of this process do not know
//! it; where all definitions are equal, both must use the same one.
//!
//! Data is in use from its link on: other data may hold its address, code its value. So a chosen
//! weak variable counts as strong from then on, and a later strong definition is a duplicate. A
//! weak function that was never looked up yields.

mod remain;

use std::collections::HashMap;

use uruk_codegen::{Kind, Linkage, SymbolInfo};

use crate::code::names::Definition;
use crate::load::input::ObjectSymbol;

/// The definitions to which those of an image could yield.
#[derive(Default)]
pub(crate) struct Surroundings {
    own: HashMap<Box<str>, Definition>,
    linked: HashMap<Box<str>, Definition>,
    all: HashMap<Box<str>, Definition>,
    thread_locals: HashMap<Box<str>, Definition>,
    program: bool,
}

/// The range of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchScope {
    Own,
    Linked,
    All,
    /// The link order, and thread-locals of the process.
    ThreadLocals,
}

#[cfg(test)]
impl Surroundings {
    /// Surroundings in which these names are data.
    pub(crate) fn with(names: &[&str]) -> Surroundings {
        let at = |name: &&str| (Box::from(*name), Definition::Address(64));
        let all: HashMap<_, _> = names.iter().map(at).collect();
        Surroundings {
            own: all.clone(),
            linked: all.clone(),
            all,
            ..Surroundings::default()
        }
    }
}

impl Surroundings {
    /// The definition to which that of a module yields.
    pub(super) fn of_symbol(&self, info: &SymbolInfo) -> Option<Definition> {
        self.find(reach_of_symbol(info, self.program)?, &info.name)
    }

    /// The definition to which that of an object file yields.
    pub(crate) fn of_object(&self, symbol: &ObjectSymbol) -> Option<Definition> {
        self.find(reach_of_object(symbol, self.program)?, &symbol.name)
    }

    fn find(&self, reach: SearchScope, name: &str) -> Option<Definition> {
        let found = match reach {
            SearchScope::Own => &self.own,
            SearchScope::Linked => &self.linked,
            SearchScope::All => &self.all,
            SearchScope::ThreadLocals => &self.thread_locals,
        };
        found.get(name).copied()
    }
}

/// Whether a definition of an object is private, although it is global: compilers give each object
/// a word of its own that leads to a personality, and linkers merge them.
pub(crate) fn is_own(definition: &uruk_link::Definition<'_>) -> bool {
    definition.hidden && definition.name.starts_with("DW.ref.")
}

fn reach_of_symbol(info: &SymbolInfo, program: bool) -> Option<SearchScope> {
    let grouped = info.linkage == Linkage::Strong && info.comdat.is_some();
    match info.linkage {
        Linkage::Common => Some(SearchScope::Own),
        Linkage::Weak | Linkage::Strong if info.linkage == Linkage::Weak || grouped => {
            Some(match info.kind {
                _ if info.hidden => SearchScope::Own,
                Kind::Data if !program || info.odr => SearchScope::All,
                Kind::ThreadLocal if !program || info.odr => SearchScope::ThreadLocals,
                _ => SearchScope::Linked,
            })
        }
        _ => None,
    }
}

fn reach_of_object(symbol: &ObjectSymbol, program: bool) -> Option<SearchScope> {
    match symbol {
        ObjectSymbol { strong: true, .. } => None,
        ObjectSymbol { common: true, .. } | ObjectSymbol { hidden: true, .. } => {
            Some(SearchScope::Own)
        }
        ObjectSymbol {
            thread_local: true,
            grouped,
            ..
        } if !program || *grouped => Some(SearchScope::ThreadLocals),
        // C++ puts its equal definitions into groups; no other mark exists.
        ObjectSymbol {
            data: true,
            far: true,
            grouped,
            ..
        } if !program || *grouped => Some(SearchScope::All),
        _ => Some(SearchScope::Linked),
    }
}
