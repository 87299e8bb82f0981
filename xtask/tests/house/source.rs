//! The source files of a package as modules, and which module imports which.
//!
//! A module is a file. Modules that are written inside a file belong to it, those under
//! `#[cfg(test)]` are left out: tests may import what they like.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, UseTree};

/// One file.
pub struct File {
    /// From the root of the repository.
    pub name: String,
    /// Path of its module in the package: `load::bind`; empty for the root.
    pub module: Vec<String>,
    pub text: String,
    /// The items of the file, without tests.
    pub items: Vec<Item>,
}

/// The files of one package that its root declares as modules.
pub struct Package {
    /// Its folder, from the root of the repository.
    pub folder: String,
    pub files: Vec<File>,
}

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let text = |attribute: &Attribute| match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        path.is_ident("test") || path.is_ident("cfg") && text(attribute).contains("test")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

impl Package {
    /// Reads the package in `folder`; nothing if it has no root of its own.
    pub fn read(root: &Path, folder: &str) -> Option<Package> {
        let source = root.join(folder).join("src");
        let mut files = Vec::new();
        for name in ["lib.rs", "main.rs"] {
            let path = source.join(name);
            if path.is_file() {
                read_file(root, &path, &source, Vec::new(), &mut files);
            }
        }
        let folder = folder.to_owned();
        (!files.is_empty()).then_some(Package { folder, files })
    }

    /// For each file, by its place, those that it imports from.
    pub fn arrows(&self) -> Vec<BTreeSet<usize>> {
        let places = self.files.iter().enumerate();
        let places: BTreeMap<&[String], usize> =
            places.map(|(at, file)| (&*file.module, at)).collect();
        let of_file = |(at, file): (usize, &File)| {
            let mut imports = Imports {
                module: &file.module,
                paths: Vec::new(),
            };
            file.items.iter().for_each(|item| imports.visit_item(item));
            let found = imports.paths.iter().filter_map(|path| find(&places, path));
            found.filter(|&to| to != at).collect()
        };
        self.files.iter().enumerate().map(of_file).collect()
    }
}

/// The file of the longest module that begins `path`.
fn find(places: &BTreeMap<&[String], usize>, path: &[String]) -> Option<usize> {
    let lengths = (0..=path.len()).rev();
    lengths
        .filter_map(|len| places.get(&path[..len]))
        .next()
        .copied()
}

fn read_file(root: &Path, path: &Path, folder: &Path, module: Vec<String>, files: &mut Vec<File>) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let name = path
        .strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string();
    let items = parsed.items.into_iter();
    let items: Vec<Item> = items.filter(|item| !is_test(attributes(item))).collect();
    let inner: Vec<(String, Option<PathBuf>)> = items.iter().filter_map(declared).collect();
    files.push(File {
        name,
        module: module.clone(),
        text,
        items,
    });
    for (name, place) in inner {
        let mut below = module.clone();
        below.push(name.clone());
        let named = place.map(|place| path.with_file_name(place));
        let places = [
            named.unwrap_or_else(|| folder.join(format!("{name}.rs"))),
            folder.join(&name).join("mod.rs"),
        ];
        if let Some(file) = places.iter().find(|place| place.is_file()) {
            read_file(root, file, &folder.join(&name), below, files);
        }
    }
}

/// The name of a module that is a file, and its place where that is given.
fn declared(item: &Item) -> Option<(String, Option<PathBuf>)> {
    let Item::Mod(ItemMod {
        ident,
        content: None,
        attrs,
        ..
    }) = item
    else {
        return None;
    };
    let place = attrs.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(text) => Some(PathBuf::from(text.value())),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    Some((ident.to_string(), place))
}

/// Collects paths that begin in the package.
struct Imports<'f> {
    module: &'f [String],
    paths: Vec<Vec<String>>,
}

impl Imports<'_> {
    fn note(&mut self, path: &[String]) {
        let mut base = self.module.to_vec();
        let mut rest = path;
        match path.first().map(String::as_str) {
            Some("crate") => base.clear(),
            Some("super") => {
                base.pop();
            }
            Some("self") => {}
            _ => return,
        }
        rest = &rest[1..];
        while rest.first().is_some_and(|name| name == "super") {
            base.pop();
            rest = &rest[1..];
        }
        base.extend_from_slice(rest);
        self.paths.push(base);
    }

    fn walk(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.walk(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|it| self.walk(it, before)),
            UseTree::Name(name) if name.ident == "self" => self.note(before),
            UseTree::Name(name) => self.note(&[&**before, &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => self.note(&[&**before, &[name.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.note(before),
        }
    }
}

impl Visit<'_> for Imports<'_> {
    fn visit_item(&mut self, item: &Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        self.walk(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        // A visibility, as `pub(crate)`, and a receiver import nothing.
        if names.len() > 1 {
            self.note(&names);
        }
        visit::visit_path(self, path);
    }
}
