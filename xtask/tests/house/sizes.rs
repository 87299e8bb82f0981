//! Sizes that are printed and not limited: the layers of the library, what it shows to all of its
//! rooms, and lines of code by package.

use syn::{ImplItem, Item, Type};

use crate::source::{File, Package};

/// The layers of the library that keep state, from the highest.
const STATE: [&str; 10] = [
    "Session",
    "Replacing",
    "Reclaim",
    "Tuning",
    "TierState",
    "Speculation",
    "Continuations",
    "Loader",
    "Compiler",
    "CodeDirectory",
];

/// Rows of the table.
pub fn rows(packages: &[Package]) -> Vec<String> {
    let mut rows = Vec::new();
    let mut total = 0;
    for package in packages {
        if package.folder == "runtime" {
            rows.extend(STATE.iter().map(|layer| of_layer(package, layer)));
            let shown = package.files.iter();
            let shown: usize = shown
                .map(|file| code(file).matches("pub(crate)").count())
                .sum();
            rows.push(format!("| `pub(crate)` in `runtime/src` | {shown} |"));
        }
    }
    for package in packages {
        let lines: usize = package.files.iter().map(lines).sum();
        total += lines;
        rows.push(format!("| lines of `{}` | {lines} |", package.folder));
    }
    rows.push(format!(
        "| lines of the product, without tests, comments and blanks | {total} |"
    ));
    rows
}

/// The row of a layer: its fields, methods, and files with an `impl` of it.
fn of_layer(package: &Package, layer: &str) -> String {
    let (mut fields, mut methods, mut files) = (0, 0, 0);
    for file in &package.files {
        let before = methods;
        for item in &file.items {
            match item {
                Item::Struct(item) if item.ident == layer => fields += item.fields.len(),
                Item::Impl(item) if item.trait_.is_none() && is(&item.self_ty, layer) => {
                    let functions = item.items.iter();
                    methods += functions.filter(|it| matches!(it, ImplItem::Fn(_))).count();
                }
                _ => {}
            }
        }
        files += usize::from(methods > before);
    }
    format!("| `{layer}`: fields, methods, files | {fields}, {methods}, {files} |")
}

fn is(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident(name))
}

/// The text of a file before its tests.
fn code(file: &File) -> &str {
    let tests = ["\n#[cfg(test)]\nmod ", "\n#[cfg(all(test"];
    let ends = tests.iter().filter_map(|tests| file.text.find(tests));
    let end = ends.min().unwrap_or(file.text.len());
    &file.text[..end]
}

/// Lines of code of a file, without tests, comments and blanks.
fn lines(file: &File) -> usize {
    let lines = code(file).lines().map(str::trim_start);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}
