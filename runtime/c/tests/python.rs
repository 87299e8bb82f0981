//! The binding for Python: a file of at most 300 lines, which runs what llvmlite makes.
//!
//! `tests/python_binding.ll` is what llvmlite wrote; where it is installed, its IR of now is run,
//! too.

mod support;

use std::process::Command;

use support::{has, libraries, package};

#[test]
fn the_binding_is_short() {
    let text = std::fs::read_to_string(package().join("python/uruk.py")).expect("the binding");
    let lines = text.lines().count();
    assert!((100..=300).contains(&lines), "{lines} lines");
}

#[test]
fn a_person_plays_with_it() {
    if !has("python3") {
        eprintln!("python3 is not installed: not tried");
        return;
    }
    let tests = package().join("tests");
    let mut python = Command::new("python3");
    python
        .env("URUK_LIBRARY", libraries().join("liburuk_c.so"))
        .env("PYTHONPATH", package().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(tests.join("python_binding.py"))
        .arg(tests.join("python_binding.ll"));
    support::passes(&mut python);
}
