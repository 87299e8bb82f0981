//! `makecontext` that says where the new context's stack lies: it is a root of the code
//! that runs on it, whenever no thread does.
//!
//! The function takes any number of arguments, which are left where they are: six
//! registers are kept around the note, then the C library's function goes on with the
//! caller's stack.

use std::arch::naked_asm;

/// `makecontext` for the program.
///
/// # Safety
/// As `makecontext`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn guest_makecontext() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        // Six words and the return address: one more for the alignment of calls.
        "sub rsp, 8",
        "call {note}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp qword ptr [rip + {makecontext}@GOTPCREL]",
        note = sym note,
        makecontext = sym libc::makecontext,
    )
}

unsafe extern "C" fn note(context: *const libc::ucontext_t) {
    // SAFETY: what `makecontext` takes is a context that was filled in.
    let stack = unsafe { (*context).uc_stack };
    let start = stack.ss_sp as u64;
    uruk_roots::note_context_stack(start..start.saturating_add(stack.ss_size as u64));
}
