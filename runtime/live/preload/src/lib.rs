//! Library that the dynamic loader puts into a native program: a constructor, and functions that must be
//! found in the process before the C library's.
//!
//! ```text
//! uruk live ./program
//! LD_PRELOAD=/PLACE/OF/liburuk_preload.so ./program
//! uruk cc main.o -L/PLACE/OF -Wl,-rpath,/PLACE/OF -luruk_preload -o program && ./program
//! ```
//! The three do the same. The latter two take their settings, if any, from the variable `URUK_LIVE`
//! (`URUK_LIVE=explain`, `URUK_LIVE=off`), whose words `uruk_live::settings` lists. They leave the
//! environment as it is, so programs started by this one are live, too. A process without bitcode, or
//! with rights of its own, is left alone: see `uruk_live::start`. `uruk live` prints why a program stays
//! native.
//!
//! The implementation is in `uruk_live`. It is a package of its own because executables that use it, as
//! the command does, have their own `__cxa_atexit`.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use uruk::interposed;

/// Called by the dynamic loader when the library was loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    uruk_live::start::begin();
}

/// Like the C library's function, but drops handlers of LLVM: the session compiles until the process
/// ends.
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

/// Like the C library's function; the child finds no lock of the allocator held by a thread of ours.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> c_int {
    interposed::fork_quietly()
}

/// Like the C library's function, with the guarantee of [`_Fork`].
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() {
    naked_asm!("jmp {}", sym interposed::clone)
}

/// Like [`clone`].
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __clone() {
    naked_asm!("jmp {}", sym interposed::clone)
}

/// Like the C library's function, with the guarantee of [`_Fork`] for calls that copy the process. A
/// signal of ours that arrives during the call does not end it with `EINTR`.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!("jmp {}", sym interposed::syscall)
}

/// Like the C library's function; ends threads of ours before a filter of system calls that would end
/// them.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl() {
    naked_asm!("jmp {}", sym interposed::prctl)
}
