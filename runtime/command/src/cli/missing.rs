//! Lists undefined symbols for programmers of Rust and C++: demangled, one a line, and with hints where
//! to find them.

use std::fmt::Write;

use uruk::Missing;

use super::mangled;

/// The list, if it contains a mangled name.
pub(super) fn list(missing: &[Missing]) -> Option<String> {
    if !missing.iter().any(|one| is_mangled(&one.symbol)) {
        return None;
    }
    let mut text = String::from("undefined symbols:");
    for one in missing {
        let _ = write!(text, "\n  {}", mangled::written(&one.symbol));
        for user in &one.needed_by {
            let user = match user.rsplit_once(": ") {
                Some((file, function)) => format!("{file}: {}", mangled::written(function)),
                None => user.clone(),
            };
            let _ = write!(text, "\n    needed by {user}");
        }
    }
    Some(text)
}

/// A hint how to resolve missing symbols.
pub(super) fn tip(missing: &[Missing]) -> &'static str {
    let rust = |one: &Missing| is_of_std(&one.symbol);
    if missing.iter().any(rust) {
        return "of Rust's standard library, which `rustc -O -C lto=fat --emit=llvm-bc,link` puts \
                into the bitcode: without `link` it is left out";
    }
    if missing.iter().any(|one| is_mangled(&one.symbol)) {
        return "the file that defines them is to be named, too (`uruk run a.bc b.bc`), or a \
                library, by `-l NAME`";
    }
    "`-l NAME` adds a library of the program, such as `z` or `libz.so.1`"
}

fn is_mangled(name: &str) -> bool {
    mangled::is_mangled(name) || name == "rust_eh_personality"
}

/// Whether a name is of `std`, or of a crate that it consists of.
fn is_of_std(name: &str) -> bool {
    if name == "rust_eh_personality" {
        return true;
    }
    let Ok(demangled) = rustc_demangle::try_demangle(name) else {
        return false;
    };
    let text = format!("{demangled:#}");
    let text = text.trim_start_matches('<');
    ["std::", "core::", "alloc::"]
        .iter()
        .any(|of| text.starts_with(of))
}
