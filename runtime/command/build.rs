//! The command exports the symbols that libraries of the process must find in it first.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for symbol in ["_Unwind_Find_FDE", "__cxa_atexit"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}
