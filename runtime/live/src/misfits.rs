//! Finds differences of two versions of a source that no exchange can bridge, in their definitions.
//!
//! | of the source | another | is |
//! |---|---|---|
//! | order of lambdas, blocks or static variables that compilers number | order | refused: kept addresses and contents are by number |
//! | alias, ifunc | definition, or a function of that name in one version | refused: native code reached what it stood for |
//! | table of virtual functions | order or number of functions | refused: objects keep their tables |
//! | function that runs at the end | one more | refused: it would not run |
//! | class | bases | refused: objects keep their layout |
//! | static variable of a function | first value that is computed, or is not any more | refused: the mark that it was computed is another |
//! | weak function | body, where the program has a weak definition | refused: it may be another file's |
//! | variable in a section that linkers put together as a table | one more | refused: the program's table is made |

use std::collections::{BTreeMap, HashMap, HashSet};

use uruk::live::rebound::{
    Body, Contents, Shape, Survey, VariableInfo, is_numbered, without_ordinals,
};

use crate::choose::{Known, stem};
use crate::known::Module;
use crate::refused::SwapError;
use crate::versions::Versions;

/// The first difference, in the order of names.
///
/// # Errors
/// That difference.
pub(crate) fn check(versions: &Versions) -> Result<(), SwapError> {
    let Versions { old, new, .. } = versions;
    numbered(old, new)?;
    aliases(old, new)?;
    classes(old, new)?;
    guards(old, new)?;
    let mut ends = new.destructors.iter();
    match ends.find(|name| !old.destructors.contains(name)) {
        None => Ok(()),
        Some(name) => Err(SwapError::Destructor {
            function: name.clone(),
        }),
    }
}

/// Notes on structures whose layout differs. Variables of such types are refused; others may be in
/// memory that the program allocated.
pub(crate) fn layouts(versions: &Versions) -> Vec<String> {
    let differing = versions.new.types.iter().filter_map(|(name, new)| {
        let old = versions.old.types.get(name);
        let why = old.and_then(|old| old.difference(new))?;
        let shown = match name.strip_prefix("_ZTS") {
            Some(class) => format!("_Z{class}"),
            None => name.clone(),
        };
        Some(format!(
            "the structure `{shown}`, {why}: what the program has in memory is as it was"
        ))
    });
    let mut notes: Vec<String> = differing.collect();
    notes.sort();
    notes
}

/// The reason why a variable's kind, storage or alignment does not fit its shape before. Variables of the
/// program may become local or global, and are aligned as their addresses are.
pub(crate) fn kind(info: &VariableInfo, before: &Shape, versions: &Versions) -> Option<String> {
    let came = !versions.is_native(info);
    if info.thread_local != before.thread_local {
        let is = if before.thread_local { "a" } else { "no" };
        return Some(format!("which is {is} thread-local in the program"));
    }
    if came && info.defined && info.local != before.local {
        let (now, was) = match info.local {
            true => ("static", "found by other files"),
            false => ("found by other files", "static"),
        };
        return Some(format!("which is {now} here and {was} in the program"));
    }
    let by_type = info.thread_local || came;
    (by_type && info.align > before.align).then(|| {
        let (now, was) = (info.align, before.align);
        format!("which is aligned to {now} bytes here and to {was} in the program")
    })
}

/// The note on a variable that goes on with its contents.
pub(crate) fn other_value(name: &str) -> String {
    format!("the variable `{name}` keeps its contents: its initial value is another one")
}

/// A note on a variable that came with an exchange, if its initial value is another one now.
pub(crate) fn kept(
    info: &VariableInfo,
    before: Option<&Shape>,
    versions: &Versions,
) -> Option<String> {
    let name = stem(&info.name);
    let now = versions.new.variables.get(name).filter(|_| info.defined)?;
    (before?.value != now.value).then(|| other_value(name))
}

