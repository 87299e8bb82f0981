//! The list of test processes: cargo builds the test binaries and names them, and binaries of several
//! modules become a process for each module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::Context;

use super::Selection;
use super::process::Process;
use crate::cargo::{Cargo, check, string_field};

/// Packages whose tests run without other processes beside them, and why.
const ALONE_PACKAGES: [(&str, &str); 2] = [
    (
        "uruk-e2e",
        "its suites start as many programs at a time as there are processors",
    ),
    ("uruk-profiler", "samples come by processor time"),
];

/// Modules of test binaries that run so, and why.
const ALONE_MODULES: [(&str, &str); 7] = [
    (
        "parts",
        "compares times with the processor time of the process",
    ),
    ("sampling", "samples come by processor time"),
    ("tiers_budget", "compares processor times"),
    (
        "tiers_contested",
        "compares variants by their processor time",
    ),
    ("tiers_drift", "compares variants by their processor time"),
    ("tiers_work", "compares variants by their processor time"),
    (
        "waiting",
        "counts how often a thread gives its processor away",
    ),
];

/// The processes that take longest, by their names. They start first, so that all processors have work
/// until the end of a run.
const LONGEST: [&str; 8] = [
    "examples in documents",
    "uruk tiers tiers",
    "uruk-roots uruk_roots (unit tests)",
    "uruk-codegen cancel_shapes",
    "uruk memory growth_refused",
    "uruk tiers unit_tiers",
    "uruk-c programs",
    "uruk-command default_objects",
];

/// A test binary.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    /// The folder of its package, in which its tests run.
    folder: PathBuf,
    package: String,
    target: String,
    path: PathBuf,
    /// Whether its source is a folder, so that it has a module for each file.
    modules: bool,
}

/// Builds the selected test binaries, and returns their processes.
pub fn processes(cargo: &Cargo, selection: &Selection) -> anyhow::Result<Vec<Process>> {
    let mut command = cargo.command(if selection.tests_only {
        "test"
    } else {
        "build"
    });
    command.args(selection.tests_only.then_some("--no-run"));
    command.args(&selection.packages).args(&selection.targets);
    command.args(["--message-format", "json-render-diagnostics"]);
    let built = command.stderr(Stdio::inherit()).output();
    let built = built.context("cannot start cargo")?;
    check(built.status, "cargo build")?;
    let outputs = super::outputs(cargo)?;
    let mut processes = Vec::new();
    let mut add = |name: String, alone, command| {
        let output = outputs.join(name.replace(['/', ' '], "-"));
        processes.push(Process {
            name,
            alone,
            unlimited: selection.unlimited,
            command: Mutex::new(command),
            output,
        });
    };
    if selection.documents {
        let mut command = cargo.command("test");
        command.arg("--doc").args(&selection.packages);
        command.arg("--").args(&selection.arguments);
        add("examples in documents".to_owned(), false, command);
    }
    let text = String::from_utf8_lossy(&built.stdout);
    for binary in text.lines().filter_map(Binary::from_message) {
        let name = format!("{} {}", binary.package, binary.target);
        let alone = ALONE_PACKAGES.iter().any(|own| own.0 == binary.package);
        let Some(modules) = binary.modules(cargo, &selection.arguments)? else {
            let mut command = binary.command(cargo);
            command.args(&selection.arguments);
            add(name, alone, command);
            continue;
        };
        for (module, tests) in modules {
            let alone = alone || ALONE_MODULES.iter().any(|own| own.0 == module);
            let mut command = binary.command(cargo);
            command.args(options(&selection.arguments));
            command.arg("--exact").args(tests);
            add(format!("{name} {module}"), alone, command);
        }
    }
    let rank = |process: &Process| LONGEST.iter().position(|name| *name == process.name);
    processes.sort_by_key(|process| rank(process).unwrap_or(LONGEST.len()));
    Ok(processes)
}

