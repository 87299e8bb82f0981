//! A shared library, made in memory, that stands for the program in the dynamic loader's searches.
//!
//! It defines the program's exports, each name at its address in the program (`SHN_ABS`, so that
//! the loader adds nothing), and is opened into the global scope. Libraries that are opened later,
//! and `dlsym(RTLD_DEFAULT)` in any of them, find the program's names as they would in an
//! executable linked with `-rdynamic`. Its code consists of *thunks*, by which a library that the
//! runtime uses too calls a function of the program:
//!
//! ```text
//! 64 83 3c 25 RAISED 00   cmp dword ptr fs:[RAISED], 0
//! 75 11                   jne old
//! 64 80 3c 25 NEVER 00    cmp byte ptr fs:[NEVER], 0
//! 75 06                   jne old
//! ff 25 0c 00 00 00       jmp [new]
//! ff 25 0e 00 00 00  old: jmp [old]
//! ```
//!
//! with the two words 40 and 48 bytes from its start: a thread of the runtime, and one inside it,
//! calls the library's previous target, as guest code must not run there. All registers keep their
//! values but the flags, which are not preserved over calls.
//!
//! | part | place |
//! |---|---|
//! | header, program headers | 0 |
//! | `DT_HASH`, symbols, strings, thunks | behind them, one segment, readable and executable |
//! | dynamic section | the next page, writable: the loader writes there |

use std::ffi::{CStr, CString, OsStr, c_void};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk_files::OwnFile;

/// A name and its address.
pub(crate) struct ExportedName<'a> {
    pub(crate) name: &'a CStr,
    pub(crate) address: u64,
    pub(crate) kind: NameKind,
}

/// The kind of a name's definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    Variable,
    Function,
    /// The result of the function at its address when the loader calls it (`STT_GNU_IFUNC`).
    Resolver,
}

impl NameKind {
    /// The symbol's type (gABI).
    fn number(self) -> u8 {
        match self {
            NameKind::Variable => 1,
            NameKind::Function => 2,
            NameKind::Resolver => 10,
        }
    }
}

/// The library, opened.
pub(crate) struct StandIn {
    /// The loader's handle, never closed.
    pub(crate) handle: usize,
    /// Addresses of its thunks.
    pub(crate) thunks: Vec<u64>,
}

/// Calls of one function by threads of the program and of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Thunk {
    /// Target of the program's threads.
    pub(crate) new: u64,
    /// Target of the runtime's threads.
    pub(crate) old: u64,
}

/// Offsets of the marks of [`shield`](crate::fork::shield) from a thread's `fs`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks {
    pub(crate) raised: i32,
    pub(crate) never: i32,
}

/// Bytes of a thunk.
const THUNK: usize = 64;
const PAGE: usize = 4096;
/// Number of libraries opened from memory.
static OPENED: AtomicUsize = AtomicUsize::new(0);
pub(crate) const HEADER: usize = 64;
pub(super) const PROGRAM_HEADER: usize = 56;

/// The library's bytes, and the offset of its thunks.
struct LibraryImage {
    bytes: Vec<u8>,
    thunks: usize,
}

fn thunk(marks: Marks, thunk: Thunk) -> [u8; THUNK] {
    // Filled with traps.
    let mut code = [0xcc; THUNK];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        code[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&[0x64, 0x83, 0x3c, 0x25]);
    put(&marks.raised.to_le_bytes());
    put(&[0, 0x75, 0x11]);
    put(&[0x64, 0x80, 0x3c, 0x25]);
    put(&marks.never.to_le_bytes());
    put(&[0, 0x75, 0x06]);
    // The instructions end at 28 and 34.
    put(&[0xff, 0x25, 12, 0, 0, 0]);
    put(&[0xff, 0x25, 14, 0, 0, 0]);
    code[40..48].copy_from_slice(&thunk.new.to_le_bytes());
    code[48..56].copy_from_slice(&thunk.old.to_le_bytes());
    code
}

