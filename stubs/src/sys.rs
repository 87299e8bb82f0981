//! The system calls of the guest side, made directly.
//!
//! Not through libc or rustix. A guest thread's `errno` must stay as it is even when a signal
//! handler leaves the wait by `longjmp`, so no function may store it and restore it later. And
//! rustix keeps off `errno` only as long as no crate in the build enables its `use-libc` feature.
//! All functions are async-signal-safe, use no thread-local and no memory but their arguments.

use std::arch::asm;
use std::arch::x86_64::__cpuid;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use uruk_base::sandbox;

/// Bytes of the kernel's signal set.
const SIGSET_BYTES: usize = 8;

/// One system call; returns the kernel's result (`-errno` for errors).
///
/// # Safety
/// 1. The arguments are valid for the system call `number`.
unsafe fn syscall(number: libc::c_long, args: [usize; 4]) -> isize {
    // SAFETY: duty 1; the kernel does not read the other two arguments.
    unsafe { syscall_of_six(number, args, [0; 2]) }
}

/// Like [`syscall`], with two arguments more.
///
/// # Safety
/// 1. As for [`syscall`].
unsafe fn syscall_of_six(number: libc::c_long, args: [usize; 4], more: [usize; 2]) -> isize {
    let result;
    // SAFETY: duty 1; the kernel clobbers rcx, r11 and the flags, preserves all
    // other registers, and does not use the stack.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") more[0],
            in("r9") more[1],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Sleeps while `word` holds `expected`, until woken, for at most `timeout`.
/// May return early for any reason (signals among them).
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let args = [
        word.as_ptr().expose_provenance(),
        operation as usize,
        expected as usize,
        timeout.expose_provenance(),
    ];
    // SAFETY: a word and a timeout (or null) that live for the call; the kernel
    // only reads them.
    unsafe { syscall(libc::SYS_futex, args) };
}

/// Wakes at most `count` waiters of `word`.
pub(crate) fn futex_wake(word: &AtomicU32, count: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let args = [
        word.as_ptr().expose_provenance(),
        operation as usize,
        count as usize,
        0,
    ];
    // SAFETY: the kernel uses the address only as a key.
    unsafe { syscall(libc::SYS_futex, args) };
}

/// Like [`futex_wait`], at some of the `places` that [`futex_wake_at`] chooses from.
pub(crate) fn futex_wait_at(
    word: &AtomicU32,
    expected: u32,
    places: u32,
    timeout: Option<Duration>,
) {
    const SECOND: u64 = 1_000_000_000;
    // This wait takes a time of the monotonic clock, not a duration.
    let until = timeout.map(|timeout| {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let at = monotonic_ns().saturating_add(nanoseconds);
        libc::timespec {
            tv_sec: (at / SECOND) as i64,
            tv_nsec: (at % SECOND) as i64,
        }
    });
    let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let args = [
        word.as_ptr().expose_provenance(),
        operation as usize,
        expected as usize,
        until.expose_provenance(),
    ];
    // SAFETY: as in `futex_wait`; the kernel does not read the fifth.
    unsafe { syscall_of_six(libc::SYS_futex, args, [0, places as usize]) };
}

/// Wakes a waiter of `word` at one of `places`, if there is one.
pub(crate) fn futex_wake_at(word: &AtomicU32, places: u32) -> bool {
    let operation = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let args = [word.as_ptr().expose_provenance(), operation as usize, 1, 0];
    // SAFETY: the kernel uses the address only as a key.
    unsafe { syscall_of_six(libc::SYS_futex, args, [0, places as usize]) > 0 }
}

/// The processor this thread runs on, or just ran on; `None` if it is not known.
///
/// It makes no system call, which a program's filter may forbid: Linux keeps the number, and that
/// of the node above it, in the register that `rdtscp` reads. (The kernel's vDSO may read the limit
/// of a segment instead, which valgrind does not support.)
pub(crate) fn processor() -> Option<u32> {
    const NUMBER: u32 = 0xfff;
    if !tells_processor() {
        return None;
    }
    let aux: u32;
    // SAFETY: the instruction is there; it writes these three registers.
    unsafe {
        asm!(
            "rdtscp",
            out("eax") _,
            out("edx") _,
            out("ecx") aux,
            options(nomem, nostack),
        );
    }
    Some(aux & NUMBER)
}

/// Whether `rdtscp` may be used, by [`tells_processor`].
static KNOWN: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const NO: u32 = 1;
const YES: u32 = 2;

/// Makes this process use `rdtscp` no more, which reads the cycle counter, too: the kernel is asked to
/// forbid that (`PR_SET_TSC`).
pub fn end_cycles() {
    KNOWN.store(NO, Ordering::Relaxed);
}

/// Whether the CPU has `rdtscp`. Asked once: a virtual machine takes microseconds to answer.
fn tells_processor() -> bool {
    // Relaxed: every query gives the same answer.
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            const LEAF: u32 = 0x8000_0001;
            const BIT: u32 = 27;
            let told = __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx >> BIT & 1 != 0;
            KNOWN.store(if told { YES } else { NO }, Ordering::Relaxed);
            told
        }
        known => known == YES,
    }
}

/// Lets another thread run.
pub(crate) fn sched_yield() {
    // SAFETY: has no arguments.
    unsafe { syscall(libc::SYS_sched_yield, [0; 4]) };
}

/// The kernel's id of this thread.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: has no arguments.
    let id = unsafe { syscall(libc::SYS_gettid, [0; 4]) };
    id as u32
}

/// Nanoseconds of the monotonic clock, by libc's only function used here. It reads the clock
/// without a system call. It stores `errno` only if it fails, which it does not for a clock that
/// every Linux has.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live place for the result; safe in a signal handler (POSIX).
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Writes to standard error, as much as fits in one call.
pub(crate) fn write_error(text: &[u8]) {
    let args = [2, text.as_ptr().expose_provenance(), text.len(), 0];
    // SAFETY: the kernel reads `len` bytes of a live slice.
    unsafe { syscall(libc::SYS_write, args) };
}

/// Ends the process at once.
pub(crate) fn exit(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0]) };
    }
}

/// Evidence that all signals are blocked on this thread; [`SignalsBlocked::end`] restores the former
/// mask.
///
/// For steps that another waiter of the *same thread*, a signal handler, could wait for, or that a
/// handler must not abandon by `longjmp`. Not restored by a destructor: the guest's functions have
/// none ([`crate::guest`]).
///
/// Nothing is blocked once a sandbox is closed ([`sandbox`]): no other thread serves requests, and
/// the call may be forbidden.
#[must_use = "signals stay blocked until `end`"]
pub(crate) struct SignalsBlocked {
    before: Option<u64>,
}

impl SignalsBlocked {
    pub(crate) fn new() -> SignalsBlocked {
        let before = (!sandbox::is_closed()).then(|| {
            let mut before = 0;
            set_mask(u64::MAX, Some(&mut before));
            before
        });
        SignalsBlocked { before }
    }

    pub(crate) fn end(self) {
        if let Some(before) = self.before {
            set_mask(before, None);
        }
    }
}

fn set_mask(mask: u64, before: Option<&mut u64>) {
    let before = before.map_or(ptr::null_mut(), ptr::from_mut);
    let args = [
        libc::SIG_SETMASK as usize,
        ptr::from_ref(&mask).expose_provenance(),
        before.expose_provenance(),
        SIGSET_BYTES,
    ];
    // SAFETY: two live words of the size that is given, or null for the second.
    unsafe { syscall(libc::SYS_rt_sigprocmask, args) };
}
