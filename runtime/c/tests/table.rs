//! Tests that `docs/c-api.md` names all of the header, and all of LLVM's C interfaces.

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use support::package;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The code-formatted words of the page's tables, by column.
fn columns(column: usize) -> BTreeSet<String> {
    let page = read(&package().join("../../docs/c-api.md"));
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(column).map(str::to_owned));
    let words = cells.flat_map(|cell| {
        let words: Vec<String> = cell
            .split('`')
            .skip(1)
            .step_by(2)
            .map(String::from)
            .collect();
        words
    });
    words.collect()
}

#[test]
fn the_table_names_what_the_headers_have() {
    let headers = ["uruk.h", "uruk-llvm.h"].map(|name| read(&package().join("include").join(name)));
    let words: BTreeSet<&str> = headers
        .iter()
        .flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect();
    let named = columns(2);
    let ours: Vec<_> = named
        .iter()
        .filter(|name| name.starts_with("uruk_"))
        .collect();
    assert!(ours.len() > 60, "only {ours:?}");
    let wrong: Vec<_> = ours
        .iter()
        .filter(|name| !words.contains(name.as_str()))
        .collect();
    assert!(wrong.is_empty(), "not in the headers: {wrong:?}");
}

#[test]
fn the_table_has_every_function_of_llvm() {
    let prefix = std::env::var("LLVM_SYS_221_PREFIX").unwrap_or_default();
    let folder = Path::new(&prefix).join("include/llvm-c");
    if prefix.is_empty() || !folder.is_dir() {
        eprintln!("the headers of LLVM 22 are not told of: not tried");
        return;
    }
    let named = columns(1);
    let mut missing = Vec::new();
    for header in [
        "ExecutionEngine.h",
        "Orc.h",
        "OrcEE.h",
        "LLJIT.h",
        "LLJITUtils.h",
    ] {
        let text = read(&folder.join(header));
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(') {
            let Some((name, _)) = word.split_once('(') else {
                continue;
            };
            if name.starts_with("LLVM") && !name.contains('_') && !named.contains(name) {
                missing.push(format!("{header}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "not in docs/c-api.md: {missing:#?}");
}