/// Notes on variables that are constants in the new version: compilers use their values.
pub(crate) fn constants(versions: &Versions) -> Vec<String> {
    let became = versions.new.variables.iter().filter(|(name, now)| {
        let before = versions.old.variables.get(*name);
        now.constant && before.is_some_and(|before| !before.constant)
    });
    let mut notes: Vec<String> = became
        .map(|(name, _)| {
            format!("`{name}` is a constant now: new code uses its value, other code its contents")
        })
        .collect();
    notes.sort();
    notes
}

/// Notes on changes of code that ran before `main`.
pub(crate) fn initializers(versions: &Versions) -> Vec<String> {
    let (old, new) = (&versions.old.functions, &versions.new.functions);
    let changed = new.iter().filter(|(name, body)| {
        let before = old.get(*name);
        name.starts_with(INITIALIZER) && before.is_some_and(|before| before != *body)
    });
    let note = "changed, and ran when the program started: it does not run again";
    let mut notes: Vec<String> = changed
        .map(|(name, _)| format!("`{name}` {note}"))
        .collect();
    notes.sort();
    notes
}

/// Names, grouped by their form without numbers.
fn groups<'n>(names: impl Iterator<Item = &'n String>) -> BTreeMap<String, Vec<&'n str>> {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        groups.entry(without_ordinals(name)).or_default().push(name);
    }
    groups.values_mut().for_each(|group| group.sort_unstable());
    groups
}

/// The first name that denotes in the other version a body or value that had another name.
fn shifted<'n>(
    old: &[&str],
    new: &[&'n str],
    is_same: impl Fn(&str, &str) -> bool,
) -> Option<&'n str> {
    let is_other = |name: &str| !is_same(name, name) && old.iter().any(|it| is_same(it, name));
    let mut moved = new.iter().filter(|name| old.contains(name));
    moved.find(|name| is_other(name)).copied()
}

fn numbered(old: &Contents, new: &Contents) -> Result<(), SwapError> {
    let refused = |name: &str| {
        Err(SwapError::Numbered {
            name: name.to_owned(),
        })
    };
    let (before, now) = (groups(old.code.keys()), groups(new.code.keys()));
    for (group, names) in &now {
        let Some(known) = before.get(group) else {
            continue;
        };
        let is_same = |old_name: &str, name: &str| old.code.get(old_name) == new.code.get(name);
        if let Some(name) = shifted(known, names, is_same) {
            return refused(name);
        }
    }
    let variables = |contents: &'_ Contents| -> Vec<String> {
        let all = contents
            .variables
            .iter()
            .filter(|(_, shape)| !shape.constant);
        all.map(|(name, _)| name.clone()).collect()
    };
    let (before, now) = (variables(old), variables(new));
    let (before, now) = (groups(before.iter()), groups(now.iter()));
    for (group, names) in &now {
        let Some(known) = before.get(group) else {
            continue;
        };
        if !known.iter().chain(names).any(|name| is_numbered(name)) {
            continue;
        }
        let is_same = |old_name: &str, name: &str| {
            let both = old.variables.get(old_name).zip(new.variables.get(name));
            both.is_some_and(|(old, new)| (old.size, old.value) == (new.size, new.value))
        };
        let first = names.first().copied().unwrap_or(group);
        match shifted(known, names, is_same) {
            Some(name) => return refused(name),
            None if known.len() != names.len() => return refused(first),
            None => {}
        }
    }
    Ok(())
}

fn aliases(old: &Contents, new: &Contents) -> Result<(), SwapError> {
    let names: BTreeMap<_, _> = new.aliases.iter().collect();
    let mut ended = new.functions.keys();
    let ended = ended.find(|name| old.aliases.contains_key(*name));
    if let Some(name) = ended.cloned() {
        return Err(SwapError::Alias { name });
    }
    for (name, now) in names {
        let Some(before) = old.aliases.get(name) else {
            // A function before.
            match old.functions.contains_key(name) {
                true => return Err(SwapError::Alias { name: name.clone() }),
                false => continue,
            }
        };
        let body = |contents: &Contents, name: &Option<String>| -> Option<Body> {
            contents.functions.get(stem(name.as_deref()?)).copied()
        };
        let chosen = body(old, &before.resolver) != body(new, &now.resolver);
        if before != now || chosen {
            return Err(SwapError::Alias { name: name.clone() });
        }
    }
    Ok(())
}

