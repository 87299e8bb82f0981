//! `makecontext` that notes the new context's stack: it is a root of the code that runs on it,
//! while no thread does.
//!
//! The function takes any number of arguments, which are left in place: six registers are saved
//! around the note, then the C library's function continues on the caller's stack.
//!
//! The C library's function is looked up by name: linking against it would mark the runtime's
//! executable as one that makes contexts ([`crate::reclaim`] examines the names in files).

use std::arch::naked_asm;
use std::sync::atomic::{AtomicU64, Ordering};

/// The C library's function. Relaxed: written before the program gets the address of
/// [`guest_makecontext`], always with the same value.
static MAKECONTEXT: AtomicU64 = AtomicU64::new(0);

/// The address of `makecontext` for the program; `None` where there is no such function.
pub(crate) fn makecontext() -> Option<u64> {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"makecontext".as_ptr()) } as u64;
    MAKECONTEXT.store(found, Ordering::Relaxed);
    (found != 0).then_some(guest_makecontext as *const () as u64)
}

/// `makecontext` for the program.
///
/// # Safety
/// As `makecontext`.
#[unsafe(naked)]
unsafe extern "C" fn guest_makecontext() {
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
        "jmp qword ptr [rip + {makecontext}]",
        note = sym note,
        makecontext = sym MAKECONTEXT,
    )
}

unsafe extern "C" fn note(context: *const libc::ucontext_t) {
    // SAFETY: the argument of `makecontext` is a context that was filled in.
    let stack = unsafe { (*context).uc_stack };
    let start = stack.ss_sp as u64;
    uruk_roots::note_context_stack(start..start.saturating_add(stack.ss_size as u64));
}