impl Binary {
    /// The test binary that a message of cargo is about, if it is about one.
    fn from_message(message: &str) -> Option<Self> {
        let field = |name: &str| string_field(message, name);
        // The profile is that of tests, and the features follow it.
        if !message.contains("\"test\":true},\"features\"") {
            return None;
        }
        let path = PathBuf::from(field("executable")?);
        let folder = Path::new(field("manifest_path")?).parent()?;
        let source = Path::new(field("src_path")?);
        let (_, target) = message.split_once("\"target\":")?;
        let unit = source.starts_with(folder.join("src"));
        let name = string_field(target, "name")?;
        // `path+file:///a/b#name@1.0.0`, or `path+file:///a/name#1.0.0`.
        let (place, version) = field("package_id")?.rsplit_once('#')?;
        let package = match version.split_once('@') {
            Some((package, _)) => package,
            None => place.rsplit('/').next()?,
        };
        Some(Self {
            folder: folder.to_owned(),
            package: package.to_owned(),
            target: format!("{name}{}", if unit { " (unit tests)" } else { "" }),
            path,
            modules: !unit && source.ends_with("main.rs"),
        })
    }

    fn command(&self, cargo: &Cargo) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs(cargo.variables());
        command
    }

    /// The tests of each module that the arguments choose, by the module's name. `None` if the binary
    /// has no modules, or tests outside of them.
    fn modules(
        &self,
        cargo: &Cargo,
        arguments: &[String],
    ) -> anyhow::Result<Option<BTreeMap<String, Vec<String>>>> {
        if !self.modules {
            return Ok(None);
        }
        let mut command = self.command(cargo);
        let command = command.args(arguments);
        let listed = command.args(["--list", "--format", "terse"]).output();
        let listed = listed.with_context(|| format!("cannot start {}", self.path.display()))?;
        check(listed.status, &format!("{} --list", self.path.display()))?;
        Ok(by_module(&String::from_utf8_lossy(&listed.stdout)))
    }
}

/// The tests of a list by their first module; `None` if a test has none.
fn by_module(list: &str) -> Option<BTreeMap<String, Vec<String>>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
        let (module, _) = test.split_once("::")?;
        modules
            .entry(module.to_owned())
            .or_default()
            .push(test.to_owned());
    }
    Some(modules)
}

/// The arguments of a test binary that are no filters.
fn options(arguments: &[String]) -> Vec<&str> {
    let mut options = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word.starts_with('-') {
            options.push(word);
            if ["--skip", "--test-threads", "--color"].contains(&word) {
                options.extend(words.next());
            }
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::{Binary, by_module, options};

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/runtime#uruk@0.1.0","manifest_path":"/w/runtime/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"load","src_path":"/w/runtime/tests/load/main.rs","edition":"2024","doc":false,"doctest":false,"test":true},"profile":{"opt_level":"1","debuginfo":1,"debug_assertions":true,"overflow_checks":true,"test":true},"features":["default"],"filenames":["/w/t/load-1"],"executable":"/w/t/load-1","fresh":true}"#;

    #[test]
    fn test_binaries_are_found_in_messages() {
        let binary = Binary::from_message(MESSAGE).expect("a test binary");
        assert_eq!((&*binary.package, &*binary.target), ("uruk", "load"));
        assert_eq!(binary.path.to_str(), Some("/w/t/load-1"));
        assert_eq!(binary.folder.to_str(), Some("/w/runtime"));
        assert!(binary.modules);
        let unit = MESSAGE
            .replace("runtime/tests/load/main.rs", "base/src/lib.rs")
            .replace("/w/runtime", "/w/base")
            .replace("#uruk@0.1.0", "#0.1.0");
        let binary = Binary::from_message(&unit).expect("a test binary");
        assert_eq!(
            (&*binary.package, &*binary.target),
            ("base", "load (unit tests)")
        );
        assert!(!binary.modules);
        // A program that tests start.
        let program = MESSAGE.replace(
            "\"test\":true},\"features\"",
            "\"test\":false},\"features\"",
        );
        assert_eq!(Binary::from_message(&program), None);
    }

    #[test]
    fn tests_are_grouped_by_module() {
        let modules =
            by_module("a::x: test\nb::x: test\na::c::y: test\n\n3 tests").expect("modules");
        let names: Vec<(&str, usize)> = modules
            .iter()
            .map(|(name, own)| (&**name, own.len()))
            .collect();
        assert_eq!(names, [("a", 2), ("b", 1)]);
        assert_eq!(by_module("a::x: test\nouter: test"), None);
    }

    #[test]
    fn filters_are_told_from_options() {
        let arguments = ["one", "--nocapture", "--skip", "two", "three"].map(String::from);
        assert_eq!(options(&arguments), ["--nocapture", "--skip", "two"]);
    }
}
