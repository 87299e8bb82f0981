//! Actions, masks and alternate stacks of signals, for JIT'd code: the C library's, except that the
//! handshake with running threads (`uruk_roots`) stays hidden.
//!
//! | function | addition |
//! |---|---|
//! | `sigaction`, `signal` and functions based on them | a signal the handshake uses keeps its handler, which forwards other signals |
//! | `pthread_sigmask`, `sigprocmask` and related functions | a request that came before a mask is withdrawn before the program can see it |
//! | `sigaltstack` | a thread whose stack is too small for a signal is not interrupted |
//! | `syscall` | the number of the call is known when a signal interrupts it |
//!
//! All may be called in signal handlers: they take only the kernel's locks and one that is held
//! with all signals blocked (`uruk_roots::set_action`).

use std::ffi::{c_int, c_void};
use std::ptr;

use uruk_roots::{mask_changed, set_action, set_alternate_stack};

unsafe extern "C" {
    fn siginterrupt(signal: c_int, flag: c_int) -> c_int;
    fn sysv_signal(signal: c_int, handler: usize) -> usize;
    fn sigset(signal: c_int, handler: usize) -> usize;
    fn sigignore(signal: c_int) -> c_int;
    fn sighold(signal: c_int) -> c_int;
    fn sigblock(mask: c_int) -> c_int;
    fn sigsetmask(mask: c_int) -> c_int;
}

/// Result of `sigset` for a signal that was blocked, and its argument to block one.
const SIG_HOLD: usize = 2;

/// # Safety
/// As `sigaction`.
unsafe extern "C" fn guest_sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: by the caller's promise: null or valid.
    match set_action(signal, unsafe { new.as_ref() }) {
        Some(before) => {
            // SAFETY: likewise.
            if let Some(old) = unsafe { old.as_mut() } {
                *old = before;
            }
            0
        }
        // SAFETY: the caller's arguments.
        None => unsafe { libc::sigaction(signal, new, old) },
    }
}

/// Sets a handler with flags, and a mask of the signal itself if `masked`; returns the previous
/// handler.
fn set(signal: c_int, handler: usize, flags: c_int, masked: bool) -> Option<usize> {
    if handler == libc::SIG_ERR {
        return None;
    }
    // SAFETY: an empty structure of integers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if masked {
        // SAFETY: a valid set.
        unsafe { libc::sigaddset(&mut action.sa_mask, signal) };
    }
    set_action(signal, Some(&action)).map(|before| before.sa_sigaction)
}

/// # Safety
/// As `signal`.
unsafe extern "C" fn guest_signal(signal: c_int, handler: usize) -> usize {
    // The C library's function, as `siginterrupt` is remembered for other signals. SAFETY: the
    // caller's arguments.
    set(signal, handler, libc::SA_RESTART, true)
        .unwrap_or_else(|| unsafe { libc::signal(signal, handler) })
}

/// # Safety
/// As `sysv_signal`.
unsafe extern "C" fn guest_sysv_signal(signal: c_int, handler: usize) -> usize {
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER;
    // SAFETY: the caller's arguments.
    set(signal, handler, flags, false).unwrap_or_else(|| unsafe { sysv_signal(signal, handler) })
}

/// # Safety
/// As `siginterrupt`.
unsafe extern "C" fn guest_siginterrupt(signal: c_int, flag: c_int) -> c_int {
    let Some(mut action) = set_action(signal, None) else {
        // SAFETY: the caller's arguments.
        return unsafe { siginterrupt(signal, flag) };
    };
    match flag {
        0 => action.sa_flags |= libc::SA_RESTART,
        _ => action.sa_flags &= !libc::SA_RESTART,
    }
    set_action(signal, Some(&action));
    0
}

/// # Safety
/// As `sigignore`.
unsafe extern "C" fn guest_sigignore(signal: c_int) -> c_int {
    match set(signal, libc::SIG_IGN, 0, false) {
        Some(_) => 0,
        // SAFETY: the caller's arguments.
        None => unsafe { sigignore(signal) },
    }
}

