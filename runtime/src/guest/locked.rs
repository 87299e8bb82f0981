//! `mlockall`, for programs that must not wait for memory.
//!
//! The runtime reserves gigabytes of addresses for future code and data. The C library's function
//! would fill and lock all of them; a program of 2 MiB would take more than 3 GiB. So pages are
//! locked when they are touched (`MCL_ONFAULT`), the program's own ones, too.

use std::ffi::c_int;

/// Replacements for functions of the C library.
pub(super) fn overrides() -> [(&'static str, u64); 1] {
    [("mlockall", mlockall as *const () as u64)]
}

extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: no memory changes.
    unsafe { libc::mlockall(flags | libc::MCL_ONFAULT) }
}