/// Changed weak functions of which the program has another file's definition.
///
/// # Errors
/// A function of which the program has a weak definition: this file's, or another one's.
pub(crate) fn weak(
    survey: &Survey,
    changed: &HashSet<String>,
    known: &Module,
) -> Result<Vec<String>, SwapError> {
    let mut overridden = Vec::new();
    for info in &survey.functions {
        let is_open = info.defined && info.weak && !info.same && !info.local;
        let function = stem(info.source_name()).to_owned();
        if !is_open || !changed.contains(&function) {
            continue;
        }
        let why = "is weak, and symbols do not tell whether the program's is this file's";
        match known.place(&info.name, false) {
            Some(place) if place.weak => {
                return Err(SwapError::Stays {
                    function,
                    why: why.to_owned(),
                });
            }
            Some(_) => overridden.push(function),
            None => {}
        }
    }
    Ok(overridden)
}

/// Guards: variables that say whether the first value of a static variable was computed.
fn guards(old: &Contents, new: &Contents) -> Result<(), SwapError> {
    const GUARD: &str = "_ZGV";
    let guarded = |contents: &Contents, name: &str| {
        let guard = name.strip_prefix("_Z").map(|rest| format!("{GUARD}{rest}"));
        guard.is_some_and(|guard| contents.variables.contains_key(&guard))
    };
    let shared = new
        .variables
        .keys()
        .filter(|name| old.variables.contains_key(*name));
    let mut other: Vec<&String> = shared
        .filter(|name| guarded(old, name) != guarded(new, name))
        .collect();
    other.sort();
    match other.first() {
        None => Ok(()),
        Some(&variable) => Err(SwapError::Computed {
            variable: variable.clone(),
            now: guarded(new, variable),
        }),
    }
}

/// Tables of virtual functions and descriptions of classes, by the class's name.
fn classes(old: &Contents, new: &Contents) -> Result<(), SwapError> {
    let refused = |class: &str| {
        let class = format!("_Z{class}");
        Err(SwapError::Virtual { class })
    };
    let names: BTreeMap<_, _> = new.variables.iter().collect();
    for (name, now) in names {
        let Some(before) = old.variables.get(name) else {
            continue;
        };
        if let Some(class) = name.strip_prefix("_ZTI")
            && (before.size, before.value) != (now.size, now.value)
        {
            return refused(class);
        }
        let Some(class) = name.strip_prefix("_ZTV") else {
            continue;
        };
        let places = |contents: &Contents| contents.tables.get(name).map(|it| places(it));
        let both = places(old).zip(places(new));
        let moved = both.is_some_and(|(old, new)| {
            let mut known = new
                .iter()
                .filter_map(|(name, at)| Some((old.get(name)?, at)));
            known.any(|(old, new)| old.is_some() && new.is_some() && old != new)
        });
        if before.size != now.size || moved {
            return refused(class);
        }
    }
    Ok(())
}

/// The index of each name that a table mentions; none for names mentioned twice.
fn places(table: &[String]) -> HashMap<String, Option<usize>> {
    let mut places = HashMap::new();
    for (at, name) in table.iter().enumerate() {
        let entry = places.entry(name.clone());
        entry.and_modify(|place| *place = None).or_insert(Some(at));
    }
    places
}

