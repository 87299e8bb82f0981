//! `cargo xtask install` puts all that a host needs into a prefix: `pkg-config` tells a compiler
//! about it, and the example of the documentation builds and runs.

mod support;

use std::path::Path;
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
    // Twice: existing files are replaced.
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
    is_linked_into_a_host(&prefix);
    is_found_by_cmake(&prefix);
    // The rest is debug information.
    let size = |file: &Path| std::fs::metadata(file).expect("a file").len();
    if has("strip") {
        let archive = prefix.join("lib/liburuk.a");
        assert!(
            size(&archive) < size(&built.archive) / 2,
            "{}",
            size(&archive)
        );
    }
    if let Some(llvm) = &built.llvm {
        let name = llvm.file_name().expect("a file").to_string_lossy();
        let opened = format!("calling init: {}/lib/uruk/{name}", prefix.display());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(&opened), "no {opened}");
    }
}

/// `pkg-config --static`: the program needs no shared library of ours.
fn is_linked_into_a_host(prefix: &Path) {
    let asked = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(["--static", "--cflags", "--libs", "uruk"]));
    let words = String::from_utf8(asked.stdout).expect("words");
    let compilers = ["cc", "clang-22"];
    for compiler in compilers.into_iter().filter(|compiler| has(compiler)) {
        let program = scratch("programs").join(format!("installed-static-{compiler}"));
        run(Command::new(compiler)
            .arg("-std=c89")
            .args(STRICT)
            .arg(package().join("examples/lazy.c"))
            .args(words.split_whitespace())
            .arg("-o")
            .arg(&program));
        let needed = run(Command::new("readelf").arg("-d").arg(&program));
        let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
        assert!(!needed.contains("liburuk"), "{needed}");
        let output = run(&mut Command::new(&program));
        assert!(output.stdout.starts_with(b"say 42\n"));
    }
}

/// A CMake project, against either target.
fn is_found_by_cmake(prefix: &Path) {
    if !has("cmake") {
        eprintln!("cmake is not installed: not tried");
        return;
    }
    let project = scratch("cmake");
    let example = package().join("examples/lazy.c");
    let text = format!(
        "cmake_minimum_required(VERSION 3.10)\n\
         project(host C)\n\
         find_package(uruk {} REQUIRED)\n\
         foreach(kind uruk static)\n  \
         add_executable(host-${{kind}} {})\n  \
         target_link_libraries(host-${{kind}} uruk::${{kind}})\n\
         endforeach()\n\
         find_package(uruk 0.0.9 QUIET)\n\
         if(uruk_FOUND)\n  \
         message(FATAL_ERROR \"another interface was taken\")\n\
         endif()\n",
        env!("CARGO_PKG_VERSION"),
        example.display()
    );
    std::fs::write(project.join("CMakeLists.txt"), text).expect("a project");
    let folder = project.join("build");
    let _ = std::fs::remove_dir_all(&folder);
    run(Command::new("cmake")
        .arg("-S")
        .arg(&project)
        .arg("-B")
        .arg(&folder)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    run(Command::new("cmake").arg("--build").arg(&folder));
    for kind in ["uruk", "static"] {
        let output = run(&mut Command::new(folder.join(format!("host-{kind}"))));
        assert!(output.stdout.starts_with(b"say 42\n"));
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
            preload: any.clone(),
            plugin: any,
        }),
    };
    let root = package().join("../..");
    install(&root, &built, &prefix, "0.1.0").expect("it is installed");
    // `uruk live` and `uruk cc` look for the others, relative to the folder of the first.
    assert!(prefix.join("bin/uruk").is_file());
    for name in ["liburuk_preload.so", "liburuk_locals.so"] {
        let from_command = prefix.join("bin/../lib/uruk").join(name);
        assert!(from_command.is_file(), "{name}");
    }
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
