//! Compares the library's assumptions about LLVM's C++ (`src/cplusplus.rs`, `docs/llvm-upgrade.md`)
//! with LLVM's headers and with the library that is opened.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Sizes, numbers and places as `src/cplusplus.rs` has them. A virtual destructor takes the first two places
/// of a table.
const ASSUMED: &str = "\
size of raw_svector_ostream 56
size of SmallVector<char, 0> 24
size of OptPassGate 8
size of Error 8
ObjectFile 1
OK_SVecStream 2
slot of shouldRunPass 2
slot of isEnabled 3
virtual destructor 1
";

fn llvm() -> PathBuf {
    Path::new(option_env!("LLVM_SYS_221_PREFIX").unwrap_or("/usr/lib/llvm-22")).to_owned()
}

#[test]
fn classes_are_laid_out_as_assumed() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join("assumptions");
    let compiled = Command::new(llvm().join("bin/clang++"))
        .args(["-std=c++17", "-O1", "-fno-exceptions", "-fno-rtti", "-w"])
        .args(["-D_GNU_SOURCE", "-D__STDC_CONSTANT_MACROS"])
        .args(["-D__STDC_FORMAT_MACROS", "-D__STDC_LIMIT_MACROS"])
        .arg("-I")
        .arg(llvm().join("include"))
        .arg("-o")
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/assumptions.cpp"))
        .arg("-L")
        .arg(llvm().join("lib"))
        .arg("-lLLVM-22")
        .status()
        .expect("clang++ runs");
    assert!(compiled.success());
    let printed = Command::new(program)
        .env("LD_LIBRARY_PATH", llvm().join("lib"))
        .output()
        .expect("it runs");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), ASSUMED);
}

/// Names in a source file that begin as those of LLVM's C++.
fn mangled(text: &str) -> Vec<String> {
    let quoted = text.split('"').skip(1).step_by(2);
    let names = quoted.filter(|text| text.starts_with("_ZN4llvm"));
    names.map(str::to_owned).collect()
}

#[test]
fn the_library_has_all_names_under_its_version() {
    let source = include_str!("../src/cplusplus.rs");
    let mut names = mangled(source);
    names.sort();
    assert_eq!(names.len(), 6, "{names:?}");
    let mut listed = mangled(include_str!("../../late/build/main.rs"));
    listed.sort();
    assert_eq!(listed, names, "of the library that a build links");
    let page = include_str!("../../../docs/llvm-upgrade.md");
    names.push("_ZTVN4llvm19raw_svector_ostreamE".to_owned());
    let symbols = Command::new(llvm().join("bin/llvm-nm"))
        .args(["--dynamic", "--defined-only"])
        .arg(llvm().join("lib/libLLVM-22.so"))
        .output()
        .expect("llvm-nm runs");
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    for name in names {
        assert!(page.contains(&name), "{name} is not in the page");
        let versioned = format!(" {name}@@LLVM_22.1");
        assert!(
            symbols.lines().any(|line| line.ends_with(&versioned)),
            "{name} is not in the library"
        );
    }
}
