//! Tests under AddressSanitizer.
//!
//! It watches the memory of our own code: tables, rings, registrations. Code that is compiled
//! at run time is not instrumented, and what it does to its stacks and memory is not seen.
//!
//! | not run | because |
//! |---|---|
//! | threads of `uruk-roots` | a scan reads whole stacks, also the zones around variables that the sanitizer forbids to read; and it fills more memory than a search may read |
//! | `uruk-codegen`, `uruk`, the command, end-to-end cases | LLVM is linked in without instrumentation: containers that pass between it and ours would be reported |
//! | models under loom | a build of their own, `cargo xtask model` |
//!
//! A target directory of its own, `target/sanitized`: everything is compiled for it.

use crate::cargo::Cargo;

/// Packages, and which of their test binaries run.
const RUNS: [(&[&str], &[&str]); 2] = [
    (&["uruk-roots", "uruk-unwind", "uruk-report"], &["--lib"]),
    (&["uruk-heap", "uruk-reclaim"], &["--lib", "--tests"]),
];

/// Runs them; `args` go to `cargo test`.
pub fn run(cargo: &Cargo, args: &[String]) -> anyhow::Result<()> {
    // The option is not stable; the compiler takes it with this.
    let cargo = cargo
        .with_env("RUSTC_BOOTSTRAP", "1")
        .with_env("RUSTFLAGS", "-Zsanitizer=address")
        .with_env("CARGO_TARGET_DIR", "target/sanitized");
    for (packages, which) in RUNS {
        // With a target named, build scripts and macros are not instrumented. Examples in
        // documents are compiled without the option.
        let mut words = vec!["--target", "x86_64-unknown-linux-gnu", "--no-fail-fast"];
        words.extend(which);
        words.extend(packages.iter().flat_map(|package| ["-p", package]));
        words.extend(args.iter().map(String::as_str));
        cargo.run("test", &words)?;
    }
    Ok(())
}
