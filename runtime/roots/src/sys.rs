//! System calls without `errno`: usable in a signal handler of any thread, even without thread-locals.
//!
//! A raw call returns what the kernel returned: `-4095..=-1` is an error.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `EINTR`, as the kernel returns it.
pub(crate) const EINTR: i64 = -(libc::EINTR as i64);

/// A system call.
///
/// # Safety
/// 1. The call's effects on memory are valid for the caller.
pub(crate) unsafe fn call(number: i64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the ABI of system calls: rcx and r11 are lost, memory may change; the
    // caller answers for the rest (1).
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The calling thread's id.
pub(crate) fn gettid() -> i32 {
    // SAFETY: no arguments, no effects.
    unsafe { call(libc::SYS_gettid, [0; 6]) as i32 }
}

/// The process's id, read each time: a child of `fork` gets its own.
pub(crate) fn getpid() -> i32 {
    // SAFETY: no arguments, no effects.
    unsafe { call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Whether there is such a thread in the process.
pub(crate) fn exists(pid: i32, tid: i32) -> bool {
    let args = [pid as u64, tid as u64, 0, 0, 0, 0];
    // SAFETY: signal 0 is none.
    unsafe { call(libc::SYS_tgkill, args) == 0 }
}

/// Whether the process has children, including those that `wait` skips. Reaps none.
pub(crate) fn has_children() -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let args = [libc::P_ALL as u64, 0, 0, options as u64, 0, 0];
    // SAFETY: without an address for it nothing is written.
    unsafe { call(libc::SYS_waitid, args) != -i64::from(libc::ECHILD) }
}

/// The part of `siginfo_t` that a signal with a value fills.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    pub(crate) signal: i32,
    pub(crate) errno: i32,
    pub(crate) code: i32,
    pub(crate) pad: i32,
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) value: u64,
    /// Up to the kernel's 128 bytes.
    pub(crate) rest: [u64; 12],
}

const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());

impl Info {
    /// The data of a signal from `pid` with a value.
    pub(crate) fn queued(signal: i32, pid: i32, value: u64) -> Self {
        Self {
            signal,
            errno: 0,
            code: libc::SI_QUEUE,
            pad: 0,
            pid,
            uid: 0,
            value,
            rest: [0; 12],
        }
    }
}

/// Directs a signal with its data at a thread of the process; false: no such thread, or no
/// room in its queue.
pub(crate) fn send(pid: i32, tid: i32, info: &Info) -> bool {
    let info_at = &raw const *info as u64;
    let args = [pid as u64, tid as u64, info.signal as u64, info_at, 0, 0];
    // SAFETY: reads the structure.
    unsafe { call(libc::SYS_rt_tgsigqueueinfo, args) == 0 }
}

/// Takes one pending signal of the set from the calling thread.
pub(crate) fn take(set: u64) -> Option<Info> {
    let mut info = Info::queued(0, 0, 0);
    let none = [0u64; 2];
    let (set_at, info_at) = (&raw const set as u64, &raw mut info as u64);
    let args = [set_at, info_at, none.as_ptr() as u64, 8, 0, 0];
    // SAFETY: reads set and time, writes the structure.
    let signal = unsafe { call(libc::SYS_rt_sigtimedwait, args) };
    (signal > 0).then_some(info)
}

/// A signal's action, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Action {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: u64,
}

impl Action {
    /// Whether it is neither the default nor ignored.
    pub(crate) fn is_handled(&self) -> bool {
        self.handler != libc::SIG_DFL as u64 && self.handler != libc::SIG_IGN as u64
    }
}

/// The kernel's action for a signal; `None`: there is no such signal.
pub(crate) fn action(signal: i32) -> Option<Action> {
    let mut action = Action::default();
    let args = [signal as u64, 0, &raw mut action as u64, 8, 0, 0];
    // SAFETY: only asks; writes the structure.
    let result = unsafe { call(libc::SYS_rt_sigaction, args) };
    (result == 0).then_some(action)
}

/// Blocks exactly these signals on the calling thread; returns those that were blocked.
pub(crate) fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (&raw const mask as u64, &raw mut before as u64);
    let args = [libc::SIG_SETMASK as u64, new, old, 8, 0, 0];
    // SAFETY: reads and writes a word.
    unsafe { call(libc::SYS_rt_sigprocmask, args) };
    before
}

