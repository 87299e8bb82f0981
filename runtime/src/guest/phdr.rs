//! `dl_iterate_phdr` that also shows JIT'd code.
//!
//! Rust's standard library names the frames of a backtrace by reading the symbol tables of the
//! files this function lists. JIT'd code has no file; so a small ELF file with the symbols of all
//! bodies is made in memory at the first request, and listed under its descriptor's path. The
//! standard library reads the list once, so functions compiled after the first backtrace are not
//! named by it.
//!
//! The descriptor is a high number: a program gets the same numbers from `open` as natively.

use std::ffi::{CString, c_int, c_void};
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use object::write::{Object, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope};
use uruk_files::OwnFile;

use super::dl;
use crate::fork::gate;
use crate::host::listed::{self, Callback};
use crate::host::llvm;

/// The file shown for JIT'd code, and the one segment it claims.
struct Shown {
    path: CString,
    /// Symbols and the segment's address are relative to it: base zero would mean a static
    /// executable, whose file the standard library would read instead.
    base: u64,
    segment: [libc::Elf64_Phdr; 1],
    _file: OwnFile,
}

/// # Safety
/// As `dl_iterate_phdr`: `callback` may be called with `data`.
pub(crate) unsafe extern "C-unwind" fn guest_dl_iterate_phdr(
    callback: Callback,
    data: *mut c_void,
) -> c_int {
    // Its callback runs under the loader's lock.
    llvm::before_loader();
    // SAFETY: by the caller's promise.
    let result = unsafe { listed::iterate(callback, data) };
    if result != 0 {
        return result;
    }
    static SHOWN: OnceLock<Option<Shown>> = OnceLock::new();
    let shown = SHOWN.get().unwrap_or_else(|| {
        // Under a pass: a child of fork would wait for the thread that makes it.
        let _busy = gate::enter();
        SHOWN.get_or_init(make)
    });
    let Some(shown) = shown else {
        return 0;
    };
    // SAFETY: a record of zeros is valid; only the fields set below are used.
    let mut info: libc::dl_phdr_info = unsafe { std::mem::zeroed() };
    info.dlpi_addr = shown.base;
    info.dlpi_name = shown.path.as_ptr();
    info.dlpi_phdr = shown.segment.as_ptr();
    info.dlpi_phnum = 1;
    // SAFETY: by the caller's promise; the record is alive during the call.
    unsafe { callback(&mut info, size_of::<libc::dl_phdr_info>(), data) }
}

fn make() -> Option<Shown> {
    let symbols = dl::installed()?;
    let code = symbols.code_range();
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    for (start, end, name) in symbols.functions() {
        object.add_symbol(Symbol {
            name: name.to_bytes().to_vec(),
            value: start - code.start,
            size: end - start,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Absolute,
            flags: SymbolFlags::None,
        });
    }
    let bytes = object.write().ok()?;
    let mut file = OwnFile::in_memory(c"uruk-symbols", false).ok()?;
    file.write_all(&bytes).ok()?;
    file.rewind().ok()?;
    // SAFETY: zeros are a valid header; only the fields set below are used.
    let mut segment: libc::Elf64_Phdr = unsafe { std::mem::zeroed() };
    segment.p_type = libc::PT_LOAD;
    segment.p_flags = libc::PF_R | libc::PF_X;
    segment.p_memsz = code.end - code.start;
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    Some(Shown {
        path,
        base: code.start,
        segment: [segment],
        _file: file,
    })
}
