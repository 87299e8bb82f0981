//! What the dynamic loader brings into a native program: a constructor, and what has to be found in
//! the process before the C library's.
//!
//! ```text
//! uruk live ./program
//! LD_PRELOAD=/PLACE/OF/liburuk_preload.so ./program
//! uruk cc main.o -L/PLACE/OF -Wl,-rpath,/PLACE/OF -luruk_preload -o program && ./program
//! ```
//! The three do the same; the latter two take their settings, if any, from the variable `URUK_LIVE`,
//! whose words `uruk_live::settings` lists (`URUK_LIVE=explain`, `URUK_LIVE=off`), and leave the
//! environment as it is, so that programs which this one starts are live, too. What a process is that
//! carries no bitcode, or has rights of its own, it stays: `uruk_live::start` says when. Why nothing
//! can be done for a program, `uruk live` says.
//!
//! All it does is in `uruk_live`, which is a package of its own because executables that use it, as
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

/// As the C library's: a child finds no lock of the allocator's held by a thread of ours.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> c_int {
    interposed::fork_quietly()
}

/// As the C library's, and what [`_Fork`] does.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() {
    naked_asm!("jmp {}", sym interposed::clone)
}

/// As [`clone`].
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __clone() {
    naked_asm!("jmp {}", sym interposed::clone)
}

/// As the C library's, and what [`_Fork`] does where it copies the process. That a signal of ours comes
/// while it waits has no call end with `EINTR`.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!("jmp {}", sym interposed::syscall)
}

/// As the C library's; threads of ours end before a filter of system calls that would end them.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl() {
    naked_asm!("jmp {}", sym interposed::prctl)
}