/// # Safety
/// As `sigset`.
unsafe extern "C" fn guest_sigset(signal: c_int, handler: usize) -> usize {
    if handler == SIG_HOLD || set_action(signal, None).is_none() {
        // SAFETY: the caller's arguments.
        let before = unsafe { sigset(signal, handler) };
        mask_changed();
        return match set_action(signal, None) {
            // The C library has seen the runtime's handler.
            Some(action) if before != SIG_HOLD && before != libc::SIG_ERR => action.sa_sigaction,
            _ => before,
        };
    }
    let before = set(signal, handler, 0, false).unwrap_or(libc::SIG_ERR);
    // SAFETY: sets of this function, initialized by the calls before they are used.
    unsafe {
        let (mut only, mut mask) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, &mut mask);
        match libc::sigismember(&mask, signal) {
            1 => SIG_HOLD,
            _ => before,
        }
    }
}

/// # Safety
/// As `pthread_sigmask`.
unsafe extern "C" fn guest_pthread_sigmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { libc::pthread_sigmask(how, new, old) };
    if !new.is_null() && how != libc::SIG_UNBLOCK {
        mask_changed();
    }
    result
}

/// # Safety
/// As `sigprocmask`.
unsafe extern "C" fn guest_sigprocmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { libc::sigprocmask(how, new, old) };
    if !new.is_null() && how != libc::SIG_UNBLOCK {
        mask_changed();
    }
    result
}

/// # Safety
/// As `sighold`.
unsafe extern "C" fn guest_sighold(signal: c_int) -> c_int {
    // SAFETY: the caller's argument.
    let result = unsafe { sighold(signal) };
    mask_changed();
    result
}

/// # Safety
/// As `sigblock`.
unsafe extern "C" fn guest_sigblock(mask: c_int) -> c_int {
    // SAFETY: the caller's argument.
    let result = unsafe { sigblock(mask) };
    mask_changed();
    result
}

/// # Safety
/// As `sigsetmask`.
unsafe extern "C" fn guest_sigsetmask(mask: c_int) -> c_int {
    // SAFETY: the caller's argument.
    let result = unsafe { sigsetmask(mask) };
    mask_changed();
    result
}

/// # Safety
/// As `sigaltstack`.
unsafe extern "C" fn guest_sigaltstack(
    new: *const libc::stack_t,
    old: *mut libc::stack_t,
) -> c_int {
    // SAFETY: by the caller's promise: null or valid.
    let Some(wanted) = (unsafe { new.as_ref() }) else {
        // SAFETY: the caller's arguments.
        return unsafe { libc::sigaltstack(ptr::null(), old) };
    };
    let bytes = match wanted.ss_flags & libc::SS_DISABLE {
        0 => wanted.ss_size,
        _ => 0,
    };
    let mut result = -1;
    set_alternate_stack(bytes, || {
        // SAFETY: the caller's arguments.
        result = unsafe { libc::sigaltstack(new, old) };
        result == 0
    });
    result
}

/// Symbols that the session answers before it asks the process.
pub(crate) fn overrides() -> [(&'static str, u64); 17] {
    let of = |function: *const c_void| function as u64;
    let signal = of(guest_signal as *const c_void);
    let sysv_signal = of(guest_sysv_signal as *const c_void);
    let sigaction = of(guest_sigaction as *const c_void);
    [
        ("sigaction", sigaction),
        ("__sigaction", sigaction),
        ("signal", signal),
        ("bsd_signal", signal),
        ("ssignal", signal),
        ("sysv_signal", sysv_signal),
        ("__sysv_signal", sysv_signal),
        ("siginterrupt", of(guest_siginterrupt as *const c_void)),
        ("sigignore", of(guest_sigignore as *const c_void)),
        ("sigset", of(guest_sigset as *const c_void)),
        (
            "pthread_sigmask",
            of(guest_pthread_sigmask as *const c_void),
        ),
        ("sigprocmask", of(guest_sigprocmask as *const c_void)),
        ("sighold", of(guest_sighold as *const c_void)),
        ("sigblock", of(guest_sigblock as *const c_void)),
        ("sigsetmask", of(guest_sigsetmask as *const c_void)),
        ("sigaltstack", of(guest_sigaltstack as *const c_void)),
        ("__sigaltstack", of(guest_sigaltstack as *const c_void)),
    ]
}
