//! What the dynamic loader brings into a native program: a constructor, and what has to be found in
//! the process before the C library's.
//!
//! All it does is in `uruk_live`, which is a package of its own because executables that use it, as
//! the command does, have their own `__cxa_atexit`.

use std::ffi::{c_int, c_void};

/// Called by the dynamic loader when the library was loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    uruk_live::start::begin();
}

/// As the C library's; handlers of LLVM's are dropped, as it is asked to compile until the very
/// end.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_atexit(
    handler: *mut c_void,
    argument: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { uruk::register_exit_handler(handler, argument, dso) }
}
