//! Tests of the binding for Python, which runs IR of llvmlite.
//!
//! `tests/python_binding.ll` was written by llvmlite; if it is installed, its present IR is run,
//! too.

mod support;

use std::path::Path;
use std::process::Command;

use support::{has, libraries, package, run, scratch};

/// Runs the tests with the binding of a folder.
fn passes_in(folder: &Path, library: Option<&Path>) {
    let tests = package().join("tests");
    let mut python = Command::new("python3");
    python
        .env_remove("URUK_LIBRARY")
        .envs(library.map(|library| ("URUK_LIBRARY", library)))
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(tests.join("python_binding.py"))
        .arg(tests.join("python_binding.ll"));
    support::passes(&mut python);
}

#[test]
fn a_person_plays_with_it() {
    if !has("python3") {
        eprintln!("python3 is not installed: not tried");
        return;
    }
    let library = libraries().join("liburuk_c.so");
    passes_in(&package().join("python"), Some(&library));
}

/// `pip install` accepts the checkout, and the folder of the binding in it: the wheel contains the
/// library.
#[test]
fn pip_installs_it_from_the_checkout() {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--version"]);
    if !pip.output().is_ok_and(|output| output.status.success()) {
        eprintln!("pip is not installed: not tried");
        return;
    }
    for source in [package().join("python"), package().join("../..")] {
        let folder = scratch("wheel");
        std::fs::remove_dir_all(&folder).expect("an empty folder");
        // Without its cache: pip reuses a wheel that was built from the same path.
        run(Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"])
            .args(["--disable-pip-version-check", "--no-cache-dir"])
            .arg("--target")
            .arg(&folder)
            .arg(source)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("URUK_LIBRARY", libraries().join("liburuk_c.so")));
        passes_in(&folder, None);
    }
}
