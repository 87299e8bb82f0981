//! Compilers and the library under test, for programs in C and C++.
#![allow(dead_code, reason = "each test uses some of it")]

#[path = "../../../../xtask/src/layout.rs"]
pub mod layout;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the package.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the shared and the static library: cargo puts them beside the tests.
pub fn libraries() -> PathBuf {
    let own = std::env::current_exe().expect("the test has a path");
    own.parent().expect("it is in a folder").to_owned()
}

/// A folder for output of a test.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder for a test");
    folder
}

/// Whether a program of that name is installed.
pub fn has(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Runs a command; panics with its output if it fails.
pub fn run(command: &mut Command) -> Output {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Compiler flags of all our programs.
pub const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Compiles a program of `tests/programs` or `examples` against the shared library.
pub fn compiled(source: &Path, compiler: &str, standard: &str, more: &[&str]) -> PathBuf {
    let name = source
        .file_stem()
        .expect("a file")
        .to_string_lossy()
        .into_owned();
    let program = scratch("programs").join(format!("{name}-{compiler}"));
    let folder = libraries();
    run(Command::new(compiler)
        .arg(standard)
        .args(STRICT)
        .args(["-g", "-O1", "-pthread"])
        .arg("-I")
        .arg(package().join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(more)
        .arg(format!("-L{}", folder.display()))
        .args(["-luruk_c", "-ldl"])
        .arg(format!(
            "-Wl,-rpath,{}",
            linked_by_soname(&folder).display()
        )));
    program
}

/// The soname of the shared library.
pub fn soname() -> String {
    format!("liburuk.so.{}", layout::abi(env!("CARGO_PKG_VERSION")))
}

/// A folder in which the shared library has its soname, as `install` names it.
pub fn linked_by_soname(folder: &Path) -> PathBuf {
    let place = scratch("soname");
    let name = place.join(soname());
    let library = folder.join("liburuk_c.so");
    // Several tests may do so at once: each makes its own link, and renames it.
    let own = place.join(format!("link-{:?}", std::thread::current().id()));
    let _ = std::fs::remove_file(&own);
    std::os::unix::fs::symlink(&library, &own).expect("a link");
    std::fs::rename(&own, &name).expect("a link under its name");
    place
}

/// Runs a program that prints a message when it passed.
pub fn passes(command: &mut Command) {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with("passed\n"), "{command:?}: {said}");
}