/// Yields the processor.
pub(crate) fn sched_yield() {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Copies words at `from` in the memory of `pid` to `to`; returns the count of whole words copied. Never
/// faults: unreadable memory ends the copy.
pub(crate) fn read_words(pid: i32, from: u64, to: &mut [u64]) -> usize {
    let bytes = (to.len() as u64).wrapping_mul(8);
    let local = [to.as_mut_ptr() as u64, bytes];
    let remote = [from, bytes];
    let read = |task: i64| {
        let (to, from) = (local.as_ptr() as u64, remote.as_ptr() as u64);
        let args = [task as u64, to, 1, from, 1, 0];
        // SAFETY: writes at most `bytes` bytes to `to`; reading is checked by the kernel.
        unsafe { call(libc::SYS_process_vm_readv, args) }
    };
    let mut copied = read(pid.into());
    // The first thread has ended, and stands for no memory any more: the calling one does.
    if copied < 0 && copied != -i64::from(libc::EFAULT) && pid == getpid() {
        // SAFETY: no arguments, no effects.
        copied = read(unsafe { call(libc::SYS_gettid, [0; 6]) });
    }
    usize::try_from(copied).map_or(0, |bytes| bytes / 8)
}

/// The address of the thread's list of robust mutexes, which libc keeps in the thread's
/// control block; 0 if the thread has none there. A program may put another list in its place, which lies
/// anywhere.
pub(crate) fn robust_list(tid: i32) -> u64 {
    /// Offsets of a control block at which it has its own address.
    const SELF: [u64; 2] = [0, 16];
    let list = any_robust_list(tid);
    let Some(offset) = list_offset() else {
        return list;
    };
    let block = list.wrapping_sub(offset);
    // SAFETY: no arguments, no effects.
    let pid = unsafe { call(libc::SYS_getpid, [0; 6]) as i32 };
    let is_self = |offset: u64| {
        let mut word = [0];
        read_words(pid, block.wrapping_add(offset), &mut word) == 1 && word[0] == block
    };
    match list != 0 && SELF.into_iter().all(is_self) {
        true => list,
        false => 0,
    }
}

/// Offset of the list in a control block: the same for all threads. It cannot be determined on a thread
/// that has another list.
fn list_offset() -> Option<u64> {
    /// Bytes of a control block, at most.
    const LARGEST: u64 = 8192;
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a number that is the same on all threads.
    let known = KNOWN.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let offset = any_robust_list(0).wrapping_sub(thread_pointer());
    if offset == 0 || offset > LARGEST {
        return None;
    }
    KNOWN.store(offset, Ordering::Relaxed);
    Some(offset)
}

fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads the word at which the thread's control block has its own address.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, pure, readonly));
    }
    pointer
}

fn any_robust_list(tid: i32) -> u64 {
    let mut head = 0u64;
    let mut len = 0u64;
    let args = [
        tid as u64,
        &raw mut head as u64,
        &raw mut len as u64,
        0,
        0,
        0,
    ];
    // SAFETY: writes the two words.
    let result = unsafe { call(libc::SYS_get_robust_list, args) };
    if result == 0 { head } else { 0 }
}

/// Signals pending for the calling thread or the process.
pub(crate) fn pending() -> u64 {
    let mut set = 0u64;
    let args = [&raw mut set as u64, 8, 0, 0, 0, 0];
    // SAFETY: writes the word.
    unsafe { call(libc::SYS_rt_sigpending, args) };
    set
}

/// Waits while the word is `seen`, at most `nanos`.
pub(crate) fn futex_wait(word: *const u32, seen: u32, nanos: u64) {
    let time = [nanos / 1_000_000_000, nanos % 1_000_000_000];
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    let args = [
        word as u64,
        operation,
        u64::from(seen),
        time.as_ptr() as u64,
        0,
        0,
    ];
    // SAFETY: reads the word (the kernel checks the address) and the time.
    unsafe { call(libc::SYS_futex, args) };
}

/// Wakes `count` waiters of the word.
pub(crate) fn futex_wake(word: *const u32, count: u64) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
    // SAFETY: touches no memory of ours.
    unsafe { call(libc::SYS_futex, [word as u64, operation, count, 0, 0, 0]) };
}

