//! `_Fork`, `clone` and `syscall` for the program: their child is made while no thread compiles, as
//! for `fork`, and can continue (`fork::unseen`).
//!
//! A child that shares its parent's memory while the parent waits (`CLONE_VFORK`), and a thread,
//! need no handling.
//!
//! JIT'd code is linked with them. Native code reaches them where the process finds them before the
//! C library's: in a library that is loaded first, which exports them under those names
//! ([`crate::interposed`]). So the C library's own are looked up by [`NextDefinition`], not by
//! name.

use std::arch::{asm, naked_asm};
use std::ffi::{c_int, c_long, c_void};
use std::mem::{ManuallyDrop, size_of_val};

use super::library::NextDefinition;
use super::sandbox;
use crate::fork::threads;
use crate::fork::unseen::{self, OthersExcluded};

static FORK: NextDefinition = NextDefinition::new(c"_Fork");
static CLONE: NextDefinition = NextDefinition::new(c"clone");

/// Looks the functions up by [`NextDefinition`] in advance, before the program runs, when no lock
/// matters.
pub(crate) fn prepare() {
    FORK.address();
    CLONE.address();
}

type ChildFunction = extern "C-unwind" fn(*mut c_void) -> c_int;

/// The start data of [`guest_clone`]'s child, on its own copy of the parent's stack.
struct ChildStart {
    run: ChildFunction,
    argument: *mut c_void,
    held: ManuallyDrop<OthersExcluded>,
}

/// Like `libc::clone`, with a function that may unwind.
type Clone = unsafe extern "C-unwind" fn(
    run: Option<ChildFunction>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut libc::pid_t,
    tls: *mut c_void,
    child: *mut libc::pid_t,
) -> c_int;

