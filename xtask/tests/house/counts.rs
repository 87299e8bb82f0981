//! The counts of the source guards, by guard and key.
//!
//! | guard | key | number |
//! |---|---|---|
//! | `long` | file and function | lines of a function that has more than [`LINES`] |
//! | `circle` | package | files in the largest circle of imports, if more than [`CIRCLE`] |
//! | `up` | two rooms of the library | imports of one room from another that is not below it |
//! | `spread` | package and type | files with an inherent `impl` of it, if more than [`SPREAD`] |
//! | `twice` | package and type | files that define a type of that name, if more than one |
//! | `shared` | package | fields with a lock or an atomic that other rooms can reach |
//! | `words` | file | comments that open with, or need, a word that names no component |

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Ident, Item, Type};

use crate::source::{File, Package};

/// Lines that a function may have.
pub const LINES: usize = 70;
/// Files that may be in one circle of imports.
pub const CIRCLE: usize = 6;
/// Files that may have an inherent `impl` of one type.
pub const SPREAD: usize = 3;

/// Rooms of `runtime/src` by layer, from the lowest: a room imports from rooms of lower layers, and
/// not from others of its own layer, but that the library's facade, the last but one, is one house.
const LAYERS: [&[&str]; 19] = [
    &["error"],
    &["fork"],
    &["host"],
    &["events"],
    &["stacks"],
    &["code"],
    &["exits"],
    &["guarded"],
    &["version"],
    &["load"],
    &["loops"],
    &["speculation"],
    &["tiers"],
    &["tuning"],
    &["reclaim"],
    &["replace"],
    &["guest"],
    &["api", "calls", "session", "told", "units", "removal"],
    &["program"],
];
const FACADE: usize = 17;

/// A number of a guard, and where it comes from.
#[derive(Default)]
pub struct Count {
    pub number: usize,
    /// Lines for the reader: file, line, and what would be right.
    pub places: Vec<String>,
}

/// All numbers, by guard and key.
pub type Counts = BTreeMap<(&'static str, String), Count>;

/// Counts in packages of the product; in `others`, name and text of files of tests, tools and demos,
/// only comments.
pub fn of(packages: &[Package], others: &[(String, String)]) -> Counts {
    let mut counts = Counts::new();
    for (file, text) in others {
        words(file, text, &mut counts);
    }
    for package in packages {
        long_functions(package, &mut counts);
        circles(package, &mut counts);
        types(package, &mut counts);
        shared_state(package, &mut counts);
        for file in &package.files {
            words(&file.name, &file.text, &mut counts);
        }
        if package.folder == "runtime" {
            rooms(package, &mut counts);
        }
    }
    counts
}

/// Fields of structs with a lock or an atomic whose visibility is more than the parent module's: each
/// is state that no single file owns.
fn shared_state(package: &Package, counts: &mut Counts) {
    for file in &package.files {
        let structs = file.items.iter().filter_map(|item| match item {
            Item::Struct(item) => Some(item),
            _ => None,
        });
        for field in structs.flat_map(|item| &item.fields) {
            let reached = match &field.vis {
                syn::Visibility::Public(_) => true,
                syn::Visibility::Restricted(to) => !to.path.is_ident("super"),
                syn::Visibility::Inherited => false,
            };
            let Type::Path(of) = &field.ty else { continue };
            let Some(of) = of.path.segments.last().filter(|_| reached) else {
                continue;
            };
            let of = of.ident.to_string();
            if !(of == "Mutex" || of == "RwLock" || of.starts_with("Atomic")) {
                continue;
            }
            let line = field.span().start().line;
            let name = field
                .ident
                .as_ref()
                .map_or_else(String::new, Ident::to_string);
            let count = counts
                .entry(("shared", package.folder.clone()))
                .or_default();
            count.number += 1;
            let file = &file.name;
            let place = format!("{file}:{line}: `{name}` is a {of}: answer by methods");
            count.places.push(place);
        }
    }
}

struct Functions<'f> {
    file: &'f File,
    counts: &'f mut Counts,
}

impl Functions<'_> {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let name = &signature.ident;
        let (first, last) = (signature.span().start().line, body.span().end().line);
        let lines = last - first + 1;
        if lines > LINES {
            let file = &self.file.name;
            let place = format!("{file}:{first}: `{name}` has {lines} lines of {LINES}: split it");
            let count = self.counts.entry(("long", format!("{file} {name}")));
            let count = count.or_default();
            count.number = count.number.max(lines);
            count.places.push(place);
        }
    }
}

impl Visit<'_> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}

fn long_functions(package: &Package, counts: &mut Counts) {
    for file in &package.files {
        let mut functions = Functions { file, counts };
        file.items
            .iter()
            .for_each(|item| functions.visit_item(item));
    }
}

/// The largest set of files of which each imports from each other, over some way.
fn circles(package: &Package, counts: &mut Counts) {
    let arrows = package.arrows();
    let largest = circles_of(&arrows).into_iter().max_by_key(Vec::len);
    let Some(circle) = largest.filter(|circle| circle.len() > CIRCLE) else {
        return;
    };
    let names = circle.iter().map(|&at| package.files[at].name.clone());
    let count = counts
        .entry(("circle", package.folder.clone()))
        .or_default();
    count.number = circle.len();
    count.places = names
        .map(|name| format!("{name}: in a circle of imports"))
        .collect();
}

