//! Functions of an optimized file, in the form that [`callers`](super::callers) compares.

use std::collections::{HashMap, HashSet};

use super::bodies::{Body, stem};
use crate::context::OwnedModule;
use crate::handles::InstructionRef;

/// A file's functions after optimization, by their names.
#[derive(Debug)]
pub(super) struct OptimizedFile {
    pub(super) code: HashMap<String, Body>,
    /// The called functions that each of them calls.
    pub(super) calls: HashMap<String, HashSet<String>>,
    /// The functions that each of them mentioned before.
    pub(super) mentioned: HashMap<String, HashSet<String>>,
    /// Functions that constants mentioned before, by which any other may reach them.
    pub(super) in_data: HashSet<String>,
}

impl OptimizedFile {
    /// Whether a function led to a called one, other than itself, whose code has changed.
    pub(super) fn reaches_changed(
        &self,
        after: &OptimizedFile,
        name: &str,
        called: &HashSet<String>,
    ) -> bool {
        let is_changed = |callee: &String| {
            let is_other = called.contains(callee) && callee != name;
            is_other && self.code.get(callee) != after.code.get(callee)
        };
        if self.in_data.iter().any(is_changed) {
            return true;
        }
        let mut seen = HashSet::from([name]);
        let mut left = vec![name];
        while let Some(function) = left.pop() {
            for callee in self.mentioned.get(function).into_iter().flatten() {
                if is_changed(callee) {
                    return true;
                }
                if seen.insert(callee) {
                    left.push(callee);
                }
            }
        }
        false
    }

    /// Whether a function calls one in another file that it does not call here.
    pub(super) fn misses(&self, other: &OptimizedFile, name: &str) -> bool {
        let Some(calls) = other.calls.get(name) else {
            return false;
        };
        let own = self.calls.get(name);
        calls
            .iter()
            .any(|callee| own.is_none_or(|own| !own.contains(callee)))
    }
}

/// The `called` functions that each function of a module calls.
pub(super) fn calls(
    module: &OwnedModule,
    called: &HashSet<String>,
) -> HashMap<String, HashSet<String>> {
    let functions = module.functions().filter(|it| !it.is_declaration());
    let calls = functions.map(|function| {
        let callees = function.instructions().filter_map(InstructionRef::callee);
        let names = callees.map(|callee| stem(&callee.name()).to_owned());
        let names = names.filter(|name| called.contains(name)).collect();
        (stem(&function.name()).to_owned(), names)
    });
    calls.collect()
}

/// The functions that each function of a module mentions, and those that constants do.
pub(super) fn mentions(
    module: &OwnedModule,
) -> (HashMap<String, HashSet<String>>, HashSet<String>) {
    let (mut mentioned, mut in_data) = (HashMap::<_, HashSet<String>>::new(), HashSet::new());
    for function in module.functions() {
        let name = stem(&function.name()).to_owned();
        for user in function.users() {
            match user.as_instruction().and_then(InstructionRef::function) {
                Some(user) => {
                    let user = stem(&user.name()).to_owned();
                    mentioned.entry(user).or_default().insert(name.clone());
                }
                None => drop(in_data.insert(name.clone())),
            }
        }
    }
    (mentioned, in_data)
}

/// Retains the names of functions whose code differs.
pub(super) fn keep_different(
    names: &mut Vec<String>,
    before: &HashMap<String, Body>,
    after: &HashMap<String, Body>,
) {
    names.retain(|name| before.get(name) != after.get(name));
}
