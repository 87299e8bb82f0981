//! Compiles the plugin against the headers of LLVM, and links it with LLVM's shared library.
//!
//! `uruk cc` loads it into compilers that need the same library. Without a shared library, as on a machine
//! that has only LLVM's static ones, an empty plugin is built, which no compiler is asked to load.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of LLVM that the plugin is for.
const MAJOR: &str = "22";

/// The variable with the folder that has LLVM.
const PREFIX: &str = "LLVM_SYS_221_PREFIX";

/// The files to compile, and those that they include.
const SOURCES: [&str; 3] = ["src/locals.cpp", "src/outline.cpp", "src/counted.cpp"];
const HEADERS: [&str; 2] = ["src/outline.h", "src/counted.h"];

fn main() {
    for file in SOURCES.iter().chain(&HEADERS) {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed={PREFIX}");
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rustc-check-cfg=cfg(plugin)");
    let Some(config) = config() else {
        println!("cargo:warning=LLVM {MAJOR} was not found: local functions stay native");
        return;
    };
    let said = |words: &[&str]| run(&config, words).unwrap_or_default();
    let libraries = said(&["--link-shared", "--libfiles"]);
    let headers = PathBuf::from(said(&["--includedir"]));
    let library = libraries.split_whitespace().map(Path::new);
    let library = library.into_iter().find(|file| file.is_file());
    let header = headers.join("llvm/Plugins/PassPlugin.h");
    let (Some(library), true) = (library, header.is_file()) else {
        println!(
            "cargo:warning=LLVM {MAJOR} has no shared library, or no headers: local functions stay native"
        );
        return;
    };
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .files(SOURCES)
        .flag("-isystem")
        .flag(headers)
        .flag("-fvisibility=hidden")
        .flag("-fno-exceptions")
        // Also where LLVM has type information: no class with virtual functions is derived from LLVM's.
        .flag("-fno-rtti")
        .define("NDEBUG", None)
        .define("__STDC_CONSTANT_MACROS", None)
        .define("__STDC_FORMAT_MACROS", None)
        .define("__STDC_LIMIT_MACROS", None)
        .opt_level(2);
    // LLVM's own compiler is installed with it; another one may not be.
    let own = Path::new(&said(&["--bindir"])).join("clang++");
    if env::var_os("CXX").is_none() && own.is_file() {
        build.compiler(own);
    }
    build.compile("uruk_locals_pass");
    println!("cargo:rustc-cfg=plugin");
    println!("cargo:rustc-link-arg-cdylib={}", library.display());
}

/// LLVM's `llvm-config`; only that of the prefix if it is set.
fn config() -> Option<PathBuf> {
    let folder = env::var_os(PREFIX).map(|prefix| PathBuf::from(prefix).join("bin"));
    let folder = folder.unwrap_or_default();
    let names = [
        format!("llvm-config-{MAJOR}"),
        format!("llvm-config{MAJOR}"),
        String::from("llvm-config"),
    ];
    names.map(|name| folder.join(name)).into_iter().find(|it| {
        let version = run(it, &["--version"]);
        version.is_some_and(|version| version.split('.').next() == Some(MAJOR))
    })
}

/// The output of a program that ends well.
fn run(program: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
