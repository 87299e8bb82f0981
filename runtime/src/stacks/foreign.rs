//! Code of the process that is not of this session: which files it is in, and whose it is.
//!
//! Not every file is searched. Trusted are
//!
//! | file | found by | why |
//! |---|---|---|
//! | the C library | the address of a function of it | it has all the ways to other stacks; code that uses them names them |
//! | the dynamic loader | the same | it calls functions on the stack it was called on |
//! | libgcc | the address of its unwinder | it leaves frames for an older one on the same stack |
//! | LLVM, and what it needs | the address of a function of it; `DT_NEEDED` and `DT_SONAME` | it has an alternate stack and `longjmp`, for crashes, and calls nothing of a program |
//!
//! Of the file that holds the runtime only the names are searched, and not for the pair
//! `sigaltstack` and `longjmp`: the runtime's own assembly loads its stack pointer, and `std` names
//! `sigaltstack`. An embedder whose own code switches to other stacks registers them.
//!
//! Text of a program that was copied to memory without a name, so that entries can be written to, is
//! still the file's ([`note_copied_text`]).

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::OnceLock;

use crate::host::tls::__tls_get_addr;
use crate::stacks::library::{self, Links};

/// A file with executable mappings.
pub(super) struct Mapped {
    /// Its path; with ` (deleted)` behind it, if it is.
    pub(super) path: String,
    /// Device, inode and path: they identify the file, if another file gets the path.
    pub(super) key: String,
    ranges: Vec<Range<u64>>,
}

/// Text that was copied, the first of a list that only grows: a lock of its own would be one more
/// to hold across forks.
static COPIED: OnceLock<Box<CopiedText>> = OnceLock::new();

/// Text that lies in memory without a name, and the file that it is from.
struct CopiedText {
    text: Range<u64>,
    path: String,
    key: String,
    next: OnceLock<Box<CopiedText>>,
}

/// Notes which file executable memory is mapped from, because a copy is about to be mapped in its
/// place. `text` lies within one mapping. Without this call, or where `/proc` cannot be read, the
/// copy is taken for code of an unknown file, and all memory is searched for stacks.
pub fn note_copied_text(text: Range<u64>) {
    let holds = |file: &&Mapped| {
        let mut ranges = file.ranges.iter();
        ranges.any(|range| range.start <= text.start && text.end <= range.end)
    };
    let found = foreign_code(|_| false);
    let Some(file) = found.as_ref().and_then(|it| it.files.iter().find(holds)) else {
        return;
    };
    let mut copied = Box::new(CopiedText {
        text,
        path: file.path.clone(),
        key: file.key.clone(),
        next: OnceLock::new(),
    });
    let mut place = &COPIED;
    while let Err(back) = place.set(copied) {
        copied = back;
        let Some(held) = place.get() else { return };
        place = &held.next;
    }
}

/// The file that a copied text at `start` is from, by the latest note.
fn copied_from(start: u64) -> Option<&'static CopiedText> {
    let all = std::iter::successors(COPIED.get(), |copied| copied.next.get());
    let noted = all.filter(|copied| copied.text.contains(&start));
    noted.last().map(|copied| &**copied)
}

/// Executable mappings of the process.
pub(super) struct Foreign {
    /// A hash of them.
    pub(super) mappings: u64,
    pub(super) files: Vec<Mapped>,
    /// The first mapping without a file.
    pub(super) made: Option<u64>,
}

/// The executable mappings except those that begin at `ours`; `None` if the kernel does not list
/// them.
pub(super) fn foreign_code(ours: impl Fn(u64) -> bool) -> Option<Foreign> {
    let text = uruk_files::read_to_string("/proc/thread-self/maps").ok()?;
    let mut hasher = DefaultHasher::new();
    let mut found = Foreign {
        mappings: 0,
        files: Vec::new(),
        made: None,
    };
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(permissions)) = (words.next(), words.next()) else {
            continue;
        };
        if permissions.as_bytes().get(2) != Some(&b'x') {
            continue;
        }
        let (start, end) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        if ours(start) {
            continue;
        }
        let (_, device, inode) = (words.next(), words.next()?, words.next()?);
        let path = words.next();
        (range, device, inode, path).hash(&mut hasher);
        match path {
            Some("[vdso]" | "[vsyscall]") => {}
            // Memory of another session, which checks its own code.
            Some("/memfd:uruk") => {}
            Some(path) if path.starts_with('/') => {
                // The rest of a path with blanks.
                let from = line.find(path).unwrap_or(line.len());
                let path = &line[from..];
                let nameless = path.starts_with("/memfd:");
                match nameless.then(|| copied_from(start)).flatten() {
                    Some(CopiedText { path, key, .. }) => found.add(path, key.clone(), start..end),
                    None => found.add(path, format!("{device} {inode} {path}"), start..end),
                }
            }
            _ => found.made = found.made.or(Some(start)),
        }
    }
    found.mappings = hasher.finish();
    Some(found)
}

