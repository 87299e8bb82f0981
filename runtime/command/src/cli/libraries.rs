//! What `-l` and `-L` mean, and which of the files of a command line are shared libraries.
//!
//! As a linker has it: `-l z` is `libz.so`, else `libz.a`, in the folders of `-L`, then in those of
//! the system; `-l :NAME` is a file of that name there. A path, or a name as the dynamic loader
//! takes it (`libz.so.1`), is itself. What is linked into every program anyway is left out.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where linkers of this machine's system look.
const SYSTEM: [&str; 5] = [
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib",
    "/usr/lib",
];

/// Libraries that every program has here.
const ALWAYS: [&str; 8] = ["c", "m", "pthread", "dl", "rt", "util", "stdc++", "gcc_s"];

/// A library of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// To be loaded, by its path or as the dynamic loader finds it.
    Shared(String),
    /// One whose members are linked into the program as it needs them.
    Archive(PathBuf),
}

/// What `-l NAME` stands for; `None` for what every program has.
pub(super) fn find(name: &str, folders: &[PathBuf]) -> Option<Library> {
    let exact = name.strip_prefix(':');
    if exact.is_none() && (name.contains('/') || name.ends_with(".so") || name.contains(".so.")) {
        return Some(Library::Shared(name.to_owned()));
    }
    let files = match exact {
        Some(file) => vec![file.to_owned()],
        None => vec![format!("lib{name}.so"), format!("lib{name}.a")],
    };
    let system = SYSTEM.iter().map(Path::new);
    let own = folders.iter().map(PathBuf::as_path);
    let always = ALWAYS.contains(&name);
    // An embedder's own libm comes before the system's.
    let mut folders = own.chain(system.filter(|_| !always));
    let found = folders.find_map(|folder| {
        let mut files = files.iter().map(|file| folder.join(file));
        files.find_map(|file| of(&file))
    });
    match found {
        Some(library) => Some(library),
        None if always => None,
        // The dynamic loader says what it does not find.
        None => Some(Library::Shared(files[0].clone())),
    }
}

/// What kind of library a file is, if it is one.
fn of(file: &Path) -> Option<Library> {
    let mut start = [0; 18];
    File::open(file).ok()?.read_exact(&mut start).ok()?;
    if start.starts_with(b"!<arch>\n") || start.starts_with(b"!<thin>\n") {
        return Some(Library::Archive(file.to_owned()));
    }
    if is_shared(file) {
        return Some(Library::Shared(file.display().to_string()));
    }
    // A linker's script: the first library that it names.
    let text = std::fs::read_to_string(file).ok()?;
    let mut words = text.split(|c: char| c.is_whitespace() || "(),".contains(c));
    let named = words.find(|word| word.contains(".so") && !word.starts_with("AS_NEEDED"))?;
    Some(Library::Shared(named.to_owned()))
}

/// Whether a file is an ELF shared library.
pub(super) fn is_shared(file: &Path) -> bool {
    /// `e_type` of `ET_DYN`, after the 16 bytes that identify the file.
    const SHARED: [u8; 2] = [3, 0];
    let mut start = [0; 18];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start.starts_with(b"\x7fELF") && start[16..] == SHARED
}
