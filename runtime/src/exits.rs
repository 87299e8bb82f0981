//! `atexit` and related functions: handlers at the end of the process, a thread or a library.
//!
//! The C library keeps some of these functions in the static part of every executable and library,
//! where they pass on their owner's handle (`__dso_handle`). An image has such a part here, too
//! (`load::own`). The registering image is found by that handle, or by the address of the handler.
//! The registration holds the images that it needs (`code::life`). The C library keeps the list,
//! together with all other registrations of the process, so that the order at the end is native.
//!
//! A registration there is a *record* of the runtime under a key of its own instead of the library's
//! handle. `__cxa_finalize` of that key calls this record only, at any time. The C library ensures
//! that this happens once, even if another thread ends the process meanwhile. So the handlers of
//! any set of images can be run, in the reverse order of their registration.
//!
//! # Invariants
//! - No handler runs under a lock of the runtime. A list is locked to find the next one, which may
//!   register others, end the process, or remove any image.
//! - A frame of the runtime that calls a handler owns nothing: an exception that leaves a handler
//!   of `exit` may unwind it, as natively, and then the record's contents are kept. The removal of
//!   an image calls handlers above a frame that is the end of the stack.
//! - After [`run_and_close`] the C library knows no handler of the image but those that other
//!   threads are running.

pub(crate) mod record;
mod thread_end;

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::code::life::{Hold, ImageGone};
use crate::fork::gate;
use crate::host::library::NextDefinition;

pub(crate) use record::{run_and_close, run_ends};

/// Identifies the guest program to `__cxa_atexit`; only its address matters.
static DSO_HANDLE: u64 = 0;

/// A function that the C library calls at the end of the process, a thread or a library.
pub(crate) type Handler = unsafe extern "C-unwind" fn(*mut c_void);

unsafe extern "C" {
    fn __cxa_at_quick_exit(handler: Handler, dso: *const c_void) -> c_int;
    fn __register_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        dso: *const c_void,
    ) -> c_int;
}

type Register = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;

/// The C library's `__cxa_atexit`, also where the executable exports one.
fn register_at_exit() -> Option<Register> {
    static NEXT: NextDefinition = NextDefinition::new(c"__cxa_atexit");
    // SAFETY: libc's function has this type, and null is none.
    unsafe { std::mem::transmute::<usize, Option<Register>>(NEXT.address()) }
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
    // Called by constructors of libraries before `main`: plain code only.
    if is_llvms(dso as u64) {
        return 0;
    }
    match register_at_exit() {
        // SAFETY: by the caller's promise.
        Some(next) => unsafe { next(handler, argument, dso) },
        None => -1,
    }
}

/// Whether `address` is in LLVM's library, which may be about to be opened. LLVM registers
/// thousands of handlers while it is opened, so the answer is cached. Relaxed: both words are
/// written with the same values by any first caller, and a half-written range is empty.
fn is_llvms(address: u64) -> bool {
    static START: AtomicU64 = AtomicU64::new(0);
    static END: AtomicU64 = AtomicU64::new(0);
    let (start, end) = (START.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
    if start != 0 && end != 0 {
        return (start..end).contains(&address);
    }
    let known = uruk_late::function().map(|function| function as u64);
    let (found, named) = holder_of(known.unwrap_or(address));
    if known.is_none() && !named {
        return false;
    }
    START.store(found.start, Ordering::Relaxed);
    END.store(found.end, Ordering::Relaxed);
    found.contains(&address)
}

/// The loaded segments of the library that holds `address`, empty if none does; and whether it
/// has the name of LLVM's.
fn holder_of(address: u64) -> (Range<u64>, bool) {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a live record; `data` is the search below.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
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
        if !range.contains(&search.address) {
            return 0;
        }
        search.found = range;
        // SAFETY: null, or the loader's name of it.
        let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
        search.named = name.is_some_and(uruk_late::is_library);
        1
    }
    struct Search {
        address: u64,
        found: Range<u64>,
        named: bool,
    }
    let mut search = Search {
        address,
        found: 0..0,
        named: false,
    };
    // SAFETY: the callback gets back the pointer to `search`, alive here.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast::<c_void>()) };
    (search.found, search.named)
}

fn dso_handle() -> *mut c_void {
    (&raw const DSO_HANDLE).cast::<c_void>().cast_mut()
}

