//! `docs/threads.md` lists the ranks of locks that debug builds check: those of
//! `runtime/base/src/locks/ranks.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines between two headings of the page.
fn section(from: &str, to: &str) -> String {
    let page = read(&root().join("docs/threads.md"));
    let (_, rest) = page.split_once(from).expect("the first heading");
    let (section, _) = rest.split_once(to).expect("the second heading");
    section.to_owned()
}

/// Rank and name of each row of the page: `| 4 | `RESTING` | ...`.
fn rows() -> BTreeSet<(u8, String)> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let rank = cells.next()?.parse().ok()?;
        let name = cells.next()?.split('`').nth(1)?;
        Some((rank, name.to_owned()))
    };
    let section = section("### Locks with an order", "### Leaves");
    section.lines().filter_map(row).collect()
}

/// Rank, type and name of each line of the code: `4 Resting "RESTING",`.
fn ranks() -> Vec<(u8, String, String)> {
    let code = read(&root().join("runtime/base/src/locks/ranks.rs"));
    let (_, table) = code.split_once("\nranks! {").expect("the table of ranks");
    let rank = |line: &str| {
        let mut words = line.trim().splitn(3, ' ');
        let number = words.next()?.parse().ok()?;
        let type_name = words.next()?.to_owned();
        let name = words.next()?.trim_matches(['"', ',']).to_owned();
        Some((number, type_name, name))
    };
    table.lines().filter_map(rank).collect()
}

#[test]
fn the_page_lists_the_ranks_of_the_code() {
    let rows = rows();
    let ranks: BTreeSet<_> = ranks()
        .into_iter()
        .map(|(number, _, name)| (number, name))
        .collect();
    assert!(!ranks.is_empty());
    let extra: Vec<_> = rows.difference(&ranks).collect();
    let missing: Vec<_> = ranks.difference(&rows).collect();
    assert!(
        extra.is_empty() && missing.is_empty(),
        "docs/threads.md: not in the code: {extra:?}, not in the page: {missing:?}"
    );
}

#[test]
fn no_lock_with_a_rank_is_a_leaf() {
    let leaves = section("### Leaves", "### Words to wait for");
    let names: Vec<_> = ranks().into_iter().map(|(_, _, name)| name).collect();
    let both = |name: &&String| leaves.contains(&format!("`{name}`"));
    let both: Vec<_> = names.iter().filter(both).collect();
    assert!(both.is_empty(), "{both:?}");
}

/// The text of all Rust files of the packages that have locks.
fn sources(folder: &Path, into: &mut String) {
    let entries = std::fs::read_dir(folder).expect("a readable folder");
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push_str(&read(&path));
        }
    }
}

#[test]
fn each_rank_is_that_of_a_lock() {
    let mut text = String::new();
    for folder in ["runtime", "stubs", "tiering", "profiler"] {
        sources(&root().join(folder), &mut text);
    }
    for (_, rank, name) in ranks() {
        let used = text
            .match_indices(&format!("ranks::{rank}"))
            .any(|(at, found)| {
                let next = text[at + found.len()..].chars().next();
                next.is_some_and(|next| !next.is_alphanumeric())
            });
        assert!(used, "no lock has the rank of {name}");
    }
}
