//! The entries, and the code that opens the library behind them.
//!
//! | field | writer | ordering |
//! |---|---|---|
//! | `uruk_late_slots` | [`open`], under the lock of [`OPENING`], once | release; entries read words without one, which on x86-64 is an acquire |
//! | [`OPEN`] | [`open`], last | release, with the acquire of [`is_open`] |
//! | [`LOADS_IN_MS`] | [`find`] | relaxed: a hint |
//! | [`FUNCTION`], [`VTABLE`] | [`open`], before the words | relaxed: read behind [`is_open`], or as a hint |
//!
//! The lock is held while the library's constructors run. They call functions that the process's
//! executable exports (`malloc`, `__cxa_atexit`). Of this module those may call only [`is_library`]
//! and [`function`], which take no lock.
//!
//! A child of `fork` needs the lock free: the forking thread waits until no thread is in LLVM, as
//! it does for LLVM's own locks.

use std::arch::global_asm;
use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::Missing;

global_asm!(
    include_str!(concat!(env!("OUT_DIR"), "/table.s")),
    options(att_syntax)
);

// The caller's arguments are those of any C function: integers, vectors of 16 bytes, the number of
// vectors in `al`, the static chain in `r10`. At the first word: the index of the entry, and the
// return address of the function.
global_asm!(
    ".text",
    ".p2align 4",
    ".globl uruk_late_first",
    ".hidden uruk_late_first",
    ".type uruk_late_first,@function",
    "uruk_late_first:",
    ".cfi_startproc",
    ".cfi_def_cfa_offset 16",
    "push rbp",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset rbp, -24",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    "push r10",
    "sub rsp, 136",
    "movups [rsp], xmm0",
    "movups [rsp + 16], xmm1",
    "movups [rsp + 32], xmm2",
    "movups [rsp + 48], xmm3",
    "movups [rsp + 64], xmm4",
    "movups [rsp + 80], xmm5",
    "movups [rsp + 96], xmm6",
    "movups [rsp + 112], xmm7",
    "mov rdi, [rbp + 8]",
    "call {find}",
    "mov r11, rax",
    "movups xmm0, [rsp]",
    "movups xmm1, [rsp + 16]",
    "movups xmm2, [rsp + 32]",
    "movups xmm3, [rsp + 48]",
    "movups xmm4, [rsp + 64]",
    "movups xmm5, [rsp + 80]",
    "movups xmm6, [rsp + 96]",
    "movups xmm7, [rsp + 112]",
    "add rsp, 136",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rax",
    "pop rbp",
    ".cfi_def_cfa rsp, 16",
    "add rsp, 8",
    ".cfi_def_cfa_offset 8",
    "jmp r11",
    ".cfi_endproc",
    ".size uruk_late_first, . - uruk_late_first",
    find = sym find_entry,
);

/// The number of entries.
const COUNT: usize = parse(env!("LLVM_FUNCTIONS"));

/// Their names, each with its zero byte.
static NAMES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/names"));

/// The library's own name.
const SONAME: &str = env!("LLVM_SONAME");

/// The C++ library, which it needs.
const CPP: &str = "libstdc++.so.6";

/// All libraries that it needs, by name.
const NEEDED: &str = env!("LLVM_NEEDED");

/// Its path at build time.
const FILE: &str = env!("LLVM_FILE");

/// The path of our own library at build time; empty if there is none.
const OWN: &str = env!("LLVM_OWN");

unsafe extern "C" {
    /// Defined by `table.s`: a word per entry.
    static uruk_late_slots: [AtomicUsize; COUNT];
}

static OPEN: AtomicBool = AtomicBool::new(false);
/// Address of `LLVMContextCreate`, in the library.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
/// Address of the table of `llvm::raw_svector_ostream`.
static VTABLE: AtomicUsize = AtomicUsize::new(0);

/// The lock of the thread that opens the library, over the functions to call once it is open.
static OPENING: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

const fn parse(digits: &str) -> usize {
    let (bytes, mut at, mut number) = (digits.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as usize;
        at += 1;
    }
    number
}

/// Whether the library is open.
#[must_use]
#[inline]
pub fn is_open() -> bool {
    OPEN.load(Ordering::Acquire)
}

/// Opens the library, so that every function of LLVM can be called. Only the first call has an
/// effect.
///
/// # Errors
/// [`Missing`], if the library is absent, or another one. The next call searches again.
#[inline]
pub fn open() -> Result<(), Missing> {
    match is_open() {
        true => Ok(()),
        false => open_now(),
    }
}

/// Calls `work` once the library is open: at once if it is, else on the opening thread before
/// [`open`] returns. `work` may call LLVM, but must not call this module.
pub fn when_open(work: fn()) {
    let mut waiting = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    match is_open() {
        true => {
            drop(waiting);
            work();
        }
        false => waiting.push(work),
    }
}

/// The address of a function in the library, once it is open.
#[must_use]
pub fn function() -> Option<usize> {
    Some(FUNCTION.load(Ordering::Relaxed)).filter(|&address| address != 0)
}