impl Foreign {
    fn add(&mut self, path: &str, key: String, range: Range<u64>) {
        match self.files.iter_mut().find(|file| file.key == key) {
            Some(file) => file.ranges.push(range),
            None => self.files.push(Mapped {
                path: path.to_owned(),
                key,
                ranges: vec![range],
            }),
        }
    }

    /// The trusted files, which are not searched, by key.
    pub(super) fn trusted(&self) -> HashSet<String> {
        let llvm = uruk_late::function().map(|function| function as u64);
        let mut trusted: HashSet<String> = [c_library(), loader(), unwinder()]
            .into_iter()
            .chain(llvm)
            .filter_map(|address| self.holder(address))
            .filter(|file| !file.is_own())
            .map(|file| file.key.clone())
            .collect();
        let llvm = llvm.and_then(|function| self.holder(function));
        let Some(llvm) = llvm.filter(|file| !file.is_own()) else {
            return trusted;
        };
        let mut known: Vec<(&Mapped, Links)> = Vec::new();
        for file in &self.files {
            known.extend(library::links(&file.path).map(|links| (file, links)));
        }
        let mut asked = vec![&llvm.key];
        while let Some(key) = asked.pop() {
            let needs = known.iter().filter(|(file, _)| file.key == *key);
            for name in needs.flat_map(|(_, links)| &links.needs) {
                let named = |links: &Links| links.name.as_ref() == Some(name);
                let needed = known.iter().filter(|(_, links)| named(links));
                for (file, _) in needed.filter(|(file, _)| !file.is_own()) {
                    if trusted.insert(file.key.clone()) {
                        asked.push(&file.key);
                    }
                }
            }
        }
        trusted
    }

    fn holder(&self, address: u64) -> Option<&Mapped> {
        self.files.iter().find(|file| file.holds(address))
    }
}

impl Mapped {
    fn holds(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// Whether the file holds the runtime.
    pub(super) fn is_own(&self) -> bool {
        self.holds(c_library as *const () as u64)
    }
}

fn c_library() -> u64 {
    libc::gnu_get_libc_version as *const () as u64
}

/// An address in the dynamic loader.
fn loader() -> u64 {
    __tls_get_addr as *const () as u64
}

fn unwinder() -> u64 {
    unsafe extern "C" {
        fn _Unwind_RaiseException();
    }
    _Unwind_RaiseException as *const () as u64
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use uruk_files::OwnFile;

    use super::{foreign_code, note_copied_text};

    /// Maps the first page of a file for execution, at `at` or anywhere.
    fn map(at: u64, file: &impl AsRawFd) -> u64 {
        let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
        // SAFETY: a new mapping, or one in the place of a mapping of this test.
        let mapped = unsafe {
            libc::mmap(
                at as *mut libc::c_void,
                4096,
                libc::PROT_READ | libc::PROT_EXEC,
                libc::MAP_PRIVATE | fixed,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        mapped as u64
    }

    #[test]
    fn a_copied_text_is_of_the_file_it_was_mapped_from() {
        let program = std::env::current_exe().expect("a path");
        let at = map(0, &File::open(&program).expect("readable"));
        let memory = || {
            let memory = OwnFile::in_memory(c"uruk-text", true).expect("memory");
            memory.set_len(4096).expect("room");
            memory
        };
        let unknown = map(0, &memory());
        note_copied_text(at..at + 4096);
        map(at, &memory());
        let found = foreign_code(|_| false).expect("proc");
        let path = |at| found.holder(at).expect("mapped").path.clone();
        assert_eq!(path(at), program.display().to_string());
        assert_eq!(path(unknown), "/memfd:uruk-text (deleted)");
    }

    #[test]
    fn what_is_trusted() {
        assert_eq!(uruk_late::open(), Ok(()));
        let found = foreign_code(|_| false).expect("proc");
        let trusted = found.trusted();
        let is_trusted = |name: &str| {
            let mut files = found.files.iter().filter(|file| file.path.contains(name));
            files.all(|file| trusted.contains(&file.key))
        };
        for name in ["/libc.so", "/ld-linux", "/libgcc_s", "/libLLVM", "/libz.so"] {
            assert!(is_trusted(name), "{name}");
        }
        let own: Vec<_> = found.files.iter().filter(|file| file.is_own()).collect();
        assert_eq!(own.len(), 1);
        assert!(!trusted.contains(&own[0].key));
    }
}
