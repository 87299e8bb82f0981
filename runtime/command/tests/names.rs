//! Undefined names of Rust and C++ are shown as they were written.

use std::path::Path;
use std::process::{Command, Output};

fn uruk(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
    command.args(words).output().expect("uruk starts")
}

/// Output of `uruk run` for a program that needs a symbol.
fn without(symbol: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("names");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(format!("{symbol}.ll"));
    let ir = format!(
        "declare void @{symbol}()\n\
         define i32 @main() {{ call void @{symbol}() ret i32 0 }}\n"
    );
    std::fs::write(&file, ir).expect("a file");
    let output = uruk(&["run", file.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(125));
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn names_of_rust_are_shown_as_written() {
    let said = without("_RNvNtNtCsjrHSEGnQ3l9_3std2io5stdio6__print");
    assert!(
        said.contains("\n  std::io::stdio::_print\n    needed by "),
        "{said}"
    );
    assert!(said.contains("--emit=llvm-bc,link"), "{said}");
    let said = without("_ZN3app5start17h0123456789abcdefE");
    assert!(said.contains("\n  app::start\n"), "{said}");
    assert!(said.contains("the file that defines them"), "{said}");
}

#[test]
fn names_of_cpp_are_shown_as_written() {
    let said = without("_ZN5shape4areaEid");
    let shown = said.contains("\n  shape::area(int, double)\n");
    // Without the C++ library it cannot be demangled.
    assert!(shown || said.contains("\n  _ZN5shape4areaEid\n"), "{said}");
    assert!(said.contains("the file that defines them"), "{said}");
}

#[test]
fn names_of_c_are_shown_in_a_line() {
    let said = without("compress_nothing");
    assert!(
        said.contains("undefined symbols: `compress_nothing` (needed by"),
        "{said}"
    );
    assert!(said.contains("tip: `-l NAME`"), "{said}");
}
