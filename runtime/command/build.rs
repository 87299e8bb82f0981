//! The command exports the symbols that libraries of the process must find in it first.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let gates = std::fs::read_to_string("src/gates.rs").unwrap_or_default();
    println!("cargo:rerun-if-changed=src/gates.rs");
    let gates = gates.lines().filter_map(|line| {
        let (_, name) = line.strip_prefix("gate!(")?.split_once(", ")?;
        name.strip_suffix(");")
    });
    for symbol in gates.chain(["_Unwind_Find_FDE", "__cxa_atexit", "syscall", "prctl"]) {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}
