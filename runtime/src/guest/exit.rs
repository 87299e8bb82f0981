//! `atexit` and its relatives, which the C library keeps in the static part of an
//! executable: each forwards to the exported function with a handle of our own, so
//! that handlers run in the order a native program would see.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies the guest program to `__cxa_atexit`; only its address matters.
static DSO_HANDLE: u64 = 0;

unsafe extern "C" {
    fn __cxa_atexit(
        handler: unsafe extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
        dso: *const c_void,
    ) -> c_int;
    fn __cxa_at_quick_exit(
        handler: unsafe extern "C-unwind" fn(*mut c_void),
        dso: *const c_void,
    ) -> c_int;
    fn __register_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        dso: *const c_void,
    ) -> c_int;
}

/// `__cxa_atexit` for an executable that exports it: LLVM's registrations are dropped,
/// all others go to the C library.
///
/// # Safety
/// As `__cxa_atexit`: `handler` takes `argument` and stays callable, `dso` is the
/// handle of the registering library.
pub unsafe fn register_exit_handler(
    handler: *mut c_void,
    argument: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    type Register = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;
    if llvm_range().contains(&(dso as u64)) {
        return 0;
    }
    // Called by constructors of libraries before `main`: plain code only.
    // SAFETY: a C string; the next definition after the executable's is libc's.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__cxa_atexit".as_ptr()) };
    if next.is_null() {
        return -1;
    }
    // SAFETY: libc's function has this type.
    let next = unsafe { std::mem::transmute::<*mut c_void, Register>(next) };
    // SAFETY: by the caller's promise.
    unsafe { next(handler, argument, dso) }
}

/// Any function of LLVM: tells which library it is in.
pub(crate) const LLVM_FUNCTION: unsafe extern "C" fn()
    -> inkwell::llvm_sys::prelude::LLVMContextRef = inkwell::llvm_sys::core::LLVMContextCreate;

/// The addresses of the library LLVM is in. LLVM registers thousands of handlers while
/// it is loaded, so the answer is kept. Relaxed: both words are written with the same
/// values by whoever is first, and a range that is seen half is empty.
fn llvm_range() -> Range<u64> {
    static START: AtomicU64 = AtomicU64::new(0);
    static END: AtomicU64 = AtomicU64::new(0);
    let (start, end) = (START.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
    if start != 0 && end != 0 {
        return start..end;
    }
    let found = range_of(LLVM_FUNCTION as *const () as u64);
    START.store(found.start, Ordering::Relaxed);
    END.store(found.end, Ordering::Relaxed);
    found
}

/// The loaded segments of the library that holds `address`; empty if none does.
fn range_of(address: u64) -> Range<u64> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a live record; `data` is the search below.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<(u64, Range<u64>)>()) };
        // SAFETY: `dlpi_phdr` points at `dlpi_phnum` headers.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let loads = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD);
        let ends = loads
            .clone()
            .map(|h| info.dlpi_addr + h.p_vaddr + h.p_memsz);
        let start = loads.map(|h| info.dlpi_addr + h.p_vaddr).min().unwrap_or(0);
        let range = start..ends.max().unwrap_or(0);
        if !range.contains(&search.0) {
            return 0;
        }
        search.1 = range;
        1
    }
    let mut search = (address, 0..0);
    // SAFETY: the callback gets back the pointer to `search`, alive here.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast::<c_void>()) };
    search.1
}

fn dso_handle() -> *const c_void {
    (&raw const DSO_HANDLE).cast::<c_void>()
}

/// # Safety
/// As `atexit`: `handler` stays callable until the process ends.
pub(crate) unsafe extern "C" fn atexit(handler: unsafe extern "C-unwind" fn(*mut c_void)) -> c_int {
    // A handler without parameters ignores the argument register.
    // SAFETY: by the caller's promise.
    unsafe { __cxa_atexit(handler, std::ptr::null_mut(), dso_handle()) }
}

/// As `atexit`, with an argument.
///
/// # Safety
/// 1. `handler` stays callable until the process ends, and takes `argument`.
pub(crate) unsafe fn at_exit_with(
    handler: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
) -> c_int {
    // SAFETY: duty 1.
    unsafe { __cxa_atexit(handler, argument, dso_handle()) }
}

unsafe extern "C" fn at_quick_exit(handler: unsafe extern "C-unwind" fn(*mut c_void)) -> c_int {
    // SAFETY: as for `atexit`.
    unsafe { __cxa_at_quick_exit(handler, dso_handle()) }
}

unsafe extern "C" fn pthread_atfork(
    prepare: Option<unsafe extern "C" fn()>,
    parent: Option<unsafe extern "C" fn()>,
    child: Option<unsafe extern "C" fn()>,
) -> c_int {
    // SAFETY: handlers of the guest stay callable: its code is never unmapped.
    unsafe { __register_atfork(prepare, parent, child, dso_handle()) }
}

/// `_GLOBAL_OFFSET_TABLE_` is the linker's; the rest of what a static link finds in
/// libc's non-shared part.
pub(crate) fn overrides() -> Vec<(&'static str, u64)> {
    vec![
        ("atexit", atexit as *const () as u64),
        ("at_quick_exit", at_quick_exit as *const () as u64),
        ("pthread_atfork", pthread_atfork as *const () as u64),
        ("__dso_handle", dso_handle() as u64),
    ]
}
