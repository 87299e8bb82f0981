//! Static storage for thread-locals of libraries.
//!
//! Objects compiled for an executable read the offset of a library's thread-local from the thread
//! pointer (`std::call_once` of g++ does: initial-exec). The loader gives a library that it opened
//! late static storage when another library requests such an offset (`R_X86_64_TPOFF64`). This
//! requires that no thread has a block of the library yet (`dlsym` makes one) and that the C
//! library's reserve has room (1,664 bytes). So a library with such a request is made in memory and
//! opened; it stays, and its only word has the offset.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use uruk_base::locks::{Mutex, MutexGuard};

use crate::host::exports::base_of;
use crate::host::stand_in::{HEADER, PROGRAM_HEADER, elf_header, open_bytes, program_header};

const HEADERS: usize = 3;
const HASHES: usize = HEADER + HEADERS * PROGRAM_HEADER;
const SYMBOLS: usize = HASHES + 24;
const RELOCATION: usize = SYMBOLS + 2 * 24;
const WORD: usize = RELOCATION + 24;
const DYNAMIC: usize = WORD + 8;
const ENTRIES: usize = 9;
const STRINGS: usize = DYNAMIC + 16 * ENTRIES;

/// A library that refers to a thread-local by an offset from the thread pointer.
fn image(name: &CStr) -> Vec<u8> {
    const TPOFF64: u64 = 18;
    const GLOBAL_THREAD_LOCAL: u64 = 1 << 4 | 6;
    let name = name.to_bytes_with_nul();
    let size = STRINGS + 1 + name.len();
    let mut bytes = elf_header(HEADERS as u16).to_vec();
    let (read, write) = (4, 2);
    bytes.extend(program_header((libc::PT_LOAD, read | write, 0, size, 4096)));
    let dynamic = (libc::PT_DYNAMIC, read | write, DYNAMIC, 16 * ENTRIES, 8);
    bytes.extend(program_header(dynamic));
    bytes.extend(program_header((libc::PT_GNU_STACK, read | write, 0, 0, 16)));
    let mut words = |words: &[u64]| bytes.extend(words.iter().flat_map(|it| it.to_le_bytes()));
    // DT_HASH: one bucket, which is empty, and two symbols.
    words(&[1 | 2 << 32, 0, 0]);
    // The symbol without a name, and an undefined one.
    words(&[0, 0, 0, 1 | GLOBAL_THREAD_LOCAL << 32, 0, 0]);
    words(&[WORD as u64, 1 << 32 | TPOFF64, 0, 0]);
    // DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT, DT_STRSZ, DT_SYMENT, DT_NULL.
    let entries: [(u64, usize); ENTRIES] = [
        (4, HASHES),
        (5, STRINGS),
        (6, SYMBOLS),
        (7, RELOCATION),
        (8, 24),
        (9, 24),
        (10, 1 + name.len()),
        (11, 24),
        (0, 0),
    ];
    for (tag, value) in entries {
        words(&[tag, value as u64]);
    }
    bytes.push(0);
    bytes.extend(name);
    bytes
}

/// The loader's answer for each name.
static ASKED: Mutex<BTreeMap<CString, Option<i64>>> = Mutex::new(BTreeMap::new());

fn asked() -> MutexGuard<'static, BTreeMap<CString, Option<i64>>> {
    ASKED.lock()
}

/// The offset of a thread-local from the thread pointer in all threads, if a library of the global
/// scope exports it and has static storage, or gets it now. `name` must be exported as a
/// thread-local: for other names the loader does not check whether their libraries have
/// thread-locals at all.
pub(crate) fn offset_of(name: &CStr) -> Option<i64> {
    if let Some(&known) = asked().get(name) {
        return known;
    }
    let found = ask(name);
    asked().insert(name.to_owned(), found);
    found
}

fn ask(name: &CStr) -> Option<i64> {
    let opened = open_bytes(&image(name));
    let opened = opened.inspect_err(|why| tracing::debug!(?name, why, "no static thread-local"));
    // SAFETY: an open handle.
    let base = unsafe { base_of(opened.ok()?) }?;
    // SAFETY: the word of the image that was opened and stays; the loader has written it.
    Some(unsafe { ((base as usize + WORD) as *const i64).read() })
}
