//! Calls from Rust into guest code, above a frame that is the end of the stack.
//!
//! Each function is assembly with an undefined return address in its frame
//! description: an unwinder that comes here sees the end of the stack. So an
//! uncaught exception of the guest makes `_Unwind_RaiseException` return
//! `_URC_END_OF_STACK`, upon which the C++ runtime calls `std::terminate` - as in
//! a native program - and never unwinds through Rust frames.
//!
//! Guest code keeps the callee-saved registers, as every function does; the
//! stack is aligned to 16 bytes, flags are as they were.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

/// Calls `int main(int, char **, char **)` at `entry`.
///
/// # Safety
/// 1. `entry` is the address (a stub's, or code) of a function of that type.
/// 2. The arguments are what it expects: `argc` strings, then null.
/// 3. It returns or ends the thread or process; it does not leave by `longjmp`
///    or an unwind to a frame outside of it.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn call_main(
    entry: u64,
    argc: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov edi, esi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "call rax",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls a constructor from `.init_array`, `.preinit_array`:
/// `void (int, char **, char **)` at `entry`.
///
/// # Safety
/// As for [`call_main`].
pub unsafe fn call_init(
    entry: u64,
    argc: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) {
    // SAFETY: the caller's; what such a function leaves in eax is no value, and
    // is ignored.
    unsafe { call_main(entry, argc, argv, envp) };
}

/// Calls `void *(void)` at `entry`: the resolver of an indirect function.
///
/// # Safety
/// As for [`call_main`], duties 1 and 3.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn call_ptr(entry: u64) -> u64 {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "call rdi",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `void (void)` at `entry`.
///
/// # Safety
/// As for [`call_main`], duties 1 and 3.
pub unsafe fn call_void(entry: u64) {
    // SAFETY: the caller's; as for `call_init`.
    unsafe { call_ptr(entry) };
}

/// Calls `void (void *)` at `entry`.
///
/// # Safety
/// As for [`call_main`]; `argument` is what it expects.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn call_with(entry: u64, argument: u64) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
