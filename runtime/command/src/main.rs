//! The `uruk` command.
//!
//! The process belongs to the guest program: Rust's own start-up code, which ignores SIGPIPE and
//! installs a SIGSEGV handler with an alternate stack, is left out by defining C's `main`.
//! `_Unwind_Find_FDE` is exported so that exceptions find the frames of JIT'd code; `syscall` and
//! `prctl`, so that filters of system calls are handled.

#![no_main]

mod cli;
mod gates;
mod memory;
mod stack;

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use uruk::DwarfEhBases;

/// Interposes libgcc's search for unwind rows; see `uruk_unwind`.
///
/// # Safety
/// As libgcc's: `bases` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Unwind_Find_FDE(
    pc: *mut c_void,
    bases: *mut DwarfEhBases,
) -> *const c_void {
    // SAFETY: by the caller's promise.
    unsafe { uruk::find_fde(pc, bases) }
}

/// Interposes libc's registration of exit handlers, to drop LLVM's: LLVM must compile until the process
/// ends, after its static objects would have been destroyed. Some of them are made on first use, so
/// their handlers would even run before those the program registered earlier.
///
/// # Safety
/// As libc's: `dso` identifies the registering library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_atexit(
    handler: *mut c_void,
    argument: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { uruk::register_exit_handler(handler, argument, dso) }
}

/// Like the C library's function. Libraries of the program that install a filter of system calls find
/// this one first: threads of ours end before.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!("jmp {}", sym uruk::interposed::syscall)
}

/// Like [`syscall`].
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl() {
    naked_asm!("jmp {}", sym uruk::interposed::prctl)
}

/// Entry point of the command.
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    cli::main()
}
