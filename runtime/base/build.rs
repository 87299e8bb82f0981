//! Ends a build for a target that the project does not run on, before its other packages fail there.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let part = |name| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let [arch, os, env, width] = ["ARCH", "OS", "ENV", "POINTER_WIDTH"].map(part);
    if let Some(why) = refusal(&arch, &os, &env, &width) {
        let target = std::env::var("TARGET").unwrap_or_default();
        println!(
            "cargo::error=Uruk runs on x86_64-unknown-linux-gnu only, and this build is for \
             {target}: {why}"
        );
    }
}

/// The reason why the project does not run on a target; `None` if it does.
pub fn refusal(arch: &str, os: &str, env: &str, width: &str) -> Option<&'static str> {
    match (os, arch, env, width) {
        ("linux", "x86_64", "gnu", "64") => None,
        ("linux", "x86_64", "musl", _) => Some(
            "it calls functions of glibc that musl lacks, such as `dlmopen`, and reads glibc's \
             layout of threads",
        ),
        ("linux", "x86_64", ..) => Some("it needs glibc, and pointers of 64 bits"),
        ("linux", ..) => Some("its stubs and its first compiler make code for x86-64"),
        _ => Some("it uses system calls of Linux"),
    }
}
