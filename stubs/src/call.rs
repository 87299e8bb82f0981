//! Calls from Rust into guest code, above a frame that is the end of the stack.
//!
//! Each function is assembly whose frame description has an undefined return address: an unwinder
//! that reaches the frame sees the end of the stack. So an uncaught exception of the guest makes
//! `_Unwind_RaiseException` return `_URC_END_OF_STACK`. Then the C++ runtime calls
//! `std::terminate`, as in a native program, and never unwinds through Rust frames.
//! [`call_structor`] stops only foreign exceptions: Rust's panics pass it.
//!
//! Guest code keeps the callee-saved registers, as every function does; the
//! stack is aligned to 16 bytes, flags are as they were.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

/// Calls `int main(int, char **, char **)` at `entry`.
///
/// # Safety
/// 1. `entry` is the address (a stub's, or code) of a function of that type.
/// 2. The arguments are those it expects: `argc` strings, then null.
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
    // SAFETY: the caller's; such a function returns no value, so eax is ignored.
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
/// As for [`call_main`]; `argument` is one that the function expects.
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

/// Calls `void (int, char **, char **)` at `entry`: a constructor, or a destructor, which ignores
/// the arguments. A panic of Rust's passes; for any other exception this frame is the end of the
/// stack.
///
/// The frame has a return address, because backtraces continue below it. Its personality function
/// ends the search for a handler.
///
/// # Safety
/// As for [`call_main`], except that the function may panic.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn call_structor(
    entry: u64,
    argc: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) {
    naked_asm!(
        ".cfi_startproc",
        // A signed 32-bit offset to a symbol of the same section, so the linker needs no relocation
        // of its own.
        ".cfi_personality 0x1b, .Luruk_structor_personality",
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
        ".Luruk_structor_personality:",
        "jmp {personality}",
        personality = sym structor_personality,
    )
}

/// The personality function of [`call_structor`]'s frame, by the Itanium C++ ABI.
extern "C" fn structor_personality(
    _version: c_int,
    actions: c_int,
    class: u64,
    _exception: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    /// `_UA_SEARCH_PHASE`: an exception without a handler is reported to its thrower in this phase.
    const SEARCH: c_int = 1;
    /// `_URC_FATAL_PHASE1_ERROR` and `_URC_CONTINUE_UNWIND`.
    const NO_HANDLER: c_int = 3;
    const GO_ON: c_int = 8;
    /// The class of Rust's panics; its byte order depends on the version of the standard library.
    const RUST: [u8; 8] = *b"MOZ\0RUST";
    let is_panic = [class.to_le_bytes(), class.to_be_bytes()].contains(&RUST);
    match is_panic || actions & SEARCH == 0 {
        true => GO_ON,
        false => NO_HANDLER,
    }
}
