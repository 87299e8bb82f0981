//! Handles signals of code under test: they end its run, and not the process.

use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use super::enter::{CURRENT, uruk_proof_recover};

/// The thread that is in code under test.
static THREAD: AtomicI32 = AtomicI32::new(0);

const CAUGHT: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGPROF,
];

/// Moves a thread that is in code under test out of it.
extern "C" fn caught(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let entry = CURRENT.load(Ordering::Relaxed);
    // SAFETY: a plain system call.
    let thread = unsafe { libc::gettid() };
    if entry.is_null() || THREAD.load(Ordering::Relaxed) != thread {
        // SAFETY: plain system calls: the alarm is forwarded to its thread, and any other signal
        // ends the process as it would without this handler.
        unsafe {
            match signal == libc::SIGPROF {
                true if entry.is_null() => {}
                true => {
                    let to = THREAD.load(Ordering::Relaxed);
                    libc::syscall(libc::SYS_tgkill, libc::getpid(), to, signal);
                }
                false => {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
        }
        return;
    }
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel passes both, and the thread is within `uruk_proof_enter`, whose frame
    // `entry` is.
    unsafe {
        let registers = &mut (*context).uc_mcontext.gregs;
        (*entry).signal = signal as u64;
        (*entry).at = registers[libc::REG_RIP as usize] as u64;
        (*entry).about = match signal {
            libc::SIGSEGV | libc::SIGBUS => (*info).si_addr() as u64,
            _ => 0,
        };
        registers[libc::REG_RIP as usize] = uruk_proof_recover as *const () as i64;
        registers[libc::REG_RSP as usize] = (*entry).saved_rsp as i64;
    }
}

/// Installs handlers and a signal stack for the calling thread.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in CAUGHT {
            // SAFETY: the handler is async-signal-safe, and has a stack of its own.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = caught as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    });
    thread_local! {
        static STACK: Box<[u8; 65536]> = {
            let mut stack = Box::new([0u8; 65536]);
            let its = libc::stack_t {
                ss_sp: stack.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: stack.len(),
            };
            // SAFETY: the memory lives as long as the thread runs tests.
            unsafe { libc::sigaltstack(&its, std::ptr::null_mut()) };
            stack
        };
    }
    STACK.with(|_| {});
    // SAFETY: a plain system call.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
}

/// Sets an alarm after `ms` milliseconds of processor time of the process, so that other work on the
/// machine does not matter; 0 cancels it.
pub fn alarm(ms: i64) {
    let time = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: ms / 1000,
            tv_usec: ms % 1000 * 1000,
        },
    };
    // SAFETY: a plain system call.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &time, std::ptr::null_mut()) };
}