/// Whether the library needs another library of that name.
#[must_use]
pub fn needs(name: &str) -> bool {
    NEEDED.split('\t').any(|needed| needed == name)
}

/// Whether `file`, a path from the dynamic loader, is the library's. Valid also while it is being
/// opened.
#[must_use]
pub fn is_library(file: &CStr) -> bool {
    let name = |path: &'static str| path.rsplit('/').next().unwrap_or(path).as_bytes();
    let own = file.to_bytes().rsplit(|&byte| byte == b'/').next();
    let names = [FILE, SONAME, OWN].map(name);
    own.is_some_and(|own| !own.is_empty() && names.contains(&own))
}

/// Our own library, if it is beside the installed code, else at its build path.
fn own() -> Option<PathBuf> {
    let name = Path::new(OWN).file_name()?;
    let here = [std::env::current_exe().ok(), holder()];
    let here = here.into_iter().flatten();
    let folders = here.filter_map(|file| Some(file.parent()?.to_owned()));
    let installed = folders.flat_map(|folder| {
        let places = ["", "uruk", "../lib/uruk"];
        places.map(|place| folder.join(place).join(name))
    });
    let mut all = installed.chain([PathBuf::from(OWN)]);
    all.find(|path| path.is_absolute() && is_trusted(path))
}

/// Whether a file belongs to this user or root, and other users cannot write to it: a program may
/// be in a folder where others can put files.
fn is_trusted(file: &Path) -> bool {
    // SAFETY: no arguments.
    let me = unsafe { libc::geteuid() };
    file.metadata().is_ok_and(|it| {
        let writable = it.mode() & 0o022 != 0;
        it.is_file() && [0, me].contains(&it.uid()) && !writable
    })
}

/// The file of this code, as the dynamic loader names it.
fn holder() -> Option<PathBuf> {
    // SAFETY: all bytes zero are numbers and null; asked of an address of this code's own data.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let address = (&raw const uruk_late_slots).cast::<c_void>();
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.dli_fname).to_bytes();
        Some(PathBuf::from(OsStr::from_bytes(name)))
    }
}

/// Approximate processor time to open the library, in milliseconds; 0 before [`find`].
static LOADS_IN_MS: AtomicU32 = AtomicU32::new(0);

/// Finds out which library would be opened. It asks the dynamic loader, whose lock must not be
/// awaited while a lock of this process is held: call this before any lock is taken.
pub fn find() {
    let ms = if own().is_some() { 3 } else { 13 };
    LOADS_IN_MS.store(ms, Ordering::Relaxed);
}

/// Approximate processor time to open the library. Takes no lock.
#[must_use]
pub fn loads_in() -> Duration {
    match LOADS_IN_MS.load(Ordering::Relaxed) {
        0 => Duration::from_millis(13),
        ms => Duration::from_millis(u64::from(ms)),
    }
}

/// Address space of the open library with the libraries that it needs, in bytes: 204 MiB on Debian
/// 12, 51 MiB if it is ours.
#[must_use]
pub fn room() -> usize {
    match own() {
        Some(_) => 64 << 20,
        None => 208 << 20,
    }
}

/// The virtual table of `llvm::raw_svector_ostream`, once the library is open.
#[must_use]
pub fn stream_vtable() -> Option<*const c_void> {
    let address = VTABLE.load(Ordering::Relaxed);
    (address != 0).then_some(address as *const c_void)
}

/// Called by the first call of an entry: opens the library and returns the function's address.
extern "C" fn find_entry(index: usize) -> usize {
    if let Err(missing) = open() {
        // A caller of an LLVM function cannot receive the error.
        eprintln!("uruk: {missing}");
        std::process::abort();
    }
    // SAFETY: words are read and written as atomics only.
    unsafe { uruk_late_slots[index].load(Ordering::Acquire) }
}

#[cold]
fn open_now() -> Result<(), Missing> {
    let mut waiting = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if is_open() {
        return Ok(());
    }
    let library = Library::open()?;
    let mut found = Vec::with_capacity(COUNT);
    for name in names() {
        found.push(match library.find(name) {
            Err(_) if library.is_own => instead_of(name),
            found => found?,
        });
    }
    let place = names().position(|name| name == c"LLVMContextCreate");
    let function = place.and_then(|place| found.get(place)).copied();
    VTABLE.store(
        library.find(c"_ZTVN4llvm19raw_svector_ostreamE")?,
        Ordering::Relaxed,
    );
    FUNCTION.store(function.unwrap_or(0), Ordering::Relaxed);
    // SAFETY: as in `find_entry`; each is a function of the library, by its name.
    let slots = unsafe { &uruk_late_slots };
    for (slot, address) in slots.iter().zip(found) {
        slot.store(address, Ordering::Release);
    }
    for work in waiting.drain(..) {
        work();
    }
    OPEN.store(true, Ordering::Release);
    Ok(())
}

fn names() -> impl Iterator<Item = &'static CStr> {
    let names = NAMES.split_inclusive(|&byte| byte == 0);
    names.filter_map(|name| CStr::from_bytes_with_nul(name).ok())
}