pub(crate) fn overrides() -> [(&'static str, u64); 4] {
    prepare();
    [
        ("_Fork", guest_quiet_fork as *const () as u64),
        ("clone", guest_clone as *const () as u64),
        ("__clone", guest_clone as *const () as u64),
        ("syscall", guest_syscall as *const () as u64),
    ]
}

/// `_Fork`. It fails with `ENOSYS` before version 2.34 of the C library, which lacks it.
pub extern "C" fn guest_quiet_fork() -> libc::pid_t {
    // SAFETY: the C library's function has this type, and null is none.
    let fork = unsafe {
        std::mem::transmute::<usize, Option<unsafe extern "C" fn() -> libc::pid_t>>(FORK.address())
    };
    let Some(fork) = fork else {
        return missing();
    };
    let _held = unseen::hold();
    // SAFETY: as `fork`, without its handlers.
    unsafe { fork() }
}

/// Result of a function that the C library lacks.
fn missing() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Whether a process made with `flags` has a copy of the memory, and this thread's thread-locals.
fn copies(flags: u64) -> bool {
    flags & (libc::CLONE_VM | libc::CLONE_SETTLS) as u64 == 0
}

/// Notes a child without a copy of the memory.
fn note(flags: u64) {
    let known = (libc::CLONE_VFORK | libc::CLONE_THREAD) as u64;
    if flags & libc::CLONE_VM as u64 != 0 && flags & known == 0 {
        unseen::note_sharing();
    }
}

/// `clone`.
///
/// # Safety
/// As `clone`. The last three arguments may be missing.
pub unsafe extern "C-unwind" fn guest_clone(
    run: Option<ChildFunction>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut libc::pid_t,
    tls: *mut c_void,
    child: *mut libc::pid_t,
) -> c_int {
    // SAFETY: the C library's function has this type, and null is none.
    let clone = unsafe { std::mem::transmute::<usize, Option<Clone>>(CLONE.address()) };
    let Some(clone) = clone else {
        return missing();
    };
    let Some(run) = run.filter(|_| copies(flags as u64)) else {
        note(flags as u64);
        // SAFETY: the caller's.
        return unsafe { clone(run, stack, flags, argument, parent, tls, child) };
    };
    let mut start = ChildStart {
        run,
        argument,
        held: ManuallyDrop::new(unseen::hold()),
    };
    let record = (&raw mut start).cast();
    // SAFETY: the caller's; the child has a copy of the record.
    let made = unsafe { clone(Some(begin), stack, flags, record, parent, tls, child) };
    // SAFETY: this side's, dropped here only.
    unsafe { ManuallyDrop::drop(&mut start.held) };
    made
}

extern "C-unwind" fn begin(start: *mut c_void) -> c_int {
    // SAFETY: the child's own copy of the record that `guest_clone` made.
    let ChildStart {
        run,
        argument,
        held,
    } = unsafe { start.cast::<ChildStart>().read() };
    drop(ManuallyDrop::into_inner(held));
    let status = run(argument);
    // The C library continues with the system call.
    threads::note_exit(status);
    status
}

/// `syscall`: calls that copy the process, end its main thread, or install a filter of system calls
/// are handled first. All others continue in `uruk_roots`, which knows their numbers when a scan
/// interrupts them, with registers and stack unchanged.
///
/// # Safety
/// As `syscall`.
#[unsafe(naked)]
pub unsafe extern "C" fn guest_syscall() {
    naked_asm!(
        "cmp rdi, {fork}",
        "je 2f",
        "cmp rdi, {clone}",
        "je 2f",
        "cmp rdi, {clone3}",
        "je 2f",
        "cmp rdi, {exit}",
        "je 2f",
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "3:",
        "jmp {syscall}",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        // Six words and the return address: one more for the alignment of calls.
        "sub rsp, 8",
        "call {copies}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test al, al",
        "je 3b",
        "jmp {copy}",
        fork = const libc::SYS_fork,
        clone = const libc::SYS_clone,
        clone3 = const libc::SYS_clone3,
        exit = const libc::SYS_exit,
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        syscall = sym uruk_roots::program_syscall,
        copies = sym call_copies,
        copy = sym copy_process,
    )
}

/// Whether [`copy_process`] must make the call. Not for a child that continues on another stack:
/// its caller handles that, and does not expect frames of the runtime.
extern "C" fn call_copies(number: c_long, first: u64, second: u64, third: u64) -> bool {
    let (flags, stack) = match number {
        libc::SYS_fork => return true,
        libc::SYS_exit => {
            threads::note_exit(first as c_int);
            return false;
        }
        libc::SYS_seccomp => {
            sandbox::before_seccomp(first, third);
            return false;
        }
        libc::SYS_prctl => {
            sandbox::before_prctl(first, second, third);
            return false;
        }
        libc::SYS_clone => (first, second),
        _ => match clone_arguments(first, second) {
            Some(found) => found,
            None => return false,
        },
    };
    note(flags);
    copies(flags) && stack == 0
}

/// Flags and stack of `clone3`, if they can be read: else the kernel returns the error.
fn clone_arguments(at: u64, size: u64) -> Option<(u64, u64)> {
    // No thread of the runtime is left that a copy could miss, and the call below may be forbidden.
    if uruk_base::sandbox::is_closed() {
        return None;
    }
    let mut words = [0u64; 8];
    if size < size_of_val(&words) as u64 {
        return None;
    }
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(at as usize),
        ..local
    };
    // SAFETY: fills the words; the kernel checks the source.
    let read = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
    (read == size_of_val(&words) as isize).then_some((words[0], words[5]))
}

/// Makes a call that copies the process, on this stack.
///
/// # Safety
/// As that call.
unsafe extern "C" fn copy_process(
    number: c_long,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
) -> c_long {
    let held = unseen::hold();
    let result: c_long;
    // SAFETY: the ABI of system calls; the child continues with a copy of this state.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    drop(held);
    if result >= 0 {
        return result;
    }
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = -result as c_int };
    -1
}
