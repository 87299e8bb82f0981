//! What `cargo xtask install` puts into a prefix is what a host needs: `pkg-config` tells a
//! compiler about it, and the example of the documentation builds and runs.

mod support;

use std::process::Command;

use support::layout::{self, Built, install};
use support::{STRICT, has, libraries, package, run, scratch, soname};

#[test]
fn a_host_builds_with_what_is_installed() {
    let prefix = scratch("prefix");
    let folder = libraries();
    let shared = folder.join("liburuk_c.so");
    let built = Built {
        llvm: Built::llvm_of(&shared, folder.parent().unwrap_or(&folder)),
        shared,
        archive: folder.join("liburuk_c.a"),
        command: None,
    };
    let root = package().join("../..");
    let version = env!("CARGO_PKG_VERSION");
    // Twice: what is there is replaced.
    let first = install(&root, &built, &prefix, version).expect("it is installed");
    let files = install(&root, &built, &prefix, version).expect("it is installed again");
    assert_eq!(first, files);
    for file in &files {
        assert!(file.exists(), "{}", file.display());
    }
    assert!(prefix.join("lib").join(soname()).is_file());
    if !has("pkg-config") {
        eprintln!("pkg-config is not installed: not tried");
        return;
    }
    let asked = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "uruk"]));
    let words = String::from_utf8(asked.stdout).expect("words");
    let program = scratch("programs").join("installed");
    run(Command::new("cc")
        .arg("-std=c89")
        .args(STRICT)
        .arg(package().join("examples/lazy.c"))
        .args(words.split_whitespace())
        .arg("-o")
        .arg(&program));
    let output = run(Command::new(&program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env("LD_DEBUG", "files"));
    assert!(output.stdout.starts_with(b"say 42\n"));
    if let Some(llvm) = &built.llvm {
        let name = llvm.file_name().expect("a file").to_string_lossy();
        let opened = format!("calling init: {}/lib/uruk/{name}", prefix.display());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(&opened), "no {opened}");
    }
}

#[test]
fn the_command_finds_what_it_loads_into_programs() {
    let prefix = scratch("with-command");
    let folder = libraries();
    let any = folder.join("liburuk_c.so");
    let built = Built {
        llvm: None,
        shared: any.clone(),
        archive: folder.join("liburuk_c.a"),
        command: Some(layout::Command {
            program: any.clone(),
            preload: any,
        }),
    };
    let root = package().join("../..");
    install(&root, &built, &prefix, "0.1.0").expect("it is installed");
    // The second is where `uruk live` looks, from the folder of the first.
    assert!(prefix.join("bin/uruk").is_file());
    let from_command = prefix.join("bin/../lib/uruk/liburuk_preload.so");
    assert!(from_command.is_file());
}

#[test]
fn what_cannot_be_installed_says_which_file() {
    let built = Built {
        llvm: None,
        shared: "nowhere/liburuk_c.so".into(),
        archive: "nowhere/liburuk_c.a".into(),
        command: None,
    };
    let answer = install(package(), &built, &scratch("nothing"), "0.1.0");
    let error = answer.expect_err("there is no library").to_string();
    assert!(error.contains("nowhere/liburuk_c.so"), "{error}");
}
