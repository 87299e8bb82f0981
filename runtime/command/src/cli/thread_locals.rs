//! A library with static storage for the thread-locals of a program.
//!
//! Objects compiled for an executable reach their thread-locals at fixed distances from the thread
//! pointer. The runtime has 3 KiB at such places, on the stack of each thread. A program with more is
//! detected when it is linked. The process then executes itself again with a library for which the
//! loader reserves enough. The library is made here and preloaded from memory, and defines
//! `uruk_thread_local_room`, by which the runtime finds it (`host::tls::room`).

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use uruk_live::{start, tunables};

const PRELOAD: &str = "LD_PRELOAD";
const FOLDER: &str = "/proc/self/fd/";
const NAME: &str = "uruk-thread-locals";

/// Offset of the block's bytes in the library, and size of a page of memory.
const BLOCK: u64 = 4096;

/// The symbols that the library defines, as a table of texts.
const SYMBOL: &[u8] = b"\0uruk_thread_local_room\0";

const HEADERS: u64 = 64;
const DYNAMIC: u64 = HEADERS + 4 * 56;
const SYMBOLS: u64 = DYNAMIC + 6 * 16;
const HASHES: u64 = SYMBOLS + 2 * 24;
const TEXTS: u64 = (HASHES + 5 * 4).next_multiple_of(8);
const WORD: u64 = (TEXTS + SYMBOL.len() as u64).next_multiple_of(8);

/// The bytes of an ELF library with a block of `size` bytes for each thread, initialized with zeros.
fn library(size: u64, align: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((BLOCK + size) as usize);
    let mut put = |words: &[u64], width: usize| {
        for word in words {
            bytes.extend_from_slice(&word.to_le_bytes()[..width]);
        }
    };
    // An identification of 64 bits, little-endian; a library for x86-64, without sections.
    put(&[0x0001_0102_464c_457f, 0], 8);
    put(&[3, 62], 2);
    put(&[1], 4);
    put(&[0, HEADERS, 0], 8);
    put(&[0], 4);
    put(&[64, 56, 4, 64, 0, 0], 2);
    let all = BLOCK + size;
    let segments = [
        (libc::PT_LOAD, [0, 0, 0, all, all, 4096]),
        (
            libc::PT_DYNAMIC,
            [DYNAMIC, DYNAMIC, DYNAMIC, 6 * 16, 6 * 16, 8],
        ),
        (libc::PT_TLS, [BLOCK, BLOCK, BLOCK, size, size, align]),
        (libc::PT_GNU_STACK, [0, 0, 0, 0, 0, 16]),
    ];
    for (kind, places) in segments {
        put(&[kind.into(), (libc::PF_R | libc::PF_W).into()], 4);
        put(&places, 8);
    }
    // DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL.
    put(&[4, HASHES, 5, TEXTS, 6, SYMBOLS], 8);
    put(&[10, SYMBOL.len() as u64, 11, 24, 0, 0], 8);
    // No symbol, and a global variable of a word.
    put(&[0, 0, 0], 8);
    put(&[1], 4);
    put(&[0x11, 0], 1);
    put(&[1], 2);
    put(&[WORD, 8], 8);
    // One bucket with the symbol.
    put(&[1, 2, 1, 0, 0], 4);
    bytes.resize(TEXTS as usize, 0);
    bytes.extend_from_slice(SYMBOL);
    bytes.resize(WORD as usize, 0);
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.resize(all as usize, 0);
    bytes
}

/// The file of such a library, which stays open when the process executes itself again.
fn file(size: u64, align: u64) -> Option<File> {
    let name = CString::new(NAME).ok()?;
    // SAFETY: a C string.
    let file = unsafe { libc::memfd_create(name.as_ptr(), 0) };
    if file < 0 {
        return None;
    }
    // SAFETY: opened a moment ago.
    let mut file = unsafe { File::from_raw_fd(file) };
    file.write_all(&library(size, align)).ok()?;
    Some(file)
}

/// The descriptor of our file at the end of the variable's value, and the value before it.
fn ours(value: &OsStr) -> Option<(RawFd, OsString)> {
    let value = value.as_bytes();
    let at = value.iter().rposition(|&byte| byte == b':');
    let (before, last) = match at {
        Some(at) => (&value[..at], &value[at + 1..]),
        None => (&value[..0], value),
    };
    let last = std::str::from_utf8(last).ok()?;
    let number = last.strip_prefix(FOLDER)?.parse().ok()?;
    let target = std::fs::read_link(Path::new(last)).ok()?;
    let is_ours = target
        .as_os_str()
        .as_bytes()
        .starts_with(b"/memfd:uruk-thread-locals");
    is_ours.then(|| (number, OsString::from_vec(before.to_owned())))
}

/// Whether the process executed itself again.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Restores the environment in a process that executed itself again.
///
/// # Safety
/// No other thread uses the environment meanwhile.
pub(super) unsafe fn take_ours() {
    let Some((file, before)) = std::env::var_os(PRELOAD).and_then(|value| ours(&value)) else {
        return;
    };
    BEGUN.store(true, Ordering::Relaxed);
    // SAFETY: the caller's promise; the file is the one that `start_again` left open.
    unsafe {
        match before.is_empty() {
            true => std::env::remove_var(PRELOAD),
            false => std::env::set_var(PRELOAD, before),
        }
        drop(File::from_raw_fd(file));
    }
}

/// Executes the process again with room for thread-locals. Returns on failure, or if that was done
/// already.
///
/// # Safety
/// No other thread uses the environment meanwhile.
pub(super) unsafe fn start_again(size: usize, align: usize) {
    // The loader ignores the variable where the process has rights of its own.
    let is_again = BEGUN.load(Ordering::Relaxed);
    if is_again || start::has_own_rights() || align as u64 > BLOCK {
        return;
    }
    let Some(file) = file(size as u64, align.max(64) as u64) else {
        return;
    };
    // Kept open when the process executes itself again.
    let file = ManuallyDrop::new(file);
    let mut value = std::env::var_os(PRELOAD).unwrap_or_default();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(format!("{FOLDER}{}", file.as_raw_fd()));
    // SAFETY: the caller's promise.
    unsafe {
        tunables::begin_again(PRELOAD, &value);
        take_ours();
    }
}