/// Strongly connected components, by Tarjan's algorithm.
pub fn circles_of(arrows: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    struct Walk<'a> {
        arrows: &'a [BTreeSet<usize>],
        number: Vec<Option<usize>>,
        least: Vec<usize>,
        stack: Vec<usize>,
        on_stack: Vec<bool>,
        next: usize,
        found: Vec<Vec<usize>>,
    }
    impl Walk<'_> {
        fn visit(&mut self, at: usize) {
            self.number[at] = Some(self.next);
            self.least[at] = self.next;
            self.next += 1;
            self.stack.push(at);
            self.on_stack[at] = true;
            for &to in &self.arrows[at] {
                match self.number[to] {
                    None => {
                        self.visit(to);
                        self.least[at] = self.least[at].min(self.least[to]);
                    }
                    Some(number) if self.on_stack[to] => {
                        self.least[at] = self.least[at].min(number);
                    }
                    Some(_) => {}
                }
            }
            if self.number[at] == Some(self.least[at]) {
                let first = self.stack.iter().rposition(|&it| it == at).unwrap_or(0);
                let circle = self.stack.split_off(first);
                circle.iter().for_each(|&it| self.on_stack[it] = false);
                self.found.push(circle);
            }
        }
    }
    let len = arrows.len();
    let mut walk = Walk {
        arrows,
        number: vec![None; len],
        least: vec![0; len],
        stack: Vec::new(),
        on_stack: vec![false; len],
        next: 0,
        found: Vec::new(),
    };
    for at in 0..len {
        if walk.number[at].is_none() {
            walk.visit(at);
        }
    }
    walk.found
}

fn layer(room: &str) -> Option<usize> {
    LAYERS.iter().position(|rooms| rooms.contains(&room))
}

fn rooms(package: &Package, counts: &mut Counts) {
    for (at, imported) in package.arrows().into_iter().enumerate() {
        let file = &package.files[at];
        let Some(from) = file.module.first() else {
            continue;
        };
        for to in imported {
            let other = &package.files[to];
            let Some(into) = other.module.first() else {
                continue;
            };
            let (Some(low), Some(high)) = (layer(from), layer(into)) else {
                continue;
            };
            if from == into || high < low || high == low && low == FACADE {
                continue;
            }
            let count = counts.entry(("up", format!("{from} {into}"))).or_default();
            count.number += 1;
            let (name, other) = (&file.name, &other.name);
            count.places.push(format!(
                "{name}: imports from {other}, which is not below it"
            ));
        }
    }
}

/// The name of the type that an inherent `impl` is of.
fn implemented(item: &Item) -> Option<String> {
    let Item::Impl(item) = item else { return None };
    let Type::Path(path) = &*item.self_ty else {
        return None;
    };
    let last = path.path.segments.last()?;
    item.trait_.is_none().then(|| last.ident.to_string())
}

fn defined(item: &Item) -> Option<&Ident> {
    match item {
        Item::Struct(it) => Some(&it.ident),
        Item::Enum(it) => Some(&it.ident),
        Item::Union(it) => Some(&it.ident),
        Item::Trait(it) => Some(&it.ident),
        Item::Type(it) => Some(&it.ident),
        _ => None,
    }
}

fn types(package: &Package, counts: &mut Counts) {
    let mut spread: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in &package.files {
        for item in &file.items {
            if let Some(name) = implemented(item) {
                spread.entry(name).or_default().insert(&file.name);
            }
            if let Some(name) = defined(item) {
                names
                    .entry(name.to_string())
                    .or_default()
                    .insert(&file.name);
            }
        }
    }
    let folder = &package.folder;
    let mut note = |guard, most: usize, all: BTreeMap<String, BTreeSet<&str>>, what: &str| {
        for (name, files) in all {
            if files.len() > most {
                let count = counts
                    .entry((guard, format!("{folder} {name}")))
                    .or_default();
                count.number = files.len();
                let places = files.iter().map(|file| format!("{file}: {what} `{name}`"));
                count.places = places.collect();
            }
        }
    };
    note("spread", SPREAD, spread, "another file with an `impl` of");
    note(
        "twice",
        1,
        names,
        "another type of the package that is named",
    );
}

/// Words that open no comment, as they name no component.
const OPENINGS: [&str; 8] = [
    "what",
    "who",
    "whoever",
    "whatever",
    "nobody",
    "somebody",
    "as there",
    "where there is",
];
/// Words that no comment needs.
const ANYWHERE: [&str; 3] = ["nobody", "somebody", "whoever"];

/// Counts blocks of comments.
pub fn words(file: &str, text: &str, counts: &mut Counts) {
    let mut block: Option<(usize, String)> = None;
    let lines = text.lines().map(Some).chain([None]).enumerate();
    for (at, line) in lines {
        let said = line.and_then(|line| {
            let said = line.trim_start().strip_prefix("//")?;
            Some(said.trim_start_matches(['/', '!']).trim())
        });
        match (said, &mut block) {
            (Some(said), Some((_, all))) if !said.is_empty() => {
                all.push(' ');
                all.push_str(said);
            }
            (Some(said), None) if !said.is_empty() => block = Some((at + 1, said.to_owned())),
            _ => {
                let Some((line, all)) = block.take() else {
                    continue;
                };
                if let Some(word) = bad_word(&all) {
                    let count = counts.entry(("words", file.to_owned())).or_default();
                    count.number += 1;
                    let place = format!("{file}:{line}: \"{word}\" names no component: {all}");
                    count.places.push(place);
                }
            }
        }
    }
}

fn bad_word(block: &str) -> Option<&'static str> {
    let block = block.to_lowercase();
    let opens = |word: &&&str| {
        let rest = block.strip_prefix(**word);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    let opening = OPENINGS.iter().find(opens);
    let words: BTreeSet<&str> = block.split(|c: char| !c.is_alphanumeric()).collect();
    let found = opening.or_else(|| ANYWHERE.iter().find(|word| words.contains(**word)));
    found.copied()
}
