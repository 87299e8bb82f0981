//! Sets linker options of the shared library: its soname, and that it stays loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let part = |name: &str| std::env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    // While the major version is 0, a new minor version may break compiled hosts.
    let abi = match part("MAJOR").as_str() {
        "0" => format!("0.{}", part("MINOR")),
        major => major.to_owned(),
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liburuk.so.{abi}");
    // Threads of sessions, handlers of `fork` and the tables of the unwinder point into it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
