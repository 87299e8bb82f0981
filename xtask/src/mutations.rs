//! The table of mutations: each takes one ordering, fence, check or order of steps out of a
//! lock-free part, and says which model fails then, or why none can.
//!
//! It has an entry for each access of its files that is not relaxed (a test sees to it), and
//! for each step of a protocol whose place among the others matters. Who adds one to the
//! sources adds it here; what no model misses is made relaxed, or left out, or explained.

pub mod fixes;
mod offers;
mod profiler;
mod roots;
mod session;
mod stubs;
mod stubs_gate;
mod unwind;

use anyhow::bail;

/// The expected result of a mutation.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// This test fails.
    Killed(&'static str),
    /// No model can fail, because of this.
    Equivalent(&'static str),
    /// It is in code that is not compiled under loom, because of this.
    NotModelled(&'static str),
}

/// One change of one file.
#[derive(Debug)]
pub struct Mutation {
    /// Names it, in all tables.
    pub name: &'static str,
    /// From the root of the workspace.
    pub file: &'static str,
    /// The text to replace; it occurs once in the file.
    pub find: &'static str,
    /// The replacement text.
    pub put: &'static str,
    /// The expected result of the mutation.
    pub fate: Fate,
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Mutation> {
    let tables: [&[Mutation]; 7] = [
        &stubs::TABLE,
        &stubs_gate::TABLE,
        &unwind::TABLE,
        &roots::TABLE,
        &session::TABLE,
        &profiler::TABLE,
        &offers::TABLE,
    ];
    tables.into_iter().flatten()
}

impl Mutation {
    /// The text of its file with the change.
    ///
    /// # Errors
    /// What it is to replace is not there, or more than once.
    pub fn apply(&self, text: &str) -> anyhow::Result<String> {
        match text.matches(self.find).count() {
            1 => Ok(text.replacen(self.find, self.put, 1)),
            times => bail!(
                "mutation {}: {} has its text {times} times, not once",
                self.name,
                self.file
            ),
        }
    }
}

/// An entry that a test kills.
const fn killed(
    name: &'static str,
    file: &'static str,
    [find, put]: [&'static str; 2],
    by: &'static str,
) -> Mutation {
    Mutation {
        name,
        file,
        find,
        put,
        fate: Fate::Killed(by),
    }
}

/// An entry that nothing can kill.
const fn equivalent(
    name: &'static str,
    file: &'static str,
    [find, put]: [&'static str; 2],
    why: &'static str,
) -> Mutation {
    Mutation {
        name,
        file,
        find,
        put,
        fate: Fate::Equivalent(why),
    }
}

/// An entry of code that no model contains.
const fn not_modelled(
    name: &'static str,
    file: &'static str,
    [find, put]: [&'static str; 2],
    why: &'static str,
) -> Mutation {
    Mutation {
        name,
        file,
        find,
        put,
        fate: Fate::NotModelled(why),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};
    use std::fs;
    use std::ops::Range;
    use std::path::{Path, PathBuf};

    use super::{Fate, all, fixes};
    use crate::model::{MODELS, Model};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// All Rust sources under a folder, in one text.
    fn sources(folder: &Path) -> String {
        let entries = fs::read_dir(folder).expect("a readable folder");
        let texts = entries.flatten().map(|entry| {
            let path = entry.path();
            match path.extension() {
                _ if path.is_dir() => sources(&path),
                Some(ending) if ending == "rs" => fs::read_to_string(&path).expect("a text"),
                _ => String::new(),
            }
        });
        texts.collect()
    }

    /// Orderings that are the model of something, not part of it.
    const STANDING_IN: [&str; 2] = [
        "core::sync::atomic::compiler_fence(Ordering::SeqCst)",
        "loom::sync::atomic::fence(Ordering::SeqCst)",
    ];

    /// The places of a file that mutations change, and those that need none.
    fn covered(file: &str, text: &str) -> Vec<Range<usize>> {
        let own = all().filter(|mutation| mutation.file == file);
        let finds = own.map(|mutation| mutation.find).chain(STANDING_IN);
        let range = |find: &str| text.find(find).map(|at| at..at + find.len());
        finds.filter_map(range).collect()
    }

    /// In each file that has mutations at all, what no model misses is relaxed.
    #[test]
    fn every_ordering_has_a_mutation() {
        let files: BTreeSet<&str> = all().map(|mutation| mutation.file).collect();
        let mut findings = Vec::new();
        for file in files {
            let text = fs::read_to_string(root().join(file)).expect("a source");
            let text = text.split("#[cfg(all(test").next().unwrap_or_default();
            let covered = covered(file, text);
            for ordering in ["Acquire", "Release", "AcqRel", "SeqCst"] {
                for (at, _) in text.match_indices(&format!("Ordering::{ordering}")) {
                    if !covered.iter().any(|range| range.contains(&at)) {
                        let line = text[..at].lines().count();
                        findings.push(format!("{file}:{line}: {ordering} without a mutation"));
                    }
                }
            }
        }
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }

    #[test]
    fn every_fault_of_the_fixes_applies() {
        for fault in &fixes::TABLE {
            let text = fs::read_to_string(root().join(fault.file)).expect("a source");
            let changed = fault.apply(&text).expect("the fix is in the file once");
            assert_ne!(changed, text, "{} changes nothing", fault.name);
        }
    }

    #[test]
    fn every_mutation_applies_and_names_a_test() {
        let mut names = HashSet::new();
        let mut findings = Vec::new();
        let tests: Vec<(&Model, String)> = MODELS
            .iter()
            .map(|model| (model, sources(&root().join(model.folder))))
            .collect();
        for mutation in all() {
            if !names.insert(mutation.name) {
                findings.push(format!("{} is there twice", mutation.name));
            }
            let text = fs::read_to_string(root().join(mutation.file)).unwrap_or_default();
            match mutation.apply(&text) {
                Ok(changed) if changed == text => {
                    findings.push(format!("{} changes nothing", mutation.name));
                }
                Ok(_) => {}
                Err(error) => findings.push(error.to_string()),
            }
            let own = |(model, _): &&(&Model, String)| mutation.file.starts_with(model.folder);
            let Some((_, tests)) = tests.iter().find(own) else {
                findings.push(format!("{} is of no package with models", mutation.name));
                continue;
            };
            if let Fate::Killed(by) = mutation.fate {
                let test = by.rsplit("::").next().unwrap_or(by);
                if !tests.contains(&format!("fn {test}()")) {
                    findings.push(format!("{}: there is no test {by}", mutation.name));
                }
            }
        }
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}
