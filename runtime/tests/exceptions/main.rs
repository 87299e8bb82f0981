//! Code of C++: exceptions that pass through JIT'd frames, and weak definitions that modules share.
//! The binary defines the function by which unwinders find frames; the hosts of other tests do not.
//!
//! Each module has a process of its own in `cargo xtask test`.

#[path = "../support/clang.rs"]
mod clang;
#[path = "../support/inline.rs"]
mod inline;

mod replace_objects_cpp;
mod stress_reclaim;
mod weak;
mod weak_dylibs;
mod weak_removal;

use std::ffi::c_void;

/// Exceptions pass through JIT'd frames.
///
/// # Safety
/// As libgcc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Unwind_Find_FDE(
    pc: *mut c_void,
    bases: *mut uruk::DwarfEhBases,
) -> *const c_void {
    // SAFETY: by the caller's promise.
    unsafe { uruk::find_fde(pc, bases) }
}