/// Whether linkers collect a section into a table: functions that run at start or end, and sections
/// whose names are identifiers, which code finds by `__start_NAME`.
fn is_table(section: &str) -> bool {
    const RUN: [&str; 5] = [
        ".preinit_array",
        ".init_array",
        ".fini_array",
        ".ctors",
        ".dtors",
    ];
    let is_identifier = |name: &str| {
        let mut letters = name.chars();
        letters
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    is_identifier(section) || RUN.iter().any(|name| section.starts_with(name))
}

/// Refuses new variables of tables that the program's linker made.
///
/// # Errors
/// The first.
pub(crate) fn entries(survey: &Survey, versions: &Versions) -> Result<(), SwapError> {
    let mut new = survey.variables.iter().filter(|info| {
        let is_known = versions.old.variables.contains_key(stem(&info.name));
        info.defined && !is_known && is_table(&info.section)
    });
    match new.next() {
        None => Ok(()),
        Some(info) => Err(SwapError::Section {
            name: stem(&info.name).to_owned(),
            section: info.section.clone(),
        }),
    }
}

/// Prefix of functions with which C++ compilers initialize one variable.
const INITIALIZER: &str = "__cxx_global_var_init";

/// The function with which a thread initializes the thread-locals of a file.
const THREAD_INITIALIZER: &str = "__tls_init";

/// Refuses functions that would have to run before `main`: new ones, and those that initialize variables
/// which the program does not have.
pub(crate) fn constructors(survey: &Survey, versions: &Versions) -> Result<(), SwapError> {
    let Versions {
        old, new, changed, ..
    } = versions;
    let is_constructor =
        |name: &str| new.constructors.iter().any(|it| it == name) || name.starts_with(INITIALIZER);
    for info in survey.functions.iter().filter(|info| info.defined) {
        let name = stem(info.source_name());
        if !is_constructor(name) || !changed.contains(name) {
            continue;
        }
        let made = info
            .variables
            .iter()
            .map(|&it| &survey.variables[it as usize]);
        let made = made.filter(|it| it.defined && !it.constant && !it.of_compiler);
        // Each thread initializes all thread-locals of a file at once: a thread that has initialized the
        // old ones does not initialize new ones.
        let is_late = !old.functions.contains_key(THREAD_INITIALIZER);
        let mut made = made.filter(|it| !(it.thread_local && is_late));
        let made = made.find(|it| !old.variables.contains_key(stem(&it.name)));
        let function = name.to_owned();
        if let Some(made) = made {
            let what = format!("the new variable `{}`", stem(&made.name));
            return Err(SwapError::Constructor { function, what });
        } else if !old.functions.contains_key(name) && new.constructors.contains(&function) {
            let what = "what the program has not".to_owned();
            return Err(SwapError::Constructor { function, what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{groups, is_table, places, shifted};

    #[test]
    fn sections_that_are_tables() {
        for name in [
            "tabl",
            "__tracepoints",
            ".init_array",
            ".init_array.5",
            ".ctors",
        ] {
            assert!(is_table(name), "{name}");
        }
        for name in ["", ".data", ".rodata.x", ".bss.y", "a.b"] {
            assert!(!is_table(name), "{name}");
        }
    }

    #[test]
    fn orders_are_compared_by_contents() {
        let names = ["f.n", "f.n.1", "g"].map(str::to_owned);
        let groups = groups(names.iter());
        assert_eq!(groups["f.n"], ["f.n", "f.n.1"]);
        let all = ["a", "b", "c"];
        let of = |values: [u8; 3]| {
            let is_same = move |old: &str, new: &str| {
                let at = |name: &str| all.iter().position(|it| *it == name);
                at(old).map(|at| [1, 2, 3][at]) == at(new).map(|at| values[at])
            };
            shifted(&all, &all, is_same)
        };
        assert_eq!(of([1, 2, 3]), None);
        assert_eq!(of([1, 5, 3]), None);
        assert_eq!(of([9, 1, 2]), Some("b"));
        assert_eq!(of([2, 1, 3]), Some("a"));
        let table = ["x", "y", "x"].map(str::to_owned);
        assert_eq!(places(&table)["y"], Some(1));
        assert_eq!(places(&table)["x"], None);
    }
}
