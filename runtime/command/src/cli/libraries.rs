//! Resolves `-l` and `-L`, and finds the shared libraries among the files of a command line.
//!
//! Works like a linker called by clang: `-l z` is `libz.so`, else `libz.a`, in the folders of `-L`, then
//! in gcc's own, then in those of the system; `-l :NAME` is a file of that name there. A file that is
//! neither is a linker's script, whose libraries are used. A library that only the dynamic loader has
//! (`libz.so.1`, without a name for linkers) is found in its cache. A path, or a name for the dynamic
//! loader, is used unchanged. Libraries of every program are left out.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Search folders of this system's linkers.
const SYSTEM: [&str; 5] = [
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib",
    "/usr/lib",
];

/// Folders of gcc's own libraries, with a subfolder for each version.
const GCC: [&str; 3] = [
    "/usr/lib/gcc/x86_64-linux-gnu",
    "/usr/lib/gcc/x86_64-redhat-linux",
    "/usr/lib/gcc/x86_64-pc-linux-gnu",
];

/// The dynamic loader's list of libraries.
const CACHE: &str = "/etc/ld.so.cache";

/// Libraries that every program has here. `c_nonshared` is among them: the session has its functions
/// itself.
const ALWAYS: [&str; 9] = [
    "c",
    "m",
    "pthread",
    "dl",
    "rt",
    "util",
    "stdc++",
    "gcc_s",
    "c_nonshared",
];

/// Depth to which scripts that name scripts are followed.
const DEPTH: usize = 4;

/// A library of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Library {
    /// A library to load, by its path or its name for the dynamic loader.
    Shared(String),
    /// An archive whose members are linked into the program as needed.
    Archive(PathBuf),
}

/// The libraries of `-l NAME`; none for libraries that every program has.
pub(super) fn find(name: &str, folders: &[PathBuf]) -> Vec<Library> {
    find_in(name, folders, DEPTH)
}

fn find_in(name: &str, folders: &[PathBuf], depth: usize) -> Vec<Library> {
    let exact = name.strip_prefix(':');
    if exact.is_none() && (name.contains('/') || name.ends_with(".so") || name.contains(".so.")) {
        return vec![Library::Shared(name.to_owned())];
    }
    let files = match exact {
        Some(file) => vec![file.to_owned()],
        None => vec![format!("lib{name}.so"), format!("lib{name}.a")],
    };
    let always = ALWAYS.contains(&name);
    // A libm in the user's folders comes before the system's.
    let system = if always { Vec::new() } else { system() };
    let all = folders.iter().chain(&system);
    let mut files_there = all.flat_map(|folder| files.iter().map(|file| folder.join(file)));
    if let Some(found) = files_there.find_map(|file| of(&file, folders, depth)) {
        return found;
    }
    if always {
        return Vec::new();
    }
    let cached = std::fs::read(CACHE).ok();
    let cached = cached.and_then(|cache| in_cache(&cache, &files[0]));
    // The dynamic loader reports a library that it does not find.
    vec![Library::Shared(cached.unwrap_or_else(|| files[0].clone()))]
}

/// Folders of gcc and of the system.
fn system() -> Vec<PathBuf> {
    let gcc = GCC.iter().filter_map(|folder| newest(Path::new(folder)));
    gcc.chain(SYSTEM.map(PathBuf::from)).collect()
}

/// The folder of the highest version among those in `folder` that contain an installation with
/// libraries.
fn newest(folder: &Path) -> Option<PathBuf> {
    let versions = folder.read_dir().ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let text = path.file_name()?.to_str()?.to_owned();
        let numbers = text
            .split('.')
            .map(str::parse)
            .collect::<Result<Vec<u32>, _>>();
        let whole = path.join("crtbegin.o").exists();
        Some((numbers.ok().filter(|_| whole)?, path))
    });
    versions.max().map(|(_, path)| path)
}

/// The libraries that a file is or refers to, if it is one.
fn of(file: &Path, folders: &[PathBuf], depth: usize) -> Option<Vec<Library>> {
    let mut start = [0; 18];
    File::open(file).ok()?.read_exact(&mut start).ok()?;
    if start.starts_with(b"!<arch>\n") || start.starts_with(b"!<thin>\n") {
        return Some(vec![Library::Archive(file.to_owned())]);
    }
    if is_shared(file) {
        return Some(vec![Library::Shared(file.display().to_string())]);
    }
    let text = std::fs::read_to_string(file).ok()?;
    let named = script(&text);
    let depth = depth.checked_sub(1).filter(|_| !named.is_empty())?;
    let found = named
        .into_iter()
        .flat_map(|word| match word.strip_prefix("-l") {
            Some(name) => find_in(name, folders, depth),
            None => named_by(file, &word, folders, depth),
        });
    Some(found.collect())
}

