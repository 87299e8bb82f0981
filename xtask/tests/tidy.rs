//! Rules that a test checks instead of a reviewer: layering, module docs, file sizes, no paths of a
//! machine in tracked files.

use std::path::{Path, PathBuf};

/// Which packages of ours a package may use, besides the outside world.
const LAYERS: [(&str, &[&str]); 31] = [
    ("runtime/base", &[]),
    ("runtime/files", &[]),
    ("runtime/link", &["uruk-base"]),
    ("runtime/heap", &["uruk-base", "uruk-files"]),
    ("runtime/baseline", &[]),
    ("runtime/bitcode", &[]),
    ("runtime/late", &[]),
    ("runtime/leaving", &[]),
    (
        "runtime/lower",
        &["uruk-baseline", "uruk-bitcode", "uruk-leaving"],
    ),
    ("runtime/unwind", &["uruk-base"]),
    ("runtime/session", &["uruk-base"]),
    (
        "runtime/codegen",
        &[
            "uruk-base",
            "uruk-baseline",
            "uruk-bitcode",
            "uruk-late",
            "uruk-leaving",
            "uruk-lower",
        ],
    ),
    ("runtime/report", &["uruk-base"]),
    ("runtime/reclaim", &["uruk-base"]),
    ("runtime/roots", &["uruk-base", "uruk-files"]),
    ("stubs", &["uruk-base", "uruk-heap"]),
    ("tiering", &["uruk-base"]),
    ("profiler", &["uruk-base", "uruk-files"]),
    ("runtime/tools", &["uruk-base", "uruk-files"]),
    ("runtime/live", &["uruk", "uruk-base", "uruk-files"]),
    ("runtime/live/preload", &["uruk", "uruk-live"]),
    ("runtime/live/locals", &[]),
    (
        "runtime/command",
        &["uruk", "uruk-files", "uruk-live", "uruk-report"],
    ),
    ("runtime/c", &["uruk", "uruk-files"]),
    (
        "runtime",
        &[
            "uruk-baseline",
            "uruk-codegen",
            "uruk-files",
            "uruk-heap",
            "uruk-late",
            "uruk-link",
            "uruk-base",
            "uruk-profiler",
            "uruk-reclaim",
            "uruk-roots",
            "uruk-report",
            "uruk-roots",
            "uruk-session",
            "uruk-stubs",
            "uruk-tiering",
            "uruk-tools",
            "uruk-unwind",
        ],
    ),
    ("runtime/testing", &[]),
    ("demos/guests", &[]),
    ("demos/gallery", &["uruk"]),
    ("demos/e2e", &["uruk-guests"]),
    ("demos", &["uruk-guests", "uruk-testing"]),
    ("xtask", &[]),
];

