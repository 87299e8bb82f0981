//! Tells which call was being made when the process is ended by a signal, or hangs.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seconds that one call may take, with its compiles.
const PATIENCE: u32 = 60;

struct Text(UnsafeCell<[u8; 4096]>);

// SAFETY: one thread writes it, and a handler reads it while that thread makes a call.
unsafe impl Sync for Text {}

static TEXT: Text = Text(UnsafeCell::new([0; 4096]));
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Notes the call that is made next.
pub fn about_to(what: &str) {
    let bytes = what.as_bytes();
    let length = bytes.len().min(4095);
    LENGTH.store(0, Ordering::SeqCst);
    // SAFETY: the only thread that writes it.
    let text = unsafe { &mut *TEXT.0.get() };
    text[..length].copy_from_slice(&bytes[..length]);
    text[length] = b'\n';
    LENGTH.store(length + 1, Ordering::SeqCst);
    // SAFETY: sets a timer of the process.
    unsafe { libc::alarm(PATIENCE) };
}

/// The call returned.
pub fn done() {
    LENGTH.store(0, Ordering::SeqCst);
    // SAFETY: takes the timer back.
    unsafe { libc::alarm(0) };
}

extern "C" fn handle(signal: libc::c_int) {
    let length = LENGTH.load(Ordering::SeqCst);
    let message = b"a signal ended the process during this call:\n";
    // SAFETY: the text was written before its length; `write` and `signal` may be called here. The
    // signal comes again when the handler returns, and is not handled then.
    unsafe {
        if length != 0 {
            libc::write(2, message.as_ptr().cast(), message.len());
            libc::write(2, TEXT.0.get().cast(), length);
        }
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Has signals that end the process tell first.
pub fn install() {
    const STACK: usize = 64 << 10;
    let stack = Box::leak(vec![0_u8; STACK].into_boxed_slice());
    // SAFETY: the stack is never freed, and the handler has the right type.
    unsafe {
        let stack = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: STACK,
        };
        libc::sigaltstack(&stack, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        for signal in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGALRM,
        ] {
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}
