//! The build script refuses targets that the project does not run on, with a reason.

#[allow(dead_code, reason = "the script's `main`")]
#[path = "../build.rs"]
mod build;

use std::path::Path;
use std::process::Command;

#[test]
fn one_target_is_built_for() {
    assert_eq!(build::refusal("x86_64", "linux", "gnu", "64"), None);
    let others = [
        (["x86_64", "linux", "musl", "64"], "musl"),
        (["x86_64", "linux", "gnu", "32"], "64 bits"),
        (["x86_64", "linux", "uclibc", "64"], "glibc"),
        (["aarch64", "linux", "gnu", "64"], "x86-64"),
        (["aarch64", "linux", "musl", "64"], "x86-64"),
        (["x86_64", "macos", "", "64"], "Linux"),
        (["x86_64", "windows", "msvc", "64"], "Linux"),
        (["wasm32", "unknown", "", "32"], "Linux"),
    ];
    for ([arch, os, env, width], word) in others {
        let why = build::refusal(arch, os, env, width).expect("it is refused");
        assert!(why.contains(word), "{arch}-{os}-{env}: {why}");
    }
}

/// The script as cargo runs it: a line of `cargo::error` ends the build, and cargo prints it.
#[test]
fn the_script_ends_the_build_by_a_sentence() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let script = folder.join("script");
    let built = Command::new(option_env!("RUSTC").unwrap_or("rustc"))
        .args(["--edition", "2024", "-o"])
        .arg(&script)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs"))
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    let of = |target: &str, env: &str| {
        let output = Command::new(&script)
            .env("TARGET", target)
            .env("CARGO_CFG_TARGET_ARCH", "x86_64")
            .env("CARGO_CFG_TARGET_OS", "linux")
            .env("CARGO_CFG_TARGET_ENV", env)
            .env("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
            .output();
        String::from_utf8(output.expect("it runs").stdout).expect("text")
    };
    let refused = of("x86_64-unknown-linux-musl", "musl");
    let sentence = "cargo::error=Uruk runs on x86_64-unknown-linux-gnu only, and this build is for \
                    x86_64-unknown-linux-musl: ";
    assert!(refused.contains(sentence), "{refused}");
    assert!(!of("x86_64-unknown-linux-gnu", "gnu").contains("error"));
}
