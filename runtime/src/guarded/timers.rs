//! Timers of threads, whose signal ends guarded calls that must end.
//!
//! The signal is an unused real-time one, chosen once. Host threads that block all signals would
//! not get it. It is unblocked where a thread begins a call with a limit, and with its first
//! guarded call, so that other threads can interrupt it. It stays unblocked.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use uruk_base::locks::Mutex;

use crate::fork::gate;
use crate::guarded::fault;
use crate::guarded::interrupt::handler;

/// The signal of the timers; 0: not chosen yet, -1: none is free.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Unblocks the signal on the calling thread.
pub(super) fn unblock() {
    let Some(signal) = signal() else { return };
    // SAFETY: a set of one signal, which is the runtime's.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
    }
}

/// Makes a timer expire once, in so many nanoseconds; 0: never. Async-signal-safe.
pub(crate) fn set(number: usize, after_ns: u64) {
    let at = libc::timespec {
        tv_sec: (after_ns / 1_000_000_000).min(i64::MAX as u64) as i64,
        tv_nsec: (after_ns % 1_000_000_000) as i64,
    };
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let when = libc::itimerspec {
        it_interval: none,
        it_value: at,
    };
    let timer = ptr::without_provenance_mut(number);
    // SAFETY: a timer of the process; a valid structure.
    unsafe { libc::timer_settime(timer, 0, &when, ptr::null_mut()) };
}

/// A timer whose signal is sent to the calling thread.
pub(super) fn new_timer() -> Option<usize> {
    let signal = signal()?;
    // SAFETY: a valid structure, with the calling thread's number where the kernel reads it.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer: libc::timer_t = ptr::null_mut();
        let made = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0;
        made.then_some(timer.addr())
    }
}

/// The signal of the timers: an unused real-time one, chosen once.
fn signal() -> Option<c_int> {
    static CHOICE: Mutex<()> = Mutex::new(());
    let known = || match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        known => Some((known > 0).then_some(known)),
    };
    if let Some(known) = known() {
        return known;
    }
    let _pass = gate::enter();
    let _choosing = CHOICE.lock();
    if let Some(known) = known() {
        return known;
    }
    let free = |&signal: &c_int| {
        // SAFETY: a plain query.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_DFL
        }
    };
    // From the middle: programs use the lowest and the highest.
    let middle = (libc::SIGRTMIN() + libc::SIGRTMAX()) / 2;
    let mut candidates = (middle..libc::SIGRTMAX()).chain(libc::SIGRTMIN()..middle);
    let chosen = candidates.find(free).filter(|&signal| {
        // SAFETY: a valid structure; a handler of that type. Interrupted system calls are
        // restarted.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            action.sa_mask = fault::all_but_faults();
            libc::sigaction(signal, &action, ptr::null_mut()) == 0
        }
    });
    SIGNAL.store(chosen.unwrap_or(-1), Ordering::Relaxed);
    chosen
}