/// The replacement of a function that our library lacks. Our library has one target: initializers
/// of others do nothing, as in an LLVM without these targets.
fn instead_of(name: &CStr) -> usize {
    extern "C" fn nothing() {}
    extern "C" fn absent() -> ! {
        eprintln!("uruk: a function was called that the library of LLVM for x86-64 does not have");
        std::process::abort()
    }
    match name.to_bytes().starts_with(b"LLVMInitialize") {
        true => nothing as *const () as usize,
        false => absent as *const () as usize,
    }
}

/// The library, which is never closed.
struct Library {
    /// The dynamic loader's handle.
    handle: *mut c_void,
    is_own: bool,
}

impl Library {
    /// Opens the library that the process has by that name already; else ours; else that of the
    /// build; else one of that name on the loader's search path.
    ///
    /// Opens the C++ library first, with global symbols, as if an executable were linked with LLVM:
    /// functions that an executable exports in place of the C++ library's, called by constructors,
    /// may look symbols up there.
    fn open() -> Result<Library, Missing> {
        let _ = Library::at(CPP, libc::RTLD_NOW | libc::RTLD_GLOBAL);
        let now = libc::RTLD_NOW | libc::RTLD_LOCAL;
        let known = Library::at(SONAME, now | libc::RTLD_NOLOAD);
        let own = |missing| match own() {
            Some(path) => {
                let opened = Library::at(&path.to_string_lossy(), now);
                opened.map(|library| Library {
                    is_own: true,
                    ..library
                })
            }
            None => Err(missing),
        };
        known
            .or_else(own)
            .or_else(|_| Library::at(FILE, now))
            .or_else(|_| Library::at(SONAME, now))
    }

    fn at(path: &str, flags: c_int) -> Result<Library, Missing> {
        let path = CString::new(path).map_err(|_| Missing {
            message: String::from("its path holds a zero byte"),
        })?;
        // SAFETY: a C string; constructors of LLVM and of its libraries, which run in any process
        // that is linked with it.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        match handle.is_null() {
            false => Ok(Library {
                handle,
                is_own: false,
            }),
            true => Err(said(&path.to_string_lossy())),
        }
    }

    fn find(&self, name: &CStr) -> Result<usize, Missing> {
        // SAFETY: a live handle and a C string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) } as usize;
        match address {
            0 => Err(said(&name.to_string_lossy())),
            _ => Ok(address),
        }
    }
}

/// The loader's last error message; it is consumed, so that the program does not see it.
fn said(of: &str) -> Missing {
    // SAFETY: null, or a C string of this thread's until it asks the loader again.
    let message = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    Missing {
        message: message.unwrap_or_else(|| format!("{of}: not there")),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{COUNT, Library, OWN, is_trusted, names, own};

    #[test]
    fn each_word_has_a_name() {
        assert_eq!(names().count(), COUNT);
        assert!(names().any(|name| name == c"LLVMContextCreate"));
    }

    #[test]
    fn ours_is_opened_where_nobody_else_can_write_to_it() {
        if OWN.is_empty() {
            return;
        }
        // It is at its build path, unless this test is installed.
        assert_eq!(own().as_deref(), Some(Path::new(OWN)));
        let folder = std::env::temp_dir().join(format!("uruk-late-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("library.so");
        std::fs::write(&file, "").expect("a file");
        for (mode, trusted) in [(0o755, true), (0o644, true), (0o775, false), (0o646, false)] {
            let mode_of = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, mode_of).expect("ours");
            assert_eq!(is_trusted(&file), trusted, "{mode:o}");
        }
        assert!(!is_trusted(&folder), "no file");
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn other_targets_are_there_for_nobody() {
        unsafe extern "C" {
            fn LLVMInitializeAArch64TargetInfo();
            fn LLVMInitializeX86TargetInfo();
        }
        // SAFETY: no arguments.
        unsafe {
            LLVMInitializeAArch64TargetInfo();
            LLVMInitializeX86TargetInfo();
        }
        let library = Library::open().expect("it is there");
        let lacks = |name: &&CStr| library.find(name).is_err();
        let lacking: Vec<&CStr> = names().filter(lacks).collect();
        let is_beginning = |it: &CStr| it.to_bytes().starts_with(b"LLVMInitialize");
        assert!(lacking.iter().all(|it| is_beginning(it)), "{lacking:?}");
        assert_eq!(lacking.is_empty(), !library.is_own);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let told = |path| {
            let opened = Library::at(path, libc::RTLD_NOW | libc::RTLD_LOCAL);
            opened.map(|_| ()).expect_err("no such file").to_string()
        };
        let text = told("libnone-such.so.0");
        assert!(text.contains("libnone-such.so.0"), "{text}");
        assert!(told("a\0b").contains("zero byte"));
        let libc = Library::at("libc.so.6", libc::RTLD_NOW).map_err(|told| told.to_string());
        let missing = libc.expect("there").find(c"no_such_function_anywhere");
        let text = missing.expect_err("not there").to_string();
        assert!(text.contains("no_such_function_anywhere"), "{text}");
    }
}
