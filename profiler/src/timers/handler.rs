//! The signal handler of thread timers.
//!
//! It interrupts arbitrary code, so it only reads the signal's data, asks the clock
//! (async-signal-safe, no system call) and pushes into the [`Queue`]: no allocation, no lock, no
//! thread-local, no unwinding, `errno` untouched.
//!
//! # Whose signal The signal is a real-time one without a handler, so `SIGPROF` and `setitimer`
//! stay the program's own. `SI_TIMER` and a mark in the timer's value identify our signals. Other
//! signals are passed on: to the handler that was installed before, or nowhere if the signal was
//! ignored. If the default was in place the process ends by that signal, as it would have without
//! us. Apart from that last case the handler stays installed. A timer's signal may still be pending
//! after the timer was deleted, and the default action would end the process.
//!
//! # No interrupted system call A timer on a thread's CPU clock expires while that thread runs.
//! Since Linux 5.9 the tick only notes the expiry; the signal is sent when the thread next returns
//! to user mode, by itself. At that point no system call is in progress that it could interrupt
//! ([`never_interrupts`] checks the version). `SA_RESTART` alone would not do: `poll` and
//! `nanosleep` return `EINTR` in spite of it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::queue::Queue;
use crate::sample::Sample;
use crate::source::SourceError;
use crate::threads;

/// High half of the value of our timers; the low half is the thread.
const MARK: u64 = 0x7572_756b;

/// Real-time signals below `SIGRTMIN` plus this are left to programs, which count from there.
const LOW_SIGNALS: c_int = 8;

/// Made once and never freed: a signal may arrive after its timer was deleted.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Nanoseconds between two expiries, for the weight of a sample.
static INTERVAL_NS: AtomicU64 = AtomicU64::new(0);

/// The actions installed before ours, by signal; leaked, because a handler may be reading.
static PREVIOUS: [AtomicPtr<libc::sigaction>; 65] = [const { AtomicPtr::new(ptr::null_mut()) }; 65];

/// The part of `siginfo_t` that a timer's signal fills.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TimerInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    pad: c_int,
    timer: c_int,
    overrun: c_int,
    value: u64,
    /// Up to the kernel's 128 bytes.
    rest: [u64; 12],
}

const _: () = assert!(size_of::<TimerInfo>() == size_of::<libc::siginfo_t>());

/// The queue; only the first call's `capacity` has an effect.
pub(super) fn queue(capacity: usize) -> &'static Queue {
    QUEUE.get_or_init(|| Queue::new(capacity))
}

pub(super) fn set_interval(ns: u64) {
    INTERVAL_NS.store(ns, Ordering::Relaxed);
}

/// The value of a thread's timer: the mark and the thread's id.
pub(super) fn mark(tid: i32) -> u64 {
    MARK << 32 | u64::from(tid as u32)
}

/// The signal's data as the kernel would fill it for a timer of the calling thread.
pub(super) fn made_up(signal: c_int, tid: i32) -> TimerInfo {
    TimerInfo {
        signo: signal,
        errno: 0,
        code: libc::SI_TIMER,
        pad: 0,
        timer: 0,
        overrun: 0,
        value: mark(tid),
        rest: [0; 12],
    }
}

/// Whether the kernel sends timer signals from the thread's return to user mode.
pub(super) fn never_interrupts() -> Result<(), SourceError> {
    // SAFETY: an out structure of plain bytes.
    let release = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        name.release
    };
    let text: Vec<u8> = release.iter().map(|&byte| byte as u8).collect();
    let (major, minor) = version(&text);
    if (major, minor) < (5, 9) {
        return Err(SourceError::OldKernel { major, minor });
    }
    Ok(())
}