/// Lines a Rust file may have; longer wants a split, or a reason in its first paragraph.
const LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files of the checkout with one of the endings, build outputs left out.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .expect("a readable folder")
            .flatten()
        {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && name != ".git" && name != "cache" {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no file ends with any of {endings:?}");
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails with one line per finding.
fn report(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn packages_use_only_what_is_below_them() {
    let mut findings = Vec::new();
    for (folder, allowed) in LAYERS {
        let manifest = text(&root().join(folder).join("Cargo.toml"));
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let own = dependencies.split("\n[").next().unwrap_or_default();
        for line in own.lines().filter(|line| line.starts_with("uruk")) {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if !allowed.contains(&name) {
                findings.push(format!("{folder} must not use {name}"));
            }
        }
    }
    report(findings);
}

#[test]
fn every_rust_file_opens_with_its_purpose() {
    // Cases are programs whose first lines are directives.
    let bare = files(&[".rs"]).into_iter().filter(|path| {
        let case = path.components().any(|part| part.as_os_str() == "cases");
        !case && !text(path).starts_with("//!")
    });
    report(bare.map(|path| path.display().to_string()).collect());
}

#[test]
fn rust_files_stay_short() {
    let long = files(&[".rs"]).into_iter().filter_map(|path| {
        let lines = text(&path).lines().count();
        (lines > LINES).then(|| format!("{}: {lines} lines", path.display()))
    });
    report(long.collect());
}

#[test]
fn tracked_text_names_no_path_of_a_machine() {
    let folders = ["home", "root", "work", "tmp"].map(|name| format!("/{name}/"));
    let mut findings = Vec::new();
    for path in files(&[".rs", ".toml", ".md", ".c", ".cpp", ".ll", ".lua"]) {
        for (number, line) in text(&path).lines().enumerate() {
            let named = folders.iter().any(|folder| {
                line.match_indices(folder.as_str()).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    let after = line[at + folder.len()..].chars().next();
                    !before.is_some_and(|c| c.is_alphanumeric() || "_.".contains(c))
                        && after.is_some_and(|c| c.is_ascii_lowercase())
                })
            });
            if named {
                findings.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    report(findings);
}

#[test]
fn thinking_packages_forbid_unsafe_code() {
    for folder in [
        "runtime/link",
        "runtime/bitcode",
        "runtime/baseline",
        "runtime/lower",
        "runtime/session",
        "runtime/report",
        "runtime/reclaim",
        "tiering",
    ] {
        let library = text(&root().join(folder).join("src/lib.rs"));
        assert!(library.contains("#![forbid(unsafe_code)]"), "{folder}");
    }
}

/// Files of the library that may use `std`'s locks, and why no child of `fork` waits for them.
const STD_LOCKS: [(&str, &str); 17] = [
    ("runtime/base/src/locks/lock.rs", "wraps them"),
    ("runtime/src/fork/gate.rs", "held by who forks"),
    ("runtime/src/fork/mod.rs", "the gate's: held by who forks"),
    ("runtime/src/fork/unseen.rs", "the gate: held by who forks"),
    (
        "runtime/src/fork/sacrificial.rs",
        "one side is done with it before the other begins",
    ),
    ("runtime/command/", "the command, where no session is"),
    ("runtime/live/src/locked.rs", "held under a pass"),
    ("runtime/live/src/start.rs", "before the program begins"),
    (
        "runtime/live/src/session.rs",
        "one side is done with it before the other begins",
    ),
    ("runtime/live/src/swap.rs", "the same"),
    ("runtime/codegen/src/warm.rs", "nobody waits for it"),
    ("runtime/heap/src/", "held by who forks"),
    (
        "runtime/late/src/entries.rs",
        "as LLVM's own: held by who is inside",
    ),
    ("runtime/session/src/sync.rs", "behind a gate of its own"),
    ("runtime/unwind/src/", "held by who forks"),
    ("profiler/src/fake.rs", "samples of tests"),
    ("/tests.rs", "tests"),
];

/// The library's source files by their names from the root, each without the tests at its end.
fn library_code() -> Vec<(String, String)> {
    let folders = ["runtime/", "stubs/", "tiering/", "profiler/"];
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap_or(&path);
        let name = name.display().to_string();
        let library = folders.iter().any(|folder| name.starts_with(folder));
        let library = library && !name.starts_with("runtime/testing/");
        let code = || {
            let text = text(&path);
            let code = text.split("#[cfg(test)]\nmod").next();
            code.unwrap_or_default().to_owned()
        };
        (library && name.contains("src/")).then(|| (name, code()))
    };
    files(&[".rs"]).into_iter().filter_map(read).collect()
}

#[test]
fn locks_are_those_that_no_fork_finds_held() {
    let kinds = ["Mutex", "RwLock", "Condvar"];
    let mut findings = Vec::new();
    let mut used = 0;
    for (name, code) in library_code() {
        // Imports over several lines are one statement.
        for statement in code.split(';') {
            let Some((_, imported)) = statement.split_once("std::sync::") else {
                continue;
            };
            if kinds.iter().any(|kind| imported.contains(kind)) {
                used += 1;
                if !STD_LOCKS.iter().any(|(allowed, _)| name.contains(allowed)) {
                    findings.push(format!("{name}: a lock of std's, not of uruk-base"));
                }
            }
        }
    }
    assert!(used > 3, "the search finds nothing");
    report(findings);
}

/// Files of the library that open others as `std` does, and why no program closes those meanwhile.
const STD_FILES: [(&str, &str); 7] = [
    ("runtime/files/", "looks whose they are"),
    ("runtime/late/", "built before"),
    (
        "runtime/command/",
        "the command, or before the program begins",
    ),
    ("runtime/c/src/seeing.rs", "a call of the embedder's"),
    ("runtime/codegen/", "tests: it compiles what it is handed"),
    ("stubs/src/snapshot.rs", "tests"),
    ("tests.rs", "tests"),
];

#[test]
fn files_beside_a_program_are_those_that_it_may_close() {
    let kinds = [
        "std::fs::read",
        "std::fs::write",
        "std::fs::copy",
        "File::open(",
        "File::create(",
        "memfd_create(",
        "TcpListener::",
    ];
    let mut findings = Vec::new();
    let mut used = 0;
    for (name, code) in library_code() {
        for line in code.lines().filter(|line| !line.trim().starts_with("//")) {
            let ours = line.replace("OwnFile::", "");
            if kinds.iter().any(|kind| ours.contains(kind)) {
                used += 1;
                if !STD_FILES.iter().any(|(allowed, _)| name.contains(allowed)) {
                    findings.push(format!("{name}: {}: not by uruk-files", line.trim()));
                }
            }
        }
    }
    assert!(used > 3, "the search finds nothing");
    report(findings);
}

/// Files that ARCHITECTURE.md names, from the root, from `runtime/src`, or from its room `version`.
#[test]
fn the_map_names_files_that_exist() {
    let map = text(&root().join("ARCHITECTURE.md"));
    let quoted = map.split('`').skip(1).step_by(2);
    let named: Vec<&str> = quoted.filter(|name| name.ends_with(".rs")).collect();
    assert!(named.len() > 20, "only {named:?}");
    let missing = named.iter().filter(|name| {
        let mut places = ["", "runtime/src", "runtime/src/version"].into_iter();
        !places.any(|folder| root().join(folder).join(name).is_file())
    });
    report(missing.map(|name| (*name).to_owned()).collect());
    assert!(map.lines().count() <= 185, "a map fits on three pages");
}