/// A file that the script `script` names: a path, or a file beside the script or in a folder.
fn named_by(script: &Path, word: &str, folders: &[PathBuf], depth: usize) -> Vec<Library> {
    // The session has its functions.
    if word.contains("libc_nonshared") {
        return Vec::new();
    }
    let beside = script.parent().map(Path::to_owned);
    let all = beside
        .into_iter()
        .chain(folders.iter().cloned())
        .chain(system());
    let found = all.map(|folder| folder.join(word));
    let found = found
        .filter(|file| file != script)
        .find_map(|file| of(&file, folders, depth));
    found.unwrap_or_else(|| vec![Library::Shared(word.to_owned())])
}

/// The libraries that a linker's script names, in `INPUT`, `GROUP` and `AS_NEEDED`.
fn script(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        plain.push_str(before);
        plain.push(' ');
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let spaced = plain
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace([',', ';', '"'], " ");
    let (mut named, mut lists) = (Vec::new(), Vec::new());
    let mut command = "";
    for word in spaced.split_whitespace() {
        match word {
            "(" => lists.push(command),
            ")" => {
                lists.pop();
            }
            "AS_NEEDED" => {}
            _ if lists.iter().any(|list| ["INPUT", "GROUP"].contains(list)) => {
                named.push(word.to_owned());
            }
            _ => {}
        }
        command = word;
    }
    named
}

/// The path of a library in the dynamic loader's cache: of the exact name, or of the name with the
/// highest version number.
fn in_cache(cache: &[u8], name: &str) -> Option<String> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    /// `FLAG_ELF_LIBC6 | FLAG_X8664_LIB64`.
    const X86_64: u32 = 0x0303;
    // A table of an older format may come before it.
    let at = cache
        .windows(MAGIC.len())
        .position(|bytes| bytes == MAGIC)?;
    let cache = &cache[at..];
    let number = |at: usize| -> Option<u32> {
        let bytes = cache.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let text = |at: u32| -> Option<&str> {
        let bytes = cache.get(at as usize..)?.split(|&byte| byte == 0).next()?;
        std::str::from_utf8(bytes).ok()
    };
    let entries = (0..number(MAGIC.len())? as usize).filter_map(|index| {
        let entry = HEADER + index * ENTRY;
        let (key, value) = (text(number(entry + 4)?)?, text(number(entry + 8)?)?);
        let version = key
            .strip_prefix(name)
            .filter(|_| number(entry) == Some(X86_64))?;
        let numbers: Result<Vec<u32>, _> = match version.strip_prefix('.') {
            Some(version) => version.split('.').map(str::parse).collect(),
            None if version.is_empty() => Ok(vec![u32::MAX]),
            None => return None,
        };
        Some((numbers.ok()?, value))
    });
    entries.max().map(|(_, path)| path.to_owned())
}

/// Whether a file is an ELF shared library.
pub(super) fn is_shared(file: &Path) -> bool {
    /// `e_type` of `ET_DYN`, after the 16 bytes that identify the file.
    const SHARED: [u8; 2] = [3, 0];
    let mut start = [0; 18];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start.starts_with(b"\x7fELF") && start[16..] == SHARED
}

#[cfg(test)]
mod tests {
    use super::{CACHE, in_cache, script};

    #[test]
    fn scripts_name_libraries() {
        let libc = "/* GNU ld script */\nOUTPUT_FORMAT(elf64-x86-64)\n\
            GROUP ( /lib/libc.so.6 /usr/lib/libc_nonshared.a  AS_NEEDED ( /lib/ld.so.2 ) )";
        let named = [
            "/lib/libc.so.6",
            "/usr/lib/libc_nonshared.a",
            "/lib/ld.so.2",
        ];
        assert_eq!(script(libc), named);
        assert_eq!(
            script("INPUT(libncurses.so.6, -ltinfo)"),
            ["libncurses.so.6", "-ltinfo"]
        );
        assert!(script("no script at all (INPUT)").is_empty());
    }

    #[test]
    fn the_cache_has_the_c_library() {
        let Ok(cache) = std::fs::read(CACHE) else {
            uruk_files::say!("skipped: this system has no {CACHE}");
            return;
        };
        let found = in_cache(&cache, "libc.so").expect("libc.so.6");
        assert!(found.ends_with("libc.so.6"), "{found}");
        assert_eq!(in_cache(&cache, "libno-such.so"), None);
        for cut in [0, 19, 30, 60, cache.len() / 2] {
            in_cache(&cache[..cut.min(cache.len())], "libc.so");
        }
    }
}