/// `6.18.44-x` is (6, 18).
fn version(text: &[u8]) -> (u32, u32) {
    let mut numbers = text
        .split(|byte| !byte.is_ascii_digit())
        .map(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let mut number = || numbers.next().flatten().unwrap_or(0);
    (number(), number())
}

/// Installs the handler: for `signal`, or for a real-time signal without a handler. A signal that
/// already has our handler is preferred.
pub(super) fn install(signal: Option<c_int>) -> Result<c_int, SourceError> {
    let free = |&signal: &c_int| matches!(current(signal), Some(action) if action.sa_sigaction == libc::SIG_DFL);
    let signals = || (libc::SIGRTMIN() + LOW_SIGNALS..libc::SIGRTMAX()).rev();
    let signal = signal
        .or_else(|| signals().find(|&signal| is_ours(signal)))
        .or_else(|| signals().find(free))
        .ok_or(SourceError::NoSignal)?;
    if is_ours(signal) {
        return Ok(signal);
    }
    // SAFETY: zero bytes are a valid, empty structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: valid structures; the handler is async-signal-safe. No signal can be ours before a
    // timer is made, which comes after `PREVIOUS` is set; a foreign signal in between gets the
    // default action.
    let result = unsafe {
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(signal, &action, &mut previous)
    };
    if result != 0 {
        return Err(SourceError::Timer {
            tid: 0,
            signal,
            errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        });
    }
    let previous = Box::into_raw(Box::new(previous));
    PREVIOUS[signal as usize].store(previous, Ordering::Release);
    Ok(signal)
}

/// Whether our handler is installed for a signal.
pub(super) fn is_ours(signal: c_int) -> bool {
    let ours = handler as *const () as usize;
    current(signal).is_some_and(|action| action.sa_sigaction == ours)
}

fn current(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: zero bytes are a valid structure, and only read into.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let result = libc::sigaction(signal, ptr::null(), &mut action);
        (result == 0).then_some(action)
    }
}

/// # Safety
/// Called by the kernel, with its own arguments.
unsafe extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own, valid while the handler runs; all bytes are set.
    let timer = unsafe { *info.cast::<TimerInfo>() };
    if timer.code != libc::SI_TIMER || timer.value >> 32 != MARK {
        // SAFETY: our caller's arguments.
        unsafe { pass_on(signal, info, context) };
        return;
    }
    let Some(queue) = QUEUE.get() else {
        return;
    };
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let interval = INTERVAL_NS.load(Ordering::Relaxed);
    let expiries = u64::from(timer.overrun.max(0) as u32) + 1;
    // A full queue counts the samples it drops.
    queue.push(Sample {
        pc: context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64,
        tid: timer.value as i32,
        time: threads::now(),
        weight: interval.saturating_mul(expiries),
    });
}

/// Handles a foreign signal as the action installed before ours would.
///
/// # Safety
/// The arguments are the kernel's.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // Partner: the release store in `install`.
    let previous = PREVIOUS[signal as usize].load(Ordering::Acquire);
    // SAFETY: leaked, never changed.
    let previous = unsafe { previous.as_ref() };
    let target = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    match target {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // SAFETY: async-signal-safe calls. The signal is blocked until we return,
            // and then ends the process.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &action, ptr::null_mut());
                libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
            }
        }
        address => {
            let with_info = previous.is_some_and(|a| a.sa_flags & libc::SA_SIGINFO != 0);
            // SAFETY: the program registered a function of this type at that address
            // for this signal. The two types agree in their first argument, and the
            // calling convention lets a function ignore the others.
            unsafe {
                if with_info {
                    let f: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                        std::mem::transmute(address);
                    f(signal, info, context);
                } else {
                    let f: extern "C" fn(c_int) = std::mem::transmute(address);
                    f(signal);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions() {
        assert_eq!(version(b"6.18.44-fc"), (6, 18));
        assert_eq!(version(b"5.9\0\0"), (5, 9));
        assert_eq!(version(b"4.19.0-1-amd64"), (4, 19));
        assert_eq!(version(b"x"), (0, 0));
        assert_eq!(never_interrupts(), Ok(()));
    }
}
