//! The entries, and what opens the library behind them.
//!
//! | field | writer | ordering |
//! |---|---|---|
//! | `uruk_late_slots` | [`open`], under the lock of [`OPENING`], once | release; entries read words without one, which on x86-64 is an acquire |
//! | [`OPEN`] | the same, last | release, with the acquire of [`is_open`] |
//! | [`FUNCTION`], [`VTABLE`] | the same, before the words | relaxed: read behind [`is_open`], or as a hint |
//!
//! The lock is held while the library's constructors run. They call what the process's
//! executable exports (`malloc`, `__cxa_atexit`), none of which may come here but to
//! [`is_library`] and [`function`], which take no lock.
//!
//! A child of `fork` needs the lock open: who forks waits until nobody is in LLVM, as it does for
//! LLVM's own locks.

use std::arch::global_asm;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Missing;

global_asm!(
    include_str!(concat!(env!("OUT_DIR"), "/table.s")),
    options(att_syntax)
);

// The caller's arguments are those of any C function: integers, vectors of 16 bytes, the number of
// vectors in `al`, the static chain in `r10`. At the first word: the index of the entry, and the
// address that the function returns to.
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
    find = sym find,
);

/// How many entries there are.
const COUNT: usize = parse(env!("LLVM_FUNCTIONS"));

/// Their names, each with its zero byte.
static NAMES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/names"));

/// The library's own name.
const SONAME: &str = env!("LLVM_SONAME");

/// What it needs itself.
const CPP: &str = "libstdc++.so.6";

/// Where it was at build time.
const FILE: &str = env!("LLVM_FILE");

unsafe extern "C" {
    /// Defined by `table.s`: a word per entry.
    static uruk_late_slots: [AtomicUsize; COUNT];
}

static OPEN: AtomicBool = AtomicBool::new(false);
/// Of `LLVMContextCreate`, in the library.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
/// Of `llvm::raw_svector_ostream`.
static VTABLE: AtomicUsize = AtomicUsize::new(0);

/// Who opens has the lock. What is to be called then.
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

/// Has the library open, so that every function of LLVM can be called. Nothing to do but the
/// first time.
///
/// # Errors
/// [`Missing`], if it is not there, or is another one. It is looked for again the next time.
#[inline]
pub fn open() -> Result<(), Missing> {
    match is_open() {
        true => Ok(()),
        false => open_now(),
    }
}

/// Calls `work` once the library is open: now if it is, else before whoever opens it goes on. By
/// then LLVM can be called. `work` must not come back here.
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

/// The address of a function in the library, once that is open.
#[must_use]
pub fn function() -> Option<usize> {
    Some(FUNCTION.load(Ordering::Relaxed)).filter(|&address| address != 0)
}

/// Whether `file`, a path as the dynamic loader has it, is that of the library. Also while it is
/// being opened.
#[must_use]
pub fn is_library(file: &CStr) -> bool {
    let name = |path: &'static str| path.rsplit('/').next().unwrap_or(path).as_bytes();
    let own = file.to_bytes().rsplit(|&byte| byte == b'/').next();
    own == Some(name(FILE)) || own == Some(SONAME.as_bytes())
}

/// The virtual table of `llvm::raw_svector_ostream`, once the library is open.
#[must_use]
pub fn stream_vtable() -> Option<*const c_void> {
    let address = VTABLE.load(Ordering::Relaxed);
    (address != 0).then_some(address as *const c_void)
}

/// What an entry's first call goes on to.
extern "C" fn find(index: usize) -> usize {
    if let Err(missing) = open() {
        // Who calls LLVM without having asked for it cannot be told.
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
        found.push(library.find(name)?);
    }
    let place = names().position(|name| name == c"LLVMContextCreate");
    let function = place.and_then(|place| found.get(place)).copied();
    VTABLE.store(
        library.find(c"_ZTVN4llvm19raw_svector_ostreamE")?,
        Ordering::Relaxed,
    );
    FUNCTION.store(function.unwrap_or(0), Ordering::Relaxed);
    // SAFETY: as in `find`; each is a function of the library, by its name.
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

/// The dynamic loader's handle of the library, which is never closed.
struct Library(*mut c_void);

impl Library {
    /// The library that the process has by that name already; else that of the build; else one of
    /// that name where the loader looks.
    ///
    /// The C++ library comes first, for all to see, as if an executable were linked with LLVM: what
    /// an executable exports in place of the C++ library's functions, and constructors call, may
    /// look for those.
    fn open() -> Result<Library, Missing> {
        let _ = Library::at(CPP, libc::RTLD_NOW | libc::RTLD_GLOBAL);
        let now = libc::RTLD_NOW | libc::RTLD_LOCAL;
        let known = Library::at(SONAME, now | libc::RTLD_NOLOAD);
        known
            .or_else(|_| Library::at(FILE, now))
            .or_else(|_| Library::at(SONAME, now))
    }

    fn at(path: &str, flags: c_int) -> Result<Library, Missing> {
        let path = CString::new(path).map_err(|_| Missing {
            message: String::from("its path holds a zero byte"),
        })?;
        // SAFETY: a C string; constructors of LLVM and of what it needs, which run in any process
        // that is linked with it.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        match handle.is_null() {
            false => Ok(Library(handle)),
            true => Err(said(&path.to_string_lossy())),
        }
    }

    fn find(&self, name: &CStr) -> Result<usize, Missing> {
        // SAFETY: a live handle and a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) } as usize;
        match address {
            0 => Err(said(&name.to_string_lossy())),
            _ => Ok(address),
        }
    }
}

/// What the loader says of its last failure; it is taken, so that the program does not find it.
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
    use super::{COUNT, Library, names};

    #[test]
    fn each_word_has_a_name() {
        assert_eq!(names().count(), COUNT);
        assert!(names().any(|name| name == c"LLVMContextCreate"));
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