/// `membarrier` with a command.
pub(crate) fn membarrier(command: u64) -> Result<i64, i32> {
    // SAFETY: a barrier touches no memory.
    let result = unsafe { call(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) };
    if result < 0 {
        Err(result.wrapping_neg() as i32)
    } else {
        Ok(result)
    }
}

/// Reads the processors that the calling thread may run on; how many bytes were written.
pub(crate) fn affinity(set: &mut [u64; 32]) -> Result<usize, i32> {
    let args = [0, size_of_val(set) as u64, set.as_mut_ptr() as u64, 0, 0, 0];
    // SAFETY: writes to the set, which is as long as it is said to be.
    let result = unsafe { call(libc::SYS_sched_getaffinity, args) };
    usize::try_from(result).map_err(|_| result.wrapping_neg() as i32)
}

/// Restricts the calling thread to processors of the set.
pub(crate) fn set_affinity(set: &[u64; 32]) -> Result<(), i32> {
    let args = [0, size_of_val(set) as u64, set.as_ptr() as u64, 0, 0, 0];
    // SAFETY: reads the set, which is as long as it is said to be.
    let result = unsafe { call(libc::SYS_sched_setaffinity, args) };
    if result < 0 {
        return Err(result.wrapping_neg() as i32);
    }
    Ok(())
}

/// Whether the C library's clock may be read: it reads the processor's cycle counter. Relaxed: any answer
/// is right until [`end_cycles`] returns.
static CYCLES: AtomicBool = AtomicBool::new(true);

/// Makes handlers of this process ask the kernel for the time: the program is about to forbid the cycle
/// counter (`PR_SET_TSC`).
pub fn end_cycles() {
    CYCLES.store(false, Ordering::Relaxed);
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds the calling thread has run.
pub(crate) fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds that a thread has run; `None` if it does not exist, or the clock is forbidden.
pub(crate) fn processor_ns(tid: i32) -> Option<u64> {
    /// The exact clock of a thread (`CPUCLOCK_PERTHREAD_MASK`, `CPUCLOCK_SCHED`).
    const KIND: u64 = 4 | 2;
    asked_ns((!i64::from(tid) << 3) as u64 | KIND)
}

/// Nanoseconds of a clock, by the kernel.
fn asked_ns(clock: u64) -> Option<u64> {
    let mut time = [0u64; 2];
    let args = [clock, time.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: writes the two words.
    let result = unsafe { call(libc::SYS_clock_gettime, args) };
    (result == 0).then(|| time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1]))
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    if !CYCLES.load(Ordering::Relaxed)
        && let Some(time) = asked_ns(clock as u64)
    {
        return time;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure. The function is async-signal-safe; with these
    // arguments it does not fail, so it leaves `errno` alone.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ffi::c_void;

    use super::{getpid, read_words};

    /// In a child: ends the process with 0 if memory can be read, and the list of mappings.
    extern "C" fn reads(_: *mut c_void) -> *mut c_void {
        let path = format!("/proc/self/task/{}/stat", getpid());
        let is_dead = || uruk_files::read_to_string(&path).is_ok_and(|stat| stat.contains(") Z "));
        while !is_dead() {
            std::thread::yield_now();
        }
        let (word, mut copy) = ([7_u64], [0]);
        let read = read_words(getpid(), word.as_ptr() as u64, &mut copy);
        let unmapped = read_words(getpid(), 8, &mut [0]);
        let maps = uruk_files::read("/proc/thread-self/maps").is_ok_and(|maps| !maps.is_empty());
        let works = (read, copy, unmapped, maps) == (1, word, 0, true);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!works)) }
    }

    #[test]
    fn memory_is_read_after_the_first_thread_has_ended() {
        // SAFETY: the child starts a thread and ends its own; that thread ends the child.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let mut thread = std::mem::zeroed();
                let none = std::ptr::null_mut();
                if libc::pthread_create(&raw mut thread, std::ptr::null(), reads, none) == 0 {
                    libc::syscall(libc::SYS_exit, 0);
                }
                libc::_exit(2);
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        assert_eq!(status, 0);
    }
}
