//! Two things about linking: tests export what exceptions need to find in them first, and the
//! CPU feature tables come from `libgcc.a`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Tests and examples in which exceptions pass through JIT'd frames.
    for kind in ["tests", "examples"] {
        println!("cargo:rustc-link-arg-{kind}=-Wl,--export-dynamic-symbol=_Unwind_Find_FDE");
    }
    let compiler = std::env::var("CC").unwrap_or_else(|_| String::from("cc"));
    let asked = Command::new(&compiler)
        .arg("-print-libgcc-file-name")
        .output();
    if let Ok(output) = asked
        && let Ok(path) = String::from_utf8(output.stdout)
        && let Some(folder) = Path::new(path.trim()).parent()
    {
        println!("cargo:rustc-link-search=native={}", folder.display());
    }
    println!("cargo:rustc-link-lib=static:-bundle=gcc");
}
