//! `prctl` and `syscall` for the program, where they install a filter of system calls.
//!
//! All threads of the runtime end first if the filter would end them ([`filter`]), or if the
//! program gives up all calls but four (`SECCOMP_MODE_STRICT`): [`confine`]. Libraries of the
//! program, such as `libseccomp`, call the same two functions where the process finds them before
//! the C library's, as in the command ([`crate::interposed`]).

use std::arch::asm;
use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::mem::size_of;

use tracing::{debug, warn};

use super::filter::{self, Instruction, LONGEST};
use crate::fork::confine::{confine, end_cycles};

/// `SECCOMP_SET_MODE_STRICT`, an operation of `seccomp`.
const SET_STRICT: u64 = 0;
/// `SECCOMP_SET_MODE_FILTER`.
const SET_FILTER: u64 = 1;
/// `SECCOMP_MODE_STRICT`, a mode of `prctl`.
const MODE_STRICT: u64 = 1;
/// `SECCOMP_MODE_FILTER`.
const MODE_FILTER: u64 = 2;

pub(crate) fn overrides() -> [(&'static str, u64); 1] {
    [("prctl", guest_prctl as *const () as u64)]
}

/// `prctl`.
///
/// # Safety
/// As `prctl`. Arguments may be missing.
pub unsafe extern "C" fn guest_prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    before_prctl(option as u64, a, b);
    let result: c_long;
    // Not the C library's function: its name may refer to this one. SAFETY: the ABI of system
    // calls; the arguments are the caller's.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_prctl => result,
            in("rdi") c_long::from(option),
            in("rsi") a,
            in("rdx") b,
            in("r10") c,
            in("r8") d,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if result >= 0 {
        return result as c_int;
    }
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = -result as c_int };
    -1
}

/// Handles a call of `prctl` before it is made.
pub(super) fn before_prctl(option: u64, mode: u64, program: u64) {
    if option as c_int == libc::PR_SET_TSC && mode == libc::PR_TSC_SIGSEGV as u64 {
        end_cycles();
    }
    if option as c_int != libc::PR_SET_SECCOMP {
        return;
    }
    match mode {
        MODE_STRICT => close(),
        MODE_FILTER => before_filter(program),
        _ => {}
    }
}

/// Handles a call of `seccomp` before it is made.
pub(super) fn before_seccomp(operation: u64, program: u64) {
    match operation {
        SET_STRICT => close(),
        SET_FILTER => before_filter(program),
        _ => {}
    }
}

/// The kernel's `struct sock_fprog`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FilterProgram {
    length: u16,
    instructions: u64,
}

fn before_filter(at: u64) {
    if uruk_base::sandbox::is_closed() {
        return;
    }
    let mut program = [FilterProgram {
        length: 0,
        instructions: 0,
    }];
    if !read(at, &mut program) {
        return;
    }
    let none = Instruction {
        code: 0,
        on_true: 0,
        on_false: 0,
        k: 0,
    };
    let mut instructions = vec![none; usize::from(program[0].length).min(LONGEST)];
    if read(program[0].instructions, &mut instructions) && filter::is_deadly(&instructions) {
        close();
    }
}

fn close() {
    debug!("the program gives up system calls that threads of ours make");
    if let Err(cause) = confine() {
        warn!(%cause, "threads of ours stay under a filter of system calls");
    }
}

/// Fills `to` from the process's memory; false if it cannot be read; the kernel will then return
/// the error.
fn read<T: Copy>(at: u64, to: &mut [T]) -> bool {
    let bytes = size_of_val(to);
    debug_assert!(size_of::<T>() != 0);
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast::<c_void>(),
        iov_len: bytes,
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(at as usize),
        iov_len: bytes,
    };
    // SAFETY: fills values that are valid for any bytes, of types of this file and of `filter`; the
    // kernel checks the source.
    let read = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
    read == bytes as isize
}
