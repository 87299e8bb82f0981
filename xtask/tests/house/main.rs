//! Guards of the structure and of the language: counts of today that may only fall.
//!
//! `counts.txt` holds for each guard and key the largest number that is allowed; what is not in it is
//! allowed nothing. `cargo xtask house` prints the totals; with `--lower` it writes the numbers of now
//! where they are lower, and never raises one.

mod counts;
mod sizes;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use counts::{CIRCLE, Count, Counts, LINES, SPREAD};
use source::Package;

/// Packages of the product.
const PACKAGES: [&str; 24] = [
    "runtime",
    "runtime/base",
    "runtime/baseline",
    "runtime/bitcode",
    "runtime/c",
    "runtime/codegen",
    "runtime/command",
    "runtime/files",
    "runtime/heap",
    "runtime/late",
    "runtime/leaving",
    "runtime/link",
    "runtime/live",
    "runtime/live/preload",
    "runtime/lower",
    "runtime/reclaim",
    "runtime/report",
    "runtime/roots",
    "runtime/session",
    "runtime/tools",
    "runtime/unwind",
    "stubs",
    "tiering",
    "profiler",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn list() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/house/counts.txt")
}

fn packages() -> Vec<Package> {
    let root = root().canonicalize().expect("the root");
    let read = |folder: &&str| Package::read(&root, folder).expect("a package has a root");
    PACKAGES.iter().map(read).collect()
}

/// All other Rust files that are not build products: name and text.
fn others(packages: &[Package]) -> Vec<(String, String)> {
    let known = packages.iter().flat_map(|package| &package.files);
    let known: BTreeSet<&str> = known.map(|file| file.name.as_str()).collect();
    let root = root().canonicalize().expect("the root");
    let mut folders = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let short = path.strip_prefix(&root).expect("below the root");
                let short = short.display().to_string();
                if !known.contains(short.as_str()) {
                    found.push((short, std::fs::read_to_string(&path).expect("text")));
                }
            }
        }
    }
    found
}

fn counted() -> Counts {
    let packages = packages();
    counts::of(&packages, &others(&packages))
}

/// The allowed numbers, by guard and key.
fn allowed() -> BTreeMap<(String, String), usize> {
    let text = std::fs::read_to_string(list()).unwrap_or_default();
    let entry = |line: &str| {
        let (number, rest) = line.split_once(' ')?;
        let (guard, key) = rest.split_once(' ')?;
        let number = number.parse().ok()?;
        Some(((guard.to_owned(), key.to_owned()), number))
    };
    text.lines().filter_map(entry).collect()
}

#[test]
fn no_count_has_risen() {
    let allowed = allowed();
    let mut findings = Vec::new();
    for ((guard, key), Count { number, places }) in counted() {
        let known = (guard.to_owned(), key.clone());
        let most = allowed.get(&known).copied().unwrap_or(0);
        if number > most {
            findings.push(format!(
                "{guard} {key}: {number}, {most} allowed; it is one of"
            ));
            findings.extend(places.into_iter().map(|place| format!("  {place}")));
        }
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// The table that `cargo xtask house` prints; with `URUK_HOUSE=lower` the list is written.
#[test]
#[ignore = "prints a table"]
fn table() {
    let counts = counted();
    if std::env::var("URUK_HOUSE").is_ok_and(|it| it == "lower") {
        lower(&counts);
    }
    let of = |guard: &'static str| counts.iter().filter(move |((it, _), _)| *it == guard);
    let sum = |guard| of(guard).map(|(_, count)| count.number).sum::<usize>();
    println!("| | now |\n|---|---|");
    println!("| functions over {LINES} lines | {} |", of("long").count());
    for ((_, package), count) in of("circle") {
        println!(
            "| files in one circle of imports, `{package}` (most: {CIRCLE}) | {} |",
            count.number
        );
    }
    println!(
        "| imports between rooms of `runtime/src` that run up | {} in {} pairs |",
        sum("up"),
        of("up").count()
    );
    for ((_, name), count) in of("spread") {
        println!(
            "| files with an `impl` of `{name}` (most: {SPREAD}) | {} |",
            count.number
        );
    }
    println!(
        "| type names used twice in a package | {} |",
        of("twice").count()
    );
    println!(
        "| comments that open with, or need, a word that names no component | {} |",
        sum("words")
    );
    println!(
        "| fields with a lock or an atomic that other rooms can reach | {} |",
        sum("shared")
    );
    for row in sizes::rows(&packages()) {
        println!("{row}");
    }
}

/// Writes the numbers of now where they are lower; all of them, if there is no list.
fn lower(counts: &Counts) {
    let allowed = allowed();
    let first = allowed.is_empty();
    let mut text = String::new();
    for ((guard, key), count) in counts {
        let known = allowed.get(&((*guard).to_owned(), key.clone()));
        let most = match first {
            true => count.number,
            false => count.number.min(known.copied().unwrap_or(0)),
        };
        if most != 0 {
            // A `String` takes all that is written to it.
            let _ = writeln!(text, "{most} {guard} {key}");
        }
    }
    std::fs::write(list(), text).expect("the list is written");
}

#[test]
fn guards_see_what_they_are_for() {
    let arrows: Vec<BTreeSet<usize>> = [vec![1], vec![2], vec![0], vec![0, 4], vec![]]
        .map(|to| to.into_iter().collect())
        .into();
    let mut circles = counts::circles_of(&arrows);
    circles.iter_mut().for_each(|circle| circle.sort_unstable());
    circles.sort_by_key(Vec::len);
    assert_eq!(circles.last(), Some(&vec![0, 1, 2]));
    let mut found = Counts::new();
    let text = "//! What it does.\n\n/// The kernel says so.\n/// Somebody reads it.\nfn f() {}\n// Whatsoever\n";
    counts::words("file.rs", text, &mut found);
    assert_eq!(found[&("words", String::from("file.rs"))].number, 2);
}
