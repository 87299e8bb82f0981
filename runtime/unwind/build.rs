//! Exports `_Unwind_Find_FDE` from the test executables, as the `uruk`
//! executable does, so that libgcc finds it before its own; and declares
//! `cfg(loom)`.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rustc-link-arg-tests=-Wl,--export-dynamic-symbol=_Unwind_Find_FDE");
    println!("cargo::rerun-if-changed=build.rs");
}
