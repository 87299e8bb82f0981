//! Tests that `include/uruk.h` is cbindgen's output for the sources, and that compilers of old
//! standards accept it.
//!
//! `URUK_BLESS=1 cargo test -p uruk-c --test header` writes it again.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use support::{STRICT, has, libraries, package, run, scratch};

#[test]
fn the_header_is_made_of_the_sources() {
    let settings = cbindgen::Config::from_file(package().join("cbindgen.toml"));
    let settings = settings.expect("settings of cbindgen");
    let made = cbindgen::Builder::new()
        .with_config(settings)
        .with_crate(package())
        .generate()
        .expect("the sources are read");
    let mut bytes = Vec::new();
    made.write(&mut bytes);
    let made = String::from_utf8(bytes).expect("text");
    let file = package().join("include/uruk.h");
    if std::env::var_os("URUK_BLESS").is_some() {
        std::fs::write(&file, &made).expect("the header is written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let differing = made
        .lines()
        .zip(kept.lines())
        .find(|(made, kept)| made != kept);
    assert!(
        made == kept,
        "include/uruk.h is not what the sources say (write it anew with URUK_BLESS=1): {differing:?}"
    );
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(package().join("include/uruk.h")).expect("the header");
    let words = header.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(');
    let functions = words.filter_map(|word| word.split_once('(').map(|(name, _)| name));
    functions
        .filter(|name| name.starts_with("uruk_"))
        .map(String::from)
        .collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let library = libraries().join("liburuk_c.so");
    let output = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library));
    let text = String::from_utf8(output.stdout).expect("names");
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .map(String::from)
        .collect();
    let declared = declared();
    assert!(declared.len() > 100, "{declared:?}");
    let difference: Vec<_> = exported.symmetric_difference(&declared).collect();
    assert!(difference.is_empty(), "{difference:?}");
}

/// Compiles a file of one line under a standard.
fn accepts(compiler: &str, standard: &str, ending: &str) {
    if !has(compiler) {
        eprintln!("{compiler} is not installed: not tried");
        return;
    }
    let file = scratch("header").join(format!("{compiler}-{}.{ending}", &standard[5..]));
    let text =
        "#include <uruk.h>\n#include <uruk.h>\nint main(void) { return uruk_version() < 0; }\n";
    std::fs::write(&file, text).expect("a file");
    run(Command::new(compiler)
        .arg(standard)
        .args(STRICT)
        .arg("-fsyntax-only")
        .arg("-I")
        .arg(package().join("include"))
        .arg(&file));
}

#[test]
fn compilers_of_c89_and_later_accept_the_header() {
    for standard in ["-std=c89", "-std=c99", "-std=c11"] {
        accepts("cc", standard, "c");
        accepts("clang-22", standard, "c");
    }
}

#[test]
fn compilers_of_cpp11_and_later_accept_the_header() {
    for standard in ["-std=c++11", "-std=c++17"] {
        accepts("c++", standard, "cpp");
        accepts("clang++-22", standard, "cpp");
    }
}

/// Files that include `uruk-llvm.h` without calls to it, under all warnings.
#[test]
fn compilers_accept_the_header_for_llvm() {
    let headers = std::env::var("LLVM_SYS_221_PREFIX").unwrap_or_default();
    let headers = Path::new(&headers).join("include");
    if !headers.join("llvm-c/Core.h").is_file() {
        eprintln!("the headers of LLVM 22 are not told of: not tried");
        return;
    }
    let file = scratch("header").join("llvm.c");
    std::fs::write(
        &file,
        "#include <uruk-llvm.h>\nint main(void) { return 0; }\n",
    )
    .expect("a file");
    for (compiler, words) in [
        ("cc", ["-x", "c", "-std=c99"]),
        ("clang-22", ["-x", "c", "-std=c99"]),
        ("c++", ["-x", "c++", "-std=c++11"]),
        ("clang++-22", ["-x", "c++", "-std=c++11"]),
    ] {
        if !has(compiler) {
            eprintln!("{compiler} is not installed: not tried");
            continue;
        }
        run(Command::new(compiler)
            .args(words)
            .args(STRICT)
            .arg("-fsyntax-only")
            .arg("-isystem")
            .arg(&headers)
            .arg("-I")
            .arg(package().join("include"))
            .arg(&file));
    }
}

/// Compilers warn if the error of a call is dropped, for every function.
#[test]
fn errors_are_to_be_used() {
    let header = std::fs::read_to_string(package().join("include/uruk.h")).expect("the header");
    let mut answering = 0;
    for (at, _) in header.match_indices("struct uruk_error *uruk_") {
        // Skips types of callbacks, and functions that only read an error.
        let before = header[..at].trim_end();
        if before.ends_with("const") {
            continue;
        }
        answering += 1;
        let line = header[at..].lines().next().unwrap_or_default();
        assert!(before.ends_with("URUK_MUST_USE"), "{line}");
    }
    assert!(answering > 100, "{answering}");
}

#[test]
fn versions_agree() {
    let header = std::fs::read_to_string(package().join("include/uruk.h")).expect("the header");
    for (name, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        let line = format!("#define URUK_VERSION_{name} {value}\n");
        assert!(header.contains(&line), "{line}");
    }
    assert!(Path::new(package()).join("include/uruk-llvm.h").is_file());
}
