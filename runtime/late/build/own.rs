//! Links a library of LLVM from the installed static ones: with the parts that compile for this
//! machine, and no other target.
//!
//! Opening it takes a quarter of the time. The shared library of a distribution has all targets,
//! and lets all of its functions be preempted: Debian's has 160,000 words to relocate and 25,000
//! names to look up, in itself and in 15 other libraries. This one has under a third of the words,
//! is bound to itself, and needs seven libraries. Loading took 12.5 ms of a processor and takes 3.4
//! (medians of five by turns; `uruk run --stats` shows it as `loading`); linking takes two seconds
//! of a build.
//!
//! Relocations are packed (`DT_RELR`), which saves half a millisecond. A C library without support
//! for it (glibc before 2.36) reports an error, and does not open the library.
//!
//! Its static objects are never destroyed: `exit` would run their destructors while a background
//! compile, which the process does not wait for, still uses them.
//!
//! The library is optional: if it cannot be linked, or is missing at run time, the shared library
//! is opened.

use std::collections::{BTreeSet, HashSet};
use std::env;
use std::fmt::Write;
use std::fs::Permissions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::archive::ArchiveFile;

use super::{Library, VTABLE};

/// Components, as `llvm-config` names them. `llvm-config` fails for an unknown name.
pub const COMPONENTS: &str = "x86 passes ipo core bitreader bitwriter irreader linker analysis \
    target object remarks support codegen executionengine mcjit orcjit orcdebugging \
    perfjitevents interpreter debuginfodwarf";

/// Functions of objects that register themselves when the library is opened, without other
/// references: printers of the tables of two garbage collectors. The objects of other registries
/// are linked because functions refer to them.
const REGISTERED: [&str; 2] = [
    "_ZN4llvm18linkOcamlGCPrinterEv",
    "_ZN4llvm19linkErlangGCPrinterEv",
];

/// Replaces the C library's function that registers destructors of static objects.
const NO_DESTRUCTORS: &str = "extern \"C\" __attribute__((visibility(\"hidden\"))) \
    int __cxa_atexit(void (*)(void *), void *, void *) { return 0; }\n";

/// Links the library of a version into `folder` from `archives`. Its functions are a subset of
/// those of `shared`.
pub fn link(
    folder: &Path,
    archives: &[PathBuf],
    shared: &Library,
    version: &str,
) -> Option<Library> {
    let there = defined(archives)?;
    let is_there = |name: &&String| there.contains(name.as_bytes());
    let functions: Vec<String> = shared.functions.iter().filter(is_there).cloned().collect();
    let name = format!("libLLVM-uruk-{:016x}.so", mark(&functions, version));
    let (to, new) = (folder.join(&name), folder.join("libLLVM-uruk.new"));
    let response = folder.join("own.rsp");
    let script = folder.join("own.map");
    std::fs::write(&script, versions(&functions)).ok()?;
    let source = folder.join("own.cc");
    std::fs::write(&source, NO_DESTRUCTORS).ok()?;
    let mut text = format!(
        "-shared -o {new} -Wl,-soname,{name} -Wl,--version-script={script} -Wl,-Bsymbolic \
         -Wl,--gc-sections -Wl,-s -Wl,-z,nodelete -Wl,-z,noexecstack \
         -Wl,-z,pack-relative-relocs -O2 -fPIC {source}\n",
        source = quoted(&source)?,
        new = quoted(&new)?,
        script = quoted(&script)?,
    );
    let registered = REGISTERED
        .into_iter()
        .filter(|name| there.contains(name.as_bytes()));
    let functions_there = functions.iter().map(String::as_str);
    for name in functions_there.chain([VTABLE]).chain(registered) {
        let _ = writeln!(text, "-Wl,-u,{name}");
    }
    text.push_str("-Wl,--start-group\n");
    for archive in archives {
        let _ = writeln!(text, "{}", quoted(archive)?);
    }
    // The libraries that the shared one needs, if this one does too, by their load names.
    text.push_str("-Wl,--end-group -Wl,--as-needed\n");
    for needed in &shared.needed {
        let _ = writeln!(text, "-l:{needed}");
    }
    std::fs::write(&response, text).ok()?;
    let linked = compilers().any(|compiler| {
        let argument = format!("@{}", response.display());
        let output = Command::new(compiler).arg(argument).output();
        output.is_ok_and(|output| output.status.success())
    });
    if !linked {
        let _ = std::fs::remove_file(&new);
        return None;
    }
    let made = super::read(&new)?;
    // Independent of the umask: a file that others can write to is not opened.
    std::fs::set_permissions(&new, Permissions::from_mode(0o755)).ok()?;
    let complete = made.functions == functions && made.soname == name;
    (complete && std::fs::rename(&new, &to).is_ok()).then_some(Library { path: to, ..made })
}

/// The names in the indexes of archives.
fn defined(archives: &[PathBuf]) -> Option<HashSet<Vec<u8>>> {
    let mut names = HashSet::new();
    if let Some(archive) = archives.first() {
        // The archives are installed and removed together.
        println!("cargo:rerun-if-changed={}", archive.display());
    }
    for archive in archives {
        let bytes = std::fs::read(archive).ok()?;
        let archive = ArchiveFile::parse(&*bytes).ok()?;
        for symbol in archive.symbols().ok()?? {
            names.insert(symbol.ok()?.name().to_vec());
        }
    }
    Some(names)
}

/// A hash that distinguishes this library from one of another version.
fn mark(functions: &[String], version: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (functions, version, REGISTERED, NO_DESTRUCTORS).hash(&mut hasher);
    hasher.finish()
}

fn versions(functions: &[String]) -> String {
    let all: BTreeSet<&str> = functions
        .iter()
        .map(String::as_str)
        .chain([VTABLE])
        .collect();
    let mut text = String::from("{ global:\n");
    for name in all {
        let _ = writeln!(text, "{name};");
    }
    text.push_str("local: *; };\n");
    text
}

/// The C++ compilers that may link it.
fn compilers() -> impl Iterator<Item = String> {
    let asked = env::var("CXX").ok();
    let known = ["c++", "g++", "clang++", "clang++-22", "cc"].map(str::to_owned);
    asked.into_iter().chain(known)
}

/// A path quoted for a response file.
fn quoted(path: &Path) -> Option<String> {
    let path = path.to_str()?;
    Some(format!(
        "\"{}\"",
        path.replace('\\', "\\\\").replace('"', "\\\"")
    ))
}
