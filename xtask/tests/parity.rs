//! `docs/orc-parity.md` names items that exist, and all functions of the main handles.
//!
//! Found by simple rules of text: an item is public if `runtime/src/lib.rs` exports its name; a
//! function is one of a type if it stands in a block `impl TYPE {` or `trait TYPE` of the library,
//! or of a package whose type the library exports. Formatting (`cargo fmt`) makes that so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Types whose every public function is in the table.
const HANDLES: [&str; 7] = [
    "Jit",
    "Dylib",
    "Tracker",
    "Responsibility",
    "ReoptimizeRequest",
    "GeneratorRequest",
    "Lookup",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The Rust files under a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).expect("a readable folder");
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

/// The identifier at the beginning of a text.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Public members of types, by the type's name.
type Members = BTreeMap<String, BTreeSet<String>>;

/// The name after `pub`, a qualifier and one of `kinds`, if the line declares such an item.
fn item<'a>(line: &'a str, public: bool, kinds: &[&str]) -> Option<&'a str> {
    let rest = match public {
        true => line.strip_prefix("pub ")?,
        false => line,
    };
    for qualifier in ["const fn ", "unsafe fn ", "async fn "] {
        if let Some(name) = rest.strip_prefix(qualifier) {
            return kinds.contains(&"fn").then(|| identifier(name));
        }
    }
    kinds.iter().find_map(|kind| {
        let name = rest.strip_prefix(kind)?.strip_prefix(' ')?;
        Some(identifier(name))
    })
}

/// The types of a file with their members: functions and constants of `impl` and `trait` blocks,
/// variants of enums. Types without members count, too.
fn members_in(text: &str, members: &mut Members) {
    // The block's type, and whether its items say `pub` themselves.
    let mut block: Option<(String, bool)> = None;
    for line in text.lines() {
        if line.starts_with('}') {
            block = None;
        } else if let Some(rest) = line.strip_prefix("impl") {
            // Past the parameters; blocks for traits have nothing of their own.
            let rest = match rest.strip_prefix('<') {
                Some(parameters) => parameters.split_once("> ").map_or("", |(_, rest)| rest),
                None => rest.trim_start(),
            };
            let of_trait = rest.contains(" for ");
            block = (!of_trait).then(|| (identifier(rest).to_owned(), true));
        } else if let Some(name) = item(line, true, &["struct", "enum", "trait", "type"]) {
            members.entry(name.to_owned()).or_default();
            let itself = !line.starts_with("pub struct") && line.ends_with('{');
            block = itself.then(|| (name.to_owned(), false));
        } else if let (Some((name, public)), Some(inner)) = (&block, line.strip_prefix("    ")) {
            let member = item(inner, *public, &["fn", "const"]).or_else(|| {
                let variant = !*public && inner.starts_with(char::is_uppercase);
                variant.then(|| identifier(inner))
            });
            if let Some(member) = member {
                let own = members.entry(name.clone()).or_default();
                own.insert(member.to_owned());
            }
        }
    }
}

/// The exports of the library: names with their members. Where the library and a package below
/// define the same name, the library's own type comes first.
struct Public {
    exported: BTreeSet<String>,
    own: Members,
    below: Members,
}

impl Public {
    fn read() -> Public {
        let mut public = Public {
            exported: BTreeSet::new(),
            own: Members::new(),
            below: Members::new(),
        };
        let library = root().join("runtime/src");
        for path in sources(&library) {
            members_in(&read(&path), &mut public.own);
        }
        let below = [
            "base", "heap", "session", "reclaim", "unwind", "link", "codegen",
        ];
        let below = below.map(|package| root().join("runtime").join(package).join("src"));
        let others = ["stubs/src", "tiering/src", "profiler/src"].map(|folder| root().join(folder));
        for folder in below.iter().chain(&others) {
            for path in sources(folder) {
                members_in(&read(&path), &mut public.below);
            }
        }
        let text = read(&library.join("lib.rs"));
        for statement in text.split(';') {
            let Some((_, exports)) = statement.split_once("\npub use ") else {
                continue;
            };
            let list = exports.rsplit("::").next().unwrap_or_default();
            for name in list.split([',', '{', '}']) {
                let name = name.trim();
                let name = name.split_once(" as ").map_or(name, |(_, alias)| alias);
                public.exported.insert(name.to_owned());
            }
        }
        public
    }

    /// The public members of a type.
    fn members(&self, name: &str) -> Option<&BTreeSet<String>> {
        self.own.get(name).or_else(|| self.below.get(name))
    }

    /// Whether `NAME` or `TYPE::NAME` is there.
    fn has(&self, path: &str) -> bool {
        match path.split_once("::") {
            None => self.exported.contains(path),
            Some((of, member)) => {
                let members = self.members(of);
                self.exported.contains(of) && members.is_some_and(|all| all.contains(member))
            }
        }
    }
}

/// The code-formatted names in the second column of the page's tables, with their lines.
fn named(page: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for (number, line) in page.lines().enumerate() {
        let columns: Vec<&str> = line.split('|').collect();
        if !line.starts_with('|') {
            continue;
        }
        assert_eq!(columns.len(), 5, "line {}: not three columns", number + 1);
        let quoted = columns[2].split('`').skip(1).step_by(2);
        names.extend(quoted.map(|name| (number + 1, name.to_owned())));
    }
    names
}

fn page() -> String {
    read(&root().join("docs/orc-parity.md"))
}

#[test]
fn the_parity_table_names_items_that_exist() {
    let public = Public::read();
    let names = named(&page());
    assert!(names.len() > 100, "only {} names", names.len());
    let wrong = names.iter().filter(|(_, name)| !public.has(name));
    let wrong: Vec<String> = wrong
        .map(|(line, name)| format!("docs/orc-parity.md:{line}: no public item `{name}`"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_parity_table_has_every_function_of_the_handles() {
    let public = Public::read();
    let names: BTreeSet<String> = named(&page()).into_iter().map(|(_, name)| name).collect();
    let mut missing = Vec::new();
    for handle in HANDLES {
        let members = public.members(handle).expect("a handle");
        assert!(members.len() >= 6, "only {members:?} of {handle}");
        let all = members.iter().map(|member| format!("{handle}::{member}"));
        missing.extend(all.filter(|member| !names.contains(member)));
    }
    assert!(
        missing.is_empty(),
        "not in docs/orc-parity.md:\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_rules_find_what_is_wrong() {
    let public = Public::read();
    for there in [
        "Jit",
        "Dylib::define",
        "JitBuilder::on_error",
        "Lookup::wait_for_missing",
        "Members::All",
        "Unit::materialize",
        "Flags::CALLABLE",
        "find_fde",
    ] {
        assert!(public.has(there), "{there}");
    }
    for wrong in [
        "Dylib::defines",
        "Jit::dylib_of",
        "Tracker::add_admitted",
        "Core",
        "Session",
        "Dylib::lookup_slowly",
        "Session::end",
        "Nothing::new",
        "Members::Some",
    ] {
        assert!(!public.has(wrong), "{wrong}");
    }
    let text = "| `a` | `B`, `C::d` | e |\n|---|---|---|\n";
    assert_eq!(named(text), [(1, "B".into()), (1, "C::d".into())]);
}
