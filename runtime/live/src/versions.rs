//! Two versions of a module, which are compared.

use std::collections::{HashMap, HashSet};

use uruk::live::rebound::{Body, Contents, Shape, VariableInfo};

use crate::choose::stem;

/// A module as it runs, and as the file has it; names are without the suffixes that make them unique.
#[derive(Default)]
pub(crate) struct Versions {
    pub(crate) old: Contents,
    pub(crate) new: Contents,
    /// The file's functions whose bodies are new.
    pub(crate) changed: HashSet<String>,
    /// Variables of the old version that came with exchanges.
    pub(crate) added: HashSet<String>,
    /// Variables that all files find, and that came with exchanges of any.
    pub(crate) brought: HashMap<String, Shape>,
}

impl Versions {
    /// Compares two versions; variables in `added` came with exchanges.
    pub(crate) fn of(
        old: Contents,
        added: HashSet<String>,
        brought: HashMap<String, Shape>,
        new: Contents,
    ) -> Versions {
        let bodies = new.functions.iter();
        let changed = bodies.filter(|(name, body)| old.functions.get(*name) != Some(body));
        Versions {
            changed: changed.map(|(name, _)| name.clone()).collect(),
            old,
            new,
            added,
            brought,
        }
    }

    /// The shape of a variable before: in this file, or as an exchange of another file brought it.
    pub(crate) fn before(&self, info: &VariableInfo, is_native: bool) -> Option<&Shape> {
        let own = self.old.variables.get(stem(&info.name));
        let brought = || self.brought.get(&info.name);
        own.or_else(|| brought().filter(|_| !is_native && !info.local))
    }

    /// Whether the program began with the variable.
    pub(crate) fn is_native(&self, info: &VariableInfo) -> bool {
        let name = stem(&info.name);
        self.old.variables.contains_key(name) && !self.added.contains(name)
    }

    /// Whether the program began with the variable, and other files find it.
    pub(crate) fn is_global_natively(&self, info: &VariableInfo) -> bool {
        let old = self.old.variables.get(stem(&info.name));
        self.is_native(info) && old.is_some_and(|old| !old.local)
    }

    /// The bodies of functions that are new.
    pub(crate) fn changed_bodies(&self) -> HashMap<String, Body> {
        let changed = self.changed.iter();
        let bodies =
            changed.filter_map(|name| Some((name.clone(), *self.new.functions.get(name)?)));
        bodies.collect()
    }
}
