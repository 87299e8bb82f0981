//! Declares `cfg(loom)`, under which the state machine is model checked.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rerun-if-changed=build.rs");
}