/// The hash function of `DT_HASH` (gABI).
fn hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(0_u32, |hash, &byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

impl LibraryImage {
    /// `stack` is the flags of its `PT_GNU_STACK`.
    fn new(names: &[ExportedName<'_>], thunks: &[Thunk], marks: Marks, stack: u32) -> LibraryImage {
        const HEADERS: usize = 4;
        let mut bytes = vec![0; HEADER + HEADERS * PROGRAM_HEADER];
        let hashes = bytes.len();
        bytes.extend(words(&hash_table(names)));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let symbols = bytes.len();
        let (table, strings) = symbol_table(names);
        bytes.extend(table);
        let text = bytes.len();
        bytes.extend(&strings);
        let code = bytes.len().next_multiple_of(THUNK);
        bytes.resize(code, 0xcc);
        thunks
            .iter()
            .for_each(|&one| bytes.extend(thunk(marks, one)));
        let first = bytes.len();
        let dynamic = first.next_multiple_of(PAGE);
        bytes.resize(dynamic, 0);
        // DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL.
        let entries = [
            (4, hashes),
            (5, text),
            (6, symbols),
            (10, strings.len()),
            (11, 24),
            (0, 0),
        ];
        for (tag, value) in entries {
            bytes.extend(u64::to_le_bytes(tag));
            bytes.extend((value as u64).to_le_bytes());
        }
        let last = bytes.len() - dynamic;
        let (load, read, write, execute) = (libc::PT_LOAD, 4, 2, 1);
        let headers = [
            (load, read | execute, 0, first, PAGE),
            (load, read | write, dynamic, last, PAGE),
            (libc::PT_DYNAMIC, read | write, dynamic, last, 8),
            (libc::PT_GNU_STACK, stack, 0, 0, 16),
        ];
        bytes[..HEADER].copy_from_slice(&elf_header(HEADERS as u16));
        for (index, header) in headers.into_iter().enumerate() {
            let at = HEADER + index * PROGRAM_HEADER;
            bytes[at..at + PROGRAM_HEADER].copy_from_slice(&program_header(header));
        }
        LibraryImage {
            bytes,
            thunks: code,
        }
    }
}

fn words(words: &[u32]) -> impl Iterator<Item = u8> {
    words.iter().flat_map(|word| word.to_le_bytes())
}

/// `DT_HASH`: counts of buckets and symbols, the first symbol of each bucket, the next one of each
/// symbol. Symbol 0 has no name and ends a chain.
fn hash_table(names: &[ExportedName<'_>]) -> Vec<u32> {
    let buckets = names.len() + 1;
    let mut table = vec![0; 2 + buckets + names.len() + 1];
    (table[0], table[1]) = (buckets as u32, names.len() as u32 + 1);
    for (index, name) in names.iter().enumerate() {
        let symbol = index + 1;
        let bucket = 2 + hash(name.name) as usize % buckets;
        table[2 + buckets + symbol] = table[bucket];
        table[bucket] = symbol as u32;
    }
    table
}

/// Symbols and strings.
fn symbol_table(names: &[ExportedName<'_>]) -> (Vec<u8>, Vec<u8>) {
    const GLOBAL: u8 = 1 << 4;
    const ABSOLUTE: u16 = 0xfff1;
    let (mut table, mut strings) = (vec![0; 24], vec![0]);
    for name in names {
        table.extend((strings.len() as u32).to_le_bytes());
        // Default visibility.
        table.extend([GLOBAL | name.kind.number(), 0]);
        table.extend(ABSOLUTE.to_le_bytes());
        table.extend(name.address.to_le_bytes());
        table.extend(0_u64.to_le_bytes());
        strings.extend(name.name.to_bytes_with_nul());
    }
    (table, strings)
}

pub(crate) fn elf_header(headers: u16) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    // 64 bits, little-endian, version 1; ET_DYN for EM_X86_64.
    header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    header[16..18].copy_from_slice(&3_u16.to_le_bytes());
    header[18..20].copy_from_slice(&62_u16.to_le_bytes());
    header[20..24].copy_from_slice(&1_u32.to_le_bytes());
    header[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
    header[52..54].copy_from_slice(&(HEADER as u16).to_le_bytes());
    header[54..56].copy_from_slice(&(PROGRAM_HEADER as u16).to_le_bytes());
    header[56..58].copy_from_slice(&headers.to_le_bytes());
    header
}

/// Kind, flags, offset and address, size, alignment.
pub(super) fn program_header(
    (kind, flags, at, size, align): (u32, u32, usize, usize, usize),
) -> [u8; PROGRAM_HEADER] {
    let mut header = [0; PROGRAM_HEADER];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[4..8].copy_from_slice(&flags.to_le_bytes());
    for (index, value) in [at, at, at, size, size, align].into_iter().enumerate() {
        let place = 8 + index * 8;
        header[place..place + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    header
}

/// Makes and opens the library, which stays. `None` if neither memory nor the folder for temporary
/// files may be mapped for execution.
pub(crate) fn open(names: &[ExportedName<'_>], thunks: &[Thunk], marks: Marks) -> Option<StandIn> {
    let image = LibraryImage::new(names, thunks, marks, libc::PF_R | libc::PF_W);
    let handle = open_bytes(&image.bytes).ok()?;
    // SAFETY: an open handle.
    let base = unsafe { crate::host::exports::base_of(handle) }?;
    let first = base + image.thunks as u64;
    let places = (0..thunks.len()).map(|index| first + (index * THUNK) as u64);
    Some(StandIn {
        handle: handle as usize,
        thunks: places.collect(),
    })
}

/// Opens a library without names that requests executable stacks. The loader then makes those of
/// all threads executable, including future threads, and the part to which the main thread's may
/// grow.
///
/// # Errors
/// The loader's message.
pub(crate) fn open_for_stacks() -> Result<(), String> {
    let marks = Marks {
        raised: 0,
        never: 0,
    };
    let stack = libc::PF_R | libc::PF_W | libc::PF_X;
    open_bytes(&LibraryImage::new(&[], &[], marks, stack).bytes).map(drop)
}

/// Opens a library from memory, or if memory may not be mapped for execution, from a file.
pub(super) fn open_bytes(bytes: &[u8]) -> Result<*mut c_void, String> {
    open_in_memory(bytes).or_else(|_| open_in_folder(bytes))
}

fn open_in_memory(bytes: &[u8]) -> Result<*mut c_void, String> {
    // A high descriptor: debuggers, and other readers of the list of libraries, open them by their
    // paths. Under a low number they would find a file of their own, and if that is an empty pipe,
    // wait forever.
    let file = OwnFile::in_memory(c"uruk-program", false);
    let mut file = file.map_err(|cause| cause.to_string())?;
    file.write_all(bytes).map_err(|cause| cause.to_string())?;
    // The loader identifies libraries by the paths they were opened by, and descriptor numbers are
    // reused: each path is used once.
    let once = "./".repeat(OPENED.fetch_add(1, Ordering::Relaxed));
    open_path(format!("/proc/self/fd/../{once}fd/{}", file.as_raw_fd()).into())
}

fn open_in_folder(bytes: &[u8]) -> Result<*mut c_void, String> {
    let folder = std::env::temp_dir();
    let mut path = folder.into_os_string().into_encoded_bytes();
    path.extend(b"/uruk-program-XXXXXX\0");
    // SAFETY: a C string that may be written.
    let file = unsafe { libc::mkostemp(path.as_mut_ptr().cast(), libc::O_CLOEXEC) };
    if file < 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    path.pop();
    // SAFETY: a fresh descriptor, ours.
    let file = OwnFile::of(unsafe { OwnedFd::from_raw_fd(file) });
    let written = file.and_then(|mut file| file.write_all(bytes));
    let opened = written.map_err(|cause| cause.to_string());
    let opened = opened.and_then(|()| open_path(path.clone()));
    let _ = std::fs::remove_file(OsStr::from_bytes(&path));
    opened
}

/// Loads the library at `path` into the global scope.
fn open_path(path: Vec<u8>) -> Result<*mut c_void, String> {
    let path = CString::new(path).map_err(|cause| cause.to_string())?;
    let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NODELETE;
    // SAFETY: the library above, which has no constructors.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    if handle.is_null() {
        // SAFETY: after a failure the loader has a message for this thread; it is taken, so that
        // the program does not find it.
        let message = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(message.to_string_lossy().into_owned());
    }
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::{ExportedName, Marks, NameKind, Thunk, open};

    #[test]
    fn the_loader_finds_names_and_thunks_choose() {
        extern "C" fn new() -> u32 {
            1
        }
        extern "C" fn old() -> u32 {
            2
        }
        /// A resolver: its result is the loader's target.
        extern "C" fn chooses() -> usize {
            0x5678
        }
        let (function, resolver) = (new as *const () as u64, chooses as *const () as u64);
        let names = [
            (c"uruk_stand_in_function", function, NameKind::Function),
            (c"uruk_stand_in_variable", 0x1234, NameKind::Variable),
            (c"uruk_stand_in_resolver", resolver, NameKind::Resolver),
        ];
        let found = [function, 0x1234, 0x5678];
        let names = names.map(|(name, address, kind)| ExportedName {
            name,
            address,
            kind,
        });
        let thunks = [Thunk {
            new: new as *const () as u64,
            old: old as *const () as u64,
        }];
        let (raised, never) = crate::fork::shield::marks().expect("an executable");
        let made = open(&names, &thunks, Marks { raised, never }).expect("a library");
        let thunks = made.thunks;
        for (name, expected) in names.iter().zip(found) {
            // SAFETY: a C string.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.name.as_ptr()) };
            assert_eq!(found as u64, expected, "{:?}", name.name);
        }
        // SAFETY: a thunk of such functions.
        let call = unsafe { std::mem::transmute::<u64, extern "C" fn() -> u32>(thunks[0]) };
        assert_eq!(call(), 1);
        let shield = crate::fork::shield::Shield::raise();
        assert_eq!(call(), 2);
        drop(shield);
        assert_eq!(call(), 1);
        std::thread::spawn(move || {
            crate::fork::shield::never_interrupted();
            assert_eq!(call(), 2);
        })
        .join()
        .expect("no panic");
    }
}