/// `atexit` as found by name, without an image's handle.
///
/// # Safety
/// As `atexit`: `handler` stays callable until its image is removed, or the process ends.
pub(crate) unsafe extern "C" fn atexit(handler: Handler) -> c_int {
    // SAFETY: by the caller's promise; a handler without parameters ignores the argument.
    unsafe { cxa_atexit(handler, std::ptr::null_mut(), dso_handle()) }
}

/// `atexit` of an image.
///
/// # Safety
/// As [`atexit`]; `dso` is the image's handle.
pub(crate) unsafe extern "C" fn atexit_of(handler: Handler, dso: *mut c_void) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { cxa_atexit(handler, std::ptr::null_mut(), dso) }
}

/// `__cxa_atexit`.
///
/// # Safety
/// As [`atexit`], and `handler` takes `argument`.
unsafe extern "C" fn cxa_atexit(
    handler: Handler,
    argument: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { record::at_exit(handler, argument, dso) }
}

/// Like `atexit`, with an argument.
///
/// # Safety
/// 1. `handler` stays callable until the process ends, and takes `argument`.
pub(crate) unsafe fn at_exit_with(handler: Handler, argument: *mut c_void) -> c_int {
    match register_at_exit() {
        // SAFETY: duty 1.
        Some(next) => unsafe { next(handler as *mut c_void, argument, dso_handle()) },
        None => -1,
    }
}

/// `at_quick_exit` as found by name, without an image's handle.
unsafe extern "C" fn at_quick_exit(handler: Handler) -> c_int {
    // SAFETY: as for `atexit`.
    unsafe { at_quick_exit_of(handler, dso_handle()) }
}

/// `at_quick_exit` of an image.
///
/// # Safety
/// As [`atexit_of`].
pub(crate) unsafe extern "C" fn at_quick_exit_of(handler: Handler, dso: *mut c_void) -> c_int {
    let addresses = [handler as *const () as u64];
    record::forgettable(dso, &addresses, -1, |key| {
        // SAFETY: as for `atexit_of`; the key is finalized before the image is freed.
        unsafe { __cxa_at_quick_exit(handler, key) }
    })
}

/// `pthread_atfork` as found by name, without an image's handle.
unsafe extern "C" fn pthread_atfork(
    prepare: Option<unsafe extern "C" fn()>,
    parent: Option<unsafe extern "C" fn()>,
    child: Option<unsafe extern "C" fn()>,
) -> c_int {
    // SAFETY: as for `at_quick_exit`.
    unsafe { pthread_atfork_of(prepare, parent, child, dso_handle()) }
}

/// `pthread_atfork` of an image.
///
/// # Safety
/// As [`atexit_of`], for all handlers passed.
pub(crate) unsafe extern "C" fn pthread_atfork_of(
    prepare: Option<unsafe extern "C" fn()>,
    parent: Option<unsafe extern "C" fn()>,
    child: Option<unsafe extern "C" fn()>,
    dso: *mut c_void,
) -> c_int {
    let handlers = [prepare, parent, child].into_iter().flatten();
    let addresses: Vec<u64> = handlers
        .map(|handler| handler as *const () as u64)
        .collect();
    record::forgettable(dso, &addresses, libc::ENOMEM, |key| {
        // SAFETY: as for `at_quick_exit_of`.
        unsafe { __register_atfork(prepare, parent, child, key) }
    })
}

/// Holds the images that `addresses` belong to.
pub(super) fn hold_at(addresses: &[u64]) -> Result<Vec<Hold>, ImageGone> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let _pass = gate::enter();
    let images = record::images(std::ptr::null_mut(), addresses)?;
    record::hold_all(&images)
}

/// Functions of libc's non-shared part that a static link contains, and functions of the shared
/// part that register handlers.
pub(crate) fn overrides() -> Vec<(&'static str, u64)> {
    // Looked up now, while no lock of the loader matters.
    register_at_exit();
    vec![
        ("atexit", atexit as *const () as u64),
        ("at_quick_exit", at_quick_exit as *const () as u64),
        ("pthread_atfork", pthread_atfork as *const () as u64),
        ("__dso_handle", dso_handle() as u64),
        ("__cxa_atexit", cxa_atexit as *const () as u64),
        ("__cxa_finalize", record::cxa_finalize as *const () as u64),
        ("on_exit", record::on_exit as *const () as u64),
        (
            "__cxa_thread_atexit",
            thread_end::at_thread_end as *const () as u64,
        ),
        (
            "__cxa_thread_atexit_impl",
            thread_end::at_thread_end as *const () as u64,
        ),
    ]
}
