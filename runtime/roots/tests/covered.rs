//! A library that gives the kernel a handler of its own in place of each, and calls the other
//! later, as ThreadSanitizer does.

mod common;

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Holder, ROOTS, of, scan_within};
use uruk_roots::{How, Why};

const CANDIDATES: [c_int; 2] = [libc::SIGURG, libc::SIGWINCH];

/// The handlers that the library was given last for the candidates, and the last that is one.
static GIVEN: [AtomicUsize; 2] = [const { AtomicUsize::new(libc::SIG_DFL) }; 2];
static ENTRY: AtomicUsize = AtomicUsize::new(0);

/// The library's own handler.
extern "C" fn later(_: c_int) {}

type SigAction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// Stands before the C library's function of this name.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: a name that the C library has.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"sigaction".as_ptr()) };
    // SAFETY: the function has this type.
    let next = unsafe { std::mem::transmute::<*mut c_void, SigAction>(next) };
    let Some(at) = CANDIDATES.iter().position(|&one| one == signal) else {
        // SAFETY: by the caller's promise.
        return unsafe { next(signal, new, old) };
    };
    let before = GIVEN[at].load(Ordering::Relaxed);
    let mut covered = None;
    // SAFETY: by the caller's promise.
    if let Some(new) = unsafe { new.as_ref() } {
        let mut action = *new;
        GIVEN[at].store(new.sa_sigaction, Ordering::Relaxed);
        if new.sa_sigaction != libc::SIG_DFL && new.sa_sigaction != libc::SIG_IGN {
            ENTRY.store(new.sa_sigaction, Ordering::Relaxed);
            action.sa_sigaction = later as *const () as usize;
        }
        covered = Some(action);
    }
    let new = covered.as_ref().map_or(std::ptr::null(), |action| action);
    // SAFETY: by the caller's promise.
    let result = unsafe { next(signal, new, old) };
    // SAFETY: by the caller's promise.
    if let Some(old) = unsafe { old.as_mut() } {
        old.sa_sigaction = before;
    }
    result
}

/// The action that the kernel has for a signal.
fn of_the_kernel(signal: c_int) -> usize {
    let mut action = [0usize; 4];
    // SAFETY: only asks; the kernel writes four words.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, 0, &raw mut action, 8) };
    action[0]
}

/// Calls a handler with marks in the registers that functions preserve, and writes what they are
/// then.
///
/// # Safety
/// The handler takes these arguments.
#[unsafe(naked)]
unsafe extern "C" fn marked(
    handler: usize,
    signal: c_int,
    info: *mut c_void,
    context: *mut c_void,
    marks: *mut [u64; 6],
) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push r8",
        "mov rax, rdi",
        "mov edi, esi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov ebx, 1",
        "mov ebp, 2",
        "mov r12d, 3",
        "mov r13d, 4",
        "mov r14d, 5",
        "mov r15d, 6",
        "call rax",
        "pop r8",
        "mov [r8], rbx",
        "mov [r8 + 8], rbp",
        "mov [r8 + 16], r12",
        "mov [r8 + 24], r13",
        "mov [r8 + 32], r14",
        "mov [r8 + 40], r15",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

#[test]
fn nobody_is_asked_by_a_handler_that_is_called_later() {
    assert_eq!(ROOTS.signal(), None);
    for signal in CANDIDATES {
        assert_eq!(of_the_kernel(signal), libc::SIG_DFL, "{signal}");
    }
    // A thread that runs is known to be unknown.
    let runs = Holder::start(|stop| {
        stop.ready();
        while !stop.is_set() {
            std::hint::spin_loop();
        }
    });
    let report = scan_within(Duration::from_millis(50));
    let thread = of(&report, runs.tid);
    assert!(
        matches!(
            thread.how,
            How::Unanswered {
                why: Why::HandlerReplaced,
                ..
            }
        ),
        "{:?}",
        thread.how
    );
    // The handler itself can be called as a function.
    let entry = ENTRY.load(Ordering::Relaxed);
    assert_ne!(entry, 0, "the library was given one");
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
    let mut marks = [0; 6];
    // SAFETY: data of a signal that was not interrupted in a system call.
    unsafe {
        marked(
            entry,
            libc::SIGURG,
            info.as_mut_ptr().cast(),
            context.as_mut_ptr().cast(),
            &raw mut marks,
        );
    }
    assert_eq!(marks, [1, 2, 3, 4, 5, 6]);
}
